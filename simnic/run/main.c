/* main.c: the program `simnic`: picks the word's function. */
#include "simnic/run/words.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "simnic_help.h"

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
        return print(HELP_TEXT);
    }
    if (strcmp(word, "--version") == 0) {
        return print("simnic " SIMNIC_VERSION "\n");
    }
    complain("%s is neither run nor ctl (see simnic --help)", word);
    return EXIT_USAGE;
}
