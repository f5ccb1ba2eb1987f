"""languages_test.py SOURCE: that what is written in several places is the same everywhere: which Pythons and which Go the bindings are for, and
the licence that each package carries. Where it is decided: bindings/python/pyproject.toml, bindings/go/go.mod, capi/copyrpc.h, LICENSE.
Prints TAP."""
import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(sys.argv[1])
sys.path.append(str(SOURCE / "tests"))
from checks import Checks  # noqa: E402

checks = Checks()


def read(name):
    return (SOURCE / name).read_text(encoding="utf-8")


def same(name, found, wanted):
    checks.check(found == wanted, name, f"it says {found}, and should say {wanted}")


def say(file, pattern, wanted, least=1):
    """Each place in the file that the pattern finds has this version; there are so many at least."""
    found = re.findall(pattern, read(file))
    same(f"{file}: {pattern}", found, [wanted] * max(len(found), least))


def pythons():
    project = read("bindings/python/pyproject.toml")
    oldest = re.search(r'^requires-python = ">=3\.(\d+)"$', project, re.MULTILINE)
    named = [int(minor) for minor in re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', project)]
    stable = re.search(r"'limited_api': '3\.(\d+)'", read("bindings/python/meson.build"))
    same("pyproject.toml: requires-python, the limited API", bool(oldest) and bool(stable), True)
    minor = int(oldest[1])
    same("pyproject.toml: the classifiers name each Python from the oldest on", named, list(range(minor, minor + len(named))))
    same("pyproject.toml: cibuildwheel makes a wheel for each until there is one for all that follow",
         re.findall(r'"cp3(\d+)-manylinux_\*"', project), [str(each) for each in range(minor, int(stable[1]) + 1)])
    same("meson.build: the stable ABI is used since the Python whose limited API it is",
         re.findall(r"language_version\(\)\.version_compare\('>=3\.(\d+)'\)", read("bindings/python/meson.build")), [stable[1]])
    say("ruff.toml", r'target-version = "py3(\d+)"', oldest[1])
    for page in ["README.md", "docs/python.md"]:
        say(page, r"Python 3\.(\d+) or later", oldest[1])
    say("docs/python.md", r"Tested with Python 3\.\d+ to 3\.(\d+)", str(named[-1]))
    say("docs/python.md", r"Tested with Python 3\.(\d+) to", oldest[1])


def go():
    oldest = re.search(r"^go 1\.(\d+)$", read("bindings/go/go.mod"), re.MULTILINE)[1]
    for module in ["bench/go", "bench/peers/grpc_go", "conformance/go", "examples/go", "tests/chaos/go"]:
        say(module + "/go.mod", r"(?m)^go 1\.(\d+)(?:\.\d+)?$", oldest)
    say("meson_options.txt", r"need Go 1\.(\d+)", oldest)
    say("bindings/go/meson.build", r"a Go of at least 1\.(\d+)", oldest)
    # meson.build and scripts read it from bindings/go/go.mod.
    for script in ["dev/common.sh", "dev/conformance.sh", "dev/docs.sh", "dev/lint.sh", "dev/peers.sh", "package/go.sh"]:
        same(f"scripts/{script} names no Go as the oldest", re.findall(r"(?i)\bGo (?:of at least )?1\.\d+", read("scripts/" + script)), [])
    for page in ["README.md", "docs/go.md"]:
        say(page, r"Go 1\.(\d+) or later", oldest)
    otel = re.search(r"^go 1\.(\d+)", read("bindings/go/otel/go.mod"), re.MULTILINE)[1]
    say("docs/observability.md", r"It needs Go 1\.(\d+)", otel)
    say("scripts/package/go_zip/go.mod", r"(?m)^go 1\.(\d+)", otel)
    say("scripts/docs/go_reference/go.mod", r"(?m)^go 1\.(\d+)", oldest)
    say("scripts/dev/common.sh", r"(?m)^go_(?:wheel_)?version=1\.(\d+)", otel, 2)  # what is fetched builds all modules


def releases():
    version = subprocess.run([SOURCE / "scripts/version.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    # What is published may not need a module that never was: others stand in for it in a checkout only.
    say("bindings/go/otel/go.mod", r"bindings/go v(\S+)", version)
    for folder in ["bindings/python", "bindings/go"]:
        same(f"{folder} has the licence", read(folder + "/LICENSE"), read("LICENSE"))


pythons()
go()
releases()
sys.exit(checks.end())
