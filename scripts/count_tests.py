#!/usr/bin/env python3
"""count_tests.py RUN [--whole ROOT]: tells what came of a run of ./dev test, and prints the line that it ends with.

RUN is the folder in which the run kept its notes: `steps`, a line for each build and each set of tests (kind, name, seconds,
log, exit status; of kind `lost` is what ended before its steps did, of kind `left` a program that ran on), `started` and
`load`. The log of tests is that of meson's test runner, and of this run alone: whoever else runs tests in the same build
writes others. Sub-tests are counted as the programs print them (TAP). A program that crashed, timed out, ended badly after its
last sub-test or printed none counts as one failure, and so does a log that cannot be read, or one without a failure of a
runner that failed. With --whole the result is also written to ROOT/build/last-run.json. Exit status 1 on any failure, or if
nothing ran."""
import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tap.parser import Parser

GOOD_RESULTS = ("OK", "SKIP", "EXPECTEDFAIL")
SLOWEST = 10
REMARKS = 3  # lines shown of what a program said before a failure, and after it
REPORT = 10  # lines shown of the report of a program that ended badly: what a sanitizer found is in the first
REMARK_COLUMNS = 200


@dataclass
class Step:
    """One build, one set of tests, or what was lost."""

    kind: str
    name: str
    seconds: int
    log: str
    status: int


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    complaints: list[tuple[str, list[str]]] = field(default_factory=list)  # with what the program said at each
    programs: list[tuple[float, str]] = field(default_factory=list)

    def fail(self, complaint: str, remarks: list[str] | None = None) -> None:
        self.failed += 1
        self.complaints.append((complaint, remarks or []))


def read_steps(run: Path) -> list[Step]:
    steps = []
    for line in (run / "steps").read_text().splitlines():
        kind, name, seconds, log, status = line.split("\t")
        steps.append(Step(kind, name, int(seconds), log, int(status)))
    return steps


def remarks_at(lines: list[tuple[str, str]], place: int) -> list[str]:
    """What was said next to the line at this place, also what is no TAP: a sanitizer's report, a program's last words. Some
    runners say it before the failed line, others after it."""

    def is_remark(at: int) -> bool:
        return 0 <= at < len(lines) and lines[at][0] in ("diagnostic", "unknown")

    first, last = place, place + 1
    while is_remark(first - 1):
        first -= 1
    while is_remark(last):
        last += 1
    return [text for _, text in lines[max(first, place - REMARKS) : place] + lines[place + 1 : last][:REMARKS]]


def last_words(program: dict) -> list[str]:
    """Of a program that failed without saying which test did."""
    said, report = ([line for line in (program.get(stream) or "").splitlines() if line.strip()] for stream in ("stdout", "stderr"))
    return said[-REMARKS:] + (report[:REPORT] + report[max(REPORT, len(report) - REMARKS) :])


def count_program(count: Count, program: dict, build: str) -> None:
    name = f"{program['name']} ({build})"
    count.programs.append((program["duration"], name))
    before = count.passed, count.failed, count.skipped
    texts = [text for text in (program.get("stdout") or "").splitlines() if text.strip()]
    lines = [Parser().parse_line(text.rstrip()) for text in texts]
    categories = [(line.category, text) for line, text in zip(lines, texts, strict=True)]
    for place, line in enumerate(lines):
        if line.category == "test" and line.skip or line.category == "plan" and line.skip:
            count.skipped += 1
        elif line.category == "test" and line.ok:
            count.passed += 1
        elif line.category == "test" and not line.todo:
            count.fail(f"{name}: {line.description.removeprefix('- ')}", remarks_at(categories, place))
    if program["result"] not in GOOD_RESULTS and count.failed == before[1]:
        count.fail(f"{name} ended badly: {program['result']}, exit status {program.get('returncode')}", last_words(program))
    elif (count.passed, count.failed, count.skipped) == before:
        count.fail(f"{name} printed no result")


def count_log(count: Count, step: Step) -> None:
    before = count.failed
    try:
        lines = Path(step.log).read_text(errors="replace").splitlines()
    except OSError as error:
        count.fail(f"no results of the tests of build/{step.name}: {error}")
        return
    for number, line in enumerate(lines, 1):
        try:
            count_program(count, json.loads(line), step.name)
        except (ValueError, KeyError) as error:
            count.fail(f"{step.log}, line {number} cannot be read: {error!r}")
    if step.status and count.failed == before:
        count.fail(f"meson test of build/{step.name} ended with status {step.status}, and its log has no failure: tests may be missing")


def load_now() -> str:
    return Path("/proc/loadavg").read_text().split()[0]


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def write_last_run(root: Path, run: Path, count: Count, steps: list[Step], seconds: int) -> None:
    """What this checkout's last whole run was, for whoever asks whether a commit has been tested."""
    commit, clean_at_start = (run / "commit").read_text().split("\t")
    now = git(root, "rev-parse", "HEAD")
    report = {
        "commit": commit,
        "clean": clean_at_start.strip() == "clean" and commit == now and not git(root, "status", "--porcelain"),
        "passed": count.passed,
        "failed": count.failed,
        "skipped": count.skipped,
        "seconds": seconds,
        "load_at_start": float((run / "load").read_text()),
        "load_at_end": float(load_now()),
        "processors": os.cpu_count(),
        "steps": [{"kind": step.kind, "name": step.name, "seconds": step.seconds} for step in steps],
        "failures": [{"what": complaint, "said": remarks} for complaint, remarks in count.complaints],
    }
    path = root / "build/last-run.json"
    path.with_suffix(".new").write_text(json.dumps(report, indent=1) + "\n")
    path.with_suffix(".new").replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--whole", type=Path, metavar="ROOT")
    options = parser.parse_args()
    steps = read_steps(options.run)
    count = Count()
    for step in steps:
        if step.kind == "tests":
            count_log(count, step)
        elif step.status and step.kind == "build":
            count.fail(f"build/{step.name} does not build; the whole log is {step.log}")
        elif step.kind == "left":
            count.fail(f"a test left this running: {step.name}")
        elif step.status:
            count.fail(f"{step.name} ended early, with status {step.status}; its log is {step.log}")
    if count.passed + count.failed == 0:
        count.fail("no test ran")
    seconds = int(time.time()) - int((options.run / "started").read_text())

    print(f"\n{seconds // 60} min {seconds % 60} s, load {(options.run / 'load').read_text().strip()} at the start, {load_now()} at the end:")
    for step in steps:
        if step.kind in ("build", "tests"):
            print(f"  {step.seconds:5} s  {'building' if step.kind == 'build' else 'testing'} build/{step.name}")
    print("The slowest programs:")
    for duration, name in sorted(count.programs, reverse=True)[:SLOWEST]:
        print(f"  {duration:5.0f} s  {name}")
    for complaint, remarks in count.complaints:
        print(f"FAILED: {complaint}")
        for remark in remarks:
            print(f"  {remark[:REMARK_COLUMNS]}")
    if options.whole:
        write_last_run(options.whole, options.run, count, steps, seconds)
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    return 1 if count.failed else 0


if __name__ == "__main__":
    sys.exit(main())
