#!/usr/bin/env python3
"""hunt.py: runs for so many minutes what only time finds; `./dev hunt --help` tells of it.

A *quarry* is one kind of run: it makes a command from a seed, so that the seed alone repeats it. Quarries share the time by weight:
the next run is that of the one that has had least of its share. What ran, and what failed, is kept in build/hunt for each
commit; a hunt that is ended goes on where it was."""
import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
STATE = BUILD / "hunt"
SIMNIC = "build/gcc/simnic/simnic"
# Tests of these suites have quarries of their own.
LEFT_TO_OTHERS = {"vm", "sim", "model", "conformance", "bench", "install"}

FUZZ_TARGETS = ("calls", "channels", "words", "proofs", "hellos", "blobs", "hints", "queues")  # of core


@dataclass
class Run:
    """One run: a command, and what it is run with."""

    command: list[str]
    limit_s: int
    what: str = ""  # which test, which seed
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path = ROOT


@dataclass
class Quarry:
    name: str
    weight: float
    make: Callable[[random.Random], Run]
    once: bool = False  # it does the same every time
    neighbours: bool = False  # both processors are kept busy by others meanwhile


# ---- What is run ----


def simulation(build: str, program: str, steps: int) -> Callable[[random.Random], Run]:
    def make(dice: random.Random) -> Run:
        seed = dice.randrange(1 << 32)
        return Run([f"build/{build}/core/{program}", "--seed", str(seed), "--steps", str(steps)], 1800, f"seed {seed}")

    return make


def command(*words: str, limit_s: int = 3600) -> Callable[[random.Random], Run]:
    return lambda dice: Run(list(words), limit_s)


def conformance(*options: str) -> Callable[[random.Random], Run]:
    def make(dice: random.Random) -> Run:
        seed = dice.randrange(1 << 32)
        words = [word.replace("SEED", str(seed)) for word in options]
        runner = [SIMNIC, "run", "--private", "--", "/usr/bin/python3", "conformance/run.py", "--build", "build/gcc"]
        place = ["--device", "mlx5_0", "--address", "127.0.0.1", "--drivers", dice.choice(["mlx5", "verbs"])]
        return Run(runner + place + words, 1800, f"seed {seed}")

    return make


def conformance_in_vm(*options: str) -> Callable[[random.Random], Run]:
    """All scenarios on Soft-RoCE, each in one pair of languages: a test run has a sample."""

    def make(dice: random.Random) -> Run:
        turn = dice.randrange(1 << 16)
        runner = ["/usr/bin/python3", "conformance/run.py", "--build", "build/gcc", "--vm", "vm/run"]
        place = ["--device", "rxe0", "--address", "10.99.0.1", "--drivers", "verbs"]
        return Run([*runner, *place, "--pairs", "turns", "--turn", str(turn), "--patience", "4", *options], 7200, f"turn {turn}")

    return make


def chaos(minutes: str, *options: str) -> Callable[[random.Random], Run]:
    def make(dice: random.Random) -> Run:
        seed = dice.randrange(1 << 32)
        runner = [SIMNIC, "run", "--private", "--", "/usr/bin/python3", "tests/chaos/chaos.py", "--build", "build/gcc"]
        return Run([*runner, minutes, *options, "--seed", str(seed)], 1800, f"seed {seed}")

    return make


def tests_of(build: str, suite: str = "") -> list[dict]:
    """All of that suite; without one, those that no other quarry has."""
    listed = subprocess.run(["meson", "introspect", "--tests", f"build/{build}"], cwd=ROOT, capture_output=True, check=True)
    tests = sorted(json.loads(listed.stdout), key=lambda test: test["name"])
    suites = {test["name"]: {name.split(":")[1] for name in test["suite"]} for test in tests}
    return [test for test in tests if (suite in suites[test["name"]] if suite else not suites[test["name"]] & LEFT_TO_OTHERS)]


def some_test(build: str, tests: list[dict], *before: str) -> Callable[[random.Random], Run]:
    """One test of a build, under conditions; meson knows its environment, and reads its results."""

    def make(dice: random.Random) -> Run:
        name = dice.choice(tests)["name"]
        words = ["meson", "test", "-C", f"build/{build}", "--no-rebuild", "--verbose", "--timeout-multiplier", "10"]
        return Run([*before, *words, "--logbase", "hunt", name], 3600, name)

    return make


def tests_once(*which: str) -> Callable[[random.Random], Run]:
    """All of these, which do the same whatever happens beside. ./dev test has some of them in each turn."""
    return command("meson", "test", "-C", "build/gcc", "--no-rebuild", "--verbose", "--timeout-multiplier", "10", "--logbase", "hunt", *which)


def every_fault(tests: list[dict]) -> Callable[[random.Random], Run]:
    """One of these tests, whose last two words make it a sample, whole."""

    def make(dice: random.Random) -> Run:
        test = dice.choice(tests)
        return Run(test["cmd"][:-2], 3600, test["name"], test["env"], BUILD / "gcc")

    return make


def some_test_in_trouble(tests: list[dict]) -> Callable[[random.Random], Run]:
    """A test on simnic whose packets are lost, doubled and late: it must pass, and may take its time."""

    def make(dice: random.Random) -> Run:
        test = dice.choice(tests)
        trouble = f"lose=0.002,duplicate=0.002,delay=0.01:500,seed={dice.randrange(1 << 31)}"
        words = list(test["cmd"])
        words[words.index("--private") : words.index("--private")] = ["--fault", trouble]
        return Run(words, 3600, f"{test['name']}, {trouble}", test["env"], BUILD / "gcc")

    return make


def quarries() -> list[Quarry]:
    plain, sanitized = tests_of("gcc"), tests_of("sanitize")
    unharmed = ("functional call on", "functional connect on", "functional channel on", "nccl message on")
    patient = [test for test in plain if test["name"].startswith(unharmed)]
    go = ["--go", os.environ["HUNT_GO"]] if os.environ.get("HUNT_GO") else ["--languages", "c,python"]
    go_in_vm = ["--languages", "c,python,go", *go] if "--go" in go else go  # foreign programs are for simnic
    return [
        Quarry("RPC simulation", 1, simulation("gcc", "rpc/tests/simulate", 50_000_000)),
        Quarry("RPC simulation, sanitized", 1, simulation("sanitize", "rpc/tests/simulate", 5_000_000)),
        Quarry("channel simulation", 1, simulation("gcc", "channel/tests/channel_simulate", 100_000_000)),
        Quarry("channel simulation, sanitized", 1, simulation("sanitize", "channel/tests/channel_simulate", 10_000_000)),
        Quarry("queue simulation", 1, simulation("gcc", "queue/tests/queue_simulate", 100_000_000)),
        Quarry("queue simulation, sanitized", 1, simulation("sanitize", "queue/tests/queue_simulate", 10_000_000)),
        Quarry("models, all instances", 1, command("build/gcc/model/flow_control_model", "--all"), once=True),
        Quarry("mutations of RPC", 1, command("/usr/bin/python3", "core/rpc/tests/mutations.py", "."), once=True),
        Quarry("mutations of channels", 1, command("/usr/bin/python3", "core/channel/tests/mutations.py", "."), once=True),
        Quarry("mutations of queues", 1, command("/usr/bin/python3", "core/queue/tests/mutations.py", "."), once=True),
        Quarry("costs", 1, tests_once("--suite", "bench"), once=True),
        Quarry("installations", 1, tests_once("--suite", "install"), once=True),
        Quarry("selftest of conformance", 1, tests_once("conformance selftest"), once=True),
        Quarry("fuzzing simnic's device", 2, command("./dev", "fuzz", "nic", "60")),
        *(Quarry(f"fuzzing {target}", 1, command("./dev", "fuzz", target, "60")) for target in FUZZ_TARGETS),
        Quarry("conformance, any order", 2, conformance(*go, "--shuffle", "SEED")),
        Quarry("conformance, disturbed", 2, conformance(*go, "--shuffle", "SEED", "--disturb", "SEED")),
        Quarry("conformance beside busy loops", 2, conformance(*go, "--shuffle", "SEED"), neighbours=True),
        Quarry("conformance on Soft-RoCE", 1, conformance_in_vm(*go_in_vm)),
        Quarry("chaos", 2, chaos("5", *go)),
        Quarry("chaos beside busy loops", 1, chaos("5", *go), neighbours=True),
        Quarry("a fault at every call", 1, every_fault([test for test in plain if test["name"].startswith("faults on")])),
        Quarry("tests beside busy loops", 4, some_test("gcc", plain), neighbours=True),
        Quarry("tests on one processor", 2, some_test("gcc", plain, "taskset", "-c", "0")),
        Quarry("tests, sanitized", 2, some_test("sanitize", sanitized)),
        Quarry("tests, sanitized, beside busy loops", 2, some_test("sanitize", sanitized), neighbours=True),
        Quarry("tests with clang", 1, some_test("clang", tests_of("clang", "unit"))),
        Quarry("tests with TSan", 1, some_test("thread", tests_of("thread", "parts"))),
        Quarry("tests with packets lost", 2, some_test_in_trouble(patient)),
        Quarry("tests in the VM", 1, some_test("gcc", tests_of("gcc", "vm"))),
        Quarry("tests in the VM, sanitized", 1, some_test("sanitize", tests_of("sanitize", "vm"))),
    ]


# ---- What has been run ----


class Record:
    """What ran of one commit, in build/hunt/COMMIT.json."""

    def __init__(self, fresh: bool) -> None:
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
        self.commit = commit.stdout.strip() or "no-commit"
        self.path = STATE / f"{self.commit}.json"
        self.seed = random.SystemRandom().randrange(1 << 32)
        self.runs: dict[str, dict] = {}
        self.failures: list[dict] = []
        if self.path.exists() and not fresh:
            kept = json.loads(self.path.read_text())
            self.runs, self.failures = kept["runs"], kept["failures"]

    def of(self, name: str) -> dict:
        return self.runs.setdefault(name, {"runs": 0, "failed": 0, "seconds": 0.0})

    def save(self) -> None:
        kept = {"commit": self.commit, "runs": self.runs, "failures": self.failures}
        self.path.with_suffix(".new").write_text(json.dumps(kept, indent=1) + "\n")
        self.path.with_suffix(".new").replace(self.path)


ENDING = (signal.SIGINT, signal.SIGTERM)


class Ended(Exception):
    """The hunt was told to end."""


def end(signal_number: int, frame: object) -> None:
    raise Ended(signal.Signals(signal_number).name)


def stop(process: subprocess.Popen) -> None:
    """Ends the process and its children, which are a session of their own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def execute(run: Run, neighbours: bool, log: Path) -> str:
    """Runs it; gives what went wrong, or nothing."""
    started: list[subprocess.Popen] = []
    with log.open("wb") as output:
        output.write(f"{shlex.join(run.command)}\n{run.what}\n".encode())
        output.flush()
        try:
            if neighbours:
                started.append(subprocess.Popen(["stress-ng", "--quiet", "--cpu", str(os.cpu_count())], start_new_session=True))
            child = subprocess.Popen(
                run.command, cwd=run.folder, env={**os.environ, **run.environment}, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )
            started.append(child)
            status = child.wait(run.limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            told = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}  # a second Ctrl-C leaves nothing behind
            for process in reversed(started):
                stop(process)
            for number, handler in told.items():
                signal.signal(number, handler)
    if status is None:
        return f"not over within {run.limit_s} s"
    if status:
        return f"exit status {status}" if status > 0 else f"killed by {signal.Signals(-status).name}"
    if any(line.startswith("not ok") for line in log.read_text(errors="replace").splitlines()):
        return "a sub-test failed"
    return ""


def hunt_once(quarry: Quarry, seed: int, record: Record, console: Console) -> bool:
    run = quarry.make(random.Random(seed))
    begun = time.monotonic()
    log = STATE / f"{quarry.name.replace(' ', '-')}-{seed}.log"
    wrong = execute(run, quarry.neighbours, log)
    seconds = time.monotonic() - begun
    kept = record.of(quarry.name)
    kept["runs"] += 1
    kept["seconds"] += seconds
    console.print(f"{time.strftime('%H:%M:%S')} {'[red]FAILED' if wrong else 'ok'} {quarry.name}{', ' if run.what else ''}{run.what}: {seconds:.0f} s {wrong}")
    if wrong:
        kept["failed"] += 1
        again = f"./dev hunt --again {shlex.quote(quarry.name)} --seed {seed}"
        record.failures.append({"quarry": quarry.name, "seed": seed, "what": run.what, "wrong": wrong, "log": str(log.relative_to(ROOT)), "again": again})
    else:
        log.unlink()
    record.save()
    return not wrong


def hunt(minutes: float, chosen: list[Quarry], record: Record, console: Console) -> None:
    dice = random.Random(record.seed)
    until = time.monotonic() + minutes * 60
    while time.monotonic() < until:
        left = [quarry for quarry in chosen if not (quarry.once and record.of(quarry.name)["runs"])]
        if not left:
            return
        quarry = min(left, key=lambda quarry: record.of(quarry.name)["seconds"] / quarry.weight)
        hunt_once(quarry, dice.randrange(1 << 32), record, console)


def show(record: Record, chosen: list[Quarry], console: Console) -> None:
    table = Table(title=f"What was hunted at {record.commit}")
    for column in ("", "runs", "failed", "minutes"):
        table.add_column(column, justify="right" if column else "left")
    for quarry in chosen:
        kept = record.of(quarry.name)
        table.add_row(quarry.name, str(kept["runs"]), str(kept["failed"] or ""), f"{kept['seconds'] / 60:.1f}")
    console.print(table)
    for failure in record.failures:
        console.print(f"FAILED: {failure['quarry']}{', ' if failure['what'] else ''}{failure['what']}: {failure['wrong']}\n    log: {failure['log']}\n"
                      f"    again: {failure['again']}", soft_wrap=True)
    console.print(f"{sum(kept['runs'] for kept in record.runs.values())} runs, {len(record.failures)} failed")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev hunt", description=__doc__.splitlines()[0])
    parser.add_argument("minutes", nargs="?", type=float, default=60)
    parser.add_argument("--only", default="", help="quarries with this in their names")
    parser.add_argument("--fresh", action="store_true", help="forget what this commit's hunts have found")
    parser.add_argument("--again", metavar="QUARRY", help="one run of this quarry, with the seed of a failure")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--list", action="store_true", help="say what there is to hunt")
    options = parser.parse_args()
    STATE.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, markup=True)
    everything = quarries()
    record = Record(options.fresh)
    chosen = [quarry for quarry in everything if options.only in quarry.name]
    if options.list or not chosen:
        console.print("\n".join(quarry.name for quarry in everything))
        return 0 if options.list else 2
    for number in ENDING:
        signal.signal(number, end)
    if options.again:
        match = [quarry for quarry in everything if quarry.name == options.again]
        if not match or options.seed is None:
            parser.error("--again wants the name of a quarry (--list) and its --seed")
        return 0 if hunt_once(match[0], options.seed, record, console) else 1
    try:
        hunt(options.minutes, chosen, record, console)
    except Ended as reason:
        console.print(f"ended by {reason}; ./dev hunt goes on from here")
    show(record, chosen, console)
    return 1 if record.failures else 0


if __name__ == "__main__":
    sys.exit(main())
