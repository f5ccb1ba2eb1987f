"""upstream.py SIMNIC CHECKOUT [OPTIONS]: runs the tests of rdma-core's own suite (the folder `tests` of a checkout, for pyverbs) on
simnic, and compares what becomes of each with expected.json.

    --expected FILE another file instead of expected.json
    --record        write what was seen to that file, instead of comparing
    --only WORD     run only tests whose names contain WORD; the others are not compared
    --python PATH   the interpreter that has pyverbs (default: this one, or the system's)
    --seconds N     end the run after so long (default 600)

Exits with 1 if a test fails, if one that passed is skipped, or if one does something else than expected. simnic/design.md says which
checkout the expectations are of, and why what is skipped is skipped. What depends on the machine (huge pages, a GPU, scapy) may pass
instead of being skipped: that is told, and no failure."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUNNER = Path(__file__).with_name("inside.py")


def python_with_pyverbs() -> str:
    """The interpreter whose packages have pyverbs: the distribution's, as a rule."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import pyverbs"], capture_output=True, check=False).returncode == 0:
            return python
    sys.exit("upstream.py: no Python here has pyverbs (on Debian and Ubuntu: apt install python3-pyverbs)")


def run(simnic: str, python: str, checkout: Path, seconds: int, only: str) -> dict[str, str]:
    """What became of each test, by its name: "passed", "failed: ...", "skipped: REASON", or "running" if the run ended in it."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "told")
        told.touch()
        command = [simnic, "run", "--private", "--", python, str(RUNNER), str(checkout), str(told), only]
        # No file of Python's in somebody else's checkout.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, env=environment)
            if done.returncode not in (0, 1):
                print(f"the run ended with status {done.returncode}:\n{done.stdout}{done.stderr}", file=sys.stderr)
        except subprocess.TimeoutExpired:
            print(f"the run did not end in {seconds} seconds", file=sys.stderr)
        seen = {}
        for line in told.read_text().splitlines():
            name, outcome = json.loads(line)
            seen[name] = outcome
        return seen


def by_reason(seen: dict[str, str]) -> dict[str, list[str]]:
    """Tests by what became of them, as expected.json has them."""
    outcomes: dict[str, list[str]] = {}
    for name in sorted(seen):
        outcomes.setdefault(seen[name], []).append(name)
    return dict(sorted(outcomes.items()))


def differences(expected: dict[str, str], seen: dict[str, str]) -> tuple[list[str], list[str]]:
    """What is wrong, and what is only told."""
    wrong, told = [], []
    for name in sorted(expected.keys() | seen.keys()):
        before, now = expected.get(name), seen.get(name)
        if now is None:
            wrong.append(f"{name}: was not run (expected: {before})")
        elif now == before:
            continue
        elif now == "passed" and before is not None:
            told.append(f"{name}: passed (expected: {before})")
        else:
            wrong.append(f"{name}: {now} (expected: {before or 'nothing: it is a new test'})")
    return wrong, told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simnic")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--expected", type=Path, default=Path(__file__).with_name("expected.json"))
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--python")
    parser.add_argument("--seconds", type=int, default=600)
    options = parser.parse_args()
    if not (options.checkout / "tests" / "run_tests.py").is_file():
        parser.error(f"{options.checkout} is no checkout of rdma-core: it has no tests/run_tests.py")
    python = options.python or python_with_pyverbs()
    seen = run(options.simnic, python, options.checkout, options.seconds, options.only)
    if not seen:
        print("no test was run", file=sys.stderr)
        return 1
    counts = {word: sum(outcome.startswith(word) for outcome in seen.values()) for word in ("passed", "failed", "skipped", "running")}
    print(", ".join(f"{count} {word}" for word, count in counts.items() if count))
    if options.record:
        options.expected.write_text(json.dumps(by_reason(seen), indent=1) + "\n")
        return 0
    expected = {name: outcome for outcome, names in json.loads(options.expected.read_text()).items() for name in names if options.only in name}
    wrong, told = differences(expected, seen)
    for line in told:
        print(f"better than expected: {line}")
    for line in wrong:
        print(f"NOT AS EXPECTED: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
