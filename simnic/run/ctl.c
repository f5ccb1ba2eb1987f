/* ctl.c: `simnic ctl`, which looks into a running session, or changes it: reads the options and
 * picks the word's function. */
#include "simnic/run/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "simnic/run/words.h"

static const char usage[] =
    "Usage: simnic ctl [OPTION...] WORD [ARGUMENT]\n"
    "\n"
    "Looks into a running session, or changes it.\n"
    "\n"
    "  stats          what each queue pair of each process has done\n"
    "    --json       for scripts: exact numbers\n"
    "    --all        also destroyed queue pairs, and processes that have ended\n"
    "  trace          print work requests and completions as the devices see them, until\n"
    "                 Ctrl-C\n"
    "    --qp N       of this queue pair only, as stats shows its number\n"
    "    --raw        their bytes too\n"
    "    --seconds S  stop after so long\n"
    "  fault [SPEC]   set faults for all in the session, from now on; without SPEC, show them.\n"
    "                 SPEC is \"none\" or a list, as in lose=0.01,seed=7:\n"
    "                   lose=P duplicate=P    packets that vanish or come twice\n"
    "                   delay=P[:US]          packets that come late, by microseconds\n"
    "                   seed=N                other random numbers\n"
    "                   rail0=down rail1=down the port of that device is down\n"
    "                   rail0=unplugged ...   that device has been taken out\n"
    "                   rail0=rate:GBPS       it sends so many Gbit/s at the most\n"
    "                   rail0=latency:US      what it sends comes so much later\n"
    "                   kill=QPN fill=CQN     break a queue pair or a completion queue\n"
    "                   taken=N[:US]          a QP that fails keeps N receives for so long\n"
    "                   placement=P[:US]      data land in any order, where a program allows it\n"
    "                   stall=US              all devices stand still for so long, once\n"
    "                   quirk=NAME            all devices break what copyrpc-check NAME checks\n"
    "  sessions       this user's sessions\n"
    "\n"
    "  --session NAME the session (default: the one this runs in, else\n"
    "                 $SIMNIC_SESSION_NAME, else \"default\")\n"
    "  --help         print this\n"
    "\n"
    "Exit status: 1 if there is no such session, 2 for wrong arguments.\n";

enum {
    OPTION_SESSION = 1 << 0,
    OPTION_JSON = 1 << 1,
    OPTION_ALL = 1 << 2,
    OPTION_QP = 1 << 3,
    OPTION_RAW = 1 << 4,
    OPTION_SECONDS = 1 << 5,
    OPTION_BASE = 256 /* above all characters, which getopt may return too */
};

static const struct option known[] = {
    {"session", required_argument, NULL, OPTION_BASE + OPTION_SESSION},
    {"json", no_argument, NULL, OPTION_BASE + OPTION_JSON},
    {"all", no_argument, NULL, OPTION_BASE + OPTION_ALL},
    {"qp", required_argument, NULL, OPTION_BASE + OPTION_QP},
    {"raw", no_argument, NULL, OPTION_BASE + OPTION_RAW},
    {"seconds", required_argument, NULL, OPTION_BASE + OPTION_SECONDS},
    {"help", no_argument, NULL, 'h'},
    {0}};

struct ctl_word {
    const char *name;
    int (*function)(const struct ctl_options *options);
    int options; /* OPTION_, besides --session */
    int most_arguments;
};

static const struct ctl_word words[] = {
    {"stats", ctl_stats, OPTION_JSON | OPTION_ALL, 0},
    {"trace", ctl_trace, OPTION_QP | OPTION_RAW | OPTION_SECONDS, 0},
    {"fault", ctl_fault, 0, 1},
    {"sessions", ctl_sessions, 0, 0},
};

int ctl_flush(void)
{
    if (fflush(stdout) != EOF && !ferror(stdout)) {
        return 0;
    }
    if (errno != EPIPE) { /* the reader of a closed pipe has seen enough */
        complain("ctl: cannot write: %s", strerror(errno));
    }
    return EXIT_TROUBLE;
}

static int usage_error(char **argv, int code)
{
    const char *what = code == ':' ? "needs a value" : "is no option, or takes no value";
    if (optopt > 0 && optopt < OPTION_BASE) {
        complain("ctl: -%c %s (see simnic ctl --help)", optopt, what);
    } else {
        complain("ctl: %s %s (see simnic ctl --help)", argv[optind - 1], what);
    }
    return EXIT_USAGE;
}

static int read_qpn(const char *text, struct ctl_options *options)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 0);
    options->one_queue_pair = true;
    options->qpn = (uint32_t)value;
    if (*text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && value <= 0xffffff) {
        return 0;
    }
    complain("ctl: --qp %s: expected a queue pair's number, as in 0x40", text);
    return EXIT_USAGE;
}

static int read_seconds(const char *text, struct ctl_options *options)
{
    char *end;
    options->seconds = strtod(text, &end);
    if (end != text && *end == '\0' && options->seconds > 0 && options->seconds <= 1e9) {
        return 0;
    }
    complain("ctl: --seconds %s: expected a number above 0", text);
    return EXIT_USAGE;
}

static int take_option(int code, struct ctl_options *options)
{
    switch (code - OPTION_BASE) {
    case OPTION_SESSION:
        options->session = optarg;
        break;
    case OPTION_JSON:
        options->json = true;
        break;
    case OPTION_ALL:
        options->all = true;
        break;
    case OPTION_RAW:
        options->raw = true;
        break;
    case OPTION_QP:
        return read_qpn(optarg, options);
    default:
        return read_seconds(optarg, options);
    }
    return 0;
}

/* Reads the options, which may stand before and after the word; *given is which there were. */
static int parse(int argc, char **argv, struct ctl_options *options, int *given)
{
    int code, status;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
        if (code == 'h') {
            options->help = true;
            return 0;
        }
        if (code < OPTION_BASE) {
            return usage_error(argv, code);
        }
        status = take_option(code, options);
        if (status) {
            return status;
        }
        *given |= code - OPTION_BASE;
    }
    return 0;
}

static const char *name_of_option(int bit)
{
    for (const struct option *option = known; option->name; option++) {
        if (option->val == OPTION_BASE + bit) {
            return option->name;
        }
    }
    return "";
}

static int run(char **arguments, int count, int given, struct ctl_options *options)
{
    const struct ctl_word *word = NULL;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (count && strcmp(arguments[0], words[i].name) == 0) {
            word = &words[i];
        }
    }
    if (!word) {
        complain("ctl: %s%sstats, trace, fault or sessions (see simnic ctl --help)",
                 count ? arguments[0] : "", count ? " is not one of " : "say what to do: ");
        return EXIT_USAGE;
    }
    int excess = given & ~(word->options | OPTION_SESSION);
    if (excess) {
        complain("ctl: --%s does not go with %s (see simnic ctl --help)",
                 name_of_option(excess & -excess), word->name);
        return EXIT_USAGE;
    }
    if (count - 1 > word->most_arguments) {
        complain("ctl: %s: one word too many: %s (see simnic ctl --help)", word->name,
                 arguments[1 + word->most_arguments]);
        return EXIT_USAGE;
    }
    options->specification = count > 1 ? arguments[1] : NULL;
    return word->function(options);
}

int ctl_main(int argc, char **argv)
{
    struct ctl_options options = {0};
    int given = 0;
    int status = parse(argc, argv, &options, &given);
    if (status) {
        return status;
    }
    if (options.help) {
        return fputs(usage, stdout) == EOF ? EXIT_TROUBLE : ctl_flush();
    }
    return run(argv + optind, argc - optind, given, &options);
}
