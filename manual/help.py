"""help.py: a header of C with what a program prints for --help, and the table of its options, for argp or for getopt_long."""
from __future__ import annotations

import re
import textwrap

from page import Block, Option, Page, plain

WIDTH = 79
COLUMN = 25  # where the text of a definition begins, unless its term is too long
ARGP_OWN = ("help", "usage", "version")  # which argp adds, and does


def literal(text: str) -> str:
    """A string of C over several lines, one for each line of the text."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return " \\\n    ".join(f'"{line}"' for line in escaped.replace("\n", "\\n\n").split("\n") if line) or '""'


def fill(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False))


def define(term: str, text: str) -> str:
    head = "  " + term
    if len(head) + 2 > COLUMN:
        return head + "\n" + textwrap.indent("\n".join(wrap_definition(text)), " " * COLUMN)
    return textwrap.indent("\n".join(wrap_definition(text)), " " * COLUMN).replace(" " * COLUMN, head.ljust(COLUMN), 1)


def wrap_definition(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH - COLUMN, break_on_hyphens=False, break_long_words=False)


def definitions(blocks: list[Block]) -> str:
    return "\n".join(define(" ".join(block.terms), plain(block.texts[0])) for block in blocks)


def exit_status(page: Page) -> str:
    parts = [f"{' or '.join(block.terms)} {plain(block.texts[0])}" for block in page.find("Exit status").definitions()]
    return fill("Exit status: " + "; ".join(parts) + ".") if parts else ""


def head(page: Page) -> str:
    return plain(page.find("Description").blocks[0].texts[0])


def tail(page: Page) -> list[str]:
    """What comes behind the options."""
    parts = []
    for section in page.sections:
        parts += [fill(plain(block.texts[0])) for block in section.blocks if block.in_help]
        if section.in_help and section.title != "Commands":
            parts.append(f"{section.title}:\n{definitions(section.definitions())}")
    return [*parts, *filter(None, [exit_status(page)])]


def options_text(page: Page) -> str:
    parts, group = [], ""
    for block in page.find("Options").blocks:
        if block.kind == "group":
            group = block.texts[0]
            parts.append(f"\n{group}:")
        if block.kind == "definition":
            parts.append(define(" ".join(block.terms).replace("=", " "), plain(block.texts[0])))
    return "\n".join(parts).strip("\n")


def usage_text(page: Page) -> str:
    """All of --help, for a program that prints it itself."""
    parts = ["\n".join(("Usage: " if i == 0 else "       ") + line for i, line in enumerate(page.synopsis)), fill(head(page))]
    if page.commands:
        parts.append(definitions(page.commands))
    return "\n\n".join([*parts, options_text(page), *tail(page)]) + "\n"


def key_of(option: Option) -> str:
    return f"'{option.letter}'" if option.letter else option.key


def enumerators(options: list[Option]) -> str:
    named = [option.key for option in options if not option.letter]
    base = "    OPTION_BASE = 256, /* above all letters */\n"
    return "/* Keys of the options that have no letter. */\nenum {\n" + base + "".join(f"    {key},\n" for key in named) + "};\n" if named else ""


def argp_entry(option: Option, group: int) -> str:
    value = f'"{option.value}"' if option.value else "NULL"
    flags = "OPTION_ARG_OPTIONAL" if option.is_optional else "0"
    return f'{{"{option.name}", {key_of(option)}, {value}, {flags}, {literal(plain(option.text))}, {group}}}'


def argp_header(page: Page) -> str:
    entries, group, number = [], "", 0
    for option in page.options:
        if option.name in ARGP_OWN:
            continue
        if option.group != group:
            group, number = option.group, number + 1
            entries.append(f"{{NULL, 0, NULL, 0, {literal(plain(group) + ':')}, {number}}}")
        entries.append(argp_entry(option, number))
    arguments = [re.sub(r"^\S+ (\[OPTION\.\.\.\] ?)?", "", line) for line in page.synopsis]
    text = "\n\n".join(tail(page))
    return (f"{enumerators([option for option in page.options if option.name not in ARGP_OWN])}\n"
            "/* An array of struct argp_option. */\n"
            "#define HELP_OPTIONS { \\\n    " + ", \\\n    ".join([*entries, "{0}"]) + "}\n\n"
            "/* args_doc and doc of struct argp. */\n"
            f"#define HELP_ARGUMENTS {literal(chr(10).join(arguments)) if any(arguments) else 'NULL'}\n"
            f"#define HELP_TEXT {literal(head(page) + chr(11) + text)}\n").replace("\v", "\\v")


def getopt_header(page: Page) -> str:
    entries = [f'{{"{option.name}", {"required" if option.value else "no"}_argument, NULL, {key_of(option)}}}' for option in page.options]
    return (f"{enumerators(page.options)}\n"
            "/* An array of struct option. */\n"
            "#define HELP_OPTIONS { \\\n    " + ", \\\n    ".join([*entries, "{0}"]) + "}\n\n"
            f"#define HELP_TEXT {literal(usage_text(page))}\n")


def header(page: Page, style: str) -> str:
    made = f"/* Made by manual/generate.py from manual/{page.name}.{page.section}.md */\n"
    return made + "#pragma once\n\n" + (argp_header(page) if style == "argp" else getopt_header(page))
