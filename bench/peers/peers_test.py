"""peers_test.py BUILD: what ./dev bench peers makes of results, and that it measures: copyrpc and rsockets, once. TAP."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests")]
import counts  # noqa: E402
import table  # noqa: E402
from layers import report  # noqa: E402
from programs import Cell, Copyrpc, Failed, Perftest, all_peers, measure  # noqa: E402


def run(turn, peer, rate, p50, **more):
    return dict({"turn": turn, "peer": peer, "size": 32, "depth": 1, "connections": 1, "calls_per_second": rate, "p50_ns": p50, "p99_ns": p50}, **more)


def peer_entry(title, missing=""):
    return {"title": title, "settings": "as it is", "version": "1", "missing": missing}


RESULTS = {
    "date": "2001-02-03", "commit": "abc", "place": "simnic", "turns": 3, "seconds": 0.5, "open_bytes_max": 256 << 20,
    "machine": {"processor": "P", "processors": 2, "kernel": "K", "load_at_start": 0.1},
    "peers": {"copyrpc": peer_entry("copyrpc"), "quick": peer_entry("Quick"),
              "shaky": peer_entry("Shaky"), "mute": peer_entry("Mute"), "bad": peer_entry("Bad"),
              "away": peer_entry("Away", "x not found")},
    "runs": [run(0, "copyrpc", 1000, 1000), run(1, "copyrpc", 2000, 1500), run(2, "copyrpc", 3000, 2000),
             run(0, "quick", 500, 3000), run(1, "quick", 4000, 3000), run(2, "quick", 1000, 3000),
             run(0, "shaky", 500, 2000), {**run(1, "shaky", None, None), "failed": "it hung"},
             run(0, "mute", 500, None), {**run(0, "bad", None, None), "failed": "it broke"}],
    "instructions": {"copyrpc": {"per_call": 275.4}, "bad": {"reason": "it spins"}},
}

PROFILE = """events: Ir
ob=/usr/bin/program
fn=main
5 100
cob=/usr/lib/libsimnic.so
cfn=trap
calls=1 0
5 5000
ob=/usr/lib/libsimnic.so
fn=trap
0 4000
cob=/usr/lib/x86_64-linux-gnu/libc.so.6
cfn=memcpy
calls=2 0
0 30
ob=/usr/lib/x86_64-linux-gnu/libc.so.6
fn=memcpy
0 70
"""

PERFTEST = """ #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 32         1000             10.00              9.00                 0.500000
"""


def lines_of_tables():
    return table.markdown(RESULTS).splitlines()


def renders():
    rates, latencies = [line for line in lines_of_tables() if line.startswith("| 32 B | 1 | 1 |")]
    wanted = [
        "| 32 B | 1 | 1 | 2 k | 2.0 (0.50 to 3.0) | 2.0 (1) | 2.0 | (2) | (3) |",
        "| 32 B | 1 | 1 | 1.5 us | 2.0 (1.5 to 3.0) | 2.0 (1) | (4) | (2) | (3) |"]
    return [f"{line} is not {want}" for line, want in zip([rates, latencies], wanted) if line != want]


def explains():
    said = "\n".join(lines_of_tables())
    wanted = ["(1) in 1 of 2 turns: it hung.", "(2) it broke.", "(3) x not found.", "(4) the program does not say how long a call takes.", "| copyrpc | 275 |",
              "| Bad | not counted: it spins |", "2001-02-03, commit abc, on simnic"]
    return [f"'{want}' is not in {said}" for want in wanted if want not in said]


def publishes():
    """Where it was told to, and again in place of the first."""
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder) / "docs"
        docs.mkdir()
        files = {Path(folder) / "README.md": f"before\n\n{table.README_BEFORE}\nafter\n",
                 docs / "peers.md": "before\n\n## What simnic can tell\nafter\n"}
        for file, text in files.items():
            file.write_text(text)
        table.publish(RESULTS, folder)
        once = {file: file.read_text() for file in files}
        table.publish(RESULTS, folder)
        wrong = [f"{file} has changed" for file in files if file.read_text() != once[file]]
        for text in once.values():
            if text.count(table.BEGIN) != 1 or "2001-02-03" not in text or not text.startswith("before\n\n") or not text.endswith("after\n"):
                wrong.append(text)
        return wrong


def leaves_nothing_silent():
    """Every cell of a row has a number, or a mark whose note is below."""
    cells = [cell.strip() for line in lines_of_tables() if line.startswith("| 32 B | 1") for cell in line.strip("| ").split("|")]
    return [f"an empty cell in {cells}"] if not all(cells) else []


def profile():
    counted = counts.instructions_in(PROFILE)
    return [] if counted == 100 + 70 - 30 else [f"{counted} instructions"]


def perftest():
    perftest = Perftest("ib_send", "ib_send", ["false", "false"], "", "")
    rate = perftest.result(PERFTEST, Cell(32, 256, 1)).calls_per_second
    wrong = [] if rate == 250000 else [f"{rate} calls a second"]
    try:
        perftest.result(PERFTEST.replace("0.500000", "inf"), Cell(32, 256, 1))
        wrong.append("a rate of inf was taken for one")
    except Failed:
        pass
    return wrong


def bounds():
    wrong = [] if Cell(1 << 20, 256, 64).too_much() and not Cell(4096, 256, 64).too_much() else ["the bound of what is open"]
    names = [peer.name for peer in all_peers("build", "python", "grpc_go")]
    return wrong + ([] if names[0] == "copyrpc" and len(set(names)) == len(names) else [f"peers: {names}"])


def failures():
    """A program that fails gives the reason that it has printed."""
    silent = Copyrpc("copyrpc", "copyrpc", ["sh"], "", "")
    try:
        measure(silent, Cell(32, 1, 1), 1, (None, None), 1, 0, server_words=["sh", "-c", "echo no device >&2; exit 3"])
    except Failed as why:
        return [] if str(why) == "no device" else [str(why)]
    return ["it did not fail"]


def measures(build):
    """The whole program on simnic. How fast anything is does not matter. But rsockets gives up connecting after a fixed time, which is not
    ours to change: on a busy machine its result may be that."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, str(HERE / "peers.py"), build, "--only", "rsockets", "--size", "32", "--depth", "4", "--connections", "1",
                               "--turns", "1", "--seconds", "0.05", "--no-counts", "--out", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=280)
        kept = list(Path(folder).glob("*.json"))
        if done.returncode != 0 or len(kept) != 1:
            return [f"status {done.returncode}, files {kept}", *done.stderr.splitlines()]
        results = json.loads(kept[0].read_text())
    shape = {(each["peer"], each["size"], each["depth"], each["connections"]) for each in results["runs"]}
    wanted = {(peer, 32, 4, 1) for peer in ("copyrpc", "rsockets")}
    wrong = [] if shape == wanted and results["turns"] == 1 else [f"measured: {shape}"]
    measured = [each for each in results["runs"] if (each["peer"], each.get("failed")) != ("rsockets", "rconnect: Connection timed out")]
    wrong += [str(each) for each in measured if not (each.get("calls_per_second", 0) > 0 and 0 < each["p50_ns"] <= each["p99_ns"])]
    return wrong if "| 32 B | 4 | 1 |" in done.stdout else [*wrong, *done.stdout.splitlines()]


report([
    ("ratios are of the same turn, with their spread", renders()),
    ("what has no number has a reason", explains()),
    ("no cell is empty", leaves_nothing_silent()),
    ("tables are published once, in their place", publishes()),
    ("simnic's instructions are left out of a profile", profile()),
    ("perftest's messages each way are half as many calls", perftest()),
    ("what would be open has a bound, and peers have names", bounds()),
    ("a program that fails says why", failures()),
    ("copyrpc and rsockets are measured", measures(sys.argv[1])),
])
