"""c_reference.py: the reference of C, made of copyrpc.h, whose comments have a form that is kept: a comment is of what follows it, or of what is
before it on its line. Gives reStructuredText for Sphinx's domain of C, and complains of any declaration that it has not found."""
from __future__ import annotations

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/)
    | (?P<skip>\#(?:ifn?def|endif|include|define\ COPYRPC_H|define\ CRPC_API)[^\n]* | extern\ "C"\ \{ | \}(?=\s*(?:\#endif|$)))
    | \#define\ (?P<macro>\w+)\ (?P<value>\S+)
    | typedef\ struct\ (?P<opaque>\w+)\ \w+;
    | typedef\ struct\ (?P<struct>\w+)\ \{(?P<body>.*?)\n\}\ \w+;
    | CRPC_API\ (?P<function>[^;]+);
    | (?P<space>\s+)""", re.VERBOSE | re.DOTALL)
MEMBER = re.compile(r"(?P<comment>/\*.*?\*/)|(?P<member>[a-z]\w*\s+\*?\w+(?:\[\w+\])*);|(?P<space>\s+)", re.DOTALL)
NAME = re.compile(r"\b(?:crpc_\w+|CRPC_\w+)\b|\bdocs/[\w-]+\.md\b|\bABI\.md\b")
SECTION = re.compile(r"/\* -{4} (.*?) -+ \*/")


def escaped(text: str) -> str:
    return re.sub(r"([\\*_|`])", r"\\\1", text)


def words_of(comment: str) -> list[str]:
    """The lines of a comment, without its marks."""
    return [re.sub(r"^\s*\*? ?", "", line).rstrip() if number else line.strip()
            for number, line in enumerate(comment.removeprefix("/*").removesuffix("*/").rstrip().split("\n"))]


@dataclass
class Reference:
    kinds: dict[str, str]  # what each name of the header is, in the terms of Sphinx's domain
    lines: list[str] = field(default_factory=list)
    members: set[str] = field(default_factory=set)
    described: set[str] = field(default_factory=set)

    def inline(self, text: str) -> str:
        """As reStructuredText: names link to what they name, and nothing else is markup."""
        parts = []
        for number, part in enumerate(re.split(r"`([^`]*)`", text)):
            if number % 2:
                parts.append(rf"\ ``{part}``\ ")
                continue
            start = 0
            for found in NAME.finditer(part):
                name = found.group()
                if name in self.kinds or name.endswith(".md"):
                    role = f":c:{self.kinds[name]}:`{name}`" if name in self.kinds else f":doc:`{name} </{name.removesuffix('.md')}>`"
                    parts += [escaped(part[start:found.start()]), rf"\ {role}\ "]
                    start = found.end()
            parts.append(escaped(part[start:]))
        return "".join(parts)

    def put(self, indent: int, *lines: str) -> None:
        self.lines += [" " * indent + line if line else "" for line in lines]

    def describe(self, indent: int, comment: str, first: str = "") -> None:
        """A comment as paragraphs and lists. What is returned begins a paragraph."""
        paragraphs: list[str] = []
        for line in words_of(comment):
            if not line:
                paragraphs.append("")
            elif not paragraphs or re.match(r" *- |Returns |Threads: ", line):
                paragraphs.append(line.strip())
            else:
                paragraphs[-1] += " " + line.strip() if paragraphs[-1] else line.strip()
        if first:
            paragraphs = [f"{first}: {paragraphs[0]}", *paragraphs[1:]] if comment else [first]
        for paragraph in [part for whole in paragraphs for part in re.split(r"(?<=\.) (?=Returns )", whole)]:
            if paragraph:
                self.put(indent, self.inline(paragraph).replace("Returns ", "**Returns** ", 1) if paragraph.startswith("Returns ")
                         else self.inline(paragraph), "")

    def macros(self, names: list[tuple[str, str]], comment: str) -> None:
        self.described.update(name for name, _ in names)
        self.put(0, f".. c:macro:: {names[0][0]}", *(f"             {name}" for name, _ in names[1:]), "")
        self.describe(3, comment, ", ".join(f"`{value}`" for _, value in names))

    def struct(self, name: str, body: str, comment: str) -> None:
        self.described.add(name)
        self.put(0, f".. c:struct:: {name}", "")
        self.describe(3, comment)
        before, last, position = "", "", 0
        entries: list[tuple[str, str]] = []
        while position < len(body):
            token = MEMBER.match(body, position)
            if not token:
                raise SystemExit(f"c_reference.py: {name} has a member that is not understood: {body[position:position + 60]!r}")
            position = token.end()
            if token["comment"] and last == "member":
                entries[-1] = (entries[-1][0], token["comment"])
            elif token["comment"]:
                before = token["comment"]
            elif token["member"]:
                entries.append((" ".join(token["member"].split()), before))
                before = ""
            if token["space"] and "\n" in token["space"]:
                last = ""
            elif not token["space"]:
                last = "member" if token["member"] else ""
        for member, text in entries:
            self.members.add(f"{name}.{member.partition('[')[0].split()[-1].lstrip('*')}")
            self.put(3, f".. c:member:: {member}", "")
            self.describe(6, text)

    def function(self, declaration: str, comment: str) -> None:
        self.described.update(re.findall(r"(crpc_\w+)\(", declaration))
        self.put(0, f".. c:function:: {' '.join(declaration.split())}", "")
        self.describe(3, comment)


def kinds_of(header: str) -> dict[str, str]:
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    kinds = {name: "macro" for name in re.findall(r"^#define (CRPC_(?!API)\w+)", code, re.MULTILINE)}
    kinds |= {name: "type" for name in re.findall(r"^typedef struct (\w+) \w+;", code, re.MULTILINE)}
    kinds |= {name: "struct" for name in re.findall(r"^typedef struct (\w+) \{", code, re.MULTILINE)}
    return kinds | {name: "func" for name in re.findall(r"^CRPC_API[^;(]*?\b(crpc_\w+)\(", code, re.MULTILINE)}


def reference_of(header: str, fields: set[str]) -> str:
    """Of the text of copyrpc.h. `fields` are all members of its structs, as the test of the ABI has them: "crpc_op.opcode"."""
    reference = Reference(kinds_of(header))
    title = "C: copyrpc.h"
    reference.put(0, title, "=" * len(title), "")
    comment, position, line_has_macro = "", 0, False
    waiting: list[tuple[str, str]] = []  # macros whose comment may be before them all, or behind each

    def finish() -> None:
        """What a comment was of is known: macros that follow it, or nothing but itself."""
        nonlocal comment
        if waiting:
            reference.macros(list(waiting), comment)
            waiting.clear()
        elif comment:
            reference.describe(0, comment)
        comment = ""

    while position < len(header):
        token = TOKEN.match(header, position)
        if not token:
            raise SystemExit(f"c_reference.py: this part of copyrpc.h is not understood: {header[position:position + 60]!r}")
        position = token.end()
        if token["space"]:
            if token["space"].count("\n") > 1:
                finish()
            line_has_macro = line_has_macro and "\n" not in token["space"]
        elif token["comment"] and line_has_macro:
            own = waiting.pop()  # its comment is behind it: what is before is not of it alone
            finish()
            reference.macros([own], token["comment"])
            line_has_macro = False
        elif token["comment"]:
            finish()
            if section := SECTION.fullmatch(token["comment"]):
                reference.put(0, "", section[1], "-" * len(section[1]), "")
            else:
                comment = token["comment"]
        elif token["macro"]:
            waiting.append((token["macro"], token["value"]))
            line_has_macro = True
        elif token["opaque"]:
            reference.described.add(token["opaque"])
            reference.put(0, f".. c:type:: {token['opaque']}", "")
            reference.describe(3, comment)
            comment = ""
        elif token["struct"]:
            reference.struct(token["struct"], token["body"], comment)
            comment = ""
        elif token["function"]:
            reference.function(token["function"], comment)
            comment = ""
    finish()
    if missing := set(reference.kinds) - reference.described | fields - reference.members:
        raise SystemExit(f"c_reference.py: the reference lacks {', '.join(sorted(missing))}")
    return "\n".join(reference.lines) + "\n"
