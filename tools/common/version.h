/* version.h: --version of the tools, and how they end if their options are wrong. */
#ifndef TOOLS_COMMON_VERSION_H
#define TOOLS_COMMON_VERSION_H

#include <argp.h>
#include <stddef.h>

/* Writes the version of the loaded library, e.g. "0.1.0". Returns text. */
const char *version_text(char *text, size_t bytes);
/* argp_parse. --version prints the program's name and that of version_text. Ends the program with 2 if the arguments are wrong. */
void arguments_parse(const struct argp *argp, int argc, char **argv, void *input);

#endif
