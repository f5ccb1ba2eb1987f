"""contents.py: what is in the files of a release: the names in an archive, and which libraries and packages its programs and modules need."""
import hashlib
import io
import re
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ARCHIVES = (".tar.gz", ".tar.xz", ".deb", ".whl", ".zip")


@dataclass
class Contents:
    """Of one archive. `needs` are sonames, and names of Python packages and Go modules; `may_load` those it does without."""
    files: list[tuple[str, str, str]] = field(default_factory=list)  # name, SHA-1, SHA-256
    sonames: set[str] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)
    may_load: set[str] = field(default_factory=set)


def of_tar(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for member in archive:
        if member.isfile():
            content = archive.extractfile(member)
            assert content is not None
            yield member.name, content.read()


def files_of(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as zipped:
            for name in zipped.namelist():
                if not name.endswith("/"):
                    yield name, zipped.read(name)
    elif path.suffix == ".deb":
        plain = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
            yield from of_tar(archive)
    else:
        with tarfile.open(path) as archive:
            yield from of_tar(archive)


def look_at_program(content: bytes, contents: Contents) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        dynamic = subprocess.run(["readelf", "--dynamic", "--wide", file.name], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 text=True).stdout
    contents.needs |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    contents.sonames |= set(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic))
    # What dlopen gets, by name. Versions of one library are one.
    named = {name.decode() for name in re.findall(rb"\0(lib[a-z0-9_-]+\.so)\.[0-9.]+(?=\0)", content)}
    contents.may_load |= named - {name.partition(".so")[0] + ".so" for name in contents.needs}


def look_at_metadata(name: str, text: str, contents: Contents) -> None:
    """What packages of Python and of Go say that they need."""
    if re.search(r"(^|/)(copyrpc-[^/]+/PKG-INFO|copyrpc-[^/]+\.dist-info/METADATA)$", name):
        contents.needs.add("python")
        for package, extra in re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*(;.*extra ==.*)?$", text, re.M):
            (contents.may_load if extra else contents.needs).add(package)
    if re.search(r"@v[^/]+/go\.mod$", name):
        # Another module of ours, too.
        contents.needs |= {"go", *("%s %s" % each for each in re.findall(r"^\s+(\S+/\S+) (v\S+)", text, re.M))}


def contents_of(path: Path) -> Contents:
    contents = Contents()
    for name, content in files_of(path):
        contents.files.append((name.removeprefix("./"), hashlib.sha1(content).hexdigest(), hashlib.sha256(content).hexdigest()))
        if content.startswith(b"\x7fELF") and "/debug/" not in name:
            look_at_program(content, contents)
        if name.endswith(("PKG-INFO", "METADATA", "/go.mod")):
            look_at_metadata(name, content.decode(), contents)
        if re.search(r"@v[^/]+/[^/]+\.go$", name):
            contents.needs |= set(re.findall(rb"^#cgo.*pkg-config: (\S+)", content, re.M) and ["libcopyrpc.so.0"])
    contents.files.sort()
    return contents
