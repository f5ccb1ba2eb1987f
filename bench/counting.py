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
TRY_AGAIN = 75
LANDING_US_MAX = 1000000  # longer than anything stands still
libc: set[str] = set()  # functions of it that were called by what was counted


def self_cost(path):
    """Instructions, without what the device's library took; and the functions of libc that took some."""
    objects, functions, object_, function, calling, total, called = {}, {}, "", "", False, 0, set()
    for line in Path(path).read_text().splitlines():
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
            if not calling and len(fields) > 1 and not any(not_ours in object_ for not_ours in NOT_OURS):
                total += int(fields[1])
                if "/libc.so" in object_ and int(fields[1]) > 0:
                    called.add(function)
            calling = False
    return total, called


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


def run(simnic, command, function, *options):
    """What was counted: in all, or in each part that the options have callgrind write."""
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "out")
        arguments = [simnic, "run", "--private", "--", "env", "LD_BIND_NOW=1", "valgrind", "-q",
                     # a doorbell that traps is made by a signal handler, which needs the registers
                     "--px-default=allregs-at-mem-access", "--px-file-backed=allregs-at-mem-access",
                     "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=" + function,
                     "--callgrind-out-file=" + out, *options] + command
        patient(arguments)
        parts = sorted(Path(work).glob("out.[0-9]*"), key=lambda part: int(part.suffix[1:]))
        return [self_cost(part) for part in parts or [out]]


def each(simnic, command, function, few, many, units):
    """Instructions of the function a unit, a round being `units`."""
    runs = [run(simnic, [str(rounds) if word is None else word for word in command], function)[0] for rounds in (few, many)]
    counts = [total for total, called in runs]
    libc.update(*(called for total, called in runs))
    return (counts[1] - counts[0]) / ((many - few) * units)


def usual(simnic, command, function, rounds, units):
    """Instructions a unit of a function that each round calls once, for so many units: what an undisturbed call takes. Whatever disturbs a
    call adds to it, and on a busy machine may disturb most: a doorbell that traps is tried until the device has made room for it, and
    traps call libc. So it is the least that two calls took."""
    parts = run(simnic, [str(rounds) if word is None else word for word in command], function, "--dump-after=" + function)
    calls = [(total, called) for total, called in parts if total > 0]
    libc.update(*(called for total, called in calls))
    times = Counter(total for total, called in calls)
    return min((total for total in times if times[total] > 1), default=min(times)) / units
