#!/usr/bin/env python3
"""peers.py BUILD [OPTIONS]: copyrpc beside other ways to make calls, on simnic, for ./dev bench peers.

Each turn measures every cell (size, depth, connections) with copyrpc and, one after the other, with each peer; ratios are of the same turn.
The results are kept as JSON after each measurement, so whatever ends the program leaves what was measured. At the end it prints tables in
Markdown and writes plots. With --publish, it does nothing but put the tables of kept results into the README and docs/peers.md."""
import argparse
import datetime
import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import counts
import table
from programs import OPEN_BYTES_MAX, SOURCE, Cell, Failed, all_peers, measure

SIZES, DEPTHS, CONNECTIONS = [32, 4096, 65536, 1 << 20], [1, 32, 256], [1, 8, 64]
FIRST_PORT, PORTS = 19000, 9000
INSIDE = "PEERS_INSIDE"  # of simnic
INTERRUPTED = 130


def arguments():
    parser = argparse.ArgumentParser(prog="./dev bench peers", description="Measures copyrpc beside other ways to make calls, on simnic.")
    parser.add_argument("build", help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable, help=argparse.SUPPRESS)  # that has grpcio
    parser.add_argument("--grpc-go", default="", help=argparse.SUPPRESS)
    parser.add_argument("--out", default="", help="where the results go (build/bench/peers)")
    parser.add_argument("--only", default="", metavar="NAME,...", help="peers whose names begin so: ucx, libfabric_rxm, grpc, ...")
    parser.add_argument("--size", type=numbers, default=SIZES, metavar="BYTES,...", help="of a request, which is echoed")
    parser.add_argument("--depth", type=numbers, default=DEPTHS, metavar="CALLS,...", help="open on each connection")
    parser.add_argument("--connections", type=numbers, default=CONNECTIONS, metavar="N,...")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each (3)")
    parser.add_argument("--seconds", type=float, default=0.2, help="of one measurement (0.2)")
    parser.add_argument("--quick", action="store_true", help="one turn of 32 B and 64 KiB, depth 1 and 256, one connection")
    parser.add_argument("--no-counts", action="store_true", help="count no instructions")
    parser.add_argument("--publish", metavar="FILE", help="put the tables of these kept results into README.md and docs/peers.md")
    options = parser.parse_args()
    if options.quick:
        options.size, options.depth, options.connections, options.turns = [32, 65536], [1, 256], [1], 1
    options.out = Path(options.out or Path(options.build).parent / "bench/peers")
    return options


def numbers(text):
    return [int(number) for number in text.split(",")]


def machine():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.machine()
    return {"processor": model, "processors": os.cpu_count(), "kernel": platform.release(), "load_at_start": round(os.getloadavg()[0], 2)}


def commit():
    done = subprocess.run(["git", "-C", str(SOURCE), "describe", "--always", "--dirty"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip()


def processors():
    """One for the server and one for the client, or none where there is but one."""
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else (None, None)


class Progress:
    """A line on a terminal, which tells where it is and about how long it will take; else a line for each turn."""

    def __init__(self, turns, steps):
        self.turns, self.steps, self.done, self.begun, self.turn = turns, steps, 0, time.monotonic(), None

    def tell(self, turn, what):
        left = (time.monotonic() - self.begun) / self.done * (self.turns * self.steps - self.done) if self.done else None
        text = f"turn {turn + 1} of {self.turns}: {what}" + (f"; about {left / 60:.0f} min left" if left and self.done >= 20 else "")
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{text[:110]}")
        elif turn != self.turn:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()
        self.turn = turn
        self.done += 1

    def end(self):
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")


class Kept:
    """The results, and the file that has them."""

    def __init__(self, folder, options, peers):
        folder.mkdir(parents=True, exist_ok=True)
        now = datetime.datetime.now()
        self.path = folder / f"{now:%Y-%m-%d-%H%M%S}.json"
        self.results = {
            "date": f"{now:%Y-%m-%d}", "commit": commit(), "machine": machine(), "place": "simnic", "turns": options.turns,
            "seconds": options.seconds, "open_bytes_max": OPEN_BYTES_MAX,
            "peers": {peer.name: {"title": peer.title, "settings": peer.settings, "version": "", "missing": peer.missing()} for peer in peers},
            "runs": [], "instructions": {},
        }

    def save(self):
        unfinished = self.path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(self.results, indent=1) + "\n")
        unfinished.replace(self.path)


def run_one(kept, peer, cell, turn, port, options):
    row = {"turn": turn, "peer": peer.name, "size": cell.size, "depth": cell.depth, "connections": cell.connections}
    try:
        result = measure(peer, cell, port, processors(), options.seconds, options.seconds)
        row.update(calls_per_second=result.calls_per_second, p50_ns=result.p50_ns, p99_ns=result.p99_ns)
        kept.results["peers"][peer.name]["version"] = result.version
    except Failed as why:
        row["failed"] = str(why)
    kept.results["runs"].append(row)
    kept.save()


def measure_all(kept, peers, cells, options, port):
    progress = Progress(options.turns, len(cells) * len(peers))
    try:
        for turn in range(options.turns):
            for cell in cells:
                others = peers[1:]
                shift = turn % max(len(others), 1)  # so that nobody always comes after the same one
                for peer in [peers[0], *others[shift:], *others[:shift]]:
                    progress.tell(turn, f"{table.size_text(cell.size)}, depth {cell.depth}, {cell.connections} connections: {peer.title}")
                    run_one(kept, peer, cell, turn, next(port), options)
    finally:
        progress.end()


def count_all(kept, peers, port):
    for peer in peers:
        sys.stderr.write(f"counting instructions: {peer.title}\n")
        own = [next(port) for _ in range(counts.RUNS)]
        try:
            kept.results["instructions"][peer.name] = {"per_call": round(counts.per_call(peer, own), 1)}
        except Failed as why:
            kept.results["instructions"][peer.name] = {"reason": str(why)}
        kept.save()


def chosen(peers, only):
    names = [name for name in only.split(",") if name]
    wanted = [peer for peer in peers[1:] if not names or any(peer.name.startswith(name) for name in names)]
    unknown = [name for name in names if not any(peer.name.startswith(name) for peer in peers)]
    if unknown:
        raise SystemExit(f"no peer is called {', '.join(unknown)}; there are {', '.join(peer.name for peer in peers[1:])}")
    return [peers[0], *wanted]


def main():
    options = arguments()
    if options.publish:
        table.publish(json.loads(Path(options.publish).read_text()), SOURCE)
        return 0
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        simnic = str(Path(options.build) / "simnic/simnic")
        os.execv(simnic, [simnic, "run", "--private", "--", sys.executable, __file__, *sys.argv[1:]])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    peers = chosen(all_peers(options.build, options.python, options.grpc_go), options.only)
    kept = Kept(options.out, options, peers)
    kept.save()
    there = []
    for peer in peers:
        why = peer.missing()
        if why:
            sys.stderr.write(f"{peer.title} is left out: {why}\n")
        else:
            there.append(peer)
    if not there or there[0].name != "copyrpc":
        raise SystemExit("copyrpc-perf is not built")
    cells = [Cell(*three) for three in itertools.product(options.size, options.depth, options.connections)]
    port = itertools.cycle(range(FIRST_PORT, FIRST_PORT + PORTS))
    status = 0
    try:
        measure_all(kept, there, [cell for cell in cells if not cell.too_much()], options, port)
        if not options.no_counts:
            count_all(kept, there, port)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; what was measured is kept\n")
        status = INTERRUPTED
    print(table.markdown(kept.results))
    plots = table.plot(kept.results, kept.path.with_suffix(""))
    print(f"kept: {kept.path}" + "".join(f", {plot}" for plot in plots))
    return status


if __name__ == "__main__":
    sys.exit(main())
