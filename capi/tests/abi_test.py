"""abi_test.py HEADER MAP LIBRARY LAYOUT [--write]: what the ABI is, against what was agreed on.

The header as cffi sees it, the version script, the library's exported names and capi/abi/layout.txt have to agree.
--write makes layout.txt anew: do that only after reading ABI.md, and commit the difference on purpose. Prints TAP."""
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Optional

import cffi

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "bindings/python")]
from build_native import declarations  # noqa: E402
from checks import Checks  # noqa: E402

header_path, map_path, library_path, layout_path = sys.argv[1:5]
header = Path(header_path).read_text()
source_root = os.path.dirname(os.path.dirname(os.path.abspath(header_path)))
without_comments = re.sub(r"/\*.*?\*/", "", header, flags=re.S)


checks = Checks()


def check(name, problem):
    """problem: None or an empty list if all is well."""
    checks.check(not problem, name, problem or "")


parser = cffi.FFI()
ffi: Optional[cffi.FFI] = parser
try:
    parser.cdef(declarations(header, ["cc"]))
    check("cffi parses the header", None)
except Exception as error:  # the parser's own exceptions have no common base
    check("cffi parses the header", [str(error)])
    ffi = None

defines = dict(re.findall(r"^#define (CRPC_\w+) (\S+)", without_comments, flags=re.M))
defines.pop("CRPC_API", None)
functions = sorted(set(re.findall(r"CRPC_API[^;(]*?\b(crpc_\w+)\(", without_comments)))
structs = sorted(set(re.findall(r"typedef struct (crpc_\w+) \{", without_comments)))

# ---- The header's own rules ----
literal = re.compile(r"-?(0x[0-9a-f]+|[0-9]+)u?$")
check("constants are bare literals", ["%s %s" % item for item in defines.items() if not literal.match(item[1])])
check("no inline, bit field, enum, bool, long or _Static_assert",
      re.findall(r"\b(?:inline|enum|bool|long|_Static_assert)\b|\w+\s*:\s*\d+\s*;", without_comments))
names = functions + structs
check("names begin with crpc_ or CRPC_",
      [name for name in re.findall(r"^#define (\w+)", without_comments, flags=re.M)
       if not name.startswith(("CRPC_", "COPYRPC_H"))])
body = {name: re.findall(r"typedef struct %s \{(.*?)\}" % name, without_comments, flags=re.S)[0] for name in structs}
sized = [name for name in structs if "struct_size" in body[name]]
check("struct_size is first", [name for name in sized if not re.match(r"\s*uint32_t struct_size;", body[name])])
check("ops and completions hold no pointers",
      [name for name in ("crpc_op", "crpc_channel_op", "crpc_queue_op", "crpc_piece", "crpc_completion") if "*" in body[name]])

# ---- Names ----
map_text = re.sub(r"/\*.*?\*/", "", Path(map_path).read_text(), flags=re.S)
node_of = {name: node for node, body_ in re.findall(r"(COPYRPC_[\w.]+) \{(.*?)\}", map_text, flags=re.S)
           for name in re.findall(r"\b(crpc_\w+);", body_)}
check("header and version script name the same functions", sorted(set(functions) ^ set(node_of)))
nm = subprocess.run(["nm", "-D", "--defined-only", library_path], capture_output=True, text=True, check=True).stdout
exported = [line.split()[2] for line in nm.splitlines() if len(line.split()) == 3]
plain = sorted(name.split("@")[0] for name in exported if not name.startswith("COPYRPC_"))
check("the library exports them and nothing else", sorted(set(plain) ^ set(functions)))
check("each in its version node",
      [name for name in exported if not name.startswith("COPYRPC_")
       and name.partition("@@")[2] != node_of.get(name.split("@")[0])])
dynamic = subprocess.run(["readelf", "-d", library_path], capture_output=True, text=True, check=True).stdout
check("the soname is libcopyrpc.so.0", None if "[libcopyrpc.so.0]" in dynamic else [dynamic])

# ---- Tests that must know every struct ----
struct_test = Path(source_root, "capi/tests/struct_test.c").read_text()
check("struct_test.c knows every sized struct",
      [name for name in sized if not re.search(r"(IN|OUT)\(%s\b" % name[len("crpc_"):], struct_test)])

# ---- Layout ----
layout = []
if ffi:
    library = ffi.dlopen(library_path)
    for name in structs:
        type_ = ffi.typeof(name)
        layout.append("struct %s size %d align %d" % (name, ffi.sizeof(name), ffi.alignof(name)))
        for field, description in type_.fields or []:
            layout.append("field %s.%s offset %d size %d" % (name, field, description.offset, ffi.sizeof(description.type)))
    for name in sorted(defines):
        layout.append("constant %s %d" % (name, getattr(library, name)))
    # Programs are linked against name and node: a function never moves to another one.
    layout += ["function %s%s" % (name, "" if node_of.get(name) == "COPYRPC_0" else " in %s" % node_of.get(name))
               for name in functions]
    text = "".join(line + "\n" for line in layout)
    if "--write" in sys.argv:
        Path(layout_path).write_text(text)
    agreed = Path(layout_path).read_text() if os.path.exists(layout_path) else ""
    difference = list(difflib.unified_diff(agreed.splitlines(), text.splitlines(), "agreed on", "now", lineterm="", n=0))
    if difference:
        difference.append("if this is meant: read ABI.md, then run %s --write" % " ".join(sys.argv))
    check("sizes, offsets and constants are those of capi/abi/layout.txt", difference)

# ---- Compilers agree ----
asserts = []
for line in layout:
    words = line.split()
    if words[0] == "struct":
        asserts.append("CHECK(sizeof(%s) == %s);" % (words[1], words[3]))
    elif words[0] == "field":
        type_name, field = words[1].split(".")
        asserts.append("CHECK(offsetof(%s, %s) == %s);" % (type_name, field, words[3]))
program = ('#include "copyrpc.h"\n#include "copyrpc.h"\n#include <stddef.h>\n'
           "#define JOIN2(a, b) a##b\n#define JOIN(a, b) JOIN2(a, b)\n"
           "#define CHECK(x) typedef char JOIN(check_, __LINE__)[(x) ? 1 : -1]\n" + "\n".join(asserts)
           + "\nint main(void) { return (int)crpc_version(); }\n")
with tempfile.TemporaryDirectory() as work:
    for compiler, standard, suffix in (("gcc", "c99", "c"), ("clang", "c99", "c"), ("gcc", "c11", "c"),
                                       ("g++", "c++17", "cc"), ("clang++", "c++17", "cc")):
        name = "%s -std=%s takes the header, twice, and lays it out alike" % (compiler, standard)
        if not shutil.which(compiler):
            checks.skip(name, "not installed")
            continue
        path = os.path.join(work, "header." + suffix)
        Path(path).write_text(program)
        run = subprocess.run([compiler, "-std=" + standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                              "-Wno-unused-local-typedefs", "-I" + os.path.dirname(header_path), path],
                             capture_output=True, text=True)
        check(name, run.stderr.splitlines() if run.returncode else None)

sys.exit(checks.end())
