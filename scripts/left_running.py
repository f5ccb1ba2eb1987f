#!/usr/bin/env python3
"""left_running.py NAME=VALUE: ends the programs that have this in their environment and still run ten seconds from now, and prints a
line for each: what it was started as. ./dev test gives all that it starts such a mark, which survives setsid and a parent's end."""
import os
import signal
import sys
import time
from pathlib import Path

PATIENCE_S = 10


def marked(mark: bytes) -> dict[int, str]:
    """Process number to command line. A process that has ended and waits for its parent has none."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split()
                if words:
                    found[int(folder.name)] = " ".join(words)
        except OSError:
            continue  # gone, or another user's
    return found


def main() -> None:
    mark = sys.argv[1].encode()
    end = time.monotonic() + PATIENCE_S
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.2)
    for process, command in left.items():
        print(command)
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            continue  # it was quicker


if __name__ == "__main__":
    main()
