"""deal_test.py SOURCE_ROOT: how ./dev test deals tests between gcc and the sanitizers. TAP."""
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]
from deal_tests import Test, deal  # noqa: E402
from layers import report  # noqa: E402

TESTS = [
    Test("alone", {"unit"}),
    Test("alone, natively", {"simnic"}),
    Test("three, mlx5", {"simnic"}),
    Test("three, verbs", {"simnic"}),
    Test("three, mlx5 compressed", {"simnic"}),
    Test("two, mlx5", {"simnic"}),
    Test("two, verbs", {"simnic"}),
    Test("long others, mlx5", {"simnic"}),
    Test("long others, verbs", {"simnic", "long"}),
    Test("slow, mlx5", {"simnic", "slow"}),
    Test("slow, verbs", {"simnic", "slow"}),
]
TURNS = [deal(TESTS, turn) for turn in range(6)]
NAMES = {test.name for test in TESTS}


def in_each(part, names):
    return all(set(names) <= set(turn[part]) for turn in TURNS)


def of(part, family):
    """Which members of the family this part has, turn by turn."""
    return [{name for name in turn[part] if name.rpartition(", ")[0] == family} for turn in TURNS]


def once(family, sanitized):
    """Each turn gives the sanitizers so many of the family, and gcc the others."""
    return all(len(b) == sanitized and not a & b for a, b in zip(of(0, family), of(1, family), strict=True))


CHECKS = [
    ("every test runs in every turn", all(set(plain) | set(sanitized) == NAMES for plain, sanitized in TURNS)),
    ("none runs twice in the same build", all(len(set(part)) == len(part) for turn in TURNS for part in turn)),
    ("what is no family runs in both", in_each(0, ["alone", "alone, natively"]) and in_each(1, ["alone", "alone, natively"])),
    ("one of a family has sanitizers", once("three", 1) and once("two", 1)),
    ("each of three in its turn", set.union(*of(1, "three")) == {test.name for test in TESTS if test.family == "three"}),
    ("each of two in its turn", set.union(*of(1, "two")) == {"two, mlx5", "two, verbs"}),
    ("what is long or slow is for gcc", in_each(1, ["long others, mlx5"]) and in_each(0, ["long others, verbs", "slow, mlx5", "slow, verbs"])),
    ("and for gcc alone", once("long others", 1) and once("slow", 0)),
    ("the same turn deals in the same way", deal(TESTS, 4) == TURNS[4]),
]
report([(name, [] if good else [f"turn {number}: {turn}" for number, turn in enumerate(TURNS)]) for name, good in CHECKS])
