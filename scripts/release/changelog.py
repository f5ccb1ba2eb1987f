"""changelog.py ROOT: prints the release notes: the top section of CHANGELOG.md, with links that lead to the files of that release.

On a page of a release there is no file beside it, so relative links begin with where the tag's files are shown."""
import re
import subprocess
import sys
from pathlib import Path

HOME = "https://github.com/copyrpc/copyrpc"
HEADING = re.compile(r"^## (\S+) \((unreleased|\d{4}-\d{2}-\d{2})\)$", re.M)
BYTES_MAX = 125000  # of the text of a release on GitHub


class ChangelogError(Exception):
    pass


def top(text: str) -> tuple[str, str]:
    """The version of the top section, and its date or "unreleased"."""
    first = re.search(r"^## .*$", text, re.M)
    heading = HEADING.match(first[0]) if first else None
    if not heading:
        raise ChangelogError("the first heading of CHANGELOG.md should be like '## 1.2.3 (2026-11-29)' or '## 1.2.3 (unreleased)', and is "
                             + repr(first[0] if first else None))
    return heading[1], heading[2]


def notes(text: str) -> str:
    version, _ = top(text)
    heading = HEADING.search(text)
    assert heading
    following = re.search(r"^## ", text[heading.end():], re.M)
    section = text[heading.end():][:following.start() if following else None].strip("\n") + "\n"
    if not section.strip():
        raise ChangelogError(f"CHANGELOG.md says nothing of {version}")
    absolute = re.sub(r"\]\((?!\w+:|#)([^)\s]+)\)", rf"]({HOME}/blob/v{version}/\1)", section)
    if len(absolute.encode()) > BYTES_MAX:
        raise ChangelogError(f"the notes of {version} have {len(absolute.encode())} bytes, and a page of a release takes {BYTES_MAX}")
    return absolute


def version_of(root: Path) -> str:
    return subprocess.run([root / "scripts/version.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    try:
        print(notes(Path(sys.argv[1], "CHANGELOG.md").read_text(encoding="utf-8")), end="")
    except ChangelogError as error:
        sys.exit(f"changelog.py: {error}")
