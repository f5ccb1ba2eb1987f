"""ready.py ROOT [--trial]: says what keeps this checkout from being released, and what to do about it; status 1 if there is anything.

--trial: what has to be so only for the release itself may be missing: its date, and what has its version in its name."""
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from changelog import ChangelogError, notes, top, version_of


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", root, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def reasons(root: Path, is_trial: bool) -> Iterator[str]:
    version = version_of(root)
    changed = git(root, "status", "--porcelain", "--untracked-files=normal").splitlines()
    if changed:
        yield "the tree is not clean, and only what is committed is released: commit or remove these: " + ", ".join(line[3:] for line in changed[:10])
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    try:
        of_changelog, when = top(text)
        notes(text)
    except ChangelogError as error:
        yield f"{error}"
        return
    if of_changelog != version:
        yield (f"the top section of CHANGELOG.md is {of_changelog}, and capi/copyrpc.h says {version}: "
               "give the header the version that is to be released, or that section its heading")
    package, distribution = re.findall(r"^copyrpc \(([^)]+)\) (\S+);", (root / "debian/changelog").read_text(encoding="utf-8"), re.M)[0]
    if package != version:
        yield f"debian/changelog is of {package}, and capi/copyrpc.h says {version}: add an entry there"
    if is_trial:
        return
    if when == "unreleased":
        yield f"CHANGELOG.md says '## {version} (unreleased)': put the date there, or make a trial: ./dev release --trial"
    if distribution == "UNRELEASED":
        yield "the top entry of debian/changelog is for UNRELEASED: write 'unstable' instead, and the date of the release below it"
    dump = root / f"capi/abi/copyrpc-{version}.abi"
    functions = set(re.findall(r"^\s+(crpc_\w+);", (root / "capi/copyrpc.map").read_text(encoding="utf-8"), re.M))
    if not dump.exists():
        yield f"{dump.relative_to(root)} is missing: ./dev release --abi writes it"
    elif functions != set(re.findall(r"<elf-symbol name='(\w+)'", dump.read_text(encoding="utf-8"))):
        yield f"{dump.relative_to(root)} has not the functions of capi/copyrpc.map: ./dev release --abi writes it anew"
    for tag in (f"v{version}", f"bindings/go/v{version}", f"bindings/go/otel/v{version}"):
        of_tag = git(root, "for-each-ref", "--format=%(*objectname) %(objectname)", f"refs/tags/{tag}").split()
        if of_tag and of_tag[0] != git(root, "rev-parse", "HEAD").strip():
            yield f"the tag {tag} is there, of another commit: {version} was released, and a tag is never moved: the next release needs a version of its own"


def main() -> None:
    found = list(reasons(Path(sys.argv[1]), "--trial" in sys.argv[2:]))
    for reason in found:
        print(f"not ready: {reason}", file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
