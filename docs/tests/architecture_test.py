"""architecture_test.py SOURCE_ROOT: every function that docs/architecture.md names is in the file that it names. TAP."""

import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from checks import Checks

root = Path(sys.argv[1])
ROW = re.compile(r"^\| `(\w+)` \| `([\w/.]+)` \|", re.MULTILINE)


def defines(file: Path, function: str) -> bool:
    """A definition: the name at the start of a line or after a type, its arguments, and then no semicolon."""
    return file.exists() and bool(re.search(rf"^\S[^;{{}}()]*\b{function}\([^;{{}}]*\)\s*\{{", file.read_text(), re.MULTILINE))


rows = ROW.findall((root / "docs/architecture.md").read_text())
checks = Checks(len(rows) + 1)
checks.check(rows, "there are functions")
for function, path in rows:
    checks.check(defines(root / path, function), f"{function} is in {path}")
sys.exit(checks.end())
