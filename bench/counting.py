"""counting.py: instructions of functions, counted by callgrind on simnic: for instructions.py and channels.py.

Counted as the difference of two runs, so that opening and warming up cancel out; or, of a function that is called once a round, call by
call, as an undisturbed call was. What the virtual device does in the program's own thread (its doorbells trap) is left
out, by object."""
import os
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

NOT_OURS = ("libsimnic", "ld-linux", "vgpreload")
MEASURED = "bench_*"  # of several exact names, which also end a part, callgrind would count nothing
TRY_AGAIN = 75
LANDING_US_MAX = 1000000  # longer than anything stands still
#: How many times the limits a count may be. They are of gcc 12; a later compiler makes more, or fewer, instructions of the same source.
SLACK = float(os.environ.get("COUNTS_SLACK", "1"))
#: What a program is counted with, on simnic. Its options follow.
CALLGRIND = ["env", "LD_BIND_NOW=1", "SIMNIC_TRAPS=1", "valgrind", "-q",
             # else a thread that polls may keep one that connects from a lock for minutes
             "--fair-sched=try",
             # a doorbell that traps is made by a signal handler, which needs the registers
             "--px-default=allregs-at-mem-access", "--px-file-backed=allregs-at-mem-access", "--tool=callgrind"]
libc: set[str] = set()  # functions of it that were called by what was counted


def at_most(limit):
    return round(limit * SLACK, 2)


def self_cost(path, events=("Ir",)):
    """How many of the events there were, instructions if nothing else is asked for, without what the device's library took; the functions of
    libc that took some; and how many in each function."""
    objects, functions, object_, function, calling, called, by_function = {}, {}, "", "", False, set(), Counter()
    columns = []
    for line in path.read_text().splitlines():
        if line.startswith("events: "):
            columns = [1 + line.split()[1:].index(event) for event in events]
        name = re.match(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?$", line)
        if name:
            of_callee, kind, number, text = name.groups()
            table = objects if kind == "ob" else functions
            table[number] = text or table[number]
            if not of_callee and kind == "ob":
                object_ = table[number]
            elif not of_callee:
                function = table[number]
        elif line.startswith("calls="):
            calling = True  # the next line is the cost of the callee, which is listed by itself
        elif re.match(r"[+\-*\d]", line):
            fields = line.split()
            cost = sum(int(fields[column]) for column in columns if column < len(fields))
            if not calling and cost > 0 and not any(not_ours in object_ for not_ours in NOT_OURS):
                by_function[function] += cost
                if "/libc.so" in object_:
                    called.add(function)
            calling = False
    return by_function.total(), called, by_function


def trigger_of(path):
    """Why callgrind has written this file: an option, or the end of the program."""
    return re.search(r"^desc: Trigger: (.*)$", path.read_text(), re.MULTILINE).group(1)


def patient(arguments, **environment):
    """Runs a program, with more in its environment, and returns what it prints. On a busy machine the device may come too late for what is
    to be counted: then once more, and the program gives it four times as long."""
    landing_us = 2000
    while True:
        done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, LANDING_US=str(landing_us), **environment))
        if done.returncode != TRY_AGAIN or landing_us > LANDING_US_MAX:
            done.check_returncode()
            return done.stdout
        landing_us *= 4


def run(simnic, command, functions, *options, events=("Ir",)):
    """What was counted of the functions that this pattern names, none of which calls another: in all, or in each part that the options have
    callgrind write. Of each part: what ended it, and what self_cost says."""
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "out")
        arguments = [simnic, "run", "--private", "--", *CALLGRIND, "--collect-atstart=no", "--toggle-collect=" + functions,
                     "--callgrind-out-file=" + out, *options] + command
        patient(arguments)
        parts = sorted(Path(work).glob("out.[0-9]*"), key=lambda part: int(part.suffix[1:]))
        return [(trigger_of(part), *self_cost(part, events)) for part in parts or [Path(out)]]


def each(simnic, command, function, few, many, units):
    """Instructions of the function a unit, a round being `units`."""
    runs = [run(simnic, [str(rounds) if word is None else word for word in command], function)[0] for rounds in (few, many)]
    counts = [total for _, total, called, _ in runs]
    libc.update(*(called for _, total, called, _ in runs))
    return (counts[1] - counts[0]) / ((many - few) * units)


def parts_of(simnic, command, functions, rounds, *options, events=("Ir",)):
    """Of the calls of the functions, in their order: the function, and what self_cost says. callgrind takes a function for another whose
    name its own begins with, if it asks for that one first."""
    assert not any(one != another and one.startswith(another) for one in functions for another in functions)
    parts = run(simnic, [str(rounds) if word is None else word for word in command], MEASURED,
                *("--dump-after=" + function for function in functions), *options, events=events)
    named = [(trigger.removeprefix("--dump-after="), *rest) for trigger, *rest in parts]
    return [part for part in named if part[0] in functions]


def calls_of(simnic, command, functions, rounds):
    """Of the calls of the functions, in their order: the function, and what it took."""
    parts = parts_of(simnic, command, functions, rounds)
    libc.update(*(called for _, _, called, _ in parts))
    return [(function, total) for function, total, _, _ in parts]


def between_two(simnic, command, function, units):
    """Instructions of the function a unit, of a command that calls it twice, the second time for so many units more."""
    first, second = (total for _, total in calls_of(simnic, command, {function}, None))
    return (second - first) / units


def usual(simnic, command, functions, rounds, units):
    """Instructions a unit of each of the functions, which are all that are measured and which each round calls once, for so many units: what
    an undisturbed call takes. Whatever disturbs a call adds to it: a doorbell that traps is stored to once more, and traps call libc. So it
    is the least that two calls took."""
    calls = calls_of(simnic, command, set(functions), rounds)
    return [least(total for function, total in calls if function == wanted) / units for wanted in functions]


def usual_in_turn(simnic, command, shapes, rounds, units):
    """The same of a command that does so many rounds of one shape after the other; several may have the same functions. Opening takes longer
    under callgrind than the rounds of a shape."""
    calls = calls_of(simnic, command, {function for functions in shapes for function in functions}, rounds)
    wanted = [function for functions in shapes for _ in range(rounds) for function in functions]
    assert [function for function, _ in calls] == wanted, "the rounds are not those that were asked for"
    totals = iter(total for _, total in calls)
    found = []
    for functions in shapes:
        by_round = [[next(totals) for _ in functions] for _ in range(rounds)]
        found.append([least(column) / units for column in zip(*by_round, strict=True)])
    return found


def by_function(simnic, command, functions, rounds):
    """Of a call of each of the functions that was not disturbed: the instructions of each function that it called, the most first."""
    parts = parts_of(simnic, command, set(functions), rounds)
    found = {}
    for wanted in functions:
        usual_total = least([total for function, total, _, _ in parts if function == wanted])
        found[wanted] = next(dict(inside.most_common()) for function, total, _, inside in parts if (function, total) == (wanted, usual_total))
    return found


# As many lines as a part may touch, wherever they lie: so only the first touch of each is a miss.
COLD_CACHE = ("--cache-sim=yes", "--D1=65536,64,64", "--LL=1048576,16,64")


def cache_lines(simnic, command, functions, rounds):
    """The lines of data that a call of each of the functions touches, of a program that with $COLD pushes all else out of the cache before
    each: what misses it then. The one that is found most often, as who disturbs a call touches more, and the device's thread might less."""
    os.environ["COLD"] = "1"
    parts = parts_of(simnic, command, set(functions), rounds, *COLD_CACHE, events=("D1mr", "D1mw"))
    del os.environ["COLD"]
    return [Counter(total for function, total, _, _ in parts if function == wanted).most_common(1)[0][0] for wanted in functions]


def least(counts):
    """The smallest that is there twice, or the smallest."""
    times = Counter(counts)
    return min([count for count, many in times.items() if many > 1] or times)
