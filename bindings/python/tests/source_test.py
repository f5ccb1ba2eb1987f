"""source_test.py MESON: that the source distribution can be built where nothing else of the repository is: made as `meson dist` makes it, it has
no links, every committed file of the library and of the package, and whatever these include; and meson is content with it. What is not
committed is not in it. Prints TAP."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[1]
ROOT = PYTHON.parents[1]
sys.path.append(str(ROOT / "tests"))
from checks import Checks, skip_all  # noqa: E402


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def make(folder):
    tree = folder / "tree"
    tree.mkdir()
    subprocess.run(["tar", "-x", "-C", tree], input=git("archive", "HEAD:bindings/python"), check=True)
    env = dict(os.environ, MESON_PROJECT_SOURCE_ROOT=str(PYTHON), MESON_PROJECT_DIST_ROOT=str(tree))
    subprocess.run([sys.executable, PYTHON / "add_library_source.py"], env=env, check=True)
    return tree


def not_found(tree):
    """The includes of files of the library for which there is no file."""
    library = tree / "subprojects" / "copyrpc"
    missing = []
    for file in [*library.rglob("*.[ch]")]:
        for name in re.findall(r'^#include "([^"]+)"', file.read_text(encoding="utf-8"), re.MULTILINE):
            if not any((place / name).exists() for place in (file.parent, library / "core", library / "capi")):
                missing.append(f"{file.relative_to(library)} includes {name}")
    return missing


def main():
    try:
        listed = git("ls-tree", "-r", "--name-only", "HEAD", "capi", "core", "bindings/python/copyrpc").decode().splitlines()
    except (OSError, subprocess.CalledProcessError):
        skip_all("this is no checkout of git, of which alone source distributions are made")
        return 0
    checks = Checks()
    wanted = [Path(name) for name in listed if "/tests/" not in name and not name.startswith("capi/abi/")]
    with tempfile.TemporaryDirectory(prefix="a test.") as temporary:
        tree = make(Path(temporary))
        links = [str(file) for file in tree.rglob("*") if file.is_symlink()]
        checks.check(not links, "there are no links", links)
        places = {tree / (name.relative_to("bindings/python") if name.parts[0] == "bindings" else Path("subprojects/copyrpc") / name): name for name in wanted}
        missing = [str(name) for place, name in places.items() if not place.is_file()]
        checks.check(len(wanted) > 200 and not missing, "each file of the library and of the package is there", missing)
        missing = not_found(tree)
        checks.check(not missing, "and what they include", missing)
        build = Path(temporary) / "build"
        # Without what this build exports, and without a libcopyrpc that is installed.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PKG_CONFIG", "MESON"))}
        # meson.build says so of the parts, but not where it is forced to take the source.
        parts = [f"-Dcopyrpc:{part}=disabled" for part in ("tools", "simnic", "nccl", "examples", "tests")]
        done = subprocess.run([sys.argv[1], "setup", build, tree, "--force-fallback-for=copyrpc", *parts], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        checks.check(done.returncode == 0, "meson can set it up", done.stdout.splitlines()[-40:])
    return checks.end()


sys.exit(main())
