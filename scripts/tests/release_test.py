"""release_test.py SOURCE_ROOT LIBRARY: what of ./dev release takes seconds: what keeps a checkout from being released, the notes, the source, the
comparison of two builds, the SBOM. ./dev release --check is for the rest. Prints TAP."""
import contextlib
import gzip
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Union

ROOT, LIBRARY = Path(sys.argv[1]), Path(sys.argv[2])
SCRIPTS = ROOT / "scripts/release"
PYTHON_PACKAGES = ROOT / "build/tools/python-packages"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True
import changelog  # noqa: E402 (of that folder)

NOBODY = ["-c", "user.name=test", "-c", "user.email=test@test.invalid"]
count = 0


def check(name: str, good: object, output: object = "") -> None:
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {name}", flush=True)
    if not good:
        print("".join(f"# {line}\n" for line in str(output).splitlines()[:40]), end="")


def output_of(*command: Union[str, Path]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def refused(call: Callable[[], object]) -> str:
    try:
        return f"it is not refused, and gives {call()!r}"
    except changelog.ChangelogError as error:
        return "refused: " + str(error)


# ---- The notes.
TEXT = """# Changelog

## 1.2.0 (2026-11-29)

### Part

- A line. See [a page](docs/a.md#b), [another](ABI.md), [elsewhere](https://example.invalid/x) and [below](#c).

## 1.1.0 (2026-01-01)

- Old.
"""


def test_notes() -> None:
    check("the top section has a version and a date", changelog.top(TEXT) == ("1.2.0", "2026-11-29"), changelog.top(TEXT))
    place = "https://github.com/copyrpc/copyrpc/blob/v1.2.0"
    wanted = f"### Part\n\n- A line. See [a page]({place}/docs/a.md#b), [another]({place}/ABI.md), [elsewhere](https://example.invalid/x) and [below](#c).\n"
    check("the notes are that section, and their links lead to that version", changelog.notes(TEXT) == wanted, changelog.notes(TEXT))
    last = TEXT[TEXT.index("## 1.1.0"):]
    check("also of the only section", changelog.notes(last) == "- Old.\n", changelog.notes(last))
    for heading in ("## 1.2.0", "## 1.2.0 (soon)", "## Unreleased", "## 1.2.0 (29.11.2026)"):
        text = TEXT.replace("## 1.2.0 (2026-11-29)", heading)
        found = refused(lambda text=text: changelog.notes(text))  # type: ignore[misc]
        check(f"'{heading}' is refused", heading in found and found.startswith("refused"), found)
    found = refused(lambda: changelog.notes("# Changelog\n\n## 1.2.0 (2026-11-29)\n\n## 1.1.0 (2026-01-01)\n\n- Old.\n"))
    check("a section that says nothing is refused", "says nothing" in found, found)
    found = refused(lambda: changelog.notes(TEXT.replace("- A line.", "- x\n" * 40000)))
    check("notes that are too long for a page are refused", "bytes" in found and found.startswith("refused"), found)
    ours = changelog.notes((ROOT / "CHANGELOG.md").read_text())
    check("this checkout has notes", len(ours) > 1000 and "\n## " not in ours and "](docs/" not in ours, ours[:200])


# ---- What keeps a checkout from being released.
class Clone:
    """Of what is in this checkout, committed or not, in a repository where all of it is committed; but for what is most of it, to save time."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"], check=True, stdout=subprocess.PIPE).stdout
        names = b"\0".join(name for name in listed.split(b"\0") if name and not name.startswith((b"core/", b"simnic/", b"bench/", b"conformance/"))
                           and os.path.lexists(ROOT / name.decode()))
        packed = subprocess.run(["tar", "-C", ROOT, "--null", "--files-from", "-", "-cf", "-"], input=names, check=True, stdout=subprocess.PIPE).stdout
        folder.mkdir(parents=True)
        subprocess.run(["tar", "-xf", "-", "-C", folder], input=packed, check=True)
        self.git("init", "-q", "-b", "main")
        self.commit()

    def git(self, *arguments: str) -> str:
        return subprocess.run(["git", "-C", self.root, *NOBODY, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "test")

    def replace(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        text = path.read_text()
        assert old in text, (file, old)
        path.write_text(text.replace(old, new, 1))

    @contextlib.contextmanager
    def changed(self, *what: tuple[str, str, str], commit: bool = True) -> Iterator[None]:
        """In each file the text is another; afterwards all is as it was."""
        before = self.git("rev-parse", "HEAD").strip()
        for file, old, new in what:
            self.replace(file, old, new)
        if commit:
            self.commit()
        yield
        self.git("reset", "-q", "--hard", before)

    def reasons(self, *arguments: str) -> list[str]:
        run = output_of(sys.executable, "-B", SCRIPTS / "ready.py", self.root, *arguments)
        lines = run.stdout.splitlines()
        assert run.returncode == bool(lines), run
        return lines


def only(lines: list[str], *words: str) -> bool:
    return len(lines) == 1 and all(word in lines[0] for word in words)


def test_refusals(clone: Clone) -> None:
    version = changelog.version_of(ROOT)
    text = (clone.root / "CHANGELOG.md").read_text()
    _, when = changelog.top(text)
    heading, package = f"## {version} ({when})", (clone.root / "debian/changelog").read_text().splitlines()[0]
    dump = next((clone.root / "capi/abi").glob("*.abi"))

    # From here on, the clone is ready to be released: each refusal below is for its own reason.
    distribution = package.partition(") ")[2].partition(";")[0]
    clone.replace("debian/changelog", package, package.replace(distribution, "unstable"))
    clone.replace("CHANGELOG.md", heading, f"## {version} (2026-11-29)")
    dump.rename(clone.root / f"capi/abi/copyrpc-{version}.abi")
    clone.commit()
    heading, package = f"## {version} (2026-11-29)", package.replace(distribution, "unstable")
    check("a checkout that is prepared is ready", not clone.reasons(), clone.reasons())
    check("also for a trial", not clone.reasons("--trial"), clone.reasons("--trial"))

    for what, place, trial in (("a file that git does not know", "new.txt", ()), ("the same, for a trial", "new.txt", ("--trial",))):
        (clone.root / place).write_text("new\n")
        found = clone.reasons(*trial)
        check(f"{what} is refused, and named", only(found, place, "not clean", "commit or remove"), found)
        (clone.root / place).unlink()
    with clone.changed(("README.md", "# ", "#  "), commit=False):
        found = clone.reasons()
        check("a change that is not committed is refused", only(found, "README.md", "not clean"), found)
    with clone.changed(("CHANGELOG.md", heading, f"## {version} (unreleased)")):
        found = clone.reasons()
        check("an unreleased version is refused", only(found, "unreleased", "put the date there", "--trial"), found)
        found = clone.reasons("--trial")
        check("and taken for a trial", not found, found)
    for arguments in ([], ["--trial"]):
        with clone.changed(("CHANGELOG.md", heading, f"## 9.9.9 (unreleased)\n\n- New.\n\n{heading}")):
            found = clone.reasons(*arguments)
            check(f"a CHANGELOG that begins with another version is refused{', for a trial, too' if arguments else ''}",
                  any("9.9.9" in line and version in line for line in found), found)
    with clone.changed(("CHANGELOG.md", heading, f"## {version}")):
        found = clone.reasons("--trial")
        check("a heading without a date is refused", only(found, "should be like"), found)
    with clone.changed(("debian/changelog", f"({version})", "(9.9.9)")):
        found = clone.reasons("--trial")
        check("another version in debian/changelog is refused", only(found, "debian/changelog", "9.9.9"), found)
    with clone.changed(("debian/changelog", package, package.replace("unstable", "UNRELEASED"))):
        found = clone.reasons()
        check("an entry of Debian's that is not released is refused", only(found, "UNRELEASED"), found)
    with clone.changed((f"capi/abi/copyrpc-{version}.abi", "<elf-symbol name='crpc_abort'", "<elf-symbol name='crpc_other'")):
        found = clone.reasons()
        check("a dump of another ABI is refused", only(found, ".abi", "--abi"), found)
    with clone.changed():
        (clone.root / f"capi/abi/copyrpc-{version}.abi").rename(clone.root / "capi/abi/copyrpc-unreleased.abi")
        clone.commit()
        found = clone.reasons()
        check("a dump that has another name is refused", only(found, f"copyrpc-{version}.abi is missing", "--abi"), found)
        check("and taken for a trial", not clone.reasons("--trial"), clone.reasons("--trial"))
    clone.git("tag", f"bindings/go/v{version}")
    check("a tag of this commit is no reason", not clone.reasons(), clone.reasons())
    with clone.changed():
        found = clone.reasons()
        check("a tag of another commit is", only(found, f"bindings/go/v{version}", "never moved"), found)
    clone.git("tag", "-d", f"bindings/go/v{version}")
    clone.git("tag", "-a", "-m", "test", f"v{version}")
    check("nor is an annotated tag", not clone.reasons(), clone.reasons())
    clone.git("tag", "-d", f"v{version}")

    (clone.root / "new.txt").write_text("new\n")
    run = output_of(clone.root / "dev", "release", "--output", clone.root.parent / "output")
    (clone.root / "new.txt").unlink()
    check("./dev release makes nothing then, and says where the steps are",
          run.returncode == 1 and "not clean" in run.stdout and "docs/releasing.md" in run.stdout and not (clone.root.parent / "output").exists(), run.stdout)

    output = clone.root.parent / "output"
    output.mkdir()
    (output / "theirs").touch()
    run = output_of(clone.root / "dev", "release", "--output", output)
    there = [path.name for path in output.iterdir()]
    check("nor does it in a folder that has something", run.returncode == 1 and "there is something in" in run.stdout and there == ["theirs"], run.stdout)
    run = output_of(clone.root / "dev", "release", "--without", "rust")
    check("it knows what may be left out", run.returncode == 1 and "debian, python or go" in run.stdout, run.stdout)


def test_dump(clone: Clone) -> None:
    """When the dump of the ABI is not to be written. `clone` is ready to be released."""
    version = changelog.version_of(ROOT)
    heading = f"## {version} (2026-11-29)"
    names = ["the dump of a release stays until the next", "also if the header has still its version", "and if the release is tagged"]
    if not shutil.which("abidw"):
        for name in names:
            check(f"{name} # SKIP abidw is not here", True)
        return
    for name, what, words in ((names[0], f"## {version} (unreleased)", "stays until"), (names[1], "## 9.9.9 (unreleased)", "begins with")):
        with clone.changed(("CHANGELOG.md", heading, what)):
            run = output_of(clone.root / "dev", "release", "--abi")
            check(name, run.returncode == 1 and words in run.stdout and not clone.git("status", "--porcelain"), run.stdout)
    clone.git("tag", f"v{version}")
    run = output_of(clone.root / "dev", "release", "--abi")
    check(names[2], run.returncode == 1 and "was released" in run.stdout and not clone.git("status", "--porcelain"), run.stdout)
    clone.git("tag", "-d", f"v{version}")


# ---- The source.
def test_source(clone: Clone, folder: Path) -> None:
    made = []
    for name, umask in (("one", 0o077), ("two", 0o002)):
        place = folder / name
        place.mkdir()
        environment = dict(os.environ, TZ="Etc/GMT+12" if name == "one" else "Etc/GMT-14")
        subprocess.run([SCRIPTS / "source.sh", clone.root, "1.2.3", place], check=True, env=environment, umask=umask)
        made.append(place / "copyrpc-1.2.3-source.tar.gz")
        if name == "one":
            for file in clone.root.glob("*.md"):
                file.touch()
    check("the source is the same, whoever packs it and when", made[0].read_bytes() == made[1].read_bytes())
    check("and nothing is left beside it", [path.name for path in made[0].parent.iterdir()] == [made[0].name])
    listed = clone.git("ls-files", "-z").split("\0")[:-1]
    with tarfile.open(made[0]) as archive:
        members = archive.getmembers()
    files = [member.name for member in members if not member.isdir()]
    wanted = sorted("copyrpc-1.2.3/" + name for name in listed)
    check("it has what git has, and nothing else", sorted(files) == wanted and len(wanted) > 400, set(files) ^ set(wanted))
    commit_time = int(clone.git("log", "-1", "--format=%ct"))
    check("all of the commit's time", {member.mtime for member in members} == {commit_time}, {member.mtime for member in members})
    owners = {(member.uid, member.gid, member.uname, member.gname) for member in members}
    check("and of nobody", owners == {(0, 0, "root", "root")}, owners)
    executable = [member.name for member in members if member.isfile() and member.mode not in (0o755, 0o644)]
    check("with the usual modes", not executable, executable)
    header = struct.unpack("<4BI", made[0].read_bytes()[:8])
    check("gzip adds neither a time nor a name", header[4] == 0 and not header[3] & 8, header)


# ---- Two builds.
def test_compare(folder: Path) -> None:
    for with_cmp in ([], ["COMPARE_WITH_CMP=1"]):
        how = "cmp" if with_cmp else "what is here"
        shutil.rmtree(folder, ignore_errors=True)
        first, second = folder / "first", folder / "second"
        for place in (first, second):
            place.mkdir(parents=True)
            (place / "a.txt").write_text("the same\n")
            (place / "b.gz").write_bytes(gzip.compress(b"the same\n", mtime=0))

        def run() -> "subprocess.CompletedProcess[str]":
            return output_of("env", *with_cmp, SCRIPTS / "compare.sh", first, second)  # noqa: B023

        found = run()
        check(f"with {how}: the same files are the same", found.returncode == 0 and not found.stdout, found.stdout)
        (second / "b.gz").write_bytes(gzip.compress(b"the same\n", mtime=1))
        found = run()
        check(f"with {how}: a time in a header is a difference", found.returncode == 1 and "different: b.gz" in found.stdout, found.stdout)
        (second / "b.gz").unlink()
        found = run()
        check(f"with {how}: a file that only one has is a difference", found.returncode == 1 and "b.gz" in found.stdout, found.stdout)


# ---- The SBOM.
def write_sbom(folder: Path) -> "subprocess.CompletedProcess[str]":
    return output_of("env", f"PYTHONPATH={PYTHON_PACKAGES}", sys.executable, "-B", SCRIPTS / "sbom.py", folder, "1.2.3", "0123abcd", "1796000000")


def library_that_needs(folder: Path, name: str) -> Path:
    """A library that is linked with another, of this name."""
    other, made = folder / f"{name}.so", folder / "needs.so"
    commands: list[list[Union[str, Path]]] = [["-Wl,-soname," + name + ".so.1", "-o", other], ["-Wl,--no-as-needed", other, "-o", made]]
    for command in commands:
        subprocess.run(["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-x", "none", *command], check=True)
    return made


def test_sbom(folder: Path) -> None:
    names = ["an SBOM is made, and valid", "the same again", "it has each file with its SHA-256", "it has what each archive has",
             "it has what the library needs", "it has what the wheel needs", "each dependency has a licence, and is not shipped",
             "the bindings for Go need the library", "what nobody knows the licence of is an error", "no SBOM is left of that"]
    if not (PYTHON_PACKAGES / "spdx_tools").is_dir() or not shutil.which("dpkg-deb"):
        for name in names:
            check(f"{name} # SKIP spdx-tools or dpkg-deb is not here", True)
        return
    result, tree = folder / "result", folder / "tree"
    result.mkdir(parents=True)
    with tarfile.open(result / "copyrpc-1.2.3-source.tar.gz", "w:gz") as source:
        source.add(ROOT / "LICENSE", "copyrpc-1.2.3/LICENSE")
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text("Package: libcopyrpc0\nVersion: 1.2.3\nArchitecture: amd64\nMaintainer: test <test@test.invalid>\nDescription: test\n")
    (tree / "usr/lib").mkdir(parents=True)
    shutil.copy(LIBRARY, tree / "usr/lib/libcopyrpc.so.0")
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, result / "libcopyrpc0_1.2.3_amd64.deb"], check=True, stdout=subprocess.DEVNULL)
    with zipfile.ZipFile(result / "copyrpc-1.2.3-cp312-abi3-manylinux_2_34_x86_64.whl", "w") as wheel:
        wheel.writestr("copyrpc/__init__.py", "")
        wheel.writestr("copyrpc-1.2.3.dist-info/METADATA", "Name: copyrpc\nRequires-Dist: cffi>=1.15\nRequires-Dist: numpy; extra == \"numpy\"\n")
    with zipfile.ZipFile(result / "copyrpc-go-1.2.3.zip", "w") as module:
        module.writestr("github.com/copyrpc/copyrpc/bindings/go@v1.2.3/go.mod", "module github.com/copyrpc/copyrpc/bindings/go\n\ngo 1.21\n")
        module.write(ROOT / "bindings/go/copyrpc.go", "github.com/copyrpc/copyrpc/bindings/go@v1.2.3/copyrpc.go")
    (result / "copyrpc_1.2.3.dsc").write_text("Source: copyrpc\n")
    sbom = result / "copyrpc-1.2.3.spdx.json"
    run = write_sbom(result)
    check(names[0], run.returncode == 0 and sbom.exists(), run.stdout)
    first = sbom.read_bytes()
    write_sbom(result)
    check(names[1], sbom.read_bytes() == first)

    document: dict[str, Any] = json.loads(first)
    packages = {package["SPDXID"]: package for package in document["packages"]}
    by_name = {package["name"]: package for package in document["packages"]}
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in result.iterdir() if path != sbom}
    said = {name: by_name[name]["checksums"][0]["checksumValue"] for name in sums if name in by_name}
    check(names[2], len(sums) == 5 and said == sums, (said, sums))
    relations = [(each["spdxElementId"], each["relationshipType"], each["relatedSpdxElement"]) for each in document["relationships"]]
    files = {file["SPDXID"]: file["fileName"] for file in document["files"]}
    library = by_name["libcopyrpc0_1.2.3_amd64.deb"]["SPDXID"]
    in_library = [files[to] for of, kind, to in relations if of == library and kind == "CONTAINS"]
    without_files = [name for name, package in by_name.items() if name in sums and not package.get("filesAnalyzed", True)]
    is_whole = in_library == ["./usr/lib/libcopyrpc.so.0"] and len(files) == 6 and without_files == ["copyrpc_1.2.3.dsc"]
    check(names[3], is_whole, (in_library, files, without_files))

    def needs(name: str) -> tuple[set[str], set[str]]:
        own = by_name[name]["SPDXID"]
        return ({packages[to]["name"] for of, kind, to in relations if of == own and kind == "DEPENDS_ON"},
                {packages[of]["name"] for of, kind, to in relations if to == own and kind == "OPTIONAL_DEPENDENCY_OF"})

    found = needs("libcopyrpc0_1.2.3_amd64.deb")
    check(names[4], found == ({"glibc", "rdma-core"}, {"openssl"}), found)
    found = needs("copyrpc-1.2.3-cp312-abi3-manylinux_2_34_x86_64.whl")
    check(names[5], found == ({"cffi", "python"}, {"numpy"}), found)
    outside = [package for package in document["packages"] if package["SPDXID"].startswith("SPDXRef-needed-")]
    wrong = [package for package in outside if package["licenseDeclared"] == "NOASSERTION" or "checksums" in package or not package.get("homepage")]
    check(names[6], len(outside) > 4 and not wrong, wrong)
    found = needs("copyrpc-go-1.2.3.zip")
    check(names[7], found[0] == {"go", "libcopyrpc0_1.2.3_amd64.deb"}, found)

    sbom.unlink()
    with zipfile.ZipFile(result / "copyrpc-1.2.3-cp39-cp39-manylinux_2_34_x86_64.whl", "w") as wheel:
        wheel.write(library_that_needs(folder, "libnobodyknows"), "copyrpc/_native.so")
    run = write_sbom(result)
    check(names[8], run.returncode == 1 and "libnobodyknows.so.1" in run.stdout and "licence" in run.stdout, run.stdout)
    check(names[9], not sbom.exists())


def main() -> None:
    if not (ROOT / ".git").exists():
        print("1..0 # SKIP this is no checkout of git, of which alone releases are made")
        return
    test_notes()
    with tempfile.TemporaryDirectory(prefix="a test.") as temporary:
        folder = Path(temporary)
        clone = Clone(folder / "clone")
        test_refusals(clone)
        test_dump(clone)
        test_source(clone, folder)
        test_compare(folder / "compare")
        test_sbom(folder / "sbom")
    print(f"1..{count}")


main()
