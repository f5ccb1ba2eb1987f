#!/usr/bin/env python3
"""go_folders.py GO BUILD: prints what must be exported for GO to keep what it has built, a line NAME=FOLDER each: nothing, unless the
folders that it would take, of the user's home, cannot be written. Then they are in the build folder BUILD. A user may have no home,
as in a container, or one that does not exist, as nobody and those of services; Go builds nothing without a cache.

run_tests.py, conformance/run.py and bench/bindings_go.py take go_folders() from here."""
import os
import subprocess
import sys


def can_be_written(folder):
    """Whether it is a folder that can be written, or could be made; it makes none."""
    if not os.path.isabs(folder):
        return False
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def go_folders(go, build):
    folders = {}
    for name, instead in (("GOCACHE", "go-cache"), ("GOPATH", "go")):
        # Which it says is not to be found, if there is no home: as good as one that cannot be written.
        taken = subprocess.run([go, "env", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
        if not can_be_written(taken.split(os.pathsep)[0]):
            folders[name] = os.path.join(os.path.abspath(build), instead)
    return folders


if __name__ == "__main__":
    for name, folder in go_folders(*sys.argv[1:]).items():
        print(f"{name}={folder}")
