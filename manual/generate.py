#!/usr/bin/env python3
"""generate.py KIND VERSION OUTPUT PAGE...: makes from the source of a manual page, which page.py describes, one of

man         the page itself
argp        the header of a program that parses its options by argp
getopt      that of one that parses them by getopt_long, and prints its help itself
bash, fish, zsh  the completion of a program. The pages of its commands, such as simnic-run.1.md, come behind its own. The strings in a header
                 of C that is named there, too, are what NAME stands for in the terms of words."""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # the sources may be where nothing can be written
import completion  # noqa: E402
import help  # noqa: E402
import roff  # noqa: E402
from page import PageError, read_page  # noqa: E402


def main() -> None:
    kind, version, output = sys.argv[1:4]
    try:
        pages = [read_page(Path(path)) for path in sys.argv[4:] if not path.endswith(".h")]
        if kind == "man":
            text = roff.man(pages[0], version)
        elif kind in ("argp", "getopt"):
            text = help.header(pages[0], kind)
        else:
            headers = [Path(path).read_text(encoding="ascii") for path in sys.argv[4:] if path.endswith(".h")]
            names = [name for text in headers for name in re.findall(r'\(\w+, "([a-z-]+)"\)', text)]
            text = completion.make(kind, pages, names)
    except PageError as error:
        sys.exit(f"generate.py: {error}")
    Path(output).write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
