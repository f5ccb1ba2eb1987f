"""inside.py CHECKOUT FILE WORD: runs rdma-core's tests whose names contain WORD in this process, which runs on simnic, and appends to
FILE a line of JSON when each begins and ends: its name and what became of it. For upstream.py."""
import json
import re
import sys
import unittest
from importlib.machinery import SourceFileLoader
from types import TracebackType
from typing import TextIO

Error = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class Teller(unittest.TestResult):
    """Tells what becomes of each test."""

    def __init__(self, to: TextIO) -> None:
        super().__init__()
        self.to = to

    def tell(self, test: unittest.TestCase, outcome: str) -> None:
        # Reasons name devices' errno and other numbers, which vary, in a few places: none is compared.
        print(json.dumps([test.id().removeprefix("tests."), re.sub(r"\s+", " ", outcome)]), file=self.to, flush=True)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.tell(test, "running")

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.tell(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self.tell(test, f"skipped: {reason}")

    def addFailure(self, test: unittest.TestCase, err: Error) -> None:
        super().addFailure(test, err)
        self.tell(test, f"failed: {err[1]}")

    def addError(self, test: unittest.TestCase, err: Error) -> None:
        super().addError(test, err)
        self.tell(test, f"failed: {err[1]}")


def cases(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    found: list[unittest.TestCase] = []
    for member in suite:
        if isinstance(member, unittest.TestSuite):
            found.extend(cases(member))
        else:
            found.append(member)
    return found


def main() -> int:
    checkout, file, word = sys.argv[1:]
    folder = f"{checkout}/tests"
    sys.path.insert(0, folder)
    sys.argv[1:] = []
    tests = SourceFileLoader("tests", f"{folder}/__init__.py").load_module()  # as their run_tests.py does
    from args_parser import parser  # type: ignore[import-not-found]

    parser.parse_args()
    suite = unittest.defaultTestLoader.loadTestsFromModule(tests)
    chosen = unittest.TestSuite(case for case in cases(suite) if word in case.id())
    with open(file, "a", encoding="utf-8") as to:
        result = Teller(to)
        chosen.run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
