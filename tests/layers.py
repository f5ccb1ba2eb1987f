"""layers.py: which folder may include which, for the tests of the layers: capi/tests/layers_test.py and simnic/tests/layers_test.py.

A rule names a folder and what its files may include besides the folder's own headers: other folders, or single headers. A folder's
"tests" are not looked at."""
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

from checks import Checks

SOURCES = (".c", ".h", ".cpp")

Results = list[tuple[str, list[str]]]


def folders_of(root: Path, tops: tuple[str, ...]) -> list[str]:
    """Those with sources in them."""
    found = []
    for top in tops:
        for folder, below, names in os.walk(root / top):
            below[:] = [name for name in below if name != "tests"]
            if any(name.endswith(SOURCES) for name in names):
                found.append(os.path.relpath(folder, root))
    return found


def sources_of(root: Path, folder: str) -> list[str]:
    return [folder + "/" + name for name in sorted(os.listdir(root / folder)) if name.endswith(SOURCES)]


def includes_of(root: Path, source: str) -> list[str]:
    return re.findall(r'^ *# *include ["<]([^">]+)[">]', (root / source).read_text(), flags=re.M)


class Layers:
    """`tops`: where every folder with sources must have a rule. `known`: where else headers are that an include may mean. `search`: the
    compiler's include folders; without them, an include may mean every header whose path ends so."""

    def __init__(self, root: Path, rules: dict[str, list[str]], tops: tuple[str, ...], known: tuple[str, ...] = (),
                 search: tuple[str, ...] = (), exceptions: frozenset[tuple[str, str]] = frozenset()) -> None:
        self.root = root
        self.search = search
        self.exceptions = exceptions
        self.strays = [folder + " has no rule" for folder in folders_of(root, tops) if folder not in rules]
        self.rules = {folder: allowed for folder, allowed in rules.items() if (root / folder).is_dir()}
        self.headers: dict[str, list[str]] = {}
        for folder in {*self.rules, *folders_of(root, known)}:
            for source in sources_of(root, folder):
                self.headers.setdefault(os.path.basename(source), []).append(source)

    def targets(self, folder: str, include: str) -> list[str]:
        """The files of ours that an include in this folder can mean."""
        beside = os.path.normpath(os.path.join(folder, include))
        if (self.root / beside).exists():
            return [beside]
        if self.search:
            paths = [os.path.normpath(os.path.join(start, include)) for start in self.search]
            return [path for path in paths if (self.root / path).exists()][:1]
        return [path for path in self.headers.get(os.path.basename(include), []) if ("/" + path).endswith("/" + include)]

    def wrong_includes(self, folder: str) -> list[str]:
        allowed = [folder, *self.rules[folder]]
        wrong = []
        for source in sources_of(self.root, folder):
            for include in includes_of(self.root, source):
                targets = self.targets(folder, include)
                if targets and not any(os.path.dirname(target) in allowed or target in allowed or (source, target) in self.exceptions
                                       for target in targets):
                    wrong.append(f"{source} includes {include}")
        return wrong

    def check(self) -> Results:
        return [("every folder has a rule", self.strays),
                *((folder + " includes only what lies below it", self.wrong_includes(folder)) for folder in sorted(self.rules))]


def report(results: Results) -> NoReturn:
    """Prints TAP, and exits with 1 if anything is wrong."""
    checks = Checks(len(results))
    for name, wrong in results:
        checks.check(not wrong, name, wrong)
    sys.exit(checks.end())
