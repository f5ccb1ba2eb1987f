"""mutate.py: breaks an engine on purpose, one rule at a time, and expects its simulation to notice. What
core/*/tests/mutations.py share; they have the rules."""
import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from checks import Checks, note


@dataclass
class Mutation:
    """A rule that is taken away: in one file of the engine, each text gives way to another."""

    name: str
    file: str
    changes: list[tuple[str, str]]


def pattern_of(text: str) -> str:
    """Matches the text however the formatter has broken its lines."""
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", text))


def what_failed(run: subprocess.CompletedProcess[str]) -> str:
    found = [line for line in run.stdout.splitlines() if line.startswith("# step")]
    return found[0][2:] if found else f"it ended with status {run.returncode}"


class Engine:
    """An engine over the in-memory NIC, and its simulation. What no mutation touches is compiled once. Sources are named from core on."""

    FOLDERS = ("base", "lane", "link", "registration", "nic/memory")

    def __init__(self, root: Path, folder: str, programs: list[str], steps: int, helper: str = "link/tests/late_cm.c") -> None:
        """`folder`: the service's; `programs`: the simulation's sources, in its tests; `helper`: what stands for core/cm."""
        self.root = root
        self.core = root / "core"
        self.folder = folder
        self.steps = steps
        self.sources = [source.relative_to(self.core) for path in (folder, *self.FOLDERS) for source in sorted((self.core / path).glob("*.c"))]
        self.sources += [Path(folder) / "tests" / program for program in programs]
        shared = ("change.c", "ece.c", "initiators.c", "partition.c", "queue.c", "queue_pair.c", "stream.c", "tags.c", "target.c")
        self.sources += [Path("nic") / name for name in shared]
        self.sources += [Path(helper), Path("link/tests/simulation.c")]
        self.work = Path(tempfile.mkdtemp())

    def compile(self, source: Path, core: Path, target: Path) -> Path:
        """Compiles core/source, with the headers of that core before those of the tree."""
        target.parent.mkdir(parents=True, exist_ok=True)
        words = ["cc", "-c", "-O1", "-w", "-std=gnu11", "-D_GNU_SOURCE", *(f"-I{path}" for path in (core, self.core, self.root / "capi"))]
        subprocess.run([*words, "-o", target, core / source], check=True, capture_output=True, text=True)
        return target

    def prepare(self, pool: ThreadPoolExecutor) -> None:
        whole = {source: pool.submit(self.compile, source, self.core, self.work / "whole" / f"{source}.o") for source in self.sources}
        self.objects = {source: done.result() for source, done in whole.items()}

    def link(self, objects: dict[Path, Path], program: Path) -> Path:
        subprocess.run(["cc", "-o", program, *objects.values()], check=True, capture_output=True, text=True)
        return program

    def run_whole(self) -> str:
        """Gives what the simulation finds wrong in the engine as it is, which is nothing; how long that takes limits the others."""
        begun = time.monotonic()
        program = self.link(self.objects, self.work / "simulate")
        run = subprocess.run([program, "--steps", str(self.steps)], capture_output=True, text=True, check=False)
        self.limit_s = 60 + 100 * (time.monotonic() - begun)
        return f"it ended with status {run.returncode}: {run.stdout[-1000:]}{run.stderr[-1000:]}" if run.returncode else ""

    def build(self, mutation: Mutation, work: Path) -> Path:
        """Gives the simulation of the broken engine. A header changes all sources of the service, of lanes and of links, a source itself alone."""
        core = work / "core"
        for folder in (self.folder, "lane", "link"):
            shutil.copytree(self.core / folder, core / folder)
        file = Path(mutation.file if "/" in mutation.file else f"{self.folder}/{mutation.file}")
        if not (core / file).exists():  # a source that several services use
            (core / file).parent.mkdir(parents=True)
            shutil.copy(self.core / file, core / file)
        text = (core / file).read_text()
        for old, new in mutation.changes:
            text, count = re.subn(pattern_of(old), new.replace("\\", "\\\\"), text)
            if count == 0:
                raise LookupError(f"the text to change is not in {mutation.file}: {old.strip().splitlines()[0]}")
        (core / file).write_text(text)
        copied = [source for source in self.sources if (core / source).exists()]
        changed = copied if file.suffix == ".h" else [file]
        objects = {**self.objects, **{source: self.compile(source, core, work / f"{source}.o") for source in changed}}
        return self.link(objects, work / "simulate")

    def replay(self, program: Path, run: subprocess.CompletedProcess[str]) -> str:
        """Runs again, alone, the first episode that failed: at the same step the same has to be wrong. Gives what is not so, which is nothing."""
        told = [line for line in (run.stdout + run.stderr).splitlines() if line.startswith("# replay: ")]
        if not told:
            return f"{what_failed(run)}, and nothing says how to replay it"
        again = subprocess.run([program, *told[0].split()[3:]], capture_output=True, text=True, timeout=self.limit_s, check=False)
        if what_failed(again) == what_failed(run):
            return ""
        return f"{what_failed(run)}; replayed, {what_failed(again) if again.returncode else 'it did not fail'}: {told[0]}"

    def outcome(self, mutation: Mutation) -> tuple[Mutation, bool, str]:
        work = Path(tempfile.mkdtemp(dir=self.work))
        try:
            program = self.build(mutation, work)
            run = subprocess.run([program, "--steps", str(self.steps)], capture_output=True, text=True, timeout=self.limit_s, check=False)
            wrong = self.replay(program, run) if run.returncode else ""
        except LookupError as error:
            return mutation, False, str(error)
        except subprocess.CalledProcessError as error:
            return mutation, False, f"it does not compile: {error.stderr[:200]}"
        except subprocess.TimeoutExpired:
            return mutation, True, "it does not end"
        finally:
            shutil.rmtree(work)
        if run.returncode == 0:
            return mutation, False, "the simulation did not notice"
        return mutation, not wrong, wrong or what_failed(run)


def main(engine: Engine, mutations: list[Mutation]) -> int:
    """Tries them. Prints TAP; returns 3 if none has the part in its name that was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("part", nargs="?", default="", help="only those whose names have this in them")
    parser.add_argument("--sample", type=int, help="so many at most, from the whole list, which differ from run to run")
    parser.add_argument("--place", type=int, help="those of a sample that had this place")
    options = parser.parse_args()
    chosen = [mutation for mutation in mutations if options.part in mutation.name]
    which = "all"
    if options.sample:
        step = -(-len(chosen) // options.sample)
        place = random.randrange(step) if options.place is None else options.place % step
        which = f"one in {step}; --sample {options.sample} --place {place} takes the same"
        chosen = chosen[place::step]
    if not chosen:
        print("1..0")
        return 3
    checks = Checks(len(chosen) + 1)
    note(which)
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            engine.prepare(pool)
            wrong = engine.run_whole()
            checks.check(not wrong, "the engine as it is has nothing to notice", wrong)
            for mutation, noticed, what in pool.map(engine.outcome, chosen):
                checks.check(noticed, f"noticed: {mutation.name}")
                note(what)
    finally:
        shutil.rmtree(engine.work)
    return checks.end()


if __name__ == "__main__":
    sys.exit("mutate.py is used by core/*/tests/mutations.py")
