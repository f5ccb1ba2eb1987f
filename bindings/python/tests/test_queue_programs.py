"""The programs in Python of docs/queues.md, exactly as printed, with those in C as their peers."""
import os
import re
import subprocess
import time

import pytest
from conftest import STRICT_PYTHON
from test_dynamic import needs_dc

BUILD, SOURCE = os.environ["TEST_BUILD"], os.environ["TEST_SOURCE"]


def section(heading):
    with open(os.path.join(SOURCE, "docs/queues.md")) as file:
        return file.read().split(f"\n## {heading}")[1].split("\n## ")[0]


class Programs:
    """Those of one section."""

    def __init__(self, heading, folder):
        text = section(heading)
        self._python = text.split("```python\n")[1].split("```")[0]
        self._c = folder / "program"
        folder.joinpath("program.c").write_text(text.split("```c\n")[1].split("```")[0])
        library = os.path.join(BUILD, "capi")
        headers = os.path.join(SOURCE, "capi")
        command = ["cc", "-o", self._c, f"{self._c}.c", f"-I{headers}", f"-L{library}", f"-Wl,-rpath,{library}", "-lcopyrpc"]
        subprocess.run(command, check=True)
        self._started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._started:
            process.kill()
            process.wait()
            process.stdout.close()

    def _start(self, command):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._started.append(process)
        return process

    def start_c(self, *arguments):
        return self._start([str(self._c), *arguments])

    def start_python(self, *arguments):
        return self._start([*STRICT_PYTHON, "-c", self._python, *arguments])


def result(process):
    return process.communicate(timeout=60)[0], process.returncode


def until_done(start, *arguments):
    """Runs a program again and again, until its peer listens."""
    deadline = time.monotonic() + 60
    while True:
        done = result(start(*arguments))
        if done[1] == 0 or time.monotonic() > deadline:
            return done
        time.sleep(0.05)


def test_rc(address, tmp_path):
    with Programs("RC", tmp_path) as programs:
        programs.start_c(address)
        assert until_done(programs.start_python, address) == ("whoever connects may read this\n", 0)


def test_srq(address, tmp_path):
    with Programs("SRQ", tmp_path) as programs:
        receiver = programs.start_python(address)
        for text in ("one", "two", "three"):
            assert until_done(programs.start_c, address, text) == ("CRPC_OK\n", 0)
        assert result(receiver) == ("one\ntwo\nthree\n", 0)


def test_datagrams(tmp_path):
    with Programs("UD", tmp_path) as programs:
        where = programs.start_c().stdout.readline().strip()
        assert result(programs.start_python(where)) == ("whoever knows the key may ask this\n", 0)


@needs_dc
@pytest.mark.parametrize("sender", ["start_c", "start_python"])
def test_dc(sender, tmp_path):
    with Programs("DCI and DCT", tmp_path) as programs:
        receivers = [programs.start_c(), programs.start_python()]
        first, second = (one.stdout.readline().strip() for one in receivers)
        nobody = re.sub("^(.{8}).{8}", r"\1ffff0000", first)
        told, status = result(getattr(programs, sender)(first, nobody, second))
        assert (status, sorted(told.splitlines())) == (0, ["0: CRPC_OK", "1: CRPC_E_DISCONNECTED", "2: CRPC_OK"])
        assert [one.stdout.readline() for one in receivers] == ["you are number 0\n", "you are number 2\n"]


def test_tags(address, tmp_path):
    with Programs("TM-SRQ", tmp_path) as programs:
        receiver = programs.start_python(address)
        for tag, text in ((1, "moon"), (300, "384400 km"), (7, "sun")):
            assert until_done(programs.start_c, address, str(tag), text) == ("CRPC_OK\n", 0)
        assert result(receiver) == ("word: moon\nnumber: 384400 km\ntag 7: sun\n", 0)
