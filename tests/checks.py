"""checks.py: what a test in Python prints: TAP, by the package tap (python3-tap), which counts it in scripts/count_tests.py, too."""
from __future__ import annotations

import sys
from typing import Iterable, Optional, Union

try:
    from tap.formatter import format_as_diagnostics
    from tap.tracker import Tracker
except ImportError:
    sys.exit(f"{sys.executable} has no package tap: run this with /usr/bin/python3, which gets it by ./dev setup (python3-tap)")

Told = Union[str, Iterable[object]]


class Checks:
    """The results of one test program. Each is printed at once, so that one that crashes has told what came before."""

    def __init__(self, total: Optional[int] = None) -> None:
        """`total`: how many results there will be, which is printed first, or else by end()."""
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # a pipe's is a TextIOWrapper, too
        self.failed = 0
        self._tracker = Tracker(streaming=True, header=False, plan=total)

    def check(self, good: object, name: str, told: Told = "") -> bool:
        """One result. `told` is for who has to find out why it is not good: a text, or lines."""
        name = _plain(name)
        if good:
            self._tracker.add_ok("", name)
        else:
            self.failed += 1
            lines = told.splitlines() if isinstance(told, str) else [str(line) for line in told]
            self._tracker.add_not_ok("", name, diagnostics=_remarks(lines) or None)
        return bool(good)

    def skip(self, name: str, why: str) -> None:
        self._tracker.add_skip("", _plain(name), why)

    def end(self) -> int:
        """The exit status."""
        self._tracker.generate_tap_reports()
        return 1 if self.failed else 0


def figures(results: Iterable[tuple[str, object, str]]) -> int:
    """Of a benchmark: names, whether they are good, and what was measured, which is always told. Returns the exit status."""
    found = list(results)
    checks = Checks(len(found))
    for name, good, figure in found:
        checks.check(good, name)
        note(figure)
    return checks.end()


def note(text: str) -> None:
    """What is told whatever the results are."""
    print(_remarks(text.splitlines()), end="")


def skip_all(why: str) -> None:
    """Instead of any result."""
    print(f"1..0 # SKIP {why}")


def _plain(name: str) -> str:
    return "- " + name.replace("#", "").replace("\n", " ")  # what follows a # is no part of the name


def _remarks(lines: list[str]) -> str:
    return str(format_as_diagnostics([line + "\n" for line in lines]))
