#!/usr/bin/env python3
"""generate.py KIND VERSION OUTPUT PAGE: makes from the source of a manual page, which page.py describes, one of

man         the page itself
argp        the header of a program that parses its options by argp
getopt      that of one that parses them by getopt_long, and prints its help itself"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # the sources may be where nothing can be written
import help  # noqa: E402
import roff  # noqa: E402
from page import PageError, read_page  # noqa: E402


def main() -> None:
    kind, version, output = sys.argv[1:4]
    try:
        page = read_page(Path(sys.argv[4]))
        text = roff.man(page, version) if kind == "man" else help.header(page, kind)
    except PageError as error:
        sys.exit(f"generate.py: {error}")
    Path(output).write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
