"""page.py: reads the source of a manual page, which is Markdown with these rules.

- "# NAME(SECTION) DATE", and a paragraph for the section NAME; then "## Title" begins each section.
- "## Synopsis" has one code block, with a line for each way to call the program.
- "- `TERM`: text" defines. A term in Options is "`-d, --device=DEVICE`". Words in capitals stand for something else. The first paragraph
  is what --help prints, with the first paragraph of Description.
- "### Title" in Options begins a group. "### Options of WORD" has those that go with this command alone.
- "<!-- help -->" before a paragraph, or first in a section of definitions, has --help print that, too.
- "<!-- words of KIND -->" first in a section: its terms are what a shell offers for a value that is called KIND in the Synopsis or in a
  term. With "one of" instead, only one of them is taken.
- Inline there are `literals`, *words that stand for something else*, and references such as copyrpc(7)."""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

TERM = re.compile(r"- ((?:`[^`]+`)(?:,? `[^`]+`)*): (.*)")
OPTION = re.compile(r"(?:-(?P<letter>[^-,=\[])(?:, )?)?(?:--(?P<name>[a-z0-9-]+))?(?P<value>\[?=.+)?")
COMMAND_GROUP = re.compile(r"Options of (\w+)")
PLACEHOLDER = re.compile(r"(?<![$\w])[A-Z][A-Z0-9_]*(?![\w])")


LITERAL = r"`(?P<literal>[^`]+)`"
STANDS = r"\*(?P<stands>\w[^*]*)\*"


class PageError(Exception):
    pass


@dataclass
class Block:
    """A paragraph, the lines of a code block, or a definition with the paragraphs of its text."""
    kind: str  # "paragraph", "code", "definition", "group"
    texts: list[str]
    terms: list[str] = field(default_factory=list)
    in_help: bool = False


@dataclass
class Section:
    title: str
    blocks: list[Block] = field(default_factory=list)
    in_help: bool = False
    words_of: str = ""
    several: bool = False  # of these words, with commas

    def definitions(self) -> list[Block]:
        return [block for block in self.blocks if block.kind == "definition"]


@dataclass
class Option:
    letter: str
    name: str
    value: str  # "" if it takes none
    is_optional: bool
    text: str  # for --help
    group: str

    @property
    def forms(self) -> list[str]:
        return [form for form in ("-" + self.letter if self.letter else "", "--" + self.name if self.name else "") if form]

    @property
    def key(self) -> str:
        return "OPTION_" + self.name.upper().replace("-", "_")

    @property
    def command(self) -> str:
        """The one that it goes with, if it does not go with all."""
        found = COMMAND_GROUP.fullmatch(self.group)
        return found[1] if found and found[1] != "all" else ""


@dataclass
class Page:
    name: str
    section: int
    date: str
    what: str
    sections: list[Section]

    def find(self, title: str) -> Section:
        for section in self.sections:
            if section.title == title:
                return section
        return Section(title)

    @property
    def synopsis(self) -> list[str]:
        return [line for block in self.find("Synopsis").blocks for line in block.texts]

    @property
    def options(self) -> list[Option]:
        found, group = [], ""
        for block in self.find("Options").blocks:
            if block.kind == "group":
                group = block.texts[0]
            for term in block.terms:
                found.append(option_of(term, block.texts[0], group))
        return found

    @property
    def commands(self) -> list[Block]:
        return self.find("Commands").definitions()


def option_of(term: str, text: str, group: str) -> Option:
    found = OPTION.fullmatch(term)
    if not found or not (found["letter"] or found["name"]):
        raise PageError(f"'{term}' is no option, as in `-d, --device=DEVICE`")
    value = found["value"] or ""
    return Option(found["letter"] or "", found["name"] or "", value.strip("[]=") if value.startswith("[") else value[1:],
                  value.startswith("["), text, group)


def plain(text: str) -> str:
    """Inline text for a terminal."""
    return re.sub(rf"{LITERAL}|{STANDS}", lambda found: found["literal"] or found["stands"], text)


def directive(line: str) -> str:
    found = re.fullmatch(r"<!-- (.*) -->", line)
    return found[1] if found else ""


class Reader:
    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.at = 0

    def more(self) -> bool:
        while self.at < len(self.lines) and not self.lines[self.at].strip():
            self.at += 1
        return self.at < len(self.lines)

    def line(self) -> str:
        return self.lines[self.at]

    def paragraph(self, indent: str = "") -> str:
        words: list[str] = []
        while self.at < len(self.lines) and self.line().strip() and self.line().startswith(indent):
            if words and not indent and (self.line().startswith(("#", "- ", "```")) or directive(self.line())):
                break
            words.append(self.line().strip())
            self.at += 1
        return " ".join(words)

    def code(self) -> Block:
        lines = []
        self.at += 1
        while self.line() != "```":
            if self.at + 1 == len(self.lines):
                raise PageError("a code block does not end")
            lines.append(self.line())
            self.at += 1
        self.at += 1
        return Block("code", lines)

    def definition(self) -> Block:
        found = TERM.fullmatch(self.line())
        if not found:
            raise PageError(f"'{self.line()}' defines nothing, as in '- `TERM`: text'")
        self.lines[self.at] = "  " + found[2]
        texts = [self.paragraph("  ")]
        while self.more() and self.line().startswith("  "):
            texts.append(self.paragraph("  "))
        return Block("definition", texts, re.findall("`([^`]+)`", found[1]))

    def block(self) -> Block:
        if self.line().startswith("```"):
            return self.code()
        if self.line().startswith("- "):
            return self.definition()
        if self.line().startswith("### "):
            self.at += 1
            return Block("group", [self.lines[self.at - 1][4:]])
        in_help = directive(self.line()) == "help"
        self.at += in_help
        block = Block("paragraph", [self.paragraph()], in_help=in_help)
        if not block.texts[0]:
            raise PageError(f"line {self.at + 1} is not understood: {self.line()}")
        return block

    def section(self) -> Section:
        section = Section(self.line()[3:])
        self.at += 1
        while self.more() and not self.line().startswith("## "):
            words = re.fullmatch(r"(help, )?(words|one) of ([A-Z]+)", directive(self.line()))
            is_list = directive(self.line()) == "help" and self.lines[self.at + 1].startswith("- ")
            if words or is_list:
                section.in_help = is_list or bool(words and words[1])
                section.words_of, section.several = (words[3], words[2] == "words") if words else ("", False)
                self.at += 1
            else:
                section.blocks.append(self.block())
        return section


def read_page(path: Path) -> Page:
    text = path.read_text(encoding="ascii")
    reader = Reader(text)
    try:
        head = re.fullmatch(r"# ([a-z-]+)\((\d)\) (\d{4}-\d\d-\d\d)", reader.line())
        if not head:
            raise PageError("the first line is not '# NAME(SECTION) DATE'")
        reader.at += 1
        reader.more()
        page = Page(head[1], int(head[2]), head[3], reader.paragraph(), [])
        while reader.more():
            page.sections.append(reader.section())
    except PageError as error:
        raise PageError(f"{path}: {error}") from error
    return page
