#!/usr/bin/env python3
"""module_test.py GO SIMNIC BUILD: that the module is whole: in an empty folder, `go get` brings what a release has, from a proxy that has nothing
else; the program of docs/go.md builds, with the library that pkg-config finds, and makes its first call. The lines and the program are those
of docs/go.md, as printed. Prints TAP."""
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from go_folders import go_folders
from module_proxy import HERE, MODULE, make_proxy

ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests"))
from checks import Checks  # noqa: E402


def last(output):
    return output.splitlines()[-60:]


def block(page, heading, language):
    found = re.search(rf"^## {heading}\n(?:(?!^## ).)*?^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert found, f"docs/go.md has {language} below {heading}"
    return found[1]


def main():
    checks = Checks()
    go, simnic, build = sys.argv[1], os.path.abspath(sys.argv[2]), Path(sys.argv[3]).resolve()
    version = "v" + subprocess.run([ROOT / "scripts/version.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    page = (ROOT / "docs/go.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="a test.") as temporary:
        work = Path(temporary)
        proxy = make_proxy(work / "proxy", version)
        folder = work / "hello"
        folder.mkdir()
        (folder / "main.go").write_text(block(page, "A first call", "go"), encoding="utf-8")
        taken = dict(os.environ, **go_folders(go, build))
        cache = subprocess.run([go, "env", "GOCACHE"], env=taken, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        # A cache of modules of its own: what the machine has fetched before helps nobody else.
        env = dict(taken, GOPROXY=proxy, GOSUMDB="off", GOTOOLCHAIN="local", GOFLAGS="-modcacherw", GOWORK="off", GOCACHE=cache,
                   GOMODCACHE=str(work / "modules"), PKG_CONFIG_PATH=str(build / "meson-uninstalled"), LD_LIBRARY_PATH=str(build / "capi"),
                   PATH=f"{os.path.dirname(go)}:{os.environ['PATH']}")
        env.pop("COPYRPC", None)

        def say(*command):
            done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=540)
            return done.returncode, done.stdout

        with zipfile.ZipFile(work / "proxy" / MODULE / "@v" / f"{version}.zip") as archive:
            names = {name.split("@", 1)[1].split("/", 1)[1] for name in archive.namelist()}
        checks.check({"go.mod", "LICENSE", "copyrpc.go"} <= names and not [name for name in names if name.startswith("otel/")],
                     "the module's zip has the licence, and no other module", "\n".join(sorted(names)))
        status, output = say("sh", "-exc", block(page, "Install", "sh").replace("sudo ", "true "))
        if checks.check(status == 0, "the lines of docs/go.md, with what the zip has and nothing else", last(output)):
            status, output = say(go, "list", "-m", "all")
            checks.check(status == 0 and output.splitlines() == ["hello", f"{MODULE} {version}"], "it is the release, and needs nothing else", last(output))
            status, output = say(simnic, "run", "--private", "--", "./hello", "127.0.0.1:7479")
            checks.check(status == 0 and output == block(page, "A first call", "text"), "the first call is answered", last(output))
            status, output = say(go, "vet", MODULE)
            checks.check(status == 0, "go vet on the package as it was fetched, with its tests", last(output))
    return checks.end()


sys.exit(main())
