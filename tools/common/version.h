/* version.h: --version of the tools. */
#ifndef TOOLS_COMMON_VERSION_H
#define TOOLS_COMMON_VERSION_H

#include <argp.h>
#include <stddef.h>
#include <stdio.h>

/* Writes the version of the loaded library, e.g. "0.1.0". Returns text. */
const char *version_text(char *text, size_t bytes);
/* For argp_program_version_hook. Prints e.g. "copyrpc-info 0.1.0". */
void version_print(FILE *stream, struct argp_state *state);

#endif
