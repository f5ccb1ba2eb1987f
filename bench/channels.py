"""channels.py SIMNIC CHANNEL_ROUNDS QUEUE_ROUNDS PERF [--check]: what a message over a channel costs, in instructions of the
application's thread and in WQEs, on simnic with the direct mlx5 driver; beside it two ibv_post_send of one WRITE with immediate
each, by libmlx5. And GB/s over one rail and over two, in one run, which on simnic says what its two device threads can copy.

Prints JSON; with --check, TAP: the limits below, as far as a minute of callgrind can tell."""
import json
import os
import subprocess
import sys

import counting

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
from checks import figures

simnic, channel_rounds, queue_rounds, perf = (os.path.abspath(path) for path in sys.argv[1:5])
check = "--check" in sys.argv
DEVICE = os.environ.get("TEST_DEVICE", "mlx5_0")
FEW, MANY = (2, 12) if check else (4, 36)
PARTS = {"send": "bench_post_send", "sender_poll": "bench_sender_poll", "receive": "bench_post_receive", "receiver_poll": "bench_receiver_poll"}


def message(size, group, share, batch, parts=("send", "sender_poll", "receive", "receiver_poll")):
    """Instructions a message, part by part."""
    command = [channel_rounds, str(size), str(group), str(share), str(batch), None]
    few, many = (8 * FEW, 8 * MANY) if batch == 1 else (FEW, MANY)
    costs = {part: counting.each(simnic, command, PARTS[part], few, many, batch) for part in parts if part != "send"}
    if "send" in parts:
        costs["send"] = counting.usual(simnic, command, PARTS.values(), many, batch)[0]
    return {part: round(costs[part], 1) for part in parts}


def counters(size, group, share, batch):
    command = [simnic, "run", "--private", "--", channel_rounds, str(size), str(group), str(share), str(batch), "20"]
    return json.loads(counting.patient(command))


def two_writes():
    """By libmlx5, 32 pairs a round."""
    parts = {"send": "bench_pair_post", "sender_poll": "bench_pair_send_poll", "receiver_poll": "bench_pair_receive_poll"}
    costs = counting.usual(simnic, [queue_rounds, "pair", DEVICE, None], parts.values(), 24, 32)
    return {part: round(cost, 1) for part, cost in zip(parts, costs, strict=True)}


def empty_poll(channels):
    return counting.each(simnic, [channel_rounds, "empty", str(channels), None], "bench_empty_poll", 500, 1500, 1)


def rate(*options):
    script = """"$0" server --channels 127.0.0.1:7472 > /dev/null & server=$!; sleep 1
                "$0" client --channels 127.0.0.1:7472 --json -s 1M -t 2 "$@"; kill $server; wait"""
    done = subprocess.run([simnic, "run", "--private", "--", "sh", "-c", script, perf, *options], capture_output=True, text=True,
                          check=True)
    result = json.loads(done.stdout)
    return {"GB_per_second": round(result["bytes_per_second"] / 1e9, 3), "rail0_share": result["rail0_share"],
            "rails": [round(rail["bytes_per_second"] / 1e9, 3) for rail in result["rails"]]}


LARGE, SHORT = 1024, 512  # channel_rounds.c stripes from 1024 bytes on
SENDING = ("send",) if check else tuple(PARTS)
BATCHES = (16,) if check else (1, 16)
pair = two_writes()
counting.libc.clear()  # what libmlx5 called is not ours
result = {
    "where": "simnic", "driver": "mlx5",
    "two_ibv_post_send": pair,
    "two_rails": {str(batch): message(LARGE, 1, 512, batch, SENDING) for batch in BATCHES},
    "counters_two_rails": counters(LARGE, 1, 512, 16), "counters_one_rail": counters(SHORT, 1, 512, 16),
    "counters_group_of_4": counters(LARGE, 4, 512, 16),
}
result["ratio_to_two_ibv_post_send"] = {batch: round(costs["send"] / pair["send"], 3) for batch, costs in result["two_rails"].items()}
if not check:
    result["one_rail"] = {str(batch): message(SHORT, 1, 512, batch) for batch in BATCHES}
    result["empty_poll"] = {str(channels): empty_poll(channels) for channels in (1, 16, 64)}
    result["measured_split"] = message(LARGE, 1, "measured", 16)
    result["group_of_4"] = message(LARGE, 4, 512, 16)
    result["rate_one_rail"] = rate("--one-rail")
    result["rate_two_rails"] = rate()
    print(json.dumps(result, indent=2))
    sys.exit(0)

ratio = result["ratio_to_two_ibv_post_send"]
wqes = {name: result["counters_" + name] for name in ("one_rail", "two_rails", "group_of_4")}
checks = [
    ("posting 16 messages over two rails takes at most 1.5 times the instructions of as many ibv_post_send",
     ratio["16"] <= 1.5, "%s and %s" % (result["two_rails"]["16"], pair)),
    ("a message is one WQE over one rail and two over two", wqes["one_rail"]["sender"]["data_wqes"] == 1 and
     wqes["two_rails"]["sender"]["data_wqes"] == 2, json.dumps(wqes)),
    ("a group of 4 is 8 WQEs over two rails and one for its record", wqes["group_of_4"]["sender"]["data_wqes"] == 9, json.dumps(wqes)),
    ("a message is one clear-to-send over each rail", all(found["receiver"]["clear_to_send_wqes"] == 2 for found in wqes.values()),
     json.dumps(wqes)),
    ("16 messages cost the sender a doorbell a rail", wqes["two_rails"]["sender"]["doorbells"] * 16 == 2, json.dumps(wqes)),
    ("no control is sent while messages flow", all(side["control_wqes"] == 0 for found in wqes.values() for side in found.values()),
     json.dumps(wqes)),
    ("sending calls nothing of libc but copies and the clock: no allocation, no system call",
     all(name.startswith(("mem", "__mem", "clock_gettime")) for name in counting.libc), json.dumps(sorted(counting.libc))),
]
sys.exit(figures(checks))
