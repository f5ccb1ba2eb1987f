"""architecture_test.py SOURCE_ROOT: every function that docs/architecture.md names is in the file that it names. TAP."""

import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
ROW = re.compile(r"^\| `(\w+)` \| `([\w/.]+)` \|", re.MULTILINE)


def defines(file: Path, function: str) -> bool:
    """A definition: the name at the start of a line or after a type, its arguments, and then no semicolon."""
    return file.exists() and bool(re.search(rf"^\S[^;{{}}()]*\b{function}\([^;{{}}]*\)\s*\{{", file.read_text(), re.MULTILINE))


rows = ROW.findall((root / "docs/architecture.md").read_text())
print(f"1..{len(rows) + 1}")
print("ok 1 - there are functions" if rows else "not ok 1 - there are functions")
missing = 0
for number, (function, path) in enumerate(rows, 2):
    found = defines(root / path, function)
    missing += not found
    print(f"{'ok' if found else 'not ok'} {number} - {function} is in {path}")
sys.exit(1 if missing or not rows else 0)
