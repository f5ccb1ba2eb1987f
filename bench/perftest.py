#!/usr/bin/env python3
"""perftest.py SIMNIC PERF [ROUNDS [WORD]]: copyrpc-perf of queues and the programs of perftest, the same work in turns, on simnic.

It prints a table in Markdown, for tools/README.md: of each the best of ROUNDS (5), and the ratio. With WORD, such as --dc, only those of our
words that have it. Perftest knows no tags, so beside --tag it sends without. A run on simnic says what the two programs
and their libraries cost beside the same device in software, and nothing about a NIC; beside other work it says little."""
import json
import os
import re
import subprocess
import sys
import time

ADDRESS, PORT = "127.0.0.1", 18700
SMALL, LARGE = ["-s", "64", "-n", "19200"], ["-s", "65536", "-n", "3000"]
# Our words, perftest's program and its words.
RATES = [
    (["--write", *SMALL], ["ib_write_bw", *SMALL]),
    (["--write", *SMALL], ["ib_write_bw", *SMALL, "-l", "64"]),
    (["--read", *SMALL], ["ib_read_bw", *SMALL]),
    (["--send", *SMALL], ["ib_send_bw", *SMALL]),
    (["--atomic", "-n", "19200"], ["ib_atomic_bw", "-A", "FETCH_AND_ADD", "-n", "19200"]),
    (["--write", *LARGE], ["ib_write_bw", *LARGE]),
    (["--read", *LARGE], ["ib_read_bw", *LARGE]),
    (["--send", *LARGE], ["ib_send_bw", *LARGE]),
    (["--write", *LARGE, "--queue-pairs", "4"], ["ib_write_bw", *LARGE, "-q", "4"]),
    (["--write", "--dc", *SMALL], ["ib_write_bw", "-c", "DC", *SMALL]),
    (["--write", "--dc", *SMALL], ["ib_write_bw", "-c", "DC", *SMALL, "-l", "64"]),
    (["--write", "--dc", "--streams", "8", *SMALL], ["ib_write_bw", "-c", "DC", "--log_dci_streams=3", *SMALL]),
    (["--read", "--dc", *SMALL], ["ib_read_bw", "-c", "DC", *SMALL]),
    (["--send", "--dc", *SMALL], ["ib_send_bw", "-c", "DC", *SMALL]),
    (["--atomic", "--dc", "-n", "19200"], ["ib_atomic_bw", "-c", "DC", "-A", "FETCH_AND_ADD", "-n", "19200"]),
    (["--write", "--dc", *LARGE], ["ib_write_bw", "-c", "DC", *LARGE]),
    (["--tag", *SMALL], ["ib_send_bw", *SMALL]),
    (["--tag=unexpected", *SMALL], ["ib_send_bw", *SMALL]),
]
LATENCIES = [
    (["--write"], ["ib_write_lat", "-s", "2"]),
    (["--read"], ["ib_read_lat", "-s", "2"]),
    (["--send"], ["ib_send_lat", "-s", "2"]),
    (["--atomic"], ["ib_atomic_lat", "-A", "FETCH_AND_ADD"]),
    (["--write", "--dc"], ["ib_write_lat", "-c", "DC", "-s", "2"]),
    (["--read", "--dc"], ["ib_read_lat", "-c", "DC", "-s", "2"]),
    (["--send", "--dc"], ["ib_send_lat", "-c", "DC", "-s", "2"]),
    (["--atomic", "--dc"], ["ib_atomic_lat", "-c", "DC", "-A", "FETCH_AND_ADD"]),
    (["--tag"], ["ib_send_lat", "-s", "2"]),
]


def chosen(rows):
    word = sys.argv[4] if len(sys.argv) > 4 else ""
    return [(mine, other) for mine, other in rows if not word or word in mine]


def ours(perf, words):
    command = [perf, "client", f"{ADDRESS}:{PORT}", "--json", "--warmup", "0", *words]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120).stdout)["results"][0]


def listens(port):
    with open("/proc/net/tcp", encoding="ascii") as file:
        return any(re.match(rf" *\d+: [0-9A-F]+:{port:04X} 0+:0000 0A ", line) for line in file)


def theirs(words, port):
    """Returns the columns behind the number of iterations."""
    command = [words[0], "-F", "-d", "mlx5_0", "-x", "3", "-p", str(port), *words[1:]]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        while not listens(port):
            time.sleep(0.02)
        output = subprocess.run([*command, ADDRESS], stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
        server.wait(60)
    row = re.search(r"#bytes.*\n\s*\d+\s+\d+\s+(.*)", output)
    return [float(column) for column in row.group(1).split()]


def main():
    simnic, perf = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    if "PERFTEST_INSIDE" not in os.environ:
        os.environ["PERFTEST_INSIDE"] = "1"
        os.execv(simnic, [simnic, "run", "--private", "--", sys.executable, __file__, *sys.argv[1:]])
    port = PORT
    with subprocess.Popen([perf, "server", "--queues", f"{ADDRESS}:{PORT}"], stdout=subprocess.PIPE, text=True) as server:
        server.stdout.readline()
        print("| copyrpc-perf client | million ops/s | perftest | million ops/s | ratio |\n|---|---|---|---|---|")
        for mine, other in chosen(RATES):
            best = [0.0, 0.0]
            for _ in range(rounds):
                port += 1
                best[0] = max(best[0], ours(perf, mine)["ops_per_second"] / 1e6)
                best[1] = max(best[1], theirs(other, port)[2])
            print(f"| `{' '.join(mine)}` | {best[0]:.3f} | `{' '.join(other)}` | {best[1]:.3f} | {best[0] / best[1]:.2f} |", flush=True)
        print("\n| copyrpc-perf client --latency | median, us | perftest | typical, us | ratio |\n|---|---|---|---|---|")
        for mine, other in chosen(LATENCIES):
            best = [1e9, 1e9]
            for _ in range(rounds):
                port += 1
                best[0] = min(best[0], ours(perf, [*mine, "--latency", "-n", "2000"])["latency_ns"]["p50"] / 1e3)
                best[1] = min(best[1], theirs([*other, "-n", "2000"], port)[2])
            print(f"| `{' '.join(mine)}` | {best[0]:.2f} | `{' '.join(other)}` | {best[1]:.2f} | {best[0] / best[1]:.2f} |", flush=True)
        server.terminate()
        server.stdout.read()


if __name__ == "__main__":
    main()
