"""queues.py SIMNIC WORK_ROUNDS SUBMIT_ROUNDS [--check]: what ops of queues with user data cost, in instructions of the application's thread
on simnic, beside libmlx5's: by the driver alone (direct), and by crpc_queue_submit and crpc_poll (api); and those of a lane, by
crpc_lane_submit.

Prints JSON; with --check, TAP: the limits below."""
import json
import os
import sys

import counting

simnic, work_rounds, submit_rounds = (os.path.abspath(path) for path in sys.argv[1:4])
check = "--check" in sys.argv
DEVICE = os.environ.get("TEST_DEVICE", "mlx5_0")
RATIO_MAX = {"dc_streams": 0.7}  # of libmlx5's instructions; of streams, each op has a CQE with us, too
RATIO_MAX_ELSE = 0.5
LANE_RATIO_MAX = 1.15  # the same, of a WRITE of a lane: it has a grant and an endpoint's order


def cost(kind, opcode):
    """Instructions an op, posted and completed in batches of 64."""
    command = [submit_rounds, opcode, DEVICE, None] if kind == "api" else [work_rounds, kind, opcode, DEVICE, None]
    name = kind.partition("_")[0]
    post = "post_to" if kind == "direct" and opcode in ("datagram", "dc", "dc_streams") else "post"
    return post_and_poll(command, "bench_%s_%s" % (name, post), "bench_%s_poll" % name)


def lane_cost(operation):
    return post_and_poll([submit_rounds, "lane_" + operation, DEVICE, None], "bench_lane_post", "bench_api_poll")


def post_and_poll(command, *functions):
    post, poll = (round(cost, 1) for cost in counting.usual(simnic, command, functions, 24, 64))
    return {"post": post, "poll": poll, "total": round(post + poll, 1)}


kinds = ("libmlx5_each", "direct", "api") if check else ("libmlx5", "libmlx5_each", "direct", "api")
opcodes = ("write", "send", "read", "datagram", "dc", "dc_streams")
result = {opcode: {kind: cost(kind, opcode) for kind in kinds} for opcode in opcodes}
ratios = {opcode: {kind: round(found[kind]["total"] / found["libmlx5_each"]["total"], 3) for kind in ("direct", "api")}
          for opcode, found in result.items()}
if not check:
    result["write_region"] = {"api": cost("api", "write_region")}
    result["lane"] = {operation: lane_cost(operation) for operation in ("write", "read", "pieces")}
    result["datagram_each"] = {"api": cost("api", "datagram_each")}
    last = {opcode: round(result[opcode]["api"]["total"] / result[opcode]["libmlx5"]["total"], 3) for opcode in ratios}
    print(json.dumps(dict(result, ratio_to_libmlx5=ratios, ratio_of_api_to_last_one_signaled=last), indent=2))
    sys.exit(0)
checks = [(kind, opcode) for kind in ("direct", "api") for opcode in ratios]
print("1..%d" % (len(checks) + 1))
for number, (kind, opcode) in enumerate(checks, 1):
    ratio = ratios[opcode][kind]
    most = RATIO_MAX.get(opcode, RATIO_MAX_ELSE)
    print("%s %d - %s: 64 %ss at once take at most %s of libmlx5's instructions, which signals each to report it\n# %s: %s" %
          ("ok" if ratio <= most else "not ok", number, kind, opcode.upper(), most, ratio, json.dumps(result[opcode])))
lane = lane_cost("write")
lane_ratio = round(lane["total"] / result["write"]["libmlx5_each"]["total"], 3)
print("%s %d - lane: 64 WRITEs at once take hardly more than libmlx5's\n# %s: %s" %
      ("ok" if lane_ratio <= LANE_RATIO_MAX else "not ok", len(checks) + 1, lane_ratio, json.dumps(lane)))
good = all(ratios[opcode][kind] <= RATIO_MAX.get(opcode, RATIO_MAX_ELSE) for kind, opcode in checks)
sys.exit(0 if good and lane_ratio <= LANE_RATIO_MAX else 1)
