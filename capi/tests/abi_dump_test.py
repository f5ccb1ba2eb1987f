"""abi_dump_test.py HEADER MAP LIBRARY FOLDER [--write VERSION]: programs that run with the last release's library run with this one.

FOLDER has one dump of a library by libabigail, copyrpc-VERSION.abi; VERSION is "unreleased" until there is a release. abidiff compares it
with the library that is built. What ABI.md allows is no difference: a function more, a sized struct that has grown at its end, a reserved
field that has a meaning. All else is one; libraries that are made of the header, changed in one place, show it. abi_test.py sees names,
sizes and constants, also where abidiff is missing; this sees the types of arguments, results and fields, too. --write makes the dump
anew: docs/releasing.md says when one may. Prints TAP."""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Optional
from xml.etree import ElementTree

NAME = re.compile(r"copyrpc-(unreleased|\d+\.\d+\.\d+)\.abi")
# Nothing of where it was built, in which line a type is, and what only the library's own sources know.
DUMP_OPTIONS = ["--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed", "--no-parameter-names", "--no-write-default-sizes",
                "--type-id-style", "hash", "--exported-interfaces-only", "--drop-undefined-syms", "--drop-private-types"]
failed = False
count = 0


def without_comments(header: str) -> str:
    return re.sub(r"/\*.*?\*/", "", header, flags=re.S)


def headers(folder: Path, header: str) -> Path:
    """A folder with the installed header alone: what else is beside it in the sources, is private."""
    place = folder / "headers"
    place.mkdir(exist_ok=True)
    (place / "copyrpc.h").write_text(header)
    return place


def dump(library: Path, header: str) -> str:
    with tempfile.TemporaryDirectory() as work:
        run = subprocess.run(["abidw", *DUMP_OPTIONS, "--headers-dir", str(headers(Path(work), header)), str(library)],
                             check=True, stdout=subprocess.PIPE, text=True)
    written = re.sub(r" path='[./]*", " path='", run.stdout)
    # A newer libabigail writes hashes of types, and compares these first: they would tell of fields that `level` takes out. And it writes what an
    # array's index is, for which clang has a name of its own.
    return re.sub(r" hash='[0-9a-f]+'", "", written).replace("'__ARRAY_SIZE_TYPE__'", "'unsigned long int'")


def structs(corpus: ElementTree.Element) -> dict[str, ElementTree.Element]:
    return {struct.attrib["name"]: struct for struct in corpus.iter("class-decl") if "size-in-bits" in struct.attrib}


def members(struct: ElementTree.Element) -> list[tuple[int, str, ElementTree.Element]]:
    """Where each begins, its name, what says so."""
    found = []
    for member in struct.iter("data-member"):
        variable = member.find("var-decl")
        assert variable is not None
        found.append((int(member.attrib["layout-offset-in-bits"]), variable.attrib["name"], member))
    return found


def level(agreed: ElementTree.Element, now: ElementTree.Element, header: str) -> None:
    """Takes out of both dumps what ABI.md allows in structs: those that are sized have grown at their end, a reserved field has a meaning."""
    sized = re.findall(r"typedef struct (crpc_\w+) \{\s*uint32_t struct_size;", without_comments(header))
    of_now = structs(now)
    for name, old in structs(agreed).items():
        new = of_now.get(name)
        if new is None:
            continue
        size = int(old.attrib["size-in-bits"])
        gone = [(size, int(new.attrib["size-in-bits"]))] if name in sized else []
        if gone and gone[0][1] > size:
            new.attrib["size-in-bits"] = str(size)
        starts = [begin for begin, _, _ in members(old)]
        for begin, field, member in members(old):
            if field.startswith("reserved"):
                gone.append((begin, min((start for start in starts if start > begin), default=size)))
                old.remove(member)
        for begin, _, member in members(new):
            if any(first <= begin < last for first, last in gone):
                new.remove(member)


def changes(agreed: str, now: str, header: str) -> list[str]:
    """What abidiff reports, line by line; nothing if a program that runs with what was agreed on runs with this library. `header` is that of now."""
    both = ElementTree.fromstring(agreed), ElementTree.fromstring(now)
    level(both[0], both[1], header)
    with tempfile.TemporaryDirectory() as work:
        paths = [Path(work, name) for name in ("agreed.abi", "now.abi")]
        for path, root in zip(paths, both):
            path.write_bytes(ElementTree.tostring(root))
        # What it takes for harmless, such as another sign, is none to the bindings.
        run = subprocess.run(["abidiff", "--no-added-syms", "--harmless", *map(str, paths)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # 4 and 8 are changes; 1 and 2 are errors of abidiff's own.
    return (run.stdout or f"abidiff ends with {run.returncode}").splitlines() if run.returncode else []


def library_of(header: str, version_script: str, folder: Path, compiler: str = "gcc") -> Path:
    """A library that has the header's functions, of which none does anything: its ABI is that of the header."""
    source = '#include "copyrpc.h"\n#include <stdlib.h>\n'
    for function in re.findall(r"CRPC_API([^;]*?\bcrpc_\w+\([^;]*\));", re.sub(r"^#.*$", "", without_comments(header), flags=re.M)):
        source += function + " { abort(); }\n"
    place, library = headers(folder, header), folder / "libcopyrpc.so"
    (folder / "empty.c").write_text(source)
    (folder / "map").write_text(version_script)
    subprocess.run([compiler, "-g", "-fPIC", "-shared", "-Wl,-soname,libcopyrpc.so.0", f"-Wl,--version-script,{folder}/map", f"-I{place}",
                    "-o", str(library), str(folder / "empty.c")], check=True)
    return library


def check(name: str, problem: Optional[list[str]]) -> None:
    global failed, count
    count += 1
    print(f"{'not ok' if problem else 'ok'} {count} - {name}")
    for line in problem or []:
        print("# " + line)
    failed = failed or bool(problem)


def changed(text: str, pattern: str, replacement: str) -> str:
    result, times = re.subn(pattern, replacement, text, count=1, flags=re.S)
    assert times == 1, pattern
    return result


def variants(header: str, version_script: str) -> list[tuple[str, bool, str, str]]:
    """What it is, whether programs go on running, the header, the version script."""
    script = changed(version_script, r"\n *crpc_status_text;", "")
    no_text = changed(header, r"CRPC_API const char \*crpc_status_text\(int32_t \w+\);", "")
    version = "CRPC_API uint32_t crpc_version(void);"
    added = changed(header, r"(\} crpc_stats;)", r"\1\nCRPC_API int32_t crpc_added(crpc_stats *stats);")
    later = version_script + "\nCOPYRPC_0.999 { crpc_added; } COPYRPC_0;\n"
    stats = r"(typedef struct crpc_stats \{\s*uint32_t struct_size;)(.*?)(\} crpc_stats;)"
    grown = changed(header, stats, r"\1\2    uint64_t added;\n\3")
    op = r"(typedef struct crpc_op \{)(.*?)(\} crpc_op;)"
    return [
        ("a function that is gone", False, no_text, script),
        ("a function that has moved to another version node", False, header, script + "\nCOPYRPC_0.999 { crpc_status_text; } COPYRPC_0;\n"),
        ("an argument of another size", False, changed(header, r"crpc_status_text\(int32_t", "crpc_status_text(int64_t"), version_script),
        ("an argument of another sign", False, changed(header, r"crpc_status_text\(int32_t", "crpc_status_text(uint32_t"), version_script),
        ("an argument more", False, changed(header, r"(crpc_status_text\(int32_t \w+)", r"\1, int32_t added"), version_script),
        ("another result", False, changed(header, re.escape(version), "CRPC_API uint64_t crpc_version(void);"), version_script),
        ("a struct of 64 bytes that has grown", False, changed(header, op, r"\1\2    uint64_t added;\n\3"), version_script),
        ("a field that has another type of the same size", False, changed(header, r"(typedef struct crpc_op \{[^}]*)uint64_t user_data;",
                                                                         r"\1double user_data;"), version_script),
        ("a sized struct that has grown, with another field that has changed", False,
         changed(grown, r"(typedef struct crpc_stats \{[^}]*)uint64_t calls;", r"\1int64_t calls;"), version_script),
        ("a field that has another name", False, changed(header, r"(typedef struct crpc_stats \{[^}]*)uint64_t calls;", r"\1uint64_t other;"), version_script),
        ("a sized struct with a field in its midst", False, changed(header, stats, r"\1\n    uint64_t added;\2\3"), version_script),
        ("a function that is added", True, added, later),
        ("a sized struct with a field at its end", True, grown, version_script),
        ("a reserved field that has a meaning", True, changed(header, r"(typedef struct crpc_stats \{[^}]*)uint32_t reserved;", r"\1uint16_t now[2];"),
         version_script),
        ("a comment that is changed", True, header + "/* a line more */\n", version_script),
    ]


def main() -> None:
    header, version_script = Path(sys.argv[1]).read_text(), Path(sys.argv[2]).read_text()
    library, folder = Path(sys.argv[3]), Path(sys.argv[4])
    if len(sys.argv) > 5:
        assert sys.argv[5] == "--write" and NAME.fullmatch(f"copyrpc-{sys.argv[6]}.abi"), sys.argv
        text = dump(library, header)
        for old in folder.glob("*.abi"):
            old.unlink()
        (folder / f"copyrpc-{sys.argv[6]}.abi").write_text(text)
        return
    if not shutil.which("abidiff") or not shutil.which("abidw"):
        print("1..0 # SKIP abidiff is not installed: on Debian and Ubuntu it is in abigail-tools, on Fedora in libabigail")
        return
    dumps = sorted(path.name for path in folder.glob("*.abi"))
    check("there is one dump", [] if len(dumps) == 1 and NAME.fullmatch(dumps[0]) else [f"{folder} has {dumps}"])
    agreed = (folder / dumps[0]).read_text()
    now = dump(library, header)
    difference = changes(agreed, now, header)
    if difference:
        difference.append("docs/releasing.md says when a dump may be written anew; ./dev release --abi does it")
    check(f"programs that run with {dumps[0]} run with this library", difference)
    check("the dump has nothing of where it was made", re.findall(r"filepath=\S+|comp-dir-path=\S+| path='/\S+", agreed))

    for compiler in ("gcc", "clang"):
        name = f"the library has what the header says, as {compiler} reads it"
        if not shutil.which(compiler):
            check(name + " # SKIP not installed", None)
            continue
        with tempfile.TemporaryDirectory() as work:
            check(name, changes(now, dump(library_of(header, version_script, Path(work), compiler), header), header))
    for name, runs_on, other_header, other_script in variants(header, version_script):
        with tempfile.TemporaryDirectory() as work:
            found = changes(now, dump(library_of(other_header, other_script, Path(work)), other_header), other_header)
        if runs_on:
            check(f"{name} is no difference", found)
        else:
            check(f"{name} is one", [] if found else ["abidiff finds nothing"])
    print(f"1..{count}")
    sys.exit(failed)


main()
