"""instructions.py SIMNIC RPC_ROUNDS QUEUE_ROUNDS [--check]: what the direct mlx5 path costs, in instructions of the application's
thread, on simnic.

Counted by callgrind as the difference of two runs, so that opening and warming up cancel out; what the virtual device does in
the program's own thread (its doorbells trap) is left out, by object. Prints JSON; with --check, TAP: the limits of issue 4."""
import json
import os
import re
import subprocess
import sys
import tempfile

simnic, rpc_rounds, queue_rounds = (os.path.abspath(path) for path in sys.argv[1:4])
check = "--check" in sys.argv
DEVICE = os.environ.get("TEST_DEVICE", "mlx5_0")
NOT_OURS = ("libsimnic", "ld-linux", "vgpreload")


def self_cost(path):
    """Instructions by object, without what the device's library took."""
    names, total, current, calling = {}, 0, "", False
    for line in open(path):
        match = re.match(r"ob=\((\d+)\)(?: (.*))?$", line)
        if match:
            if match.group(2):
                names[match.group(1)] = match.group(2)
            current = names[match.group(1)]
        elif line.startswith("calls="):
            calling = True  # the next line is the cost of the callee, which is listed by itself
        elif re.match(r"[+\-*\d]", line):
            fields = line.split()
            if not calling and len(fields) > 1 and not any(name in current for name in NOT_OURS):
                total += int(fields[1])
            calling = False
        else:
            match = re.match(r"cob=\((\d+)\) (.*)$", line)
            if match:
                names[match.group(1)] = match.group(2)
    return total


def run(command, function):
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "out")
        subprocess.run([simnic, "run", "--session", "instructions", "--", "env", "LD_BIND_NOW=1", "valgrind", "-q",
                        # a doorbell that traps is made by a signal handler, which needs the registers
                        "--px-default=allregs-at-mem-access", "--px-file-backed=allregs-at-mem-access",
                        "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=" + function,
                        "--callgrind-out-file=" + out] + command, stdout=subprocess.PIPE, check=True)
        return self_cost(out)


def each(command, function, few, many, units):
    """Instructions of the function a unit, a round being `units`."""
    counts = [run([str(rounds) if word is None else word for word in command], function) for rounds in (few, many)]
    return (counts[1] - counts[0]) / ((many - few) * units)


PARTS = {"submit": "bench_submit", "server_poll": "bench_server_poll", "reply": "bench_reply", "client_poll": "bench_client_poll"}
QUEUE = ("post", "poll", "refill")


def rpc(calls):
    command = [rpc_rounds, DEVICE, str(calls), None]
    parts = {part: round(each(command, function, 4, 24, calls), 1) for part, function in PARTS.items()}
    return dict(parts, total=round(sum(parts.values()), 1))


def counters(calls):
    done = subprocess.run([simnic, "run", "--session", "instructions", "--", rpc_rounds, DEVICE, str(calls), "100"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def queue(kind):
    parts = {part: round(each([queue_rounds, kind, DEVICE, None], "bench_%s_%s" % (kind, part), 4, 24, 64), 1) for part in QUEUE}
    return dict(parts, total=round(sum(parts.values()), 1))


result = {"where": "simnic", "bytes": 32,
          "write_with_immediate_batches_of_64": {kind: queue(kind) for kind in ("libmlx5", "direct")},
          "rpc_depth_256": rpc(256), "rpc_counters_depth_256": counters(256), "rpc_counters_depth_64": counters(64),
          "rpc_counters_depth_1": counters(1),
          "empty_poll": {str(count): each([queue_rounds, "empty", DEVICE, None, str(count)], "bench_empty_poll", 1000, 3000, 1)
                         for count in (2, 256, 4096)}}
writes = result["write_with_immediate_batches_of_64"]
result["ratio_to_libmlx5"] = round(writes["direct"]["total"] / writes["libmlx5"]["total"], 3)
if not check:
    print(json.dumps(result, indent=2))
    sys.exit(0)

empty = result["empty_poll"]
checks = [
    ("posting and completing takes at most a third of libmlx5's instructions", result["ratio_to_libmlx5"] <= 1 / 3,
     "%.1f and %.1f" % (writes["direct"]["total"], writes["libmlx5"]["total"])),
    ("a 32-byte RPC at depth 256 takes at most 500 instructions, both sides together", result["rpc_depth_256"]["total"] <= 500,
     json.dumps(result["rpc_depth_256"])),
    ("64 calls at depth 64 cost at most 2 doorbells a side",
     all(64 * result["rpc_counters_depth_64"][side]["doorbells"] <= 2 for side in ("client", "server")),
     json.dumps(result["rpc_counters_depth_64"])),
    ("an empty poll costs the same with 4096 queue pairs as with 2", empty["4096"] <= 1.01 * empty["2"], json.dumps(empty)),
]
print("1..%d" % len(checks))
for number, (name, good, figure) in enumerate(checks, 1):
    print("%s %d - %s\n# %s" % ("ok" if good else "not ok", number, name, figure))
sys.exit(0 if all(good for _, good, _ in checks) else 1)
