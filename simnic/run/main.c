/* main.c: the program `simnic`: picks the word's function. */
#include "simnic/run/words.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char usage[] = "Usage: simnic run [OPTION...] [--] COMMAND [ARGUMENT...]\n"
                            "       simnic ctl [OPTION...] WORD [ARGUMENT...]\n"
                            "       simnic --version\n"
                            "\n"
                            "A virtual ConnectX NIC in user space.\n"
                            "\n"
                            "  run   run a command that sees the NIC's devices mlx5_0 and mlx5_1\n"
                            "  ctl   look into a running session, or change it\n"
                            "\n"
                            "`simnic run --help` and `simnic ctl --help` tell more.\n";

void complain(const char *format, ...)
{
    char line[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    dprintf(STDERR_FILENO, "simnic: %s\n", line);
}

static int print(const char *text)
{
    return fputs(text, stdout) == EOF || fflush(stdout) == EOF ? EXIT_TROUBLE : 0;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    if (!word) {
        complain("say what to do: run or ctl (see simnic --help)");
        return EXIT_USAGE;
    }
    if (strcmp(word, "run") == 0) {
        return run_main(argc - 1, argv + 1);
    }
    if (strcmp(word, "ctl") == 0) {
        return ctl_main(argc - 1, argv + 1);
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        return print(usage);
    }
    if (strcmp(word, "--version") == 0) {
        return print("simnic " SIMNIC_VERSION "\n");
    }
    complain("%s is neither run nor ctl (see simnic --help)", word);
    return EXIT_USAGE;
}
