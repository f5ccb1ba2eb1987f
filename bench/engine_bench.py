"""engine_bench.py COUNT_ROUNDS [--check]: what the engine costs on the in-memory NIC, and that idle endpoints cost nothing.

Instructions are counted by callgrind, as the difference of two runs, so that opening and warming up cancel out. They are
stable; times are given as ratios to the smallest case of the same run. Prints JSON; with --check, TAP."""
import json
import os
import re
import subprocess
import sys
import tempfile

program = sys.argv[1]
check = "--check" in sys.argv
ENDPOINTS = (1, 1024) if check else (1, 16, 256, 1024)
PARTS = {"client_submit": "engine_pair_submit", "server_poll": "engine_pair_server_poll",
         "server_reply": "engine_pair_reply", "client_poll": "engine_pair_client_poll"}


def times(endpoints, rounds, what):
    return json.loads(subprocess.run([program, str(endpoints), str(rounds), what], capture_output=True, text=True,
                                     check=True).stdout)


def instructions(endpoints, rounds, what, functions):
    """All instructions of the functions and what they call."""
    with tempfile.TemporaryDirectory() as work:
        run = subprocess.run(["valgrind", "--tool=callgrind", "--collect-atstart=no",
                              *("--toggle-collect=" + function for function in functions),
                              "--callgrind-out-file=" + os.path.join(work, "out"), program, str(endpoints), str(rounds), what],
                             capture_output=True, text=True, check=True)
        return int(re.search(r"Collected : (\d+)", run.stderr).group(1))


def per_unit(endpoints, what, functions, few, many, units):
    return (instructions(endpoints, many, what, functions) - instructions(endpoints, few, what, functions)) / units


def rpc_instructions(endpoints, functions):
    return round(per_unit(endpoints, "rpc", functions, 20, 60, 40 * 256), 1)


rows = []
for endpoints in ENDPOINTS:
    row = {"endpoints": endpoints,
           "empty_poll_instructions": per_unit(endpoints, "idle", [PARTS["client_poll"]], 1000, 3000, 2000)}
    if check:  # needs no parts, and so a fraction of the runs
        row["rpc_instructions"] = {"total": rpc_instructions(endpoints, PARTS.values())}
        row["messages_per_batch"] = times(endpoints, 40, "rpc")["messages_per_batch"]
        rows.append(row)
        continue
    row["rpc_instructions"] = {part: rpc_instructions(endpoints, [function]) for part, function in PARTS.items()}
    row["rpc_instructions"]["total"] = round(sum(row["rpc_instructions"].values()), 1)
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
print("1..%d" % len(results))
for number, (name, good, figure) in enumerate(results, 1):
    print("%s %d - %s\n# %s" % ("ok" if good else "not ok", number, name, figure))
sys.exit(0 if all(good for _, good, _ in results) else 1)
