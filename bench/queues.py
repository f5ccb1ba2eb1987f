"""queues.py SIMNIC WORK_ROUNDS [--check]: what ops of queues with user data cost, in instructions of the application's thread on simnic,
beside libmlx5's.

Prints JSON; with --check, TAP: the limits below."""
import json
import os
import sys

import counting

simnic, work_rounds = (os.path.abspath(path) for path in sys.argv[1:3])
check = "--check" in sys.argv
DEVICE = os.environ.get("TEST_DEVICE", "mlx5_0")


def cost(kind, opcode):
    """Instructions an op, posted and completed in batches of 64. As most batches took: a doorbell that traps counts differently."""
    command = [work_rounds, kind, opcode, DEVICE, None]
    name = "direct" if kind == "direct" else "libmlx5"
    found = {part: round(counting.usual(simnic, command, "bench_%s_%s" % (name, part), 24, 64), 1) for part in ("post", "poll")}
    return dict(found, total=round(sum(found.values()), 1))


kinds = ("libmlx5_each", "direct") if check else ("libmlx5", "libmlx5_each", "direct")
result = {opcode: {kind: cost(kind, opcode) for kind in kinds} for opcode in ("write", "send", "read")}
ratios = {opcode: round(found["direct"]["total"] / found["libmlx5_each"]["total"], 3) for opcode, found in result.items()}
if not check:
    print(json.dumps(dict(result, ratio_to_libmlx5=ratios), indent=2))
    sys.exit(0)
print("1..%d" % len(ratios))
for number, (opcode, ratio) in enumerate(ratios.items(), 1):
    print("%s %d - 64 %ss at once take at most half of libmlx5's instructions, which signals each to report it\n# %s: %s" %
          ("ok" if ratio <= 0.5 else "not ok", number, opcode.upper(), ratio, json.dumps(result[opcode])))
sys.exit(0 if all(ratio <= 0.5 for ratio in ratios.values()) else 1)
