/* main.c: copyrpc-info: which RDMA devices there are, what copyrpc can do with them, and what would be better. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <copyrpc.h>

#include "../common/version.h"
#include "advice.h"
#include "copyrpc_info_help.h"
#include "show.h"

static const struct argp_option option_table[] = HELP_OPTIONS;

static error_t parse(int key, char *argument, struct argp_state *state)
{
    (void)argument;
    if (key == 'j') {
        *(bool *)state->input = true;
        return 0;
    }
    if (key == ARGP_KEY_ARG) {
        argp_usage(state);
    }
    return ARGP_ERR_UNKNOWN;
}

/* Where libibverbs looks for it, too. */
static const char *sysfs(void)
{
    const char *path = getenv("SYSFS_PATH");
    return path && path[0] == '/' ? path : "/sys";
}

static void read_port(const crpc_device_info *info, struct report_port *port)
{
    port->info = *info;
    port_read(info->name, info->port, &port->port);
    card_read(sysfs(), info->name, info->port, info->gid_index, &port->card);
    left_out_find(info->name, &port->left_out);
    choice_make(info, &port->port, &port->left_out, &port->choice);
}

/* A port that cannot be read does not hide those behind it. */
static void gather(struct report *report)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_device_info info = {.struct_size = sizeof(info)};
    int32_t status;
    machine_read("/proc/cpuinfo", &report->machine);
    report->whole = true;
    for (uint32_t i = 0; (status = crpc_device_query(i, &info, &error)) != CRPC_E_NO_DEVICE; i++) {
        if (status != CRPC_OK) {
            report->error = report->whole ? error : report->error;
            report->whole = false;
        } else if (report->port_count < REPORT_PORTS_MAX) {
            read_port(&info, &report->ports[report->port_count++]);
        }
        info.struct_size = sizeof(info);
    }
    if (report->port_count == 0 && report->whole) {
        report->error = error;
        report->whole = false;
    }
    if (report->port_count > 0) {
        rails_find(&report->rails);
    }
}

int main(int argc, char **argv)
{
    static struct report report;
    static struct advice_list advice;
    bool json = false;
    const struct argp argp = {
        .options = option_table, .parser = parse, .args_doc = HELP_ARGUMENTS, .doc = HELP_TEXT};
    arguments_parse(&argp, argc, argv, &json);
    gather(&report);
    advice_find(&report, &advice);
    if (json) {
        show_json(&report, &advice);
    } else {
        show_text(&report, &advice);
    }
    if (!report.whole) {
        fprintf(stderr, "copyrpc-info: %s\n", report.error.message);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
