"""roff.py: a page in the language man(7), which every man and mandoc reads."""
from __future__ import annotations

import re

from page import LITERAL, PLACEHOLDER, STANDS, Block, Page, Section

INLINE = re.compile(rf"{LITERAL}|{STANDS}|(?P<page>[a-z_][a-z0-9_-]*)\((?P<number>[1-8])\)|(?P<text>.)")


def escape(text: str, literal: bool = False) -> str:
    text = text.replace("\\", "\\e").replace("'", "\\(aq").replace("`", "\\(ga").replace("~", "\\(ti").replace("^", "\\(ha")
    return text.replace("-", "\\-") if literal else text


def guard(line: str) -> str:
    return "\\&" + line if line.startswith((".", "'")) else line


def bold(text: str) -> str:
    return f"\\fB{escape(text, literal=True)}\\fR"


def italic(text: str) -> str:
    return f"\\fI{escape(text, literal=True)}\\fR"


def with_placeholders(text: str) -> str:
    """A term or a synopsis: brackets, bars and dots are those of synopses."""
    if re.fullmatch(r"[A-Z][A-Z0-9_]*", text):
        return bold(text)
    made = ""
    for piece in re.findall(rf"{PLACEHOLDER.pattern}|\.\.\.|[\[\]| ]|.", text):
        if re.fullmatch(PLACEHOLDER.pattern, piece):
            made += italic(piece)
        elif piece in ("[", "]", "|", " ", "..."):
            made += piece
        else:
            made += bold(piece)
    return made.replace("\\fR\\fB", "")


def inline(text: str) -> str:
    made = ""
    for found in INLINE.finditer(text):
        if found["literal"]:
            made += bold(found["literal"])
        elif found["stands"]:
            made += italic(found["stands"])
        elif found["page"]:
            made += f"{bold(found['page'])}({found['number']})"
        else:
            made += escape(found["text"])
    return made


def lines_of(text: str) -> list[str]:
    """A line for each sentence, as man pages are written."""
    return [guard(line) for line in re.split(r"(?<=[.:;?!]) +(?=[A-Z\\])", inline(text))]


def sentence(text: str) -> str:
    """What --help prints begins small and has no full stop."""
    first = text[:1].upper() + text[1:] if re.match(r"[a-z]+\b(?![-_/.(])", text) else text
    return first if first.endswith((".", ":", "?")) else first + "."


def block_lines(block: Block) -> list[str]:
    if block.kind == "paragraph":
        return [".PP", *lines_of(block.texts[0])]
    if block.kind == "code":
        return [".PP", ".in +4n", ".EX", *(guard(escape(line, literal=True)) for line in block.texts), ".EE", ".in"]
    if block.kind == "group":
        title, _, more = block.texts[0].partition(": ")
        return [".SS " + escape(title), *(lines_of(sentence(more)) if more else [])]
    made = [".TP", guard(", ".join(with_placeholders(part) for term in block.terms for part in term.split(", ")))]
    texts = [sentence(text) for text in block.texts]
    made += lines_of(texts[0])
    for text in texts[1:]:
        made += [".IP", *lines_of(text)]
    return made


def section_lines(section: Section) -> list[str]:
    made = [f".SH {escape(section.title.upper())}"]
    for block in section.blocks:
        lines = block_lines(block)
        if lines[0] == ".PP" and made[-1].startswith((".SH", ".SS")):
            lines = lines[1:]
        made += lines
    return made


def synopsis_lines(page: Page) -> list[str]:
    made = [".SH SYNOPSIS"]
    for line in page.synopsis:
        made += [with_placeholders(line), ".br"]
    return made[:-1]


def man(page: Page, version: str) -> str:
    made = [f".\\\" Made by manual/generate.py from manual/{page.name}.{page.section}.md",
            f".TH {page.name} {page.section} {page.date} \"copyrpc {version}\"",
            ".\\\" Names that are broken at a hyphen cannot be copied.", ".nh", ".ad l", ".SH NAME",
            f"{escape(page.name, literal=True)} \\- {inline(page.what)}"]
    for section in page.sections:
        made += synopsis_lines(page) if section.title == "Synopsis" else section_lines(section)
    return "\n".join(made) + "\n"
