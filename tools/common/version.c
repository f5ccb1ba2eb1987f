/* version.c: see version.h. */
#include "version.h"

#include <stdio.h>

#include <copyrpc.h>

#define EXIT_USAGE 2

const char *version_text(char *text, size_t bytes)
{
    uint32_t version = crpc_version();
    snprintf(text, bytes, "%u.%u.%u", version >> 16, version >> 8 & 0xff, version & 0xff);
    return text;
}

static void version_print(FILE *stream, struct argp_state *state)
{
    char text[32];
    fprintf(stream, "%s %s\n", state->name, version_text(text, sizeof(text)));
}

void arguments_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    argp_program_version_hook = version_print;
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(argp, argc, argv, 0, NULL, input);
}
