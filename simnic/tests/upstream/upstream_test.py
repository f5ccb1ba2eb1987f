"""upstream_test.py: that upstream.py tells what became of the tests of a checkout, with one that is made here. TAP."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))
from checks import Checks

UPSTREAM = Path(__file__).with_name("upstream.py")
# rdma-core's run_tests.py and args_parser.py, as far as inside.py uses them.
ARGS_PARSER = "class Parser:\n    def parse_args(self): pass\nparser = Parser()\n"
PACKAGE = "import importlib\ntest_some = importlib.import_module('.test_some', __name__)\n"
LOADER = "def load_tests(loader, standard, pattern):\n    return loader.loadTestsFromModule(test_some)\n"
TESTS = """
import unittest
class Some(unittest.TestCase):
    def test_good(self): pass
    def test_bad(self): self.assertEqual(1, {bad})
    def test_skipped(self): raise unittest.SkipTest("no {reason} here")
"""

checks = Checks()
check = checks.check


def checkout(folder: Path, bad: int, reason: str) -> None:
    tests = folder / "tests"
    tests.mkdir(exist_ok=True)
    (tests / "run_tests.py").touch()
    (tests / "args_parser.py").write_text(ARGS_PARSER)
    (tests / "__init__.py").write_text(PACKAGE + LOADER)
    (tests / "test_some.py").write_text(TESTS.format(bad=bad, reason=reason))


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simnic, expected = folder / "simnic", folder / "expected.json"
        simnic.write_text('#!/bin/sh\nshift 3\nexec "$@"\n')  # run --private --
        simnic.chmod(0o755)

        def upstream(*options: str) -> tuple[int, str]:
            command = [sys.executable, str(UPSTREAM), str(simnic), str(folder), "--python", sys.executable,
                       "--expected", str(expected), *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr

        status, text = upstream()
        check(status == 2 and "no checkout" in text, "a folder without tests is refused")
        checkout(folder, bad=1, reason="GPU")
        status, text = upstream("--record")
        check(status == 0 and "2 passed, 1 skipped" in text, "what became of the tests is counted")
        recorded = json.loads(expected.read_text())
        check(recorded == {"passed": ["test_some.Some.test_bad", "test_some.Some.test_good"],
                           "skipped: no GPU here": ["test_some.Some.test_skipped"]}, "and recorded, by outcome")
        check(upstream()[0] == 0, "the same again is as expected")
        checkout(folder, bad=2, reason="GPU")
        status, text = upstream()
        check(status == 1 and "test_bad: failed: 1 != 2" in text, "a test that fails is not")
        check(upstream("--only", "good")[0] == 0, "others are not looked at if only some are run")
        checkout(folder, bad=1, reason="card")
        status, text = upstream()
        check(status == 1 and "skipped: no card here (expected: skipped: no GPU here)" in text, "neither is another reason")
        expected.write_text(json.dumps({"skipped: no GPU here": recorded["passed"], "skipped: no card here": ["test_some.Some.test_skipped"]}))
        status, text = upstream()
        check(status == 0 and text.count("better than expected") == 2, "what passes now is told, and is no failure")
        expected.write_text(json.dumps({"passed": [*recorded["passed"], "test_some.Some.test_gone"],
                                        "skipped: no card here": ["test_some.Some.test_skipped"]}))
        check(upstream()[0] == 1, "a test that is gone is not as expected")
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
