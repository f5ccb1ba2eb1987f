/* ctl.c: `simnic ctl`, which talks to a running session. */
#include "words.h"

int ctl_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    complain("ctl: not there yet");
    return EXIT_USAGE;
}
