"""completion_test.py COMPLETIONS PROGRAM...: what shells offer behind the programs' names, from the files in the folders bash, fish and zsh of
COMPLETIONS. Runs in a session of simnic, whose devices are mlx5_0 and mlx5_1, if the shell finds them. TAP."""
from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from checks import Checks

COMPLETIONS = Path(sys.argv[1]).resolve()
PROGRAMS = [Path(path).resolve() for path in sys.argv[2:]]

# As if readline had called it: the words of the line, of which = and : are words of their own, and the cursor is at the end.
BASH = """
. "$1" || exit
COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:' COMP_WORDS=("${@:4}") COMP_CWORD=$(($# - 4))
"$3"
printf '%s\\n' "${COMPREPLY[@]}"
"""

checks = Checks()
skip = checks.skip


def report(name: str, good: bool, told: str) -> None:
    checks.check(good, name, told)


def environment(folder: Path) -> dict[str, str]:
    """The programs are found, and nothing is read that belongs to the user."""
    paths = sorted({str(path.parent) for path in PROGRAMS})
    kept = {name: value for name, value in os.environ.items() if name not in ("ENV", "BASH_ENV", "INPUTRC", "ZDOTDIR")}
    return {**kept, "PATH": ":".join([*paths, os.environ["PATH"]]), "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config"),
            "INPUTRC": "/dev/null", "TERM": "dumb", "LC_ALL": "C"}


def words_of(line: str) -> list[str]:
    words = re.findall(r"[=:]+|[^=: ]+", line)
    return words if not line.endswith(" ") else [*words, ""]


def bash_offers(line: str, folder: Path) -> list[str]:
    program = line.split()[0]
    done = subprocess.run(["bash", "--norc", "-c", BASH, "bash", str(COMPLETIONS / "bash" / program), line, "_" + program.replace("-", "_"),
                           *words_of(line)], capture_output=True, text=True, cwd=folder, env=environment(folder), timeout=60, check=False)
    if done.stderr:
        return [done.stderr]
    return sorted(filter(None, done.stdout.splitlines()))


def typed(shell: list[str], lines: str, folder: Path) -> str:
    """What a shell has printed on a terminal, in which somebody types."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe(shell[0], shell, environment(folder))
    os.write(terminal, lines.encode())
    output = b""
    while True:
        try:
            got = os.read(terminal, 4096)
        except OSError:  # it has ended
            break
        if not got:
            break
        output += got
    os.waitpid(child, 0)
    os.close(terminal)
    return output.decode(errors="replace")


def bash_completes(line: str, folder: Path) -> str:
    """What the line has become after a tab: Ctrl-A and Ctrl-E go to its beginning and its end, and then it is printed instead of run."""
    setup = f"PS1= PS2=; bind 'set bell-style none'; . {COMPLETIONS}/bash/{line.split()[0]}\n"
    output = typed(["bash", "--norc", "--noprofile", "-i"], f"{setup}{line}\t\x01printf 'became:%s;\\n' \"\x05\"\nexit\n", folder)
    found = re.findall(r"^became:(.*);\r?$", output, re.MULTILINE)
    return found[-1] if found else output


def fish_offers(line: str, folder: Path) -> list[str]:
    done = subprocess.run(["fish", "--no-config", "-c", f"source {COMPLETIONS}/fish/{line.split()[0]}.fish; complete -C {line!r}"],
                          capture_output=True, text=True, cwd=folder, env=environment(folder), timeout=60, check=False)
    return sorted({found.split("\t")[0] for found in done.stdout.splitlines()}) if not done.stderr else [done.stderr]


def zsh_completes(line: str, folder: Path) -> str:
    """As bash_completes."""
    setup = (f"fpath=({COMPLETIONS}/zsh $fpath)\nautoload -U compinit\ncompinit -u -d {folder}/dump\nPS1= PS2= PROMPT_EOL_MARK=\n"
             "setopt no_list_ambiguous no_beep\nbindkey -e\n")
    output = typed(["zsh", "-f", "-i"], f"{setup}{line}\t\x01printf 'became:%s;\\n' \"\x05\"\nexit\n", folder)
    found = re.findall(r"^became:(.*);\r?$", output, re.MULTILINE)
    return found[-1] if found else output


def options_of(program: str, *words: str) -> list[str]:
    """Those of --help."""
    path = next(path for path in PROGRAMS if path.name == program)
    told = subprocess.run([path, *words, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    return re.findall(r"^  +(?:-[^-], )?(--[a-z-]+)", told, re.MULTILINE)


DEVICES = sorted(path.name for path in Path("/sys/class/infiniband").glob("*"))

# The line, and all that is offered: so a line goes far enough that what may be new elsewhere is not offered for it. Readline keeps what stands
# before the last = or :.
OFFERS = {
    "copyrpc-check --li": ["--list", "--listen"],
    "copyrpc-check --on": ["--only="],
    "copyrpc-check --only=doorb": ["doorbell", "doorbell-several", "doorbell-shared"],
    "copyrpc-check --only doorbell-": ["doorbell-several", "doorbell-shared"],
    "copyrpc-check --json=": ["a file.json", "folder", "other.key"],
    "copyrpc-check --json o": ["other.key"],
    "copyrpc-check ": DEVICES,
    "copyrpc-check --quick ": DEVICES,
    "copyrpc-info --": ["--help", "--json", "--usage", "--version"],
    "copyrpc-info -j": ["-j"],
    "copyrpc-info ": [],
    "copyrpc-perf s": ["server"],
    "copyrpc-perf server --arena=64k --verif": ["--verify"],
    "copyrpc-perf compare a": ["a file.json"],
    "copyrpc-perf plot other.key --json a": ["a file.json"],
    "copyrpc-perf client --at": ["--atomic", "--atomic="],
    "copyrpc-perf client --atomic=": ["add", "swap"],
    "copyrpc-perf client --atomic sw": [],
    "copyrpc-perf client --tag=u": ["unexpected"],
    "copyrpc-perf client 127.0.0.1:7472 --wri": ["--write"],
    "copyrpc-perf client --key ot": ["other.key"],
    "copyrpc-perf -d ": DEVICES,
    "copyrpc-perf --device=": DEVICES,
    "copyrpc-perf --rails=none,": ["none," + device for device in DEVICES],
    "copyrpc-perf --size server s": ["server"],
    "copyrpc-top --sort=": ["age", "bytes", "open", "rate"],
    "copyrpc-top -s r": ["rate"],
    f"copyrpc-top --pid={os.getpid()}": [str(os.getpid())],
    "simnic ctl s": ["sessions", "stats"],
    "simnic ctl stats --": ["--all", "--help", "--json", "--session="],
    "simnic ctl trace --": ["--help", "--qp=", "--raw", "--seconds=", "--session="],
    "simnic ctl fault rail1=d": ["down"],
    "simnic ctl fault rail1=ra": ["rate:"],
    "simnic ctl fault lose=0.01,rail0=u": ["unplugged"],
    "simnic ctl fault lose=0.01,se": ["0.01,seed="],
    "simnic ctl fault quirk=no-s": ["no-srq"],
    "simnic ctl fault delay=0.1:200,sta": ["200,stall="],
    "simnic run --fault=quirk=blind": ["blind-minis"],
    "simnic run --link ib,gr": ["ib,grh", "ib,grh0", "ib,grh1"],
    "simnic run --link=ib,sub": ["ib,subnets"],
    "simnic run --private -- copyrpc-che": ["copyrpc-check"],
    "simnic run --private copyrpc-che": ["copyrpc-check"],
    "simnic run ls ot": ["other.key"],
    "simnic run ls --fault": [],
}
# What a tab makes of a line.
COMPLETES = {
    "copyrpc-check --quic": "copyrpc-check --quick ",
    "copyrpc-check --patie": "copyrpc-check --patience=",
    "copyrpc-check --only=blueflame-s": "copyrpc-check --only=blueflame-several ",
    "copyrpc-check --json=oth": "copyrpc-check --json=other.key ",
    "copyrpc-check --json fol": "copyrpc-check --json folder/",
    "simnic ctl fau": "simnic ctl fault ",
    "simnic ctl fault dupl": "simnic ctl fault duplicate=",
    "simnic ctl fault lose=0.01,rail0=d": "simnic ctl fault lose=0.01,rail0=down ",
    "simnic ctl fault rail1=rat": "simnic ctl fault rail1=rate:",
    "simnic run --fault=seed=3,quirk=no-s": "simnic run --fault=seed=3,quirk=no-srq ",
}
# The space or = behind what was completed vanishes with the next key.
ZSH = {
    "copyrpc-check --quic": "copyrpc-check --quick",
    "copyrpc-check --patie": "copyrpc-check --patience",
    "copyrpc-check --only=blueflame-s": "copyrpc-check --only=blueflame-several",
    "copyrpc-check --json=oth": "copyrpc-check --json=other.key",
    "copyrpc-info --he": "copyrpc-info --help",
    "copyrpc-perf s": "copyrpc-perf server",
    "copyrpc-perf client --atomic=s": "copyrpc-perf client --atomic=swap",
    "copyrpc-perf compare oth": "copyrpc-perf compare other.key",
    "copyrpc-perf server --veri": "copyrpc-perf server --verify",
    "copyrpc-top --sort=r": "copyrpc-top --sort=rate",
    "simnic ctl fau": "simnic ctl fault",
    "simnic ctl fault lose=0.01,rail0=d": "simnic ctl fault lose=0.01,rail0=down",
    "simnic run --link ib,sub": "simnic run --link ib,subnets",
    "simnic run --fault=seed=3,quirk=no-s": "simnic run --fault=seed=3,quirk=no-srq",
    "simnic ctl fault rail1=rat": "simnic ctl fault rail1=rate:",
    "simnic run --fault rail1=rat": "simnic run --fault rail1=rate:",
    "simnic run copyrpc-che": "simnic run copyrpc-check",
    "copyrpc-check --quick ml": "copyrpc-check --quick mlx5_",
    "copyrpc-perf server --device=ml": "copyrpc-perf server --device=mlx5_",
}
FISH = {
    "copyrpc-check --list": ["--list", "--listen"],
    "copyrpc-check --only doorbell-": ["doorbell-several", "doorbell-shared"],
    "copyrpc-top --sort=": ["--sort=age", "--sort=bytes", "--sort=open", "--sort=rate"],
    "copyrpc-perf s": ["server"],
    "copyrpc-perf compare oth": ["other.key"],
    "simnic c": ["ctl"],
    "simnic ctl s": ["sessions", "stats"],
    "simnic ctl trace --s": ["--seconds", "--session"],
    "simnic ctl fault rail0=ra": ["rail0=rate:"],
    "simnic ctl fault lose=0.01,rail0=d": ["lose=0.01,rail0=down"],
    "simnic run --link ib,grh": ["ib,grh", "ib,grh0", "ib,grh1"],
}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "folder").mkdir()
        (folder / "a file.json").touch()
        (folder / "other.key").touch()
        report("the session has two devices", len(DEVICES) == 2, str(DEVICES))
        for line, wanted in OFFERS.items():
            found = bash_offers(line, folder)
            report(f"bash offers: {line}", found == sorted(wanted), str(found))
        for program, *words in [("copyrpc-info",), ("copyrpc-check",), ("copyrpc-perf", "client"), ("copyrpc-top",), ("simnic",), ("simnic", "run")]:
            options = {option.rstrip("=") for option in bash_offers(" ".join([program, *words, "--"]), folder)}
            told = set(options_of(program, *(words if program == "simnic" else [])))
            report(f"bash offers all options of {' '.join([program, *words])}", options == told, str(sorted(options ^ told)))
        for line, became in COMPLETES.items():
            text = bash_completes(line, folder)
            report(f"bash, at a terminal: {line}", text == became, text)
        for line, became in ZSH.items():
            if shutil.which("zsh"):
                text = zsh_completes(line, folder)
                report(f"zsh, at a terminal: {line}", text == became, text)
            else:
                skip(f"zsh, at a terminal: {line}", "there is no zsh")
        for line, wanted in FISH.items():
            if shutil.which("fish"):
                found = fish_offers(line, folder)
                report(f"fish offers: {line}", found == sorted(wanted), str(found))
            else:
                skip(f"fish offers: {line}", "there is no fish")
    sys.exit(checks.end())


main()
