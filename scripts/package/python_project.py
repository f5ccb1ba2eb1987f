"""python_project.py WORD: what bindings/python/pyproject.toml says, for ./dev package python.

pythons: the Pythons that the package is for, a line each, also those without a GIL; stable: the one that the wheel for all later ones is made
with; is-stable VERSION: whether that wheel is for it."""
import re
import sys
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[2] / "bindings" / "python"
WITHOUT_GIL_SINCE = (3, 14)  # cffi refuses to be built for 3.13t


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.rstrip("t").split("."))


def main() -> None:
    pythons = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (PYTHON / "pyproject.toml").read_text(encoding="utf-8"))
    since = re.search(r"'limited_api': '([\d.]+)'", (PYTHON / "meson.build").read_text(encoding="utf-8"))
    assert since, "meson.build says which limited API the modules need"
    stable = since[1]
    word, *arguments = sys.argv[1:]
    if word == "pythons":
        print(*pythons, *(version + "t" for version in pythons if number(version) >= WITHOUT_GIL_SINCE), sep="\n")
    elif word == "stable":
        print(stable)
    elif word == "is-stable":
        sys.exit(number(arguments[0]) < number(stable))
    else:
        sys.exit(f"unknown word {word}")


main()
