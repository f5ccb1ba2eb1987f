"""counts.py: how many instructions the application's thread takes for a call, by callgrind.

As the difference of two runs of a client, so that opening cancels out, and of its own thread alone. What simnic does in that thread is left
out, and so is what it calls. A client that is counted sleeps when it has found nothing: how often it looks in vain says nothing about a
call."""
import os
import re
import sys
import tempfile
from pathlib import Path

from programs import SOURCE, Cell, Failed, measure

sys.path.append(str(SOURCE / "bench"))
from counting import CALLGRIND, NOT_OURS

CELL = Cell(32, 256, 1)
FEW, MANY = 2560, 10240
RUNS = 2  # of each the one that took least: whatever disturbs a run adds to it
# What simnic has libc do for each call. (Opening is the same in both runs; much of it is the dynamic linker's, which is not counted anyway.)
LEAVES = re.compile(r"mem(cpy|set|move|cmp)|mprotect|clock_gettime|pthread_mutex_(un)?lock|syscall|sched_yield|nanosleep|errno")
LIMIT_SECONDS = 90
NOT_KEPT = (None, None)  # on a processor: valgrind runs one thread at a time as it is


def foreign(name):
    return any(other in name for other in NOT_OURS)


def instructions_in(text):
    """Of a callgrind file with long names: what each object took itself, but for simnic and its like, and less what these had libc do."""
    total, object_, callee, function, calling = 0, "", "", "", False
    for line in text.splitlines():
        name = re.match(r"(c?)ob=(.*)$", line)
        if name:
            callee = name.group(2) if name.group(1) else callee
            object_ = object_ if name.group(1) else name.group(2)
        elif line.startswith("fn="):
            callee = object_
        elif line.startswith("cfn="):
            function = line[4:]
        elif line.startswith("calls="):
            calling = True  # the next line is what the callee took in all
        elif re.match(r"\d", line):
            cost = int(line.split()[1])
            if not calling and not foreign(object_):
                total += cost
            elif calling and foreign(object_) and "/libc.so" in callee and LEAVES.search(function):
                total -= cost
            if calling:
                callee, calling = object_, False
    return total


def client_words(peer, port, calls):
    words = peer.words("client", port, CELL, 1, 0)
    if peer.name == "copyrpc":
        return [*words[:words.index("--time")], "--wait", "-n", str(calls), "--warmup", "0"]
    return [*words[:words.index("--time")], "--warmup", "0", "--calls", str(calls), "--patient"]


def server_words(peer, port):
    return [*peer.words("server", port, CELL, 1, 0), "--wait" if peer.name == "copyrpc" else "--patient"]


def total(peer, port, calls):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        counted = [*CALLGRIND, "--separate-threads=yes", "--compress-strings=no", "--compress-pos=no", "--callgrind-out-file=" + out]
        measure(peer, CELL, port, NOT_KEPT, 1, 0, counted, client_words(peer, port, calls), server_words(peer, port), LIMIT_SECONDS)
        threads = [path for path in Path(folder).glob("out*-01") if path.stat().st_size > 0]
        if not threads:
            raise Failed("callgrind has written nothing")
        return max(instructions_in(path.read_text(errors="replace")) for path in threads)


def per_call(peer, ports):
    """Instructions of one call. Raises Failed if the client cannot be counted."""
    if peer.counts:
        raise Failed(peer.counts)
    few, many = (min(total(peer, port, calls) for port in ports) for calls in (FEW, MANY))
    return (many - few) / (MANY - FEW)
