"""errors_test.py SOURCE_ROOT: docs/errors.md has every CRPC_E_* of copyrpc.h, in its order and with its number, says what it means, what causes it
and what to do, and how Python and Go call it. TAP."""

import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from checks import Checks

root = Path(sys.argv[1])
errors = re.findall(r"^#define (CRPC_E_\w+) (-\d+)", (root / "capi/copyrpc.h").read_text(), re.MULTILINE)
python = dict(re.findall(r"^    lib\.(CRPC_E_\w+): ([A-Z][a-z]\w+),$", (root / "bindings/python/copyrpc/errors.py").read_text(), re.MULTILINE))
go = {error: name for name, error in re.findall(r"^\t(Err\w+)\s+Status = C\.(CRPC_E_\w+)", (root / "bindings/go/status.go").read_text(), re.MULTILINE)}
sections = [section.partition("\n") for section in (root / "docs/errors.md").read_text().split("\n## ")[1:]]

results = [
    ("copyrpc.h has errors", len(errors) > 30),
    ("the page has those of copyrpc.h, in its order", [name for name, *_ in sections] == [name for name, _ in errors]),
]
texts = {name: text for name, _, text in sections}
for name, number in errors:
    text = texts.get(name, "")
    first = f"\n{number}. Python: `{python.get(name)}`. Go: `{go.get(name)}`.\n"
    parts = [part in text for part in ("\n- *It means* ", "\n- *Causes*: ", "\n- *Do*: ")]
    results.append((f"{name} is {first.strip()}", text.startswith(first)))
    results.append((f"{name}: what it means, what causes it, what to do", all(parts)))
checks = Checks(len(results))
for name, good in results:
    checks.check(good, name)
sys.exit(checks.end())
