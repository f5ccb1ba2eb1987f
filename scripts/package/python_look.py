"""python_look.py FILE: fails unless a source distribution or a wheel has in it what it must have, and nothing that it must not have."""
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = ("libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1", "libc.so.6")  # what modules may need
PROJECT = (ROOT / "bindings/python/pyproject.toml").read_text(encoding="utf-8")
PYTHONS = PROJECT.split('requires-python = "')[1].split('"')[0]
VERSION = subprocess.run([ROOT / "scripts/version.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def committed(*what: str) -> list[str]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-tree", "-r", "--name-only", "HEAD", *what], check=True, stdout=subprocess.PIPE, text=True)
    return listed.stdout.splitlines()


def look_at_source(file: Path) -> None:
    top = f"copyrpc-{VERSION}/"
    with tarfile.open(file) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if not member.isfile() and not member.isdir()], "links or worse"
    there = {member.name for member in members}
    package = [name.removeprefix("bindings/python/") for name in committed("bindings/python/copyrpc")]
    library = [name for name in committed("capi", "core") if "/tests/" not in name and not name.startswith("capi/abi/")]
    wanted = {top + name for name in package + ["LICENSE", "README.md", "pyproject.toml", "meson.build", "build_native.py", "PKG-INFO"]}
    wanted |= {top + "subprojects/copyrpc/" + name for name in library + ["LICENSE", "meson.build", "meson_options.txt", "scripts/version.sh"]}
    assert len(library) > 100 and not wanted - there, sorted(wanted - there)


def look_at_wheel(file: Path) -> None:
    assert re.search(r"-manylinux_\d+_\d+_\w+\.whl$", file.name), "its platform says which glibc it needs"
    info = f"copyrpc-{VERSION}.dist-info/"
    with zipfile.ZipFile(file) as archive, tempfile.TemporaryDirectory() as folder:
        names = set(archive.namelist())
        for name in ["copyrpc/py.typed", "copyrpc/_native.pyi", "copyrpc/_guards.pyi", "copyrpc/__init__.py", info + "LICENSE"]:
            assert name in names, name
        assert not [name for name in names if not name.startswith(("copyrpc/", info))], names
        metadata = archive.read(info + "METADATA").decode()
        for line in [f"Version: {VERSION}", f"Requires-Python: {PYTHONS}", "Description-Content-Type: text/markdown"]:
            assert "\n" + line + "\n" in metadata, line
        modules = [name for name in names if ".so" in name]
        assert len(modules) == 2, modules
        if "-abi3-" in file.name:
            assert all(name.endswith(".abi3.so") for name in modules), modules
        for module in modules:
            dynamic = subprocess.run(["readelf", "-d", archive.extract(module, folder)], check=True, stdout=subprocess.PIPE, text=True).stdout
            needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
            assert set(needed) <= set(SYSTEMS), needed
            assert "RPATH" not in dynamic and "RUNPATH" not in dynamic, dynamic
            if "/_native" in module:
                assert "libibverbs.so.1" in needed, needed


if sys.argv[1].endswith(".whl"):
    look_at_wheel(Path(sys.argv[1]))
else:
    look_at_source(Path(sys.argv[1]))
