"""clang_tidy.py BUILD UNIT...: clang-tidy on C files that changed since they were last found clean, on all processors.

Clean is what has the same text, headers, compiler's command, configuration and clang-tidy. Which headers there are, ninja knows
from compiling. Exit status 1 if anything is found."""
import concurrent.futures
import functools
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

BUILD = Path(sys.argv[1]).resolve()
UNITS = [Path(unit).resolve() for unit in sys.argv[2:]]
CLEAN = Path("build/lint/clang-tidy")


@functools.cache
def digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest() if path.exists() else b""


def text_of(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def headers() -> dict[str, list[str]]:
    """The files that each object file was made from, as ninja knows them."""
    found: dict[str, list[str]] = {}
    made_from: list[str] = []
    for line in text_of("ninja", "-C", str(BUILD), "-t", "deps").splitlines():
        if line.startswith(" "):
            made_from.append(line.strip())
        elif ": #deps" in line:
            made_from = found[line.split(":")[0]] = []
    return found


def keys() -> dict[Path, str]:
    """What has to be the same for a unit to be as clean as it was."""
    common = text_of("clang-tidy", "--version").encode() + digest(Path(".clang-tidy").resolve())
    made_from = headers()
    found: dict[Path, str] = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        unit = (Path(entry["directory"]) / entry["file"]).resolve()
        parts = [common, entry["command"].encode()]
        parts += [name.encode() + digest(BUILD / name) for name in sorted(made_from.get(entry["output"], []))]
        if parts[2:]:
            found[unit] = hashlib.sha256(b"\0".join(parts)).hexdigest()
    return found


def tidy(unit: Path) -> tuple[bool, str]:
    done = subprocess.run(["clang-tidy", "--quiet", "-p", str(BUILD), str(unit)], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    return done.returncode == 0, done.stdout if done.stdout or done.returncode == 0 else done.stderr


def main() -> int:
    CLEAN.mkdir(parents=True, exist_ok=True)
    known = keys()
    due = [unit for unit in UNITS if unit not in known or not (CLEAN / known[unit]).exists()]
    print(f"dev: clang-tidy on {len(due)} of {len(UNITS)} files; the others are as they were when clean", file=sys.stderr)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for unit, (clean, output) in zip(due, pool.map(tidy, due)):
            print(output, end="", flush=True)
            failed += not clean
            if clean and unit in known:
                (CLEAN / known[unit]).touch()
    current = {known[unit] for unit in UNITS if unit in known}
    for mark in CLEAN.iterdir():
        if mark.name not in current:
            mark.unlink()
    return 1 if failed else 0


sys.exit(main())
