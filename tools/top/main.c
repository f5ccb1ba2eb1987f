/* main.c: copyrpc-top: what the endpoints of this host do. */
#include <argp.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../common/version.h"
#include "copyrpc_top_help.h"
#include "show.h"

#define ANSWER_MS 500
#define INTERVAL_SECONDS_MIN 0.1
#define INTERVAL_SECONDS_MAX 3600.0

struct options {
    bool once;
    bool json;
    pid_t pid;
    double interval_seconds;
    enum sort sort;
};

static const struct argp_option option_table[] = HELP_OPTIONS;

static volatile sig_atomic_t stopped;

static void stop(int signal_number)
{
    (void)signal_number;
    stopped = 1;
}

static bool take_sort(const char *argument, enum sort *sort)
{
    static const char *const names[] = {"rate", "bytes", "open", "age"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(argument, names[i]) == 0) {
            *sort = (enum sort)i;
            return true;
        }
    }
    return false;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct options *options = state->input;
    char *end;
    switch (key) {
    case 'i':
        options->interval_seconds = strtod(argument, &end);
        if (*end || !(options->interval_seconds >= INTERVAL_SECONDS_MIN &&
                      options->interval_seconds <= INTERVAL_SECONDS_MAX)) {
            argp_error(state, "--interval must be 0.1 to 3600 seconds");
        }
        return 0;
    case 'j':
        options->json = true;
        return 0;
    case '1':
        options->once = true;
        return 0;
    case 'p': {
        long pid = strtol(argument, &end, 10);
        if (*end || pid < 1 || pid > INT32_MAX) {
            argp_error(state, "--pid must be the number of a process");
        }
        options->pid = (pid_t)pid;
        return 0;
    }
    case 's':
        if (!take_sort(argument, &options->sort)) {
            argp_error(state, "--sort must be rate, bytes, open or age");
        }
        return 0;
    case ARGP_KEY_ARG:
        argp_usage(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void show(const struct options *options, const struct sources *now,
                 const struct sources *before)
{
    struct winsize size;
    uint32_t lines_max = UINT32_MAX;
    if (options->json) {
        show_json(now, before, options->sort);
        return;
    }
    if (!options->once && isatty(STDOUT_FILENO)) {
        printf("\033[H\033[J");
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2) {
            lines_max = size.ws_row - 1;
        }
    }
    show_table(now, before, options->sort, lines_max);
}

/* A signal may come at any time, so they are let in only here. */
static void pause_for(double seconds, const sigset_t *signals)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - floor(seconds)) * 1e9);
    if (!stopped) {
        ppoll(NULL, 0, &time, signals);
    }
}

int main(int argc, char **argv)
{
    struct options options = {.interval_seconds = 1};
    const struct argp argp = {
        .options = option_table, .parser = parse, .args_doc = HELP_ARGUMENTS, .doc = HELP_TEXT};
    struct sigaction action = {.sa_handler = stop};
    struct sources before = {0}, now;
    sigset_t signals, usual;
    arguments_parse(&argp, argc, argv, &options);
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, &usual);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    for (uint64_t looks = 1; !stopped; looks++) {
        if (!sources_ask(&now, options.pid, ANSWER_MS)) {
            return EXIT_FAILURE;
        }
        if (!options.once || looks == 2) {
            show(&options, &now, &before);
        }
        sources_free(&before);
        before = now;
        if (options.once && looks == 2) {
            break;
        }
        pause_for(options.interval_seconds, &usual);
    }
    sources_free(&before);
    return ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
