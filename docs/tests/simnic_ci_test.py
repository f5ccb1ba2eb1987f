"""simnic_ci_test.py PAGE BINARIES: runs the commands of docs/simnic-ci.md as printed, with the simnic that is in the folder BINARIES, and looks for
the lines that follow them there, with any figures in place of those printed. A block is skipped where the machine lacks the program that it is about.
Prints TAP."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from checks import Checks

UCX_RDMA = Path(__file__).resolve().parents[2] / "tests/ucx_rdma.sh"

page, binaries = Path(sys.argv[1]), Path(sys.argv[2]).resolve()

# What each section's blocks are about, besides ibverbs-utils. None: they change the machine, and are tried elsewhere.
NEEDS: dict[str, list[str] | None] = {
    "Install": None,  # by ./dev package simnic, ./dev package debian, and the test "install"
    "Look": ["ibv_devinfo"],
    "perftest": ["ib_write_bw"],
    "Two hosts": ["ib_read_bw"],
    "InfiniBand": ["ib_send_bw"],
    "UCX": ["ucx_perftest"],
    "libfabric": ["fi_pingpong", "fi_info"],
    "MPI": ["mpirun", "mpicc"],
    "Your own program": ["cc"],
    "Faults": ["ib_write_bw", "ibv_devinfo"],
}


@dataclass
class Block:
    section: str
    language: str
    text: str
    before: str  # the paragraph that leads to it


def blocks(text: str) -> list[Block]:
    found = []
    section = ""
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        section, _, body = part.partition("\n")
        for match in re.finditer(r"^```(\w+)\n(.*?)^```$", body, flags=re.M | re.S):
            found.append(Block(section, match[1], match[2], body[:match.start()].rstrip().rpartition("\n\n")[2]))
    return found


def pattern(line: str) -> re.Pattern[str]:
    """Words as they are, with any room between them; figures with a point, and long ones, are measured. Those before a unit, too."""
    words = []
    for word in line.split():
        measured = re.fullmatch(r"\d+\.\d+s?|\d{5,}", word) and word != "65536"
        words.append(r"(?:[\d.]+|inf|-?nan)s?" if measured else re.escape(word).replace("MB/sec", "Mi?B/sec"))  # as newer perftests call it
    return re.compile(r"^\s*" + r"\s+".join(words) + r"\s*$", re.M)


checks = Checks()


def tell(name: str, failed: str) -> None:
    checks.check(not failed, name, failed)


def run(block: Block, expected: str, work: Path) -> str:
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "LC_ALL": "C", "SIMNIC_SESSION_NAME": f"page.{os.getpid()}",
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for name in ("SIMNIC_SESSION", "SIMNIC_LINK", "SIMNIC_FAULT"):  # the page's sessions are its own
        environment.pop(name, None)
    # A file, since what a server prints may come when the client has ended.
    with (work / "output").open("w+") as output:
        status = subprocess.run(["bash", "-ec", block.text], cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                stderr=subprocess.STDOUT, timeout=200, check=False).returncode
        output.seek(0)
        printed = output.read()
    wrong = [f"exit status {status}"] if status else []
    wrong += [f"not printed: {line}" for line in expected.splitlines() if not pattern(line).search(printed)]
    return "\n".join([*wrong, "printed:", printed]) if wrong else ""


def recipes() -> str:
    """The files that the page and the workflow name are there, and what the workflow runs is a script."""
    source = page.resolve().parents[1]
    workflow = (source / "packaging/simnic/github-actions.yml").read_text()
    named = re.findall(r"docker build .* -f (\S+)", page.read_text()) + [
        path.removeprefix("copyrpc/") for path in re.findall(r"docker build .* -f (\S+)", workflow)]
    wrong = [f"there is no {path}" for path in named if not (source / path).is_file()] + ([] if len(named) == 2 else [f"two images are built: {named}"])
    scripts = re.findall(r"^ +run: ([^|\n].*)$", workflow, re.M) + re.findall(r"^ +run: \|\n((?:          .*\n)+)", workflow, re.M)
    wrong += [] if len(scripts) == 2 else [f"two steps run something: {scripts}"]
    return "\n".join(wrong + [done.stderr for script in scripts
                              if (done := subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, check=False)).returncode])


os.environ.pop("LD_PRELOAD", None)
found = blocks(page.read_text())
tell("the page has sections, of which this test knows all", "\n".join(
    sorted({block.section for block in found} ^ NEEDS.keys())))
tell("the page and the workflow build an image by the Containerfile", recipes())
with tempfile.TemporaryDirectory(prefix="a test.") as folder:
    for at, block in enumerate(found):
        needs = NEEDS.get(block.section)
        if needs is None:
            continue
        if block.language == "c":
            name = re.search(r"`(\w+\.c)`", block.before)
            (Path(folder) / name[1]).write_text(block.text) if name else tell(f"a name for the program of {block.section}", block.before)
        if block.language != "sh":
            continue
        after = found[at + 1] if at + 1 < len(found) else None
        expected = after.text if after and after.language == "text" and after.section == block.section else ""
        title = f"{block.section}: {block.text.splitlines()[0]}".replace("#", "")
        lacking = [f"there is no {name}" for name in needs if not shutil.which(name)]
        if block.section == "UCX" and not lacking:
            lacking = subprocess.run([UCX_RDMA], stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()
        if lacking:
            checks.skip(title, lacking[0])
        else:
            tell(title, run(block, expected, Path(folder)) if expected else "the page does not say what it prints")
sys.exit(checks.end())
