/* words.h: the words that may come after `simnic`, and how the program speaks of errors. */
#ifndef SIMNIC_RUN_WORDS_H
#define SIMNIC_RUN_WORDS_H

#define EXIT_USAGE 2   /* the user's words are wrong */
#define EXIT_TROUBLE 1 /* they are right, but it cannot be done */

/* Each gets its own word as argv[0] and returns the exit status. */
int run_main(int argc, char **argv);
int ctl_main(int argc, char **argv);

/* Prints "simnic: ", the message and a line end to stderr, in one piece. */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

#endif
