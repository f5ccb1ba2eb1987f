#!/usr/bin/env python3
"""deal_tests.py TURN build: prints the build that a whole run of ./dev test has beside gcc and sanitize.
deal_tests.py TURN gcc|sanitize GCC_BUILD [SANITIZED_BUILD]: prints the names of the tests that it has with gcc, or with sanitizers.
deal_tests.py TURN quick GCC_BUILD: prints those of a quick run.
deal_tests.py those BUILD [--suite=SUITE...] [--no-suite=SUITE...]: reads names, a line each, and prints those that are in the suites, as meson
would choose them.

A whole run has no time for all tests in all builds. So they are dealt, and TURN, any number, says how. Six consecutive turns come to all
that is dealt; ./dev hunt runs all of it. What no rule names is in both parts of each run: so are all unit tests.

- The build is clang or thread.
- Tests on simnic are a family with a member for each driver: "functional call on simnic, mlx5", "..., verbs", "..., mlx5 compressed",
  "..., mlx5 enhanced"; those of endpoints have "..., DC", too. So is conformance, and Go's tests have a member for each way to compile
  them. Of a family with a long member (suites `slow` and `long`), one runs, in the builds that it is for by turns. Of another, two do: every
  second time one of them, or both if there are four or five, with sanitizers instead of gcc.
- Half of the other tests on simnic run with gcc, and the other half with sanitizers.
- Of the other long tests, a third of each kind run, with gcc: of those that count instructions, say, or of the simulations' mutations.
- Of the tests in the VM, which emulates a machine, a third run with gcc, and of the long ones a sixth; with sanitizers, a third of those
  that are for them."""
import json
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

DRIVERS = ("mlx5", "verbs", "mlx5 compressed", "mlx5 enhanced", "DC")
VARIANTS = {"simnic": DRIVERS, "conformance": DRIVERS, "bindings": ("plain", "checked")}  # by the suite of the family
SHORT_MEMBERS = 2  # of a family without a long one, which run
SANITIZED_TURNS = 3  # of six
LONG = {"slow", "long"}
# The kind of a long test has one of these suites; of several, the first counts.
KINDS = (("install",), ("bench",), ("oracle",), ("bindings",), ("programs",), ("sim", "model"), ("scripts",), ("simnic",))


@dataclass
class Test:
    name: str
    suites: set[str]

    @property
    def family(self) -> str:
        """Its name, for a test that is no member of a family."""
        family, _, variant = self.name.rpartition(", ")
        return family if any(variant in VARIANTS.get(suite, ()) for suite in self.suites) else self.name

    @property
    def is_long(self) -> bool:
        return bool(self.suites & LONG)


def share(tests: list[Test], count: int, turn: int) -> list[str]:
    """The names of one test in so many, but of one at least."""
    count = min(count, len(tests))
    return sorted(test.name for test in tests)[turn % count :: count] if tests else []


def families_of(tests: list[Test]) -> dict[str, list[Test]]:
    families: dict[str, list[Test]] = {}
    for test in tests:
        families.setdefault(test.family, []).append(test)
    return families


def kinds_of(tests: list[Test]) -> list[list[Test]]:
    kinds: dict[tuple[str, ...], list[Test]] = {}
    for test in tests:
        kinds.setdefault(next((kind for kind in KINDS if test.suites & set(kind)), ()), []).append(test)
    return list(kinds.values())


def place_of(family: str, turn: int) -> int:
    """Differs from family to family, so that a turn does not have the same driver of each."""
    return zlib.crc32(family.encode()) + turn


def deal_family(family: str, members: list[Test], sanitizable: set[str], turn: int) -> tuple[list[str], list[str]]:
    place = place_of(family, turn)
    if any(test.is_long for test in members):
        runs: list[tuple[list[str], list[str]]] = [([test.name], []) for test in members]
        runs += [([], [test.name]) for test in members if not test.is_long and test.name in sanitizable]
        return runs[place % len(runs)]
    step = -(-len(members) // SANITIZED_TURNS)
    names = [members[(place // 2 * step + which) % len(members)].name for which in range(SHORT_MEMBERS)]
    if place % 2:
        return names, []
    sanitized = [name for name in names[:step] if name in sanitizable]
    return [name for name in names if name not in sanitized], sanitized


def deal(tests: list[Test], sanitizable: set[str], turn: int) -> tuple[list[str], list[str]]:
    """The names of those for gcc, and of those for sanitizers, which have no others than those that are sanitizable."""
    plain, sanitized, alone = [], [], []
    for family, members in families_of(tests).items():
        if len(members) == 1:
            alone += members
        else:
            with_gcc, with_sanitizers = deal_family(family, members, sanitizable, turn)
            plain += with_gcc
            sanitized += with_sanitizers

    emulated = [test for test in alone if "vm" in test.suites]
    plain += share([test for test in emulated if not test.is_long], 3, turn)
    plain += share([test for test in emulated if test.is_long], 6, turn)
    sanitized += share([test for test in emulated if test.name in sanitizable], 3, turn - 1)

    long = [test for test in alone if test.is_long and test not in emulated]
    for kind in kinds_of(long):
        plain += share(kind, 3, turn - 2)  # so that the longest do not run in the turns that have the longest of the VM

    short = [test for test in alone if test not in emulated + long]
    halved = [test for test in short if "simnic" in test.suites and test.name in sanitizable]
    plain += share(halved, 2, turn)
    sanitized += share(halved, 2, turn + 1)

    others = [test.name for test in short if test not in halved]
    plain += others
    sanitized += [name for name in others if name in sanitizable]
    return plain, sanitized


def deal_quick(tests: list[Test], turn: int) -> list[str]:
    """One of each family of those that are neither long nor in the VM."""
    short = [test for test in tests if not test.is_long and "vm" not in test.suites]
    return [members[place_of(family, turn) % len(members)].name for family, members in families_of(short).items()]


def those_in(tests: list[Test], options: list[str], names: set[str]) -> list[str]:
    wanted, unwanted = ({option.removeprefix(word) for option in options if option.startswith(word)} for word in ("--suite=", "--no-suite="))
    return [test.name for test in tests if test.name in names and (not wanted or test.suites & wanted) and not test.suites & unwanted]


def other_build(turn: int) -> str:
    return ("clang", "thread")[turn % 2]


def tests_of(build: str) -> list[Test]:
    listed = subprocess.run(["meson", "introspect", "--tests", build], capture_output=True, check=True)
    return [Test(test["name"], {suite.split(":")[-1] for suite in test["suite"]}) for test in json.loads(listed.stdout)]


def main() -> None:
    if sys.argv[1] == "those":
        sys.stdout.writelines(f"{name}\n" for name in those_in(tests_of(sys.argv[2]), sys.argv[3:], set(sys.stdin.read().splitlines())))
        return
    turn, part, builds = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if part == "build":
        print(other_build(turn))
        return
    tests = tests_of(builds[0])
    if part == "quick":
        names = deal_quick(tests, turn)
    else:
        is_there = Path(builds[1], "build.ninja").exists()
        sanitizable = {test.name for test in tests_of(builds[1]) if not test.is_long} if is_there else set()
        names = deal(tests, sanitizable, turn)[part == "sanitize"]
    print("\n".join(names))


if __name__ == "__main__":
    main()
