/* version.c: see version.h. */
#include "version.h"

#include <copyrpc.h>

const char *version_text(char *text, size_t bytes)
{
    uint32_t version = crpc_version();
    snprintf(text, bytes, "%u.%u.%u", version >> 16, version >> 8 & 0xff, version & 0xff);
    return text;
}

void version_print(FILE *stream, struct argp_state *state)
{
    char text[32];
    fprintf(stream, "%s %s\n", state->name, version_text(text, sizeof(text)));
}
