/* arguments.h: --help, --usage and --version of the examples, by glibc's argp. */
#ifndef EXAMPLES_ARGUMENTS_H
#define EXAMPLES_ARGUMENTS_H

#include <argp.h>
#include <stdint.h>
#include <stdio.h>

#include <copyrpc.h>

static inline void print_version(FILE *stream, struct argp_state *state)
{
    uint32_t version = crpc_version();
    fprintf(stream, "%s %u.%u.%u\n", state->name, version >> 16, version >> 8 & 0xff,
            version & 0xff);
}

/* Ends the program if it was asked for one of them, or for an option that is none. `names` is what
 * the arguments are called, `what` what the program does. */
static inline void answer_options(int argc, char **argv, const char *names, const char *what)
{
    const struct argp argp = {.args_doc = names, .doc = what};
    int first;
    argp_program_version_hook = print_version;
    argp_parse(&argp, argc, argv, 0, &first, NULL);
}

#endif
