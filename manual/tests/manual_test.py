"""manual_test.py SOURCE PAGES PROGRAM...: the manual pages in the folder PAGES, beside what the programs and the sources say. TAP."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Callable

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from checks import Checks

SOURCE, PAGES = Path(sys.argv[1]), Path(sys.argv[2])
PROGRAMS = {Path(path).name: path for path in sys.argv[3:]}
SECTIONS = ("NAME", "SYNOPSIS", "DESCRIPTION", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO")
OF_PROGRAMS = ("OPTIONS", "EXIT STATUS")
# What a test gives for a value in capitals.
VALUES = {"P": "0.5", "US": "7", "GBPS": "2.5", "NAME": "no-srq"}
# Set by simnic for its commands, and not read.
SET = {"SYSFS_PATH"}

checks = Checks()
skip = checks.skip
Found = list[str]


def check(name: str, find: Callable[[], Found]) -> None:
    """`find` returns what is wrong."""
    wrong = find()
    checks.check(not wrong, name, wrong)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SIMNIC_", "ARGP_"))}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**environment, "LC_ALL": "C", "MANWIDTH": "80"},
                          stdin=subprocess.DEVNULL, check=False)


# ---- What pages say ----


class Page:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.name, self.number = path.name.rsplit(".", 1)
        self.sections: dict[str, list[str]] = {}
        for line in path.read_text(encoding="ascii").splitlines():
            if line.startswith(".SH "):
                self.sections[line[4:]] = []
            elif self.sections:
                self.sections[list(self.sections)[-1]].append(line)

    def terms(self, section: str) -> Found:
        """What the section defines, without fonts."""
        lines = self.sections.get(section, [])
        texts = [re.sub(r"\\f.", "", after).replace("\\-", "-") for line, after in zip(lines, lines[1:]) if line == ".TP"]
        return [term for text in texts for term in text.split(", ")]

    def command(self) -> Found:
        """The program, and the word that the page is about."""
        program = next(name for name in PROGRAMS if self.name == name or self.name.startswith(name + "-"))
        return [PROGRAMS[program], *filter(None, [self.name[len(program) + 1 :]])]


def example_of(term: str) -> str:
    return re.sub(r"\[.*\]|[A-Z]+", lambda found: "" if found[0].startswith("[") else VALUES.get(found[0], "1"), term)


pages = [Page(path) for path in sorted(PAGES.glob("*.[1-8]"))]
of_programs = [page for page in pages if page.number == "1"]
by_name = {page.name: page for page in pages}


def lint(page: Page) -> Found:
    done = run("mandoc", "-T", "lint", "-W", "warning", str(page.path))
    return (done.stdout + done.stderr).splitlines()


def man_warns(page: Page) -> Found:
    return run("man", "--warnings", "-l", str(page.path)).stderr.splitlines()


def lacks_sections(page: Page) -> Found:
    wanted = SECTIONS + (OF_PROGRAMS if page.number == "1" else ())
    return [section + " is missing or empty" for section in wanted if not page.sections.get(section)]


def strays(page: Page) -> Found:
    """References to pages of ours that are not there."""
    found = re.findall(r"\\fB([a-z0-9_\\-]+)\\fR\((\d)\)", page.path.read_text(encoding="ascii"))
    names = {(name.replace("\\", ""), number) for name, number in found}
    return [f"{name}({number}) is not there" for name, number in sorted(names)
            if name.startswith(("copyrpc", "simnic")) and (name not in by_name or by_name[name].number != number)]


# ---- What programs say ----


def forms_of(page: Page) -> set[str]:
    return {re.split(r"[=\[]", term)[0] for term in page.terms("OPTIONS")}


def differs_from_help(page: Page) -> Found:
    """Options that either has, and not the other."""
    lines = run(*page.command(), "--help").stdout.splitlines()
    heads = [re.match(r"  +(-[^-](?:, --[a-z-]+)?|--[a-z-]+)", line) for line in lines]
    told = {form for head in heads if head for form in head[1].split(", ")}
    return [*(f"{form} is not on the page" for form in sorted(told - forms_of(page))),
            *(f"{form} is not in --help" for form in sorted(forms_of(page) - told))]


def unknown_options(page: Page) -> Found:
    """Of the page, which the program does not take, or takes no value of, or does not want it."""
    wrong = []
    for term in page.terms("OPTIONS"):
        form, value = re.split(r"[=\[]", term)[0], "=" in term
        if term.startswith("--version") or (term.startswith("-V") and page.name != "simnic"):
            continue
        given = [form + ("=1" if value else "")] if form.startswith("--") else [form]
        done = run(*page.command(), *given, *(["1"] if value and not form.startswith("--") else []), "--help")
        if re.search("unrecognized|PROGRAM ERROR|is no option|requires|allow|needs a value|takes no|is neither", done.stderr):
            wrong.append(f"{' '.join(given)}: {done.stderr}")
    return wrong


def misbehaves(page: Page) -> Found:
    """How it answers --help, and wrong options."""
    wrong, helped = [], run(*page.command(), "--help")
    usage = "usage: " + (page.name.replace("-", " ") if page.name.startswith("simnic") else page.name)
    if helped.returncode != 0 or helped.stderr or not helped.stdout.lower().startswith(usage):
        wrong.append(f"--help: status {helped.returncode}, {helped.stdout[:60]!r}, {helped.stderr!r}")
    for arguments in (["--no-such-option"], ["-Z"], *WRONG.get(page.name, [])):
        done = run(*page.command(), *arguments)
        if done.returncode != 2 or done.stdout or not done.stderr:
            wrong.append(f"{' '.join(arguments)}: status {done.returncode}, {done.stdout[:60]!r}, {done.stderr[:60]!r}")
    return wrong


WRONG = {
    "copyrpc-info": [["word"], ["--json=1"]],
    "copyrpc-check": [["--only", "nothing"], ["--seconds", "0"], ["--patience"], ["a", "b", "c"]],
    "copyrpc-perf": [[], ["client"], ["neither"], ["server", "a", "b"], ["--size", "x", "server"], ["server", "--depth", "1e9"]],
    "copyrpc-top": [["word"], ["--interval", "0"], ["--pid", "x"], ["--sort", "size"]],
    "simnic": [[], ["word"]],
    "simnic-run": [[], ["--private", "--session", "a", "true"], ["--session", "a/b", "true"], ["--link", "wire", "true"],
                   ["--private", "--fault", "lose=2", "true"]],
    "simnic-ctl": [[], ["word"], ["stats", "word"], ["trace", "--qp", "x"], ["trace", "--seconds", "0"], ["fault", "lose=2"]],
}


def versions() -> Found:
    version = run(str(SOURCE / "scripts/version.sh")).stdout.strip()
    done = {name: run(path, "--version") for name, path in PROGRAMS.items()}
    return [f"{name}: {said.stdout!r}" for name, said in done.items()
            if said.returncode != 0 or said.stdout != f"{name} {version}\n" or not version]


def default_port() -> Found:
    """Of copyrpc-check: the page has it as a number."""
    found = re.search(r'#define PEER_PORT_DEFAULT "(\d+)"', (SOURCE / "tools/check/peer.h").read_text())
    text = "\n".join(by_name["copyrpc-check"].sections["OPTIONS"])
    return [] if found and f"TCP port ({found[1]})" in text else [f"peer.h has {found and found[1]}"]


# ---- simnic's words ----


def commands_of_ctl() -> Found:
    """Which option goes with which word: the page says so by its groups."""
    wrong, group = [], ""
    page = by_name["simnic-ctl"]
    words = [term.split()[0] for term in page.terms("COMMANDS")]
    lines = page.sections["OPTIONS"]
    for line, after in zip(lines, lines[1:]):
        group = line[len(".SS Options of ") :] if line.startswith(".SS") else group
        option = re.search(r"\\-\\-([a-z]+)\\fR(=?)", after) if line == ".TP" else None
        for word in words if option and option[1] not in ("help", "session") else []:
            given = ["--" + option[1], *(["1"] if option[2] else [])] if option else []
            refused = "does not go with" in run(*page.command(), "--session", "none.such", word, *given).stderr
            if refused == (group == word):
                wrong.append(f"{word} {' '.join(given)} is {'refused' if refused else 'taken'}, and the page says 'Options of {group}'")
    return wrong


def faults() -> Found:
    page = by_name["simnic-ctl"]
    terms = page.terms("FAULTS")
    complained = run(*page.command(), "fault", "nothing=1").stderr
    listed = re.search(r"is not one of (.*) \(as in", complained)
    told = set(listed[1].split(", ")) if listed else set()
    tried = {term: run(*page.command(), "--session", "none.such", "fault", example_of(term)) for term in terms}
    names = {term.split("=")[0] for term in terms}
    return [*(f"{term}: {done.stderr}" for term, done in tried.items() if "there is no session" not in done.stderr),
            *(f"{name} is not on the page, or not in the program: {complained}" for name in sorted(names ^ told))]


def links() -> Found:
    page = by_name["simnic-run"]
    terms = page.terms("LINKS")
    complained = run(*page.command(), "--link", "ib,nothing", "true").stderr
    listed = re.search(r"is not one of (.*) \(see", complained)
    told = set(listed[1].replace("sl=0 to sl=15", "sl=N").split(", ")) if listed else set()
    tried = {term: run(*page.command(), "--private", "--link", example_of(term if term in ("ib", "ethernet") else "ib," + term), "true")
             for term in terms}
    return [*(f"{term}: {done.stderr}" for term, done in tried.items() if done.returncode != 0),
            *(f"{name} is not on the page, or not in the program: {complained}" for name in sorted({*terms} - {"ib", "ethernet"} ^ told))]


# ---- What the sources read ----


def variables_in(*folders: str) -> set[str]:
    """Those that are read by name, and all strings that are names of ours: some are read through a table or a macro."""
    found: set[str] = set()
    for folder in folders:
        for path in (SOURCE / folder).rglob("*.[ch]"):
            if "tests" not in path.relative_to(SOURCE).parts:
                text = path.read_text()
                found |= set(re.findall(r'getenv\("(\w+)"\)', text)) | set(re.findall(r'"((?:COPYRPC|SIMNIC)_[A-Z_]+)"', text))
    return found


def variables_differ(names: list[str], *folders: str) -> Found:
    read = variables_in(*folders)
    told = {term for name in names for term in by_name[name].terms("ENVIRONMENT")}
    return [*(f"{name} is read, and on no page" for name in sorted(read - told)),
            *(f"{name} is on a page, and is not read" for name in sorted(told - read - SET)),
            *([] if read else ["the sources read no variable"])]


def plugin_differs() -> Found:
    """It also reads those of NCCL, which docs/nccl.md has."""
    read = {name for name in variables_in("nccl") if name.startswith("COPYRPC_")}
    told = set(by_name["copyrpc"].terms("ENVIRONMENT OF THE PLUGIN FOR NCCL"))
    shared = set(by_name["copyrpc"].terms("ENVIRONMENT"))
    return [f"{name} is read or told, but not both" for name in sorted(told ^ (read - shared))] + ([] if told else ["it has no variables"])


def tools_read() -> Found:
    """The library reads its variables for them. What a tool reads itself, to tell of it, is on its own page or on the library's."""
    shared = by_name["copyrpc"].terms("ENVIRONMENT")
    found: Found = []
    for folder in sorted(path for path in (SOURCE / "tools").iterdir() if path.is_dir()):
        page = by_name.get(f"copyrpc-{folder.name}")
        told = {*shared, *(page.terms("ENVIRONMENT") if page else [])}
        found += [f"{name} is read by {folder.name}, and on no page" for name in sorted(variables_in(f"tools/{folder.name}") - told)]
    return found


has_mandoc, has_man = shutil.which("mandoc"), shutil.which("man")
# A minimal image has a man that only says that there are no pages.
can_warn = has_man and run("man", "--warnings", "-l", str(pages[0].path)).stdout.find(pages[0].name) >= 0
check("there is a page for each program", lambda: [name for name in PROGRAMS if name not in by_name])
check("each program prints its version", versions)
for one in pages:
    title = f"{one.name}({one.number})"
    check(f"{title} has all sections", partial(lacks_sections, one))
    check(f"{title} names pages that are there", partial(strays, one))
    if has_mandoc:
        check(f"{title}: mandoc finds nothing wrong", partial(lint, one))
    else:
        skip(f"{title}: mandoc finds nothing wrong", "there is no mandoc")
    if can_warn:
        check(f"{title}: man warns of nothing", partial(man_warns, one))
    else:
        skip(f"{title}: man warns of nothing", "there is no man that reads pages")
for one in of_programs:
    check(f"{one.name}: its page has the options of --help", partial(differs_from_help, one))
    check(f"{one.name}: it takes the options of its page", partial(unknown_options, one))
    check(f"{one.name}: 0 and stdout for --help, 2 and stderr for wrong options", partial(misbehaves, one))
check("copyrpc-check: the port on its page is that of the program", default_port)
check("simnic ctl: which word takes which option", commands_of_ctl)
check("simnic ctl: faults", faults)
check("simnic run: links", links)
check("copyrpc(7) has the variables that the library reads", lambda: variables_differ(["copyrpc"], "core", "capi"))
check("copyrpc(7) has those of the plugin for NCCL", plugin_differs)
check("simnic's pages have those that it reads", lambda: variables_differ(["simnic", "simnic-run", "simnic-ctl"], "simnic"))
check("what the tools read is on a page", tools_read)
sys.exit(checks.end())
