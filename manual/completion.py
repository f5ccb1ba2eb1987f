"""completion.py: what shells offer behind a program's name: options, commands, and the values of those kinds that are known."""
from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from page import PLACEHOLDER, Option, Page, plain

HERE = Path(__file__).resolve().parent
# Kinds of values that completion.sh knows how to list, besides those of which a page has the words.
LISTED = ("DEVICE", "FILE", "CHECK", "SESSION", "PID", "COMMAND")
# Other words for them, where a synopsis tells one from another.
ALSO_CALLED = {"OLD": "FILE", "NEW": "FILE", "RESULT": "FILE"}


@dataclass
class Level:
    """What may come after some words of commands, which are a path: one of these."""
    paths: list[str]
    options: list[Option] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)  # with what they do
    operand: str = ""  # the kind of the arguments

    @property
    def path(self) -> str:
        return self.paths[0]


def kind_in(synopsis: str, kinds: set[str]) -> str:
    """Of a line of a synopsis, or of a command with its arguments."""
    words = [ALSO_CALLED.get(word, word) for word in PLACEHOLDER.findall(synopsis)]
    return next((word for word in words if word in kinds), "")


def kinds_of(pages: list[Page]) -> set[str]:
    return {*LISTED, *(section.words_of for page in pages for section in page.sections if section.words_of)}


def levels_of(pages: list[Page]) -> list[Level]:
    """One for the program, for each of its commands, and for their commands."""
    kinds, levels = kinds_of(pages), []
    for page in pages:
        path = page.name[len(pages[0].name) :].lstrip("-")
        commands = {block.terms[0].split()[0]: block.texts[0] for block in page.commands}
        operand = "" if commands else kind_in(" ".join(page.synopsis), kinds)
        common = [option for option in page.options if not option.command]
        levels.append(Level([path], page.options if page.commands else common, commands, operand))
        if any(other.name == f"{page.name}-{command}" for other in pages for command in commands):
            continue
        for block in page.commands:
            command = block.terms[0].split()[0]
            below = Level([f"{path} {command}".strip()], [option for option in page.options if option.command in ("", command)], {},
                          kind_in(block.terms[0], kinds))
            if (levels[-1].options, levels[-1].commands, levels[-1].operand) == (below.options, {}, below.operand):
                levels[-1].paths += below.paths
            else:
                levels.append(below)
    return levels


def words_of(pages: list[Page], names: list[str]) -> dict[str, tuple[bool, list[str]]]:
    """By their kind, and whether several may be given: words, and the beginnings of those that go on as one likes, which end with = or :.
    names are those that NAME stands for."""
    found = {}
    for page in pages:
        for section in page.sections:
            if section.words_of:
                words = []
                for term in (term for block in section.definitions() for term in block.terms):
                    head = re.split(rf"\[|{PLACEHOLDER.pattern}", term, maxsplit=1)[0]
                    words += [head + name for name in names] if term.endswith("=NAME") and names else [head]
                found[section.words_of] = (section.several, words)
    return found


def value_kind(option: Option, kinds: set[str]) -> str:
    """A kind, the words themselves with | between them, or "any"; "" if the option takes no value."""
    if not option.value:
        return ""
    if re.fullmatch(r"[a-z|]+", option.value):
        return option.value
    name = PLACEHOLDER.findall(option.value)[0]
    return name + ("," if "," in option.value else "") if name in kinds else "any"


def brief(option: Option) -> str:
    """What it is for, for a list of one line each."""
    return re.split(r"; | \([^()]*\)$", plain(option.text))[0]


# ---- bash ----


def bash_level(level: Level, kinds: set[str]) -> str:
    lines = [f"    {' | '.join(shlex.quote(path) for path in level.paths)})"]
    for option in level.options:
        kind = value_kind(option, kinds)
        for form in option.forms:
            lines.append(f"        options[{form}]={shlex.quote(('?' if option.is_optional else '') + kind)}")
    if level.commands:
        lines.append(f"        commands=({' '.join(level.commands)})")
    if level.operand:
        lines.append(f"        operand={level.operand}")
    return "\n".join([*lines, "        ;;"])


def bash(pages: list[Page], names: list[str]) -> str:
    name, kinds = pages[0].name, kinds_of(pages)
    function = "_" + name.replace("-", "_")
    cases = "\n".join(bash_level(level, kinds) for level in levels_of(pages))
    words = "\n".join(f"    words[{kind}]={shlex.quote(' '.join(found))}" + (f"\n    several[{kind}]=1" if several else "")
                      for kind, (several, found) in words_of(pages, names).items())
    return (f"# bash completion of {name}. Made by manual/generate.py from manual/{name}.{pages[0].section}.md\n\n"
            f"# {function}_level PATH: what may come behind these words of commands.\n"
            f"{function}_level() {{\n    case $1 in\n{cases}\n    esac\n{words}\n}}\n\n"
            f"{(HERE / 'completion.sh').read_text(encoding='ascii')}\n"
            f"{function}() {{ _copyrpc_complete {function}_level; }}\n"
            f"complete -F {function} {name}\n")


# ---- fish ----

FISH_LISTS = {
    "DEVICE": "(path basename /sys/class/infiniband/* 2>/dev/null)",
    "CHECK": "(copyrpc-check --list 2>/dev/null | string replace -r ' +' \\t)",
    "SESSION": "(simnic ctl sessions 2>/dev/null | tail -n +2 | string replace -r ' .*' '')",
    "PID": "(__fish_complete_pids)",
}


def fish_value(kind: str, words: dict[str, tuple[bool, list[str]]]) -> str:
    """Arguments of complete."""
    kind = kind.rstrip(",")
    if kind == "FILE":
        return " -r -F"
    if kind in FISH_LISTS:
        return f" -x -a {fish_quote(FISH_LISTS[kind])}"
    if kind in words:
        several, found = words[kind]
        listed = fish_quote(" ".join(found))
        return f" -x -a {fish_quote('(__fish_append , ' + ' '.join(found) + ')') if several else listed}"
    return f" -x -a {fish_quote(kind.replace('|', ' '))}" if re.fullmatch(r"[a-z|]+", kind) and kind != "any" else " -x"


def fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_condition(level: Level, levels: list[Level]) -> str:
    below = [path.split()[-1] for other in levels if other is not level for path in other.paths if path.startswith(level.path)]
    words = [*level.path.split()[:-1], " ".join(path.split()[-1] for path in level.paths if path)]
    seen = [f"__fish_seen_subcommand_from {word}" for word in words if word]
    return "; and ".join([*seen, *([f"not __fish_seen_subcommand_from {' '.join(below)}"] if below and not level.operand else [])])


def fish(pages: list[Page], names: list[str]) -> str:
    name, kinds, levels, words = pages[0].name, kinds_of(pages), levels_of(pages), words_of(pages, names)
    lines = [f"# fish completion of {name}. Made by manual/generate.py from manual/{name}.{pages[0].section}.md",
             *([] if any(level.operand in ("FILE", "COMMAND") for level in levels) else [f"complete -c {name} -f"])]
    for level in levels:
        condition = fish_condition(level, levels)
        start = f"complete -c {name}" + (f" -n {fish_quote(condition)}" if condition else "")
        for command, text in level.commands.items():
            lines.append(f"{start} -f -a {command} -d {fish_quote(plain(text))}")
        for option in level.options:
            forms = (f" -s {fish_quote(option.letter)}" if option.letter else "") + (f" -l {option.name}" if option.name else "")
            kind = value_kind(option, kinds)
            value = fish_value(kind, words) if kind and not option.is_optional else ""
            lines.append(f"{start}{forms}{value} -d {fish_quote(brief(option))}")
        if level.operand == "COMMAND":
            lines.append(f"{start} -x -a '(__fish_complete_subcommand)'")
        elif level.operand:
            lines.append(f"{start}{fish_value(level.operand, words).replace(' -x', ' -f')}")
    return "\n".join(lines) + "\n"


# ---- zsh ----

ZSH_LISTS = {
    "DEVICE": "/sys/class/infiniband/*(N:t)",
    "CHECK": '${${(f)"$(copyrpc-check --list 2>/dev/null)"}%% *}',
    "SESSION": '${${(f)"$(simnic ctl sessions 2>/dev/null)"}[2,-1]%% *}',
}


def zsh_quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def zsh_action(kind: str, words: dict[str, tuple[bool, list[str]]]) -> str:
    """The action of a spec, in which a colon would begin the next part."""
    several, kind = kind.endswith(","), kind.rstrip(",")
    if kind in ("FILE", "PID"):
        return {"FILE": "_files", "PID": "_pids"}[kind]
    listed = ZSH_LISTS.get(kind, "")
    if kind in words:
        several, found = words[kind]
        listed = " ".join(found)
    listed = listed.replace(":", "\\:")
    if listed:
        return f"{{_sequence compadd - {listed}}}" if several else f"{{compadd -- {listed}}}"
    return f"({kind.replace('|', ' ')})" if kind != "any" else " "


def zsh_specs(option: Option, kinds: set[str], words: dict[str, tuple[bool, list[str]]]) -> list[str]:
    kind = value_kind(option, kinds)
    text = re.sub(r"([\[\]\\])", r"\\\1", brief(option))
    specs = []
    for form in option.forms:
        once = "*" if "several times" in option.text else f"({' '.join(option.forms)})"
        joint = "" if not kind else "=-" if option.is_optional else "=" if form.startswith("--") else "+"
        value = f":{':' if option.is_optional else ''}{option.value.split('[')[0]}:{zsh_action(kind, words)}" if kind else ""
        if not (option.is_optional and not form.startswith("--")):
            specs.append(zsh_quote(f"{once}{form}{joint}[{text}]{value}"))
    return specs


def zsh_function(name: str, level: Level) -> str:
    return "_".join(["", name.replace("-", "_"), *level.path.split()])


def zsh_level(name: str, level: Level, levels: list[Level], kinds: set[str], words: dict[str, tuple[bool, list[str]]]) -> str:
    specs = [spec for option in level.options for spec in zsh_specs(option, kinds, words)]
    lines = []
    if level.commands:
        offered = " ".join(f'{command}\\:"{re.sub(chr(34) + "|:", "", plain(text))}"' for command, text in level.commands.items())
        specs += [zsh_quote(f"1:command:(({offered}))"), "'*::argument:->more'"]
        lines = ["    case $state:$line[1] in",
                 *(f"    more:{'|more:'.join(path.split()[-1] for path in below.paths)}) {zsh_function(name, below)} ;;"
                   for below in levels if below.path.split()[:-1] == level.path.split() and below is not level), "    esac"]
    elif level.operand == "COMMAND":
        specs += ["'(-)1:command:_command_names -e'", "'*::argument:_normal'"]
    elif level.operand:
        specs.append(zsh_quote(f"*:{level.operand}:{zsh_action(level.operand, words)}"))
    joined = " \\\n        ".join(specs)
    return "\n".join([f"{zsh_function(name, level)}() {{", "    local state line", "    typeset -A opt_args",
                      f"    _arguments -C -S : \\\n        {joined}", *lines, "}\n"])


def zsh(pages: list[Page], names: list[str]) -> str:
    name, kinds, words = pages[0].name, kinds_of(pages), words_of(pages, names)
    levels = levels_of(pages)
    functions = "\n".join(zsh_level(name, level, levels, kinds, words) for level in levels)
    return (f"#compdef {name}\n# Made by manual/generate.py from manual/{name}.{pages[0].section}.md\n\n"
            f"{functions}\n_{name.replace('-', '_')} \"$@\"\n")


def make(shell: str, pages: list[Page], names: list[str]) -> str:
    return {"bash": bash, "fish": fish, "zsh": zsh}[shell](pages, names)
