#!/usr/bin/env python3
"""chaos_test.py BUILD [--go GO] [--mistakes-alone] MISTAKE...: some seconds of chaos find nothing, and these mistakes of a server are
noticed. Runs under `simnic run`. With --go, workers in all languages are killed, and it is the server in Go that makes mistakes. With
--mistakes-alone nobody is killed, and no signal comes.

A signal that ends chaos makes it see nothing wrong, wherever it comes. The mistakes are made without faults beside, which could hide them."""
import argparse
import re
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from checks import Checks

# What the server does wrong after so many occasions, and what is to be said of it. Connections begin and end a few times a second; of other
# occasions there are many.
MISTAKES = {
    "lost:100": "lost",
    "doubled:100": "doubled",
    "twice:100": "doubled",
    "wrong:100": "wrong",
    "order:20": "wrong|lost|doubled",
    "spoiled:1": "wrong",  # what a peer has written to the memory of a queue
    "miscounted:1": "doubled",  # what it has added to there
    "died:10": "died",
    "descriptor:5": "leaked",
    "memory:5": "leaked",
    "slot:1": "leaked",
}
IDLE_S = {"slot:1": "2"}  # a server that keeps a place is waited for
ROWS = r"^  (lost|doubled|wrong|hung|died|leaked) +(\d+)$"


# Ctrl-C that comes where the records of a journal are read, and its oracle has not seen them; once some workers were killed.
INTERRUPTED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import chaos, journal, workers

class Interrupted(journal.Journal):
    counts = {"kills": 0}

    def take(self):
        records = super().take()
        if records and not chaos.told and Interrupted.counts["kills"] >= 5:
            os.kill(os.getpid(), signal.SIGINT)
        return records

class Raging(chaos.Chaos):
    def rage(self, seconds):
        Interrupted.counts = self.counts
        super().rage(seconds)

sys.argv[1:2] = []
workers.Journal = Interrupted
chaos.Chaos = Raging
sys.exit(chaos.main())
"""


def run(build: str, *words: str, interrupted: bool = False) -> tuple[int, dict[str, int], str]:
    folder = Path(__file__).parent
    program = ["-c", INTERRUPTED, str(folder)] if interrupted else [str(folder / "chaos.py")]
    command = ["/usr/bin/python3", *program, "--build", build, "--seed", "1", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, {what: int(count) for what, count in re.findall(ROWS, done.stdout, re.MULTILINE)}, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--go")
    parser.add_argument("--mistakes-alone", action="store_true")
    parser.add_argument("mistakes", nargs="+")
    options = parser.parse_args()
    # Without Go, the server in C is the only one, so that all meet it.
    kills, languages, by = ("10", ["c"], "c") if not options.go else ("30", ["c", "python", "go"], "go")
    go = ["--go", options.go] if options.go else []
    mistakes = {mistake: wanted for mistake, wanted in MISTAKES.items() if mistake.split(":")[0] in options.mistakes}
    before = 0 if options.mistakes_alone else 2
    checks = Checks(len(mistakes) + before)
    if before:
        status, found, output = run(options.build, *go, "--languages", ",".join(languages), "--kills", kills, "--warm-up", "0.5")
        harmless = status == 0 and len(found) == 6 and not any(found.values())
        checks.check(harmless, f"some kills of workers in {', '.join(languages)} do no harm", output)
        status, found, output = run(options.build, *go, "5", "--languages", ",".join(languages), "--warm-up", "0.5", interrupted=True)
        ended = status == 0 and "SIGINT ended the faults early" in output and len(found) == 6
        checks.check(ended and not any(found.values()), "Ctrl-C makes it see nothing wrong", output)
    for mistake, wanted in mistakes.items():
        words = ["--languages", ",".join({"c": 1, by: 1}), "--by", by, "--mistake", mistake, "--idle", IDLE_S.get(mistake, "180")]
        # It ends soon after the mistake, or when that has been noticed.
        status, found, output = run(options.build, *go, "60", "--warm-up", "0.3", *words)
        noticed = sum(found.get(what, 0) for what in wanted.split("|"))
        checks.check(status == 1 and noticed > 0, f"a server in {by} that does wrong ({mistake.split(':')[0]}) is noticed", output)
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
