"""queues.py SIMNIC WORK_ROUNDS SUBMIT_ROUNDS [--check]: what ops of queues with user data cost, in instructions of the application's thread
on simnic, beside libmlx5's: by the driver alone (direct), and by crpc_queue_submit and crpc_poll (api); and those of a lane, by
crpc_lane_submit.

Prints JSON; with --check, TAP: the limits below."""
import json
import os
import sys

import counting
from counting import at_most

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
from checks import figures

simnic, work_rounds, submit_rounds = (os.path.abspath(path) for path in sys.argv[1:4])
check = "--check" in sys.argv
DEVICE = os.environ.get("TEST_DEVICE", "mlx5_0")
RATIO_MAX = {"dc_streams": 0.7}  # of libmlx5's instructions; of streams, each op has a CQE with us, too
RATIO_MAX_ELSE = 0.5
LANE_RATIO_MAX = 1.15  # the same, of a WRITE of a lane: it has a grant and an endpoint's order


def functions(kind, opcode):
    """What posts and what polls. None is the beginning of another's name, which callgrind would not find then."""
    if kind == "api":
        return "bench_lane_post" if opcode.startswith("lane_") else "bench_api_post", "bench_api_poll"
    name = kind.partition("_")[0]
    post = "targets" if kind == "direct" and opcode in ("datagram", "dc", "dc_streams") else "post"
    return "bench_%s_%s" % (name, post), "bench_%s_poll" % name


def cost(post, poll):
    """Instructions an op, posted and completed in batches of 64."""
    return {"post": round(post, 1), "poll": round(poll, 1), "total": round(round(post, 1) + round(poll, 1), 1)}


def api_cost(opcode):
    """A start for each: if one of its rounds lands too late, it begins anew."""
    return cost(*counting.usual(simnic, [submit_rounds, opcode, DEVICE, None], functions("api", opcode), 24, 64))


kinds = ("libmlx5_each", "direct", "api") if check else ("libmlx5", "libmlx5_each", "direct", "api")
opcodes = ("write", "send", "read", "datagram", "dc", "dc_streams")
lanes = ("write",) if check else ("write", "read", "pieces")
shapes = [(kind, opcode) for kind in kinds[:-1] for opcode in opcodes]
counted = counting.usual_in_turn(simnic, [work_rounds, ",".join(kinds[:-1]), ",".join(opcodes), DEVICE, None],
                                 [functions(*shape) for shape in shapes], 24, 64)
found = {shape: cost(*costs) for shape, costs in zip(shapes, counted, strict=True)}
by_api = opcodes + tuple("lane_" + operation for operation in lanes) + (() if check else ("write_region", "datagram_each"))
found.update({("api", opcode): api_cost(opcode) for opcode in by_api})
result = {opcode: {kind: found[kind, opcode] for kind in kinds} for opcode in opcodes}
ratios = {opcode: {kind: round(by_kind[kind]["total"] / by_kind["libmlx5_each"]["total"], 3) for kind in ("direct", "api")}
          for opcode, by_kind in result.items()}
if not check:
    result["write_region"] = {"api": found["api", "write_region"]}
    result["lane"] = {operation: found["api", "lane_" + operation] for operation in lanes}
    result["datagram_each"] = {"api": found["api", "datagram_each"]}
    last = {opcode: round(result[opcode]["api"]["total"] / result[opcode]["libmlx5"]["total"], 3) for opcode in ratios}
    print(json.dumps(dict(result, ratio_to_libmlx5=ratios, ratio_of_api_to_last_one_signaled=last), indent=2))
    sys.exit(0)
results = []
for kind in ("direct", "api"):
    for opcode in ratios:
        ratio, most = ratios[opcode][kind], at_most(RATIO_MAX.get(opcode, RATIO_MAX_ELSE))
        results.append((f"{kind}: 64 {opcode.upper()}s at once take at most {most} of libmlx5's instructions, which signals each to report it", ratio <= most,
                        f"{ratio}: {json.dumps(result[opcode])}"))
lane = found["api", "lane_write"]
lane_ratio = round(lane["total"] / result["write"]["libmlx5_each"]["total"], 3)
results.append(("lane: 64 WRITEs at once take hardly more than libmlx5's", lane_ratio <= at_most(LANE_RATIO_MAX), f"{lane_ratio}: {json.dumps(lane)}"))
sys.exit(figures(results))
