"""engine_bench.py COUNT_ROUNDS [--check]: what the engine costs on the in-memory NIC, and that idle endpoints cost nothing.

Instructions are counted by callgrind, without opening and warming up. They are stable; times are given as ratios to the smallest case of
the same run. Prints JSON; with --check, TAP."""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from checks import figures

program = sys.argv[1]
check = "--check" in sys.argv
ROUNDS, POLLS_A_ROUND = 40, 50  # as in count_rounds.c
ENDPOINTS = (1, 1024) if check else (1, 16, 256, 1024)
PARTS = {"client_submit": "engine_pair_submit", "server_poll": "engine_pair_server_poll",
         "server_reply": "engine_pair_reply", "client_poll": "engine_pair_client_poll"}


def times(endpoints, rounds, what):
    return json.loads(subprocess.run([program, str(endpoints), str(rounds), what], capture_output=True, text=True,
                                     check=True).stdout)


def instructions(endpoints, functions):
    """All instructions of the functions and what they call: an empty poll's, and an RPC's."""
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "out")
        subprocess.run(["valgrind", "-q", "--tool=callgrind", "--collect-atstart=no",
                        *("--toggle-collect=" + function for function in functions), "--dump-after=count_rounds_part",
                        "--callgrind-out-file=" + out, program, str(endpoints), str(ROUNDS), "parts"], check=True)
        parts = [int(re.search(r"^totals: (\d+)", Path(f"{out}.{part}").read_text(), re.MULTILINE).group(1)) for part in (2, 4)]
        return parts[0] / (POLLS_A_ROUND * ROUNDS), round(parts[1] / (256 * ROUNDS), 1)


rows = []
for endpoints in ENDPOINTS:
    row: dict[str, Any] = {"endpoints": endpoints, "rpc_instructions": {}}
    row["empty_poll_instructions"], row["rpc_instructions"]["total"] = instructions(endpoints, PARTS.values())
    if check:  # needs no parts, and so a fraction of the runs
        row["messages_per_batch"] = times(endpoints, 40, "rpc")["messages_per_batch"]
        rows.append(row)
        continue
    row["rpc_instructions"].update((part, instructions(endpoints, [function])[1]) for part, function in PARTS.items())
    measured = times(endpoints, 4000, "rpc")
    row["rpc_ns"] = measured["ns_each"]
    row["messages_per_batch"] = measured["messages_per_batch"]
    row["empty_poll_ns"] = times(endpoints, 2000000, "idle")["ns_each"]
    rows.append(row)
for row in [] if check else rows:
    row["rpc_time_ratio"] = round(row["rpc_ns"] / rows[0]["rpc_ns"], 3)
    row["empty_poll_time_ratio"] = round(row["empty_poll_ns"] / rows[0]["empty_poll_ns"], 3)

if not check:
    print(json.dumps({"where": "in-memory NIC", "request_bytes": 32, "depth": 256, "note":
                      "instructions include the in-memory NIC's own, both sides' work is listed by part", "rows": rows}, indent=2))
    sys.exit(0)

first, last = rows[0], rows[-1]
results = [
    ("an empty poll costs the same with %d endpoints as with 1" % last["endpoints"],
     last["empty_poll_instructions"] <= 1.02 * first["empty_poll_instructions"],
     "%.1f and %.1f instructions" % (last["empty_poll_instructions"], first["empty_poll_instructions"])),
    ("an RPC costs the same with %d endpoints as with 1" % last["endpoints"],
     last["rpc_instructions"]["total"] <= 1.02 * first["rpc_instructions"]["total"],
     "%.1f and %.1f instructions" % (last["rpc_instructions"]["total"], first["rpc_instructions"]["total"])),
    ("at depth 256, at least 16 calls share a batch", first["messages_per_batch"] >= 16, "%.1f" % first["messages_per_batch"]),
]
sys.exit(figures(results))
