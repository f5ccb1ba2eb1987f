"""packaging_test.py SOURCE_ROOT BUILD: that what is written about the packages is so: versions, symbols, and which package has which of
the installed files. Prints TAP. A package is built by ./dev package debian; this is what would fail there and can be seen in a second."""
import fnmatch
import json
import pathlib
import re
import subprocess
import sys

source = pathlib.Path(sys.argv[1])
build = sys.argv[2]
debian = source / "debian"
sys.path.append(str(source / "tests"))
from checks import Checks  # noqa: E402

checks = Checks()


def check(name, wrong):
    """`wrong`: what is, one by one; nothing if all is well."""
    wrong = list(wrong)
    checks.check(not wrong, name, wrong)


def version():
    header = (source / "capi/copyrpc.h").read_text()
    return ".".join(re.search(rf"#define CRPC_VERSION_{part} (\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH"))


def symbols_of_map():
    """Of the map file, (symbol, version node)."""
    node = None
    for line in (source / "capi/copyrpc.map").read_text().splitlines():
        if match := re.match(r"(COPYRPC_\w+) \{", line):
            node = match.group(1)
            yield node, node
        elif match := re.match(r"\s+(crpc_\w+);", line):
            yield match.group(1), node


def symbols_of_package():
    """Of the package's symbols file, (symbol, version node) and the version of the package that had it first."""
    for line in (debian / "libcopyrpc0.symbols").read_text().splitlines():
        if match := re.fullmatch(r" (\w+)@(\w+) (\S+)", line):
            yield (match.group(1), match.group(2)), match.group(3)


def patterns():
    """Which package has which installed files, as patterns below /."""
    for file in debian.glob("*.*"):
        if file.suffix in (".install", ".manpages"):
            for line in file.read_text().splitlines():
                words = line.split()
                yield from words[:-1] if len(words) > 1 else words  # the last of several is where it goes


def has(pattern, path):
    return fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(path, pattern + "/*")


said = re.findall(r"^copyrpc \(([^)]+)\)", (debian / "changelog").read_text(), re.M)[0]
check("debian/changelog has the header's version", [] if said == version() else [f"{said}, and the header {version()}"])

said = re.findall(r"^Version: *(\S+)", (source / "packaging/copyrpc.spec").read_text(), re.M)[0]
check("packaging/copyrpc.spec has it, too", [] if said == version() else [f"{said}, and the header {version()}"])

of_map, of_package = set(symbols_of_map()), dict(symbols_of_package())
check("some symbols are there", [] if len(of_map) > 50 else [str(len(of_map))])
check("debian/libcopyrpc0.symbols has each symbol of capi/copyrpc.map", sorted(map(str, of_map - of_package.keys())))
check("and no other", sorted(map(str, of_package.keys() - of_map)))
parts = [int(part) for part in version().split(".")]
check("none is of a version that is still to come",
      [f"{name} {first}" for (name, _), first in of_package.items() if [int(part) for part in first.split(".")] > parts])


def introspect(what):
    return json.loads(subprocess.run(["meson", "introspect", what, build], check=True, capture_output=True, text=True).stdout)


# debhelper names the folder of libraries after the machine; meson does only where dpkg-dev is.
libraries = next(option["value"] for option in introspect("--buildoptions") if option["name"] == "libdir")
installed = [re.sub(r"^/(usr/local|usr)/", "usr/", path).replace(f"usr/{libraries}/", "usr/lib/machine/") for path in introspect("--installed").values()]
check("a package has each installed file", [path for path in installed if not any(has(pattern, path) for pattern in patterns())])
check("and each name in a package is that of an installed file",
      [pattern for pattern in patterns() if not any(has(pattern, path) for path in installed)])
sys.exit(checks.end())
