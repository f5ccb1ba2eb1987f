#!/usr/bin/env python3
"""fuzz.py: runs the fuzz targets and looks after their corpora; `./dev fuzz --help` tells of it.

A *target* is a program fuzz_NAME of build/fuzz. Its *corpus* is what it has learned: a folder of inputs in build/fuzz/corpus, and in the
repository the file fuzz_NAME.corpus beside its source, in which each input follows its length in two bytes."""
import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "build/fuzz"
COVERAGE = ROOT / "build/fuzz-coverage"
INPUT_BYTES_MAX = 1024
PACK_BYTES_MAX = 300_000  # of one corpus in the repository

# What reads what a peer writes: whole files, or some functions of one.
PARSERS: dict[str, list[str]] = {
    "core/link/hello.c": [],
    "core/link/prove.c": ["link_prove_body_fault", "take_nonce", "take_proof", "take_body", "take_word", "link_prove_take"],
    "core/link/blob.c": ["link_address_take", "check_blob", "choose_side", "link_join"],
    "core/rpc/wire.h": ["wire_message_bytes", "wire_charge"],
    "core/rpc/receive.c": [],
    "core/rpc/send.c": ["endpoint_merge_limits", "take_mailbox"],
    "core/rpc/body.c": ["rpc_body_fault", "rpc_take_body", "rpc_check_demands"],
    "core/rpc/word.c": ["address_possible", "take_address", "take_state", "take_serial", "rpc_lane_take_word"],
    "core/lane/grant.c": ["check_wire", "lane_take", "lane_take_answer", "lane_take_revoke"],
    "core/channel/channel.c": ["body_fault", "attach"],
    "core/channel/control.c": ["take_bye", "take_message", "control_take"],
    "core/channel/receive.c": ["complete_by_record", "complete", "check_immediate", "receive_immediate"],
    "core/channel/send.c": ["copy_cts", "cts_valid", "read_head"],
    "core/channel/rail.c": ["take_addresses", "rail_take_offer", "rail_take_answer", "rail_take_probe", "rail_take_report", "arrived"],
    "core/channel/hint.c": [],
    "core/queue/life.c": ["body_fault"],
}


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


def fail(text: str) -> int:
    say(text)
    return 1


@dataclass
class Target:
    name: str
    program: str  # below the folder of a build
    pack: Path  # in the repository; may be missing

    @property
    def folder(self) -> Path:
        return FUZZ / "corpus" / self.name


def targets() -> list[Target]:
    """As meson knows them: fuzz_NAME, or simnic_fuzz_NAME."""
    listed = subprocess.run(["meson", "introspect", "--targets", FUZZ], capture_output=True, check=True)
    found = []
    for target in json.loads(listed.stdout):
        name = target["name"].removeprefix("simnic_")
        if target["type"] == "executable" and name.startswith("fuzz_"):
            program = Path(target["filename"][0]).relative_to(FUZZ)
            source = next(Path(one) for group in target["target_sources"] for one in group["sources"] if one.endswith(f"{name}.c"))
            found.append(Target(name.removeprefix("fuzz_"), str(program), source.resolve().with_suffix(".corpus")))
    return sorted(found, key=lambda one: one.name)


# ---- Corpora ----


def unpack(target: Target) -> None:
    target.folder.mkdir(parents=True, exist_ok=True)
    packed = target.pack.read_bytes() if target.pack.exists() else b""
    at = 0
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 2], "little")
        one = packed[at + 2 : at + 2 + size]
        (target.folder / hashlib.sha1(one, usedforsecurity=False).hexdigest()).write_bytes(one)
        at += 2 + size


def pack(target: Target) -> None:
    inputs = sorted((one.read_bytes() for one in target.folder.iterdir()), key=lambda one: (len(one), one))
    packed = b""
    for one in inputs:
        if len(packed) + 2 + len(one) > PACK_BYTES_MAX:
            say(f"{target.pack.name}: the longest inputs are left out")
            break
        packed += len(one).to_bytes(2, "little") + one
    target.pack.write_bytes(packed)
    say(f"{target.pack.relative_to(ROOT)}: {len(inputs)} inputs, {len(packed)} bytes")


def run(target: Target, *words: str, log: Path) -> int:
    longest = INPUT_BYTES_MAX if target.pack.exists() else 4096
    options = [f"-max_len={longest}", "-len_control=0", "-timeout=20", "-print_final_stats=1", f"-artifact_prefix={FUZZ}/{target.name}-"]
    environment = {"ASAN_OPTIONS": "quarantine_size_mb=8", **os.environ}
    with log.open("w") as output:
        command = [str(FUZZ / target.program), *options, *words]
        return subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=FUZZ, check=False).returncode


def minimise(target: Target) -> int:
    """Of inputs that reach the same, the smallest stay."""
    smaller = target.folder.with_suffix(".new")
    shutil.rmtree(smaller, ignore_errors=True)
    smaller.mkdir()
    status = run(target, "-set_cover_merge=1", str(smaller), str(target.folder), log=FUZZ / f"{target.name}-merge.log")
    if status == 0:
        shutil.rmtree(target.folder)
        smaller.rename(target.folder)
    return status


def fuzz(target: Target, seconds: int) -> bool:
    say(f"fuzzing {target.name} for {seconds} seconds")
    log = FUZZ / f"{target.name}.log"
    status = run(target, f"-max_total_time={seconds}", str(target.folder), log=log)
    lines = log.read_text(errors="replace").splitlines()
    if status != 0:
        for line in [one for one in lines if not one.startswith(("#", "INFO", "\tNEW_FUNC", "0x"))][:40]:
            print(line, file=sys.stderr)
        written = [one.rsplit(" ", 1)[1] for one in lines if "written to " in one]
        say(f"it failed; the whole log is {log.relative_to(ROOT)}, and this replays it:\n    build/fuzz/{target.program} {written[-1] if written else ''}")
        return False
    executed = next((one.split()[-1] for one in lines if "number_of_executed_units" in one), "0")
    if minimise(target) != 0:
        say(f"{target.name}: the corpus could not be minimised; see build/fuzz/{target.name}-merge.log")
        return False
    say(f"{target.name}: {executed} executions, nothing found; {len(list(target.folder.iterdir()))} inputs in its corpus")
    return True


# ---- Coverage ----


def replay(chosen: list[Target]) -> tuple[dict[str, dict[int, int]], dict[str, dict[str, tuple[int, int]]]]:
    """What the corpora of the repository reach: per file, counts of lines and extents of functions."""
    profiles = []
    for target in chosen:
        profile = COVERAGE / f"{target.name}.profraw"
        words = [str(COVERAGE / target.program), "--corpus", str(target.pack), "--count", "0"]
        subprocess.run(words, env={**os.environ, "LLVM_PROFILE_FILE": str(profile)}, stdout=subprocess.DEVNULL, check=True)
        profiles.append(str(profile))
    merged = COVERAGE / "all.profdata"
    subprocess.run(["llvm-profdata", "merge", "-o", merged, *profiles], check=True)
    programs = [word for target in chosen for word in ("-object", str(COVERAGE / target.program))]
    lines: dict[str, dict[int, int]] = {}
    extents: dict[str, dict[str, tuple[int, int]]] = {}
    report = [f"-instr-profile={merged}", *programs[1:]]
    text = subprocess.run(["llvm-cov", "export", "-format=lcov", *report], capture_output=True, text=True, check=True).stdout
    path = ""
    for line in text.splitlines():
        word, _, rest = line.partition(":")
        if word == "SF":
            path = os.path.relpath(os.path.join(COVERAGE, rest), ROOT)
        elif word == "DA":
            number, count = rest.split(",")[:2]
            lines.setdefault(path, {})[int(number)] = int(count)
    exported = subprocess.run(["llvm-cov", "export", *report], capture_output=True, check=True).stdout
    for function in json.loads(exported)["data"][0]["functions"]:
        path = os.path.relpath(os.path.join(COVERAGE, function["filenames"][0]), ROOT)
        first, last = function["regions"][0][0], function["regions"][0][2]
        extents.setdefault(path, {})[function["name"].split(":")[-1]] = (first, last)
    return lines, extents


def coverage(chosen: list[Target]) -> int:
    lines, extents = replay([target for target in chosen if target.pack.exists()])
    reached = everything = 0
    missing: list[str] = []
    for path, names in PARSERS.items():
        functions = {name: extent for name, extent in extents.get(path, {}).items() if not names or name in names}
        absent = set(names) - set(functions)
        if absent or not functions:
            return fail(f"{path} has no {', '.join(sorted(absent)) or 'functions'}: see PARSERS in scripts/fuzz.py")
        mine = {number: count for number, count in lines[path].items() if any(a <= number <= b for a, b in functions.values())}
        hit = sum(count > 0 for count in mine.values())
        reached, everything = reached + hit, everything + len(mine)
        print(f"{path:<28} {hit:>4} of {len(mine):>4} lines {100 * hit / len(mine):6.1f} %  {', '.join(names) or 'all of it'}")
        source = (ROOT / path).read_text().splitlines()
        missing += [f"  {path}:{number}: {source[number - 1].strip()}" for number, count in sorted(mine.items()) if count == 0]
    print(f"{'all':<28} {reached:>4} of {everything:>4} lines {100 * reached / everything:6.1f} %")
    if missing:
        print("not reached:")
        print("\n".join(missing))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="[TARGET] [SECONDS]")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--programs", action="store_true", help="names what must be built")
    options = parser.parse_args()
    known = targets()
    if options.programs:
        print("\n".join(target.program for target in known))
        return 0
    if options.coverage:
        return coverage(known)
    seconds = next((int(word) for word in options.words if word.isdigit()), 60)
    names = [word for word in options.words if not word.isdigit()]
    unknown = set(names) - {target.name for target in known}
    if unknown:
        return fail(f"there is no target {', '.join(sorted(unknown))}, only {', '.join(target.name for target in known)}")
    good = True
    for target in known:
        if names and target.name not in names:
            continue
        unpack(target)
        good &= fuzz(target, seconds)
        if good and options.keep and target.pack.exists():
            pack(target)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
