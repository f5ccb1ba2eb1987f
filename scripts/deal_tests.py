#!/usr/bin/env python3
"""deal_tests.py TURN GCC_BUILD [SANITIZED_BUILD]: prints the names of the tests that a whole run of ./dev test has with gcc, or those
that it has with sanitizers.

Most tests on simnic are a family with a member for each driver: "functional call on simnic, mlx5", "..., verbs", "..., mlx5
compressed". A whole run has no time for all of them with gcc and with sanitizers. So they are dealt: each member runs once, one of
them with sanitizers and the others with gcc. TURN says which one; it differs from run to run, and ./dev hunt runs all of them both
ways. Members of the suites `slow` and `long` are for gcc. Tests that are no family are in both parts."""
import json
import subprocess
import sys
import zlib
from dataclasses import dataclass

DRIVERS = ("mlx5", "verbs", "mlx5 compressed")
FOR_GCC = {"slow", "long"}


@dataclass
class Test:
    name: str
    suites: set[str]

    @property
    def family(self) -> str:
        """Its name, for a test that is no member of a family."""
        family, _, driver = self.name.rpartition(", ")
        return family if driver in DRIVERS else self.name


def deal(tests: list[Test], turn: int) -> tuple[list[str], list[str]]:
    """The names of those for gcc, and of those for sanitizers."""
    families: dict[str, list[Test]] = {}
    for test in tests:
        families.setdefault(test.family, []).append(test)
    plain, sanitized = [], []
    for family, members in families.items():
        names = [test.name for test in members]
        eligible = [test.name for test in members if not test.suites & FOR_GCC]
        if len(members) == 1:
            chosen = names
        elif eligible:
            chosen = [eligible[(zlib.crc32(family.encode()) + turn) % len(eligible)]]
            names.remove(chosen[0])
        else:
            chosen = []
        plain += names
        sanitized += chosen
    return plain, sanitized


def tests_of(build: str) -> list[Test]:
    listed = subprocess.run(["meson", "introspect", "--tests", build], capture_output=True, check=True)
    return [Test(test["name"], {suite.split(":")[-1] for suite in test["suite"]}) for test in json.loads(listed.stdout)]


def main() -> None:
    turn, builds = int(sys.argv[1]), sys.argv[2:]
    plain, sanitized = deal(tests_of(builds[0]), turn)
    if len(builds) == 1:
        names = plain
    else:
        there = {test.name for test in tests_of(builds[1])}
        names = [name for name in sanitized if name in there]
    print("\n".join(names))


if __name__ == "__main__":
    main()
