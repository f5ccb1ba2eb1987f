/* run.c: `simnic run`: reads the options, joins the session, sets the environment, and runs the
 * command. */
#include "simnic/run/words.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "simnic/fabric/fault.h"
#include "simnic/fabric/format.h"
#include "simnic/run/library.h"
#include "simnic/run/processes.h"
#include "simnic/session/link.h"
#include "simnic_run_help.h"

struct options {
    const char *session, *fault, *link;
    bool private, trace, help;
    char **command;
};

static int usage_error(char **argv, int code)
{
    const char *what = code == ':' ? "needs a value" : "is no option";
    /* optopt names a short option; a long one is the word before optind. */
    if (optopt > 0 && optopt < 256) {
        complain("run: -%c %s (see simnic run --help)", optopt, what);
    } else {
        complain("run: %s %s (see simnic run --help)", argv[optind - 1], what);
    }
    return EXIT_USAGE;
}

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = HELP_OPTIONS;
    int code;
    opterr = 0;
    /* "+": the command's own options are not ours. */
    while ((code = getopt_long(argc, argv, "+:h", known, NULL)) != -1) {
        switch (code) {
        case OPTION_SESSION:
            options->session = optarg;
            break;
        case OPTION_PRIVATE:
            options->private = true;
            break;
        case OPTION_FAULT:
            options->fault = optarg;
            break;
        case OPTION_LINK:
            options->link = optarg;
            break;
        case OPTION_TRACE:
            options->trace = true;
            break;
        case 'h':
            options->help = true;
            return 0;
        default:
            return usage_error(argv, code);
        }
    }
    options->command = argv + optind;
    if (options->private && options->session) {
        complain("run: --private and --session exclude each other");
        return EXIT_USAGE;
    }
    if (optind < argc) {
        return 0;
    }
    complain("run: say which command to run (see simnic run --help)");
    return EXIT_USAGE;
}

/* If stdin, stdout or stderr is closed, the command finds it closed. But no file of ours may get
 * its number: error messages would be written into that file. */
static void fill_standard_files(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        close(fd);
    }
}

/* Reads which links the session is to have if this run makes it. */
static int choose_link(const struct options *options, uint32_t *link)
{
    const char *words = options->link ? options->link : getenv(LINK_VARIABLE);
    char error[128];
    if (!words || link_parse(words, link, error, sizeof(error))) {
        return 0;
    }
    complain("%s: %s (see simnic run --help)", options->link ? "--link" : LINK_VARIABLE, error);
    return EXIT_USAGE;
}

/* With what faults the session is to begin if this run makes it. */
static int choose_first_fault(const char **fault)
{
    struct fabric_fault parsed;
    char error[256];
    *fault = getenv(FAULT_VARIABLE);
    if (!*fault || fault_parse(*fault, &parsed, error, sizeof(error))) {
        return 0;
    }
    complain(FAULT_VARIABLE ": %s (see simnic run --help)", error);
    return EXIT_USAGE;
}

/* A session keeps its links. Whoever asked for others by option is told. */
static int check_link(const struct options *options, const struct membership *membership,
                      uint32_t wanted)
{
    char text[LINK_TEXT_BYTES];
    if (!options->link || membership->link == wanted) {
        return 0;
    }
    link_describe(membership->link, text);
    complain("--link: session \"%s\" is there already, with \"%s\"; choose another with --session, "
             "or --private",
             session_name_in(membership->directory), text);
    return EXIT_TROUBLE;
}

static int set_fault(const struct membership *membership, const char *fault)
{
    char path[SESSION_PATH_BYTES], error[256] = "";
    if (!fault) {
        return 0;
    }
    session_file(membership->directory, SESSION_FABRIC, path);
    int result = fabric_set_fault(path, fault, error, sizeof(error));
    if (!result) {
        return 0;
    }
    complain("--fault: %s", *error ? error : strerror(-result));
    return result == -EINVAL ? EXIT_USAGE : EXIT_TROUBLE;
}

static int set_environment(const struct options *options, const struct membership *membership,
                           const char *library)
{
    char sysfs[SESSION_PATH_BYTES];
    session_file(membership->directory, SESSION_SYSFS, sysfs);
    int result = library_preload(library, membership->directory);
    if (!result && (setenv(SESSION_VARIABLE, membership->directory, 1) != 0 ||
                    setenv("SYSFS_PATH", sysfs, 1) != 0 ||
                    (options->trace && setenv(SESSION_TRACE_VARIABLE, "1", 1) != 0))) {
        result = -errno;
    }
    if (!result) {
        return 0;
    }
    complain("cannot set the environment: %s", strerror(-result));
    return EXIT_TROUBLE;
}

/* The pid is not enough: /dev/shm may be shared with processes of another pid namespace. */
static int choose_private_name(char name[SESSION_NAME_MAX + 1])
{
    uint64_t random;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
        complain("cannot get random bytes: %s", strerror(errno));
        return EXIT_TROUBLE;
    }
    snprintf(name, SESSION_NAME_MAX + 1, "private.%d.%016" PRIx64, (int)getpid(), random);
    return 0;
}

/* Finds out where everything is, before anything is made. */
static int prepare(const struct options *options, struct runner *runner, char library[PATH_MAX])
{
    char name[SESSION_NAME_MAX + 1];
    int status = options->private ? choose_private_name(name) : 0;
    if (status) {
        return status;
    }
    const char *wrong =
        session_choose(options->private ? name : options->session, runner->membership.directory);
    if (wrong) {
        complain("%s: a session's name is made of 1 to %d of A-Z a-z 0-9 _ . -", wrong,
                 SESSION_NAME_MAX);
        return EXIT_USAGE;
    }
    return library_find(library);
}

static int run(const struct options *options)
{
    struct runner runner = {.command = options->command, .membership = {.lock = -1}};
    char library[PATH_MAX];
    fill_standard_files();
    uint32_t link = 0;
    int status = choose_link(options, &link);
    if (!status) {
        status = choose_first_fault(&runner.membership.fault);
    }
    if (!status) {
        status = prepare(options, &runner, library);
    }
    if (status) {
        return status;
    }
    runner.membership.link = link;
    /* From here on, a signal must not end us before we have left the session. */
    int result = signals_take(&runner);
    if (result) {
        complain("cannot take signals: %s", strerror(-result));
        return EXIT_TROUBLE;
    }
    session_sweep();
    status = session_join(&runner.membership);
    if (status) {
        return status;
    }
    status = check_link(options, &runner.membership, link);
    if (!status) {
        status = set_fault(&runner.membership, options->fault);
    }
    if (!status) {
        status = set_environment(options, &runner.membership, library);
    }
    if (!status) {
        return outer_run(&runner);
    }
    session_leave(&runner.membership);
    return status;
}

int run_main(int argc, char **argv)
{
    struct options options = {0};
    int status = parse(argc, argv, &options);
    if (status) {
        return status;
    }
    if (options.help) {
        return fputs(HELP_TEXT, stdout) == EOF || fflush(stdout) == EOF ? EXIT_TROUBLE : 0;
    }
    return run(&options);
}
