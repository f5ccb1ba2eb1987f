"""connections.py SIMNIC CONNECTIONS [--count N] [--ring BYTES] [--window BATCHES] [--check]: what many connections of one process cost, on
simnic: memory and mappings of an idle endpoint, connects a second, and what a call costs alone, beside idle connections, and with all at work.

Both sides are in one process, so each connection is two endpoints, and a figure for an endpoint is half of what a connection takes. A process
has at most vm.max_map_count mappings (65,530), of which an endpoint takes two: 10,000 connections take 42,700.

Prints JSON; with --check, TAP: the limits below, of what does not depend on how fast the machine is."""
import argparse
import json
import os
import subprocess
import sys
from typing import Any

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
from checks import figures

DEVICE = os.environ.get("TEST_DEVICE", "mlx5_0")
ADDRESS = os.environ.get("TEST_ADDRESS", "127.0.0.1")
CHECK_COUNT = 200
KIB = 1024
# Of an idle endpoint, by how it was connected: what was measured is 46,700 and 48,500. What one takes that has made calls depends on when its
# device was looked at, by up to 2,000 bytes.
BYTES_MAX = {"blobs": 48100, "rdma_cm": 48 * KIB}
MAPPINGS_MAX = 2.21  # two rings, and what slabs and arenas of malloc add; 3 % above what was measured

parser = argparse.ArgumentParser()
parser.add_argument("simnic")
parser.add_argument("connections")
parser.add_argument("--count", type=int, default=10000)
parser.add_argument("--ring", type=int, default=0, help="0: the library's default, of which an idle one has 8 KiB")
parser.add_argument("--window", type=int, default=0, help="batch_window; 0: the library's default, of which an idle one has 2 to 8")
parser.add_argument("--initiators", type=int, default=16, help="of each context, where endpoints connect by DC")
parser.add_argument("--check", action="store_true")
arguments = parser.parse_args()


def connections(how: str, count: int, ring: int, rounds: int, initiators: int = 0) -> dict[str, Any]:
    command = [arguments.simnic, "run", "--private", "--", arguments.connections, DEVICE, ADDRESS, how, str(count), str(ring),
               str(arguments.window), str(rounds)]
    environment = dict(os.environ, **({"INITIATORS": str(initiators)} if initiators else {}))
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout)
    return found


def with_ratios(found: dict[str, Any]) -> dict[str, Any]:
    """Of times of one run: of the clock, in which the device's thread has its part, and in the library."""
    found["ratio_to_alone"] = {name: {clock: round(found[name][clock] / found["alone"][clock], 2) for clock in ("ns", "library_ns")}
                               for name in ("one_of_all", "all")}
    return found


if not arguments.check:
    print(json.dumps({"where": "simnic", "ring_bytes": arguments.ring, "batch_window": arguments.window,
                      "blobs": with_ratios(connections("blobs", arguments.count, arguments.ring, 9)),
                      "rdma_cm": connections("rdma_cm", arguments.count, arguments.ring, 0),
                      "dc": with_ratios(connections("blobs", arguments.count, arguments.ring, 9, arguments.initiators))}, indent=2))
    raise SystemExit

results = []
for how, most in BYTES_MAX.items():
    idle = connections(how, CHECK_COUNT, 0, 0)["idle_endpoint"]
    results.append(("by %s, an idle endpoint takes at most %d bytes" % (how, most), idle["bytes"] <= most,
                    "%d bytes: %s" % (idle["bytes"], json.dumps(idle))))
    results.append(("by %s, an idle endpoint takes at most %s mappings" % (how, MAPPINGS_MAX), idle["mappings"] <= MAPPINGS_MAX,
                    "%s mappings" % idle["mappings"]))
sys.exit(figures(results))
