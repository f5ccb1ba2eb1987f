"""probes_test.py LIBRARY PAGE: the static probes of the library are those in the table of docs/observability.md, with as many arguments. TAP."""
import re
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from checks import Checks, note

library, page = sys.argv[1:3]
notes = subprocess.run(["readelf", "-n", library], capture_output=True, text=True, check=True).stdout
found = set(re.findall(r"Provider: copyrpc\n\s+Name: (\w+)\n.*\n\s+Arguments: (.*)", notes))
probes = {(name, len(re.findall(r"(?:^| )-?\d@", arguments))) for name, arguments in found}
section = Path(page).read_text().split("## Probes")[1].split("\n## ")[0]
rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", section, re.M)
listed = {(name, sum(bool(cell.strip()) for cell in row.split("|")) - 1) for name, row in rows}

NAME = "the library's probes are those in the docs"
checks = Checks()
if not probes:
    checks.skip(NAME, "it was built without <sys/sdt.h>")
else:
    checks.check(probes == listed, NAME, [f"{name} with {count} arguments is only in the {'library' if (name, count) in probes else 'docs'}"
                                          for name, count in sorted(probes ^ listed)])
    note(f"{len(probes)} probes")
sys.exit(checks.end())
