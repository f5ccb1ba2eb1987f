#!/usr/bin/env python3
"""deal_tests.py TURN GCC_BUILD [SANITIZED_BUILD]: prints the names of the tests that a whole run of ./dev test has with gcc, or those
that it has with sanitizers.

Most tests on simnic are a family with a member for each driver: "functional call on simnic, mlx5", "..., verbs", "..., mlx5
compressed". A whole run has no time for all of them with gcc and with sanitizers. So they are dealt. Of those that are neither of the
suite `slow` nor `long`, each runs once: with gcc, but for one of every second family, which runs with sanitizers. Of those that are, one
runs, with gcc. Tests in the VM, which emulates a machine, are dealt, too: half of them run with gcc, and the other half with
sanitizers, where they are built so. TURN says which; it differs from run to run, and ./dev hunt runs all of them both ways. What is none
of these is in both parts."""
import json
import subprocess
import sys
import zlib
from dataclasses import dataclass

DRIVERS = ("mlx5", "verbs", "mlx5 compressed")
LONG = {"slow", "long"}


@dataclass
class Test:
    name: str
    suites: set[str]

    @property
    def family(self) -> str:
        """Its name, for a test that is no member of a family."""
        family, _, driver = self.name.rpartition(", ")
        return family if driver in DRIVERS and "simnic" in self.suites else self.name


def deal(tests: list[Test], turn: int) -> tuple[list[str], list[str]]:
    """The names of those for gcc, and of those for sanitizers."""
    families: dict[str, list[Test]] = {}
    for test in tests:
        families.setdefault(test.family, []).append(test)
    plain, sanitized = [], []
    for family, members in families.items():
        short = [test.name for test in members if not test.suites & LONG]
        long = [test.name for test in members if test.suites & LONG]
        place = zlib.crc32(family.encode()) + turn
        if "vm" in members[0].suites:
            continue
        if len(members) == 1:
            plain.append(members[0].name)
            sanitized.append(members[0].name)
            continue
        if short and place % 2 == 0:
            sanitized.append(short.pop(place // 2 % len(short)))
        plain += short
        if long:
            plain.append(long[place % len(long)])
    emulated = sorted(test.name for test in tests if "vm" in test.suites)
    plain += emulated[turn % 2 :: 2]
    sanitized += emulated[1 - turn % 2 :: 2]
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
