"""reference_test.py SOURCE_ROOT: the site's references of C and Python (scripts/docs) have all of copyrpc.h and of what the package exports, and give
each declaration its own comment. TAP."""

import re
import sys
import tempfile
from pathlib import Path

root = Path(sys.argv[1])
sys.path[:0] = [str(root / "scripts/docs"), str(root / "tests")]
import c_reference  # noqa: E402
import python_reference  # noqa: E402
from checks import Checks  # noqa: E402

EXAMPLE = """/* The head. */
#ifndef X_H
#define CRPC_LEFT 1u  /* of LEFT */
#define CRPC_RIGHT 2u /* of RIGHT,
                       * in two lines */

/* Of both. */
#define CRPC_ONE 3u
#define CRPC_TWO 4u

/* A struct. */
typedef struct crpc_thing {
    uint32_t first; /* of the first */
    /* Of the second: see CRPC_ONE. */
    uint8_t second[8];
} crpc_thing;

/* Does it. Returns CRPC_ONE * 2. */
CRPC_API int32_t crpc_do(const crpc_thing *thing,
                         uint32_t count);
#endif
"""
PACKAGE = {
    "__init__.py": '"""The package."""\nfrom ._things import Thing, make\nfrom .errors import CopyrpcError\nOP_ONE = 1\n'
    '__all__ = ["CopyrpcError", "OP_ONE", "Thing", "make"]\n',
    "_things.py": '''class _Base:
    def close(self, now: bool = False) -> None:
        """Closes it."""

    def hidden(self): ...

@dataclass
class Thing(_Base):
    """A thing: see crpc_thing.

        Thing().close()

    It is small."""

    #: How many,
    #: at most.
    count: int = 3
    name: str  #: of this one

    @property
    def size(self) -> int:
        """In bytes."""

def make(*parts: bytes) -> Thing:
    """Makes one."""
''',
    "errors.py": 'class CopyrpcError(Exception):\n    """What is raised."""\n',
}
FIELDS = {"crpc_thing.first", "crpc_thing.second"}


def refused(header: str, fields: set[str]) -> str:
    try:
        c_reference.reference_of(header, fields)
    except SystemExit as complaint:
        return str(complaint)
    return ""


def plain(text: str) -> str:
    return re.sub(r"\\ (?::c:\w+:)?`+([^`]*)`+\\ ", r"\1", text)


def of_package() -> str:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PACKAGE.items():
            Path(folder, name).write_text(text)
        return python_reference.reference_of(Path(folder), {"crpc_thing": "struct"})


header = (root / "capi/copyrpc.h").read_text()
fields = set(re.findall(r"^field (\S+)", (root / "capi/abi/layout.txt").read_text(), re.MULTILINE))
whole = c_reference.reference_of(header, fields)
made = plain(c_reference.reference_of(EXAMPLE, FIELDS))
package = root / "bindings/python/copyrpc"
python = python_reference.reference_of(package, c_reference.kinds_of(header))
small = of_package()
sections = re.split(r"\n(?=\.\. py:class:: |Exceptions\n|Constants\n)", small)
results = {
    "all of copyrpc.h is there": whole.count(".. c:function:: ") == header.count("\nCRPC_API ") > 50 and whole.count(".. c:member:: ") > 400,
    "no mark of a comment is left": "/*" not in whole and "*/" not in whole,
    "a comment behind a constant is its own": "CRPC_LEFT\n\n   1u: of LEFT\n" in made and "CRPC_RIGHT\n\n   2u: of RIGHT, in two lines\n" in made,
    "one before several is of all": ".. c:macro:: CRPC_ONE\n             CRPC_TWO\n\n   3u, 4u: Of both.\n" in made,
    "a member has that behind it or before it": "uint32_t first\n\n      of the first\n" in made
    and "uint8_t second[8]\n\n      Of the second: see CRPC_ONE.\n" in made,
    "what is returned is a paragraph": "crpc_do(const crpc_thing *thing, uint32_t count)\n\n   Does it.\n\n   **Returns** CRPC_ONE \\* 2.\n" in made,
    "names are links": r"\ :c:macro:`CRPC_ONE`\ " in c_reference.reference_of(EXAMPLE, FIELDS),
    "a declaration of another form is refused": "not understood" in refused(EXAMPLE.replace("#endif", "typedef int crpc_int;\n"), FIELDS),
    "a member of another form, too": "not understood" in refused(EXAMPLE.replace("uint8_t second[8]", "uint8_t second : 3"), FIELDS),
    "and a member that is lacking": "crpc_thing.third" in refused(EXAMPLE, FIELDS | {"crpc_thing.third"}),
    "all that the Python package exports is there": all(
        re.search(rf"^(\.\. py:(class|function):: {name}\b|- ``{name}``)", python, re.MULTILINE) for name in python_reference.Package(package).exported),
    "it is in its section": [section.split("\n")[0] for section in sections[1:]] == [
        ".. py:class:: Thing", "Exceptions", ".. py:class:: CopyrpcError", "Constants"],
    "a class has the methods of a base that is not exported": ".. py:method:: close(now: bool=False) -> None\n\n      Closes it.\n" in sections[1],
    "and none without a docstring": "hidden" not in small,
    "an attribute has its comment": ".. py:attribute:: count\n      :type: int\n      :value: 3\n\n      How many, at most.\n" in sections[1]
    and ":type: str\n\n      of this one\n" in sections[1],
    "code in a docstring is code": ".. code-block:: python\n\n      Thing().close()\n" in sections[1],
    "a docstring links to C": r"\ :c:struct:`crpc_thing`\ " in sections[1],
}
checks = Checks(len(results))
for name, good in results.items():
    checks.check(good, name)
sys.exit(checks.end())
