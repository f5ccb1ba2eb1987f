"""deal_test.py SOURCE_ROOT: how ./dev test deals tests between turns, and between gcc and the sanitizers. TAP."""
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]
from deal_tests import Test, deal, deal_quick, other_build, those_in  # noqa: E402
from layers import report  # noqa: E402

DRIVERS = ("mlx5", "verbs", "mlx5 compressed", "mlx5 enhanced", "DC")


def family(name, *long):
    """A member for each driver; those that are long have one of these suites."""
    return [Test(f"{name}, {driver}", {"simnic", *suite}) for driver, suite in zip(DRIVERS, long, strict=False)]


SHORT, LONG, SLOW = (), ("long",), ("slow",)
TESTS = [
    Test("unit", {"unit"}),
    Test("unit with gcc", {"unit"}),
    *(Test(f"alone {number}", {"simnic"}) for number in (1, 2, 3)),
    Test("alone, natively", {"simnic"}),
    Test("alone with gcc", {"simnic"}),
    *family("five", SHORT, SHORT, SHORT, SHORT, SHORT),
    *family("four", SHORT, SHORT, SHORT, SHORT),
    *family("three", SHORT, SHORT, SHORT),
    *family("two", SHORT, SHORT),
    *family("two with gcc", SHORT, SHORT),
    *family("one of two is long", SHORT, LONG),
    *family("two of three are long", SHORT, LONG, SLOW),
    *family("three of four are long", SHORT, LONG, LONG, LONG),
    *family("four of five are long", SHORT, LONG, LONG, LONG, LONG),
    *family("all are long", LONG, SLOW),
    Test("modes, plain", {"bindings"}),
    Test("modes, checked", {"bindings", "slow"}),
    Test("conformance, mlx5", {"conformance", "slow"}),
    Test("conformance, verbs", {"conformance", "slow"}),
    Test("no family, mlx5", {"unit"}),
    Test("no family, verbs", {"unit"}),
    *(Test(f"costs {number}", {"bench", "slow"}) for number in range(6)),
    Test("costs of a binding", {"bench", "bindings", "slow"}),
    Test("mutations", {"sim", "slow"}),
    Test("model", {"model", "slow"}),
    Test("the only one of its kind", {"scripts", "long"}),
    Test("of no kind", {"new", "slow"}),
    *(Test(f"in the VM {number}", {"vm"}) for number in range(7)),
    *(Test(f"long in the VM {number}", {"vm", "long"}) for number in range(5)),
]
NAMES = {test.name for test in TESTS}
LONG_NAMES = {test.name for test in TESTS if test.is_long}
VM, LONG_VM = ({name for name in NAMES if name.startswith(words)} for words in ("in the VM", "long in the VM"))
SANITIZABLE = {name for name in NAMES - LONG_NAMES if "with gcc" not in name and name not in ("modes, plain", "in the VM 6")}
PERIOD = 6
TURNS = [deal(TESTS, SANITIZABLE, turn) for turn in range(2 * PERIOD)]


def either(turn):
    return set(turn[0]) | set(turn[1])


def in_each(part, *names):
    return all(set(names) <= set(turn[part]) for turn in TURNS)


def of(name):
    """Which members of the family each turn has with gcc, and which with sanitizers."""
    return [tuple({one for one in part if one.rpartition(", ")[0] == name} for part in turn) for turn in TURNS]


def run(name, count):
    """So many members of the family run each time, each in one build."""
    return all(len(plain) + len(sanitized) == count for plain, sanitized in of(name))


def sanitized_every_second_time(name, count=1):
    return [len(sanitized) for _, sanitized in of(name)] in ([0, count] * PERIOD, [count, 0] * PERIOD)


def shares(names, part, count):
    """Each of so many consecutive turns has some of these, and about as many; together they have each once."""
    dealt = [set(turn[part]) & names for turn in TURNS]
    sizes = {len(some) for some in dealt}
    return max(sizes) - min(sizes) <= 1 and min(sizes) > 0 and all(
        set().union(*dealt[at : at + count]) == names and sum(map(len, dealt[at : at + count])) == len(names) for at in range(len(dealt) - count)
    )


def all_in_six(part, names):
    return all(names <= set().union(*(turn[part] for turn in TURNS[at : at + PERIOD])) for at in range(PERIOD))


def in_one_build(names):
    return all(names <= either(turn) and not names & set(turn[0]) & set(turn[1]) for turn in TURNS)


ALONE = {"alone 1", "alone 2", "alone 3", "alone, natively"}
SUITED = {"unit", "mutations", "in the VM 1", "long in the VM 1", "five, mlx5"}
FAMILIES = {test.family for test in TESTS if test.family != test.name}
QUICK = [set(deal_quick(TESTS, turn)) for turn in range(PERIOD)]

CHECKS = [
    ("any six turns in a row have each test with gcc", all_in_six(0, NAMES)),
    ("and with sanitizers, if it is for them", all_in_six(1, SANITIZABLE)),
    ("what is not for sanitizers is not dealt to them", all(set(sanitized) <= SANITIZABLE for _, sanitized in TURNS)),
    ("none runs twice in the same build", all(len(set(part)) == len(part) for turn in TURNS for part in turn)),
    ("each unit test runs each time with gcc, and with sanitizers",
     in_each(0, "unit", "unit with gcc", "no family, mlx5", "no family, verbs") and in_each(1, "unit")),
    ("each turn has some of each family", all(any(of(name)[turn]) for name in FAMILIES for turn in range(len(TURNS)))),
    ("of five drivers, two run, and of four, three and two", all(run(name, 2) for name in ("five", "four", "three", "two", "two with gcc"))),
    ("every second time, one of them with sanitizers", sanitized_every_second_time("three") and sanitized_every_second_time("two")),
    ("of four and of five, both, or they would not all come within six turns",
     sanitized_every_second_time("four", 2) and sanitized_every_second_time("five", 2)),
    ("if some are long, one runs",
     all(run(name, 1) for name in ("one of two is long", "two of three are long", "three of four are long", "four of five are long", "all are long"))),
    ("one of two ways to compile, too", run("modes", 1)),
    ("what is alone on simnic runs each time, half of it with sanitizers",
     in_one_build(ALONE) and shares(ALONE, 0, 2) and shares(ALONE, 1, 2)),
    ("all of it with gcc, if it is for gcc alone", in_each(0, "alone with gcc")),
    ("of conformance, one driver runs", shares({"conformance, mlx5", "conformance, verbs"}, 0, 2)),
    ("of other long tests, a third of each kind, whatever else it is", shares({name for name in NAMES if name.startswith("costs")}, 0, 3)),
    ("of a kind of two, one; mutations and models are a kind", shares({"mutations", "model"}, 0, 2)),
    ("the only one of its kind runs each time", in_each(0, "the only one of its kind", "of no kind")),
    ("of those in the VM, a third runs with gcc", shares(VM, 0, 3)),
    ("of the long ones, one of six, or of fewer", shares(LONG_VM, 0, 5)),
    ("and of those that are for sanitizers, a third with these", shares(VM & SANITIZABLE, 1, 3)),
    ("two turns in a row have both of the other builds", all({other_build(turn), other_build(turn + 1)} == {"clang", "thread"} for turn in range(PERIOD))),
    ("a quick run has one of each family, and all else that is short",
     all({test.family for test in TESTS if test.name in names} == {test.family for test in TESTS if test.name in NAMES - LONG_NAMES - VM}
         and len({test.family for test in TESTS if test.name in names}) == len(names) and not names & (LONG_NAMES | VM) for names in QUICK)),
    ("of some names, those in any of the suites are told, and none in another",
     those_in(TESTS, ["--suite=vm", "--suite=sim", "--no-suite=long"], SUITED) == ["mutations", "in the VM 1"]),
    ("without suites that are wanted, all in none of the unwanted",
     set(those_in(TESTS, ["--no-suite=vm", "--no-suite=sim"], SUITED)) == {"unit", "five, mlx5"}),
    ("the same turn deals in the same way", deal(TESTS, SANITIZABLE, 4) == TURNS[4]),
]
report([(name, [] if good else [f"turn {number}: {turn}" for number, turn in enumerate(TURNS)]) for name, good in CHECKS])
