"""build_native.py HEADER NATIVE_C NATIVE_H OUTPUT: writes the C source of the module copyrpc._native.

What cffi is told of the library is read from copyrpc.h whenever the package is built, and what it is told of our own C functions
from native.h; nothing is written down twice."""
import re
import sys

import cffi


def declarations(header):
    """A C header for a parser without a preprocessor and without comments."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    lines = []
    skipped = 0  # depth of conditions that are not the include guard: C++'s braces, the definition of CRPC_API
    for line in text.splitlines():
        if re.match(r"\s*#\s*(ifdef|ifndef|if)\b", line):
            skipped += not re.match(r"\s*#\s*ifndef\s+COPYRPC_\w*H\b", line)
        elif re.match(r"\s*#\s*endif\b", line):
            skipped = max(0, skipped - 1)
        elif skipped == 0 and not re.match(r"\s*#\s*(include\b|define\s+COPYRPC_\w*H\b)", line):
            lines.append(line.replace("CRPC_API ", ""))
    return "\n".join(lines)


def main():
    header_path, source_path, own_header_path, output_path = sys.argv[1:]
    builder = cffi.FFI()
    with open(header_path, encoding="utf-8") as file:
        library = declarations(file.read())
    with open(own_header_path, encoding="utf-8") as file:
        own_header = file.read()
    builder.cdef(library)
    builder.cdef(declarations(own_header))
    with open(source_path, encoding="utf-8") as file:
        source = file.read().replace('#include "native.h"', own_header)
    # The module tells which declarations it was built from: a test compares them with the header.
    quoted = "\n".join('    "%s\\n"' % line.replace("\\", "\\\\").replace('"', '\\"') for line in library.splitlines())
    source += "\nconst char copyrpc_native_declarations[] =\n%s;\n" % quoted
    builder.cdef("extern const char copyrpc_native_declarations[];")
    builder.set_source("copyrpc._native", source)
    builder.emit_c_code(output_path)


if __name__ == "__main__":
    main()
