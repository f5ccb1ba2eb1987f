/* main.c: copyrpc-check: proves on the user's own device what the drivers assume of it. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <copyrpc.h>

#include "../common/device.h"
#include "../common/version.h"
#include "base/clock.h"
#include "check.h"
#include "copyrpc_check_help.h"
#include "peer.h"
#include "remember.h"
#include "report.h"

#define NAMES_MAX 64u
#define HUNT_SECONDS_DEFAULT 5.0
#define HUNT_SECONDS_QUICK 0.2
#define PATIENCE_MS_DEFAULT 10000u

struct options {
    struct subject subject;
    const char *only[NAMES_MAX];
    uint32_t only_count;
    const char *report;
    const char *port;
    bool list;
    bool listen;
    bool hunt_given;
    bool forget; /* nothing is remembered */
};

static const struct argp_option option_table[] = HELP_OPTIONS;

/* ---- Options --------------------------------------------------------------------------------- */

static const struct check *find_check(const char *name)
{
    for (uint32_t i = 0; i < check_count; i++) {
        if (strcmp(checks[i].name, name) == 0) {
            return &checks[i];
        }
    }
    return NULL;
}

static double take_seconds(const char *argument, struct argp_state *state, const char *option)
{
    char *end;
    double seconds = strtod(argument, &end);
    if (end == argument || *end || !(seconds > 0 && seconds <= 3600)) {
        argp_error(state, "%s must be more than 0 and at most 3600 seconds, not '%s'", option,
                   argument);
    }
    return seconds;
}

static void take_device(const char *argument, struct argp_state *state)
{
    struct subject *subject = &((struct options *)state->input)->subject;
    if (subject->devices == 2) {
        argp_error(state, "two devices at most");
    }
    if (strlen(argument) >= sizeof(subject->device[0])) {
        argp_error(state, "'%s' is no name of a device", argument);
    }
    snprintf(subject->device[subject->devices++], sizeof(subject->device[0]), "%s", argument);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct options *options = state->input;
    switch (key) {
    case OPTION_LIST:
        options->list = true;
        return 0;
    case OPTION_ONLY:
        if (!find_check(argument)) {
            argp_error(state, "there is no check '%s': see --list", argument);
        }
        if (options->only_count == NAMES_MAX) {
            argp_error(state, "at most %u checks by name", NAMES_MAX);
        }
        options->only[options->only_count++] = argument;
        return 0;
    case OPTION_JSON:
        options->report = argument;
        return 0;
    case OPTION_SECONDS:
        options->subject.hunt_seconds = take_seconds(argument, state, "--seconds");
        options->hunt_given = true;
        return 0;
    case OPTION_QUICK:
        options->subject.quick = true;
        return 0;
    case OPTION_PATIENCE:
        options->subject.patience_ms =
            (uint32_t)(take_seconds(argument, state, "--patience") * 1000 + 0.5);
        return 0;
    case OPTION_PEER:
        options->subject.peer = argument;
        return 0;
    case OPTION_LISTEN:
        options->listen = true;
        return 0;
    case OPTION_PORT:
        options->port = argument;
        return 0;
    case OPTION_NO_REMEMBER:
        options->forget = true;
        return 0;
    case ARGP_KEY_ARG:
        take_device(argument, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- Devices --------------------------------------------------------------------------------- */

static bool find_device(const char *name, crpc_device_info *info, crpc_error *error)
{
    for (uint32_t i = 0;; i++) {
        *info = (crpc_device_info){.struct_size = sizeof(*info)};
        if (crpc_device_query(i, info, error) != CRPC_OK) {
            return false;
        }
        if (name ? strcmp(info->name, name) == 0 : info->port_state == CRPC_PORT_ACTIVE) {
            return true;
        }
    }
}

static bool choose_devices(struct subject *subject)
{
    crpc_device_info info;
    crpc_error error = {.struct_size = sizeof(error)};
    subject->direct = true;
    if (subject->devices == 0) {
        if (!find_device(NULL, &info, &error)) {
            fprintf(stderr, "copyrpc-check: no device has an active port; copyrpc-info lists what "
                            "there is\n");
            return false;
        }
        snprintf(subject->device[0], sizeof(subject->device[0]), "%s", info.name);
        subject->devices = 1;
        subject->direct = info.drivers & 1u << CRPC_DRIVER_MLX5;
        return true;
    }
    for (uint32_t i = 0; i < subject->devices; i++) {
        if (!find_device(subject->device[i], &info, &error)) {
            fprintf(stderr,
                    "copyrpc-check: there is no device '%s'; copyrpc-info lists those that "
                    "there are\n",
                    subject->device[i]);
            return false;
        }
        subject->direct &= (info.drivers & 1u << CRPC_DRIVER_MLX5) != 0;
    }
    return true;
}

/* ---- Running --------------------------------------------------------------------------------- */

static bool is_wanted(const struct options *options, const struct check *check)
{
    for (uint32_t i = 0; i < options->only_count; i++) {
        if (strcmp(options->only[i], check->name) == 0) {
            return true;
        }
    }
    return options->only_count == 0 && (!options->subject.peer || check->fabric);
}

static void list(void)
{
    for (uint32_t i = 0; i < check_count; i++) {
        printf("%-20s %s\n", checks[i].name, checks[i].assumed);
    }
}

static void print_head(FILE *out, const struct subject *subject,
                       const struct left_out_subject *versions)
{
    fprintf(out, "%s%s%s, firmware %s, Linux %s%s%s, copyrpc %s\n", subject->device[0],
            subject->devices > 1 ? " and " : "", subject->device[1], versions->firmware,
            versions->kernel, versions->libmlx5[0] ? ", " : "", versions->libmlx5,
            versions->copyrpc);
}

/* Counts the verdicts. Returns what can be left out because of checks that failed. */
static uint32_t run(const struct options *options, FILE *out, json_t *report, uint32_t *counts)
{
    uint32_t left_out = 0;
    for (uint32_t i = 0; i < check_count; i++) {
        if (!is_wanted(options, &checks[i])) {
            continue;
        }
        struct outcome outcome = {0};
        uint64_t start_ns = clock_now_ns();
        check_run(&checks[i], &options->subject, &outcome);
        report_add(report, &checks[i], &outcome, clock_now_ns() - start_ns);
        counts[outcome.verdict]++;
        left_out |=
            outcome.verdict == VERDICT_FAILED && !outcome.setting_up ? checks[i].feature : 0;
        fprintf(out, "%-8s  %-20s %s: %s\n", report_verdict(outcome.verdict), checks[i].name,
                checks[i].assumed, outcome.seen);
        fflush(out);
    }
    return left_out;
}

/* Behind the checks of a whole run, for the reader to judge. */
static void measure(const struct options *options, FILE *out, json_t *report)
{
    struct figure figures[FIGURES];
    struct outcome outcome = {0};
    if (options->only_count > 0 || options->subject.peer) {
        return;
    }
    if (!speed_measure(&options->subject, figures, &outcome)) {
        fprintf(out, "speed     could not be measured: %s\n", outcome.seen);
        return;
    }
    for (uint32_t i = 0; i < FIGURES; i++) {
        const struct figure *figure = &figures[i];
        if (options->subject.direct) {
            fprintf(out, "speed     %-20s %.3g by the mlx5 driver, %.3g by libmlx5: %s\n",
                    figure->name, figure->ours, figure->theirs, figure->unit);
        } else {
            fprintf(out, "speed     %-20s %.3g: %s\n", figure->name, figure->theirs, figure->unit);
        }
    }
    report_add_speed(report, figures);
}

/* What can be left out of a device that no driver but verbs can use: nothing. */
static uint32_t applies(const struct options *options)
{
    return options->subject.direct ? UINT32_MAX : 0;
}

static void print_summary(FILE *out, const uint32_t *counts)
{
    fprintf(out, "%u ok, %u failed, %u not here\n", counts[VERDICT_OK], counts[VERDICT_FAILED],
            counts[VERDICT_NOT_HERE]);
}

int main(int argc, char **argv)
{
    struct options options = {.subject = {.patience_ms = PATIENCE_MS_DEFAULT},
                              .port = PEER_PORT_DEFAULT};
    uint32_t counts[VERDICTS] = {0};
    const struct argp argp = {
        .options = option_table, .parser = parse, .args_doc = HELP_ARGUMENTS, .doc = HELP_TEXT};
    arguments_parse(&argp, argc, argv, &options);
    if (options.list) {
        list();
        return EXIT_SUCCESS;
    }
    if (!options.hunt_given) {
        options.subject.hunt_seconds =
            options.subject.quick ? HUNT_SECONDS_QUICK : HUNT_SECONDS_DEFAULT;
    }
    if (!choose_devices(&options.subject)) {
        return 2;
    }
    if (options.listen) {
        return peer_listen(&options.subject, options.port);
    }
    FILE *out = options.report && strcmp(options.report, "-") == 0 ? stderr : stdout;
    struct left_out_subject versions = {0};
    device_describe(options.subject.device[0], &versions);
    print_head(out, &options.subject, &versions);
    json_t *report = report_begin(&options.subject, &versions);
    const uint32_t left_out = run(&options, out, report, counts);
    measure(&options, out, report);
    print_summary(out, counts);
    bool remembered =
        options.forget || remember(&options.subject, left_out & applies(&options),
                                   options.only_count == 0 && !options.subject.peer, out);
    const bool written = !options.report || report_write(report, options.report);
    if (!written) {
        fprintf(stderr, "copyrpc-check: cannot write '%s': %s\n", options.report, strerror(errno));
    }
    json_decref(report);
    const bool checked = counts[VERDICT_OK] + counts[VERDICT_FAILED] > 0;
    return !written || !remembered || !checked ? 2 : counts[VERDICT_FAILED] > 0 ? 1 : 0;
}
