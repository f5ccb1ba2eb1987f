/* ctl.c: `simnic ctl`, which looks into a running session, or changes it: reads the options and
 * picks the word's function. */
#include "simnic/run/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "simnic/run/words.h"
#include "simnic_ctl_help.h"

static const struct option known[] = HELP_OPTIONS;

/* Sets of options that have no letter. */
#define BIT(option) (1 << ((option)-OPTION_BASE))

struct ctl_word {
    const char *name;
    int (*function)(const struct ctl_options *options);
    int options; /* BIT(), besides --session */
    int most_arguments;
};

static const struct ctl_word words[] = {
    {"stats", ctl_stats, BIT(OPTION_JSON) | BIT(OPTION_ALL), 0},
    {"trace", ctl_trace, BIT(OPTION_QP) | BIT(OPTION_RAW) | BIT(OPTION_SECONDS), 0},
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
    switch (code) {
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
        *given |= BIT(code);
    }
    return 0;
}

static const char *name_of_option(int bit)
{
    for (const struct option *option = known; option->name; option++) {
        if (option->val > OPTION_BASE && BIT(option->val) == bit) {
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
    int excess = given & ~(word->options | BIT(OPTION_SESSION));
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
        return fputs(HELP_TEXT, stdout) == EOF ? EXIT_TROUBLE : ctl_flush();
    }
    return run(argv + optind, argc - optind, given, &options);
}
