"""links_test.py SOURCE_ROOT: every relative link of the repository's Markdown leads to a file that is there, and its anchor to a heading of it.
TAP. Nothing is asked of the network. ./dev docs checks the same links on the site."""

import os
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from checks import Checks

LINK = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)")
IN_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
OTHERS = {"build", "subprojects", "__pycache__", "node_modules"}


def prose(text: str) -> list[str]:
    """The lines that are not in blocks of code."""
    lines, fence = [], ""
    for line in text.splitlines():
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and not fence:
            fence = mark.group(1)
        elif mark and mark.group(1).startswith(fence) and line.strip() == mark.group(1):
            fence = ""
        elif not fence:
            lines.append(line)
    return lines


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    found: dict[str, int] = {}
    names = set()
    for line in prose(text):
        if heading := re.match(r"#{1,6} +(.*?)#*$", line):
            name = slug(heading.group(1))
            names.add(f"{name}-{found[name]}" if name in found else name)
            found[name] = found.get(name, 0) + 1
    return names


def links(text: str) -> list[str]:
    """Also those that go over the end of a line, and not what looks like one in code."""
    return LINK.findall(IN_CODE.sub("", "\n".join(prose(text)).replace("\n", " ")))


def problems(page: Path, text: str) -> list[str]:
    wrong = []
    for link in links(text):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = page.parent / path if path else page
        if not target.is_file():
            wrong.append(f"{link}: there is no such file")
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text())):
            wrong.append(f"{link}: there is no such heading")
    return wrong


def pages(root: Path) -> list[Path]:
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in OTHERS and not name.startswith("."))
        found += [Path(folder, name) for name in sorted(files) if name.endswith(".md")]
    return found


def tells(text: str, expected: list[str]) -> bool:
    return [problem.partition(":")[0] for problem in problems(Path(sys.argv[1], "docs/here.md"), text)] == expected


root = Path(sys.argv[1])
cases = [
    ("a file that is not there is told", tells("[a](none.md)", ["none.md"])),
    ("and a heading that is not there", tells("[a](../README.md#none)", ["../README.md#none"])),
    ("also over the end of a line", tells("[two\nwords](none.md)", ["none.md"])),
    ("code has no links", tells("`[a](none.md)`\n```c\n[a](none.md)\n```\n", [])),
    ("what is there is found", tells("[a](../README.md#try-it)", [])),
]
everything = pages(root)
checks = Checks(len(cases) + 1 + len(everything))
for name, good in cases:
    checks.check(good, name)
checks.check(sum(len(links(page.read_text())) for page in everything) > 100, "there are pages with links")
for page in everything:
    wrong = problems(page, page.read_text())
    checks.check(not wrong, f"the links of {page.relative_to(root)}", wrong)
sys.exit(checks.end())
