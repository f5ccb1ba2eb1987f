"""build_native.py HEADER NATIVE_C NATIVE_H OUTPUT COMPILER...: writes the C source of the module copyrpc._native.

What cffi is told of the library is read from copyrpc.h whenever the package is built, and what it is told of our own C functions
from native.h; nothing is written down twice."""
import re
import subprocess
import sys

import cffi


def declarations(header, compiler):
    """A C header as the compiler's preprocessor leaves it, with its constants, and without what it includes: cffi's parser knows neither
    conditions nor comments. Whoever builds the package has a compiler, which knows the language better than any package of Python's; and no
    distribution need have such a package."""
    done = subprocess.run([*compiler, "-E", "-dD", "-DCRPC_API=", "-x", "c", "-"], input=header, stdout=subprocess.PIPE, check=True, encoding="utf-8")
    lines, own = [], False
    for line in done.stdout.splitlines():
        if line.startswith("# "):  # and the number of a line, and the file of what follows
            own = '"<stdin>"' in line
        elif own and line.strip() and not re.fullmatch(r"#define \w+ *", line):  # what is of no value is the include guard
            lines.append(line)
    return "\n".join(lines) + "\n"


def main():
    header_path, source_path, own_header_path, output_path, *compiler = sys.argv[1:]
    builder = cffi.FFI()
    with open(header_path, encoding="utf-8") as file:
        library = declarations(file.read(), compiler)
    with open(own_header_path, encoding="utf-8") as file:
        own_header = file.read()
    builder.cdef(library)
    builder.cdef(declarations(own_header, compiler))
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
