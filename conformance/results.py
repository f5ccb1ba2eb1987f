"""results.py: what run.py tells as TAP. Only then does it need the package tap."""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from checks import Checks
from report import title


class Tap(Checks):
    def entry(self, entry):
        if entry["result"] == "skipped":
            self.skip(title(entry), entry["reason"])
        else:
            self.check(entry["result"] == "passed", title(entry), entry["reason"])
