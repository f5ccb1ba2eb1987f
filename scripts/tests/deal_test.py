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
    Test("of another suite, mlx5", {"conformance", "slow"}),
    Test("of another suite, verbs", {"conformance", "slow"}),
    Test("three, mlx5", {"simnic"}),
    Test("three, verbs", {"simnic"}),
    Test("three, mlx5 compressed", {"simnic"}),
    Test("two, mlx5", {"simnic"}),
    Test("two, verbs", {"simnic"}),
    Test("one of two is long, mlx5", {"simnic"}),
    Test("one of two is long, verbs", {"simnic", "long"}),
    Test("two of three are long, mlx5", {"simnic"}),
    Test("two of three are long, verbs", {"simnic", "long"}),
    Test("two of three are long, mlx5 compressed", {"simnic", "long"}),
    Test("slow, mlx5", {"simnic", "slow"}),
    Test("slow, verbs", {"simnic", "slow"}),
    Test("in the VM 1", {"vm"}),
    Test("in the VM 2", {"vm", "slow"}),
    Test("in the VM 3", {"vm"}),
]
TURNS = [deal(TESTS, turn) for turn in range(6)]
NAMES = {test.name for test in TESTS}


def in_each(part, names):
    return all(set(names) <= set(turn[part]) for turn in TURNS)


def of(part, family):
    """Which members of the family this part has, turn by turn."""
    return [{name for name in turn[part] if name.rpartition(", ")[0] == family} for turn in TURNS]


def once(family):
    """Every second turn gives the sanitizers one of the family; gcc has the others, or all."""
    pairs = list(zip(of(0, family), of(1, family), strict=True))
    return [len(b) for _, b in pairs] in ([1, 0] * 3, [0, 1] * 3) and all(not a & b for a, b in pairs)


def each_in_its_turn(part, family):
    """Over the turns, all that are neither long nor slow have sanitizers, or all that are have gcc."""
    wanted = {test.name for test in TESTS if test.family == family and bool(test.suites & {"long", "slow"}) == (part == 0)}
    return wanted <= set().union(*of(part, family))


def all_run(family, count):
    return all(len(a) + len(b) == count for a, b in zip(of(0, family), of(1, family), strict=True))


def halves(names):
    """Each turn, either part has what the other has not, and the next turn it is the other way round."""
    parts = [[{name for name in part if name in names} for part in turn] for turn in TURNS]
    return all(a | b == names and not a & b for a, b in parts) and all(
        one[0] == two[1] and one[1] == two[0] for one, two in zip(parts, parts[1:], strict=False)
    )


CHECKS = [
    ("every test runs in some turn", set().union(*(set(plain) | set(sanitized) for plain, sanitized in TURNS)) == NAMES),
    ("none runs twice in the same build", all(len(set(part)) == len(part) for turn in TURNS for part in turn)),
    ("what is no family runs in both", all(in_each(part, ["alone", "alone, natively"]) for part in (0, 1))),
    ("conformance is no family", in_each(0, ["of another suite, mlx5", "of another suite, verbs"])),
    ("of three, one has sanitizers every second time, and gcc the others", once("three") and all_run("three", 3)),
    ("of two, one has sanitizers every second time, and gcc the other", once("two") and all_run("two", 2)),
    ("each in its turn", each_in_its_turn(1, "three") and each_in_its_turn(1, "two")),
    ("where the others are long, sanitizers have the one that is not", once("one of two is long") and once("two of three are long")),
    ("of those that are long, gcc has one", all_run("one of two is long", 2) and all_run("two of three are long", 2)),
    ("and of those that are slow", all_run("slow", 1) and not any(of(1, "slow"))),
    ("of those in the VM, either part has half", halves({"in the VM 1", "in the VM 2", "in the VM 3"})),
    ("each of these in its turn, too", each_in_its_turn(0, "two of three are long") and each_in_its_turn(0, "slow")),
    ("the same turn deals in the same way", deal(TESTS, 4) == TURNS[4]),
]
report([(name, [] if good else [f"turn {number}: {turn}" for number, turn in enumerate(TURNS)]) for name, good in CHECKS])
