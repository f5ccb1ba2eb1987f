/* ctl_stats.c: the word `stats`: the counters of queue pairs, as a table or as JSON. */
#include "simnic/run/ctl.h"

#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "simnic/nic/nic.h"
#include "simnic/run/words.h"

/* A counter: its name in JSON, its column's two head lines and width. Those of width 0, which come last, are in JSON alone. */
struct column {
    const char *name, *above, *below;
    size_t offset;
    int width;
};

#define COUNTER(field) #field
#define PLACE(field) offsetof(struct fabric_queue_pair_statistics, field)

static const struct column columns[] = {
    {COUNTER(send_wqes), "send", "WQEs", PLACE(send_wqes), 5},
    {COUNTER(receive_wqes), "recv", "WQEs", PLACE(receive_wqes), 5},
    {COUNTER(doorbells), "door-", "bells", PLACE(doorbells), 5},
    {COUNTER(blueflame_pushes), "Blue-", "Flame", PLACE(blueflame_pushes), 5},
    {COUNTER(blueflame_executed), "exe-", "cuted", PLACE(blueflame_executed), 5},
    {COUNTER(wqe_reads), "WQE", "reads", PLACE(wqe_reads), 5},
    {COUNTER(payload_reads), "data", "reads", PLACE(payload_reads), 5},
    {COUNTER(send_cqes), "send", "CQEs", PLACE(send_cqes), 5},
    {COUNTER(receive_cqes), "recv", "CQEs", PLACE(receive_cqes), 5},
    {COUNTER(compressed_blocks), "compr", "blks", PLACE(compressed_blocks), 5},
    {COUNTER(bytes_sent), "bytes", "sent", PLACE(bytes_sent), 5},
    {COUNTER(bytes_received), "bytes", "recv", PLACE(bytes_received), 5},
    {COUNTER(packets_sent), "pckts", "sent", PLACE(packets_sent), 5},
    {COUNTER(packets_received), "pckts", "recv", PLACE(packets_received), 5},
    {COUNTER(retries), "re-", "trys", PLACE(retries), 4},
    {COUNTER(rnr_naks), "RNR", "NAKs", PLACE(rnr_naks), 4},
    {COUNTER(timeouts), "time", "outs", PLACE(timeouts), 4},
    {COUNTER(compressed_arrays), "", "", PLACE(compressed_arrays), 0},
};
#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

/* Queue pairs of a process that are shown, and the sum of all. */
struct summary {
    uint32_t known, destroyed;
    uint64_t sum[COLUMN_COUNT];
};

static const char *const object_names[FABRIC_OBJECTS] = {
    [FABRIC_PROTECTION_DOMAINS] = "protection_domains",
    [FABRIC_MEMORY_REGIONS] = "memory_regions",
    [FABRIC_MEMORY_WINDOWS] = "memory_windows",
    [FABRIC_COMPLETION_QUEUES] = "completion_queues",
    [FABRIC_SHARED_RECEIVE_QUEUES] = "shared_receive_queues",
    [FABRIC_QUEUE_PAIRS] = "queue_pairs",
};

static uint64_t value_of(const struct fabric_queue_pair_statistics *qp, size_t column)
{
    uint64_t value;
    memcpy(&value, (const char *)qp + columns[column].offset, sizeof(value));
    return value;
}

static const char *type_name(uint8_t type)
{
    switch (type) {
    case TYPE_RC:
        return "RC";
    case TYPE_UC:
        return "UC";
    case TYPE_UD:
        return "UD";
    case TYPE_XRC_INITIATOR:
        return "XRCI";
    case TYPE_XRC_TARGET:
        return "XRCT";
    case TYPE_DCI:
        return "DCI";
    case TYPE_DCT:
        return "DCT";
    default:
        return "?";
    }
}

static const char *state_name(const struct fabric_queue_pair_statistics *qp)
{
    static const char *const names[] = {"RST", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    if (qp->destroyed) {
        return "gone";
    }
    return qp->state < sizeof(names) / sizeof(names[0]) ? names[qp->state] : "?";
}

static const char *process_state_name(enum ctl_state state)
{
    switch (state) {
    case CTL_ALIVE:
        return "alive";
    case CTL_DEAD:
        return "dead";
    case CTL_ENDED:
        return "ended";
    default:
        return "free";
    }
}

static struct summary sum_up(const struct fabric_process_statistics *statistics)
{
    struct summary summary = {0};
    for (uint32_t i = 0; i < FABRIC_STATISTICS_ENTRIES; i++) {
        const struct fabric_queue_pair_statistics *qp = &statistics->queue_pairs[i];
        if (!qp->qpn) {
            continue;
        }
        summary.known++;
        summary.destroyed += qp->destroyed != 0;
        for (size_t column = 0; column < COLUMN_COUNT; column++) {
            summary.sum[column] += value_of(qp, column);
        }
    }
    return summary;
}

static bool is_shown(const struct fabric_queue_pair_statistics *qp,
                     const struct ctl_options *options)
{
    return qp->qpn && (!qp->destroyed || options->all);
}

/* ---- A table --------------------------------------------------------------------------------- */

/* Writes a number in at most `width` (4 or more) characters: exactly, or in thousands, millions
 * and so on, as exactly as there is room for. */
static void shorten(uint64_t number, int width, char text[24])
{
    static const char units[] = "kMGTPE";
    int length = snprintf(text, 24, "%llu", (unsigned long long)number);
    double scaled = (double)number;
    for (const char *unit = units; length > width && *unit; unit++) {
        scaled /= 1000;
        for (int digits = 1; length > width && digits >= 0; digits--) {
            length = snprintf(text, 24, "%.*f%c", digits, scaled, *unit);
        }
    }
}

static void print_numbers(const uint64_t numbers[COLUMN_COUNT])
{
    for (size_t column = 0; column < COLUMN_COUNT && columns[column].width; column++) {
        char text[24];
        shorten(numbers[column], columns[column].width, text);
        printf(" %*s", columns[column].width, text);
    }
    putchar('\n');
}

static void print_head(void)
{
    printf("%-8s %-6s %-4s", "queue", "type/", "");
    for (size_t column = 0; column < COLUMN_COUNT && columns[column].width; column++) {
        printf(" %*s", columns[column].width, columns[column].above);
    }
    printf("\n%-8s %-6s %-4s", "pair", "rail", "stat");
    for (size_t column = 0; column < COLUMN_COUNT && columns[column].width; column++) {
        printf(" %*s", columns[column].width, columns[column].below);
    }
    putchar('\n');
}

static void print_queue_pair(const struct fabric_queue_pair_statistics *qp)
{
    char type[16];
    uint64_t numbers[COLUMN_COUNT];
    snprintf(type, sizeof(type), "%s/%u", type_name(qp->type), qp->rail % 10u);
    printf("0x%06x %-6s %-4s", qp->qpn & 0xffffff, type, state_name(qp));
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        numbers[column] = value_of(qp, column);
    }
    print_numbers(numbers);
}

static void print_process(const struct ctl_process *process,
                          const struct fabric_process_statistics *statistics,
                          const struct ctl_options *options)
{
    struct summary summary = sum_up(statistics);
    printf("\nslot %u", process->slot);
    if (process->pid) {
        printf(", pid %u", process->pid);
    }
    printf(", %s", process->name);
    if (process->state != CTL_ALIVE) {
        printf(" (%s)", process_state_name(process->state));
    }
    uint32_t living = summary.known - summary.destroyed;
    printf(": %u queue pair%s", living, living == 1 ? "" : "s");
    if (summary.destroyed) {
        printf(" and %u destroyed", summary.destroyed);
    }
    if (summary.known == FABRIC_STATISTICS_ENTRIES) {
        printf("; more than %u have no counters", FABRIC_STATISTICS_ENTRIES);
    }
    putchar('\n');
    if (!summary.known) {
        return;
    }
    print_head();
    for (uint32_t i = 0; i < FABRIC_STATISTICS_ENTRIES; i++) {
        if (is_shown(&statistics->queue_pairs[i], options)) {
            print_queue_pair(&statistics->queue_pairs[i]);
        }
    }
    printf("%-8s %-6s %-4s", "sum", "", "");
    print_numbers(summary.sum);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Its path: what the address vector says, the P_Key, and how long it waits for answers. */
static json_t *path_to_json(const struct fabric_queue_pair_statistics *qp)
{
    const struct rail_way *way = &qp->way;
    json_t *object = json_object();
    char gid[RAIL_GID_TEXT_BYTES];
    rail_gid_text(way->gid, gid);
    json_object_set_new(object, "partition", json_integer(qp->partition));
    json_object_set_new(object, "lid", json_integer(way->lid));
    json_object_set_new(object, "path_bits", json_integer(way->path_bits));
    json_object_set_new(object, "service_level", json_integer(way->service_level));
    json_object_set_new(object, "grh", json_boolean(way->grh));
    json_object_set_new(object, "gid", json_string(gid));
    json_object_set_new(object, "gid_index", json_integer(way->gid_index));
    json_object_set_new(object, "hop_limit", json_integer(way->hop_limit));
    json_object_set_new(object, "traffic_class", json_integer(way->traffic_class));
    json_object_set_new(object, "flow_label", json_integer(way->flow_label & 0xfffff));
    json_object_set_new(object, "timeout", json_integer(qp->timeout));
    json_object_set_new(object, "retry_count", json_integer(qp->retry_count));
    json_object_set_new(object, "rnr_retry_count", json_integer(qp->rnr_retry_count));
    json_object_set_new(object, "ece", json_integer(qp->ece));
    return object;
}

static json_t *queue_pair_to_json(const struct fabric_queue_pair_statistics *qp)
{
    json_t *object = json_object();
    json_object_set_new(object, "qpn", json_integer(qp->qpn & 0xffffff));
    json_object_set_new(object, "type", json_string(type_name(qp->type)));
    json_object_set_new(object, "rail", json_integer(qp->rail));
    json_object_set_new(object, "state", json_string(state_name(qp)));
    json_object_set_new(object, "destroyed", json_boolean(qp->destroyed));
    json_object_set_new(object, "path", path_to_json(qp));
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        json_object_set_new(object, columns[column].name,
                            json_integer((json_int_t)value_of(qp, column)));
    }
    return object;
}

static json_t *process_to_json(const struct ctl_process *process,
                               const struct fabric_process_statistics *statistics,
                               const struct ctl_options *options)
{
    struct summary summary = sum_up(statistics);
    json_t *object = json_object(), *queue_pairs = json_array(), *sum = json_object();
    json_t *objects = json_object();
    for (uint32_t i = 0; i < FABRIC_OBJECTS; i++) {
        json_object_set_new(objects, object_names[i], json_integer(statistics->objects[i]));
    }
    for (uint32_t i = 0; i < FABRIC_STATISTICS_ENTRIES; i++) {
        if (is_shown(&statistics->queue_pairs[i], options)) {
            json_array_append_new(queue_pairs, queue_pair_to_json(&statistics->queue_pairs[i]));
        }
    }
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        json_object_set_new(sum, columns[column].name,
                            json_integer((json_int_t)summary.sum[column]));
    }
    json_object_set_new(object, "slot", json_integer(process->slot));
    json_object_set_new(object, "pid", json_integer(process->pid));
    json_object_set_new(object, "name", json_string(process->name));
    json_object_set_new(object, "state", json_string(process_state_name(process->state)));
    json_object_set_new(object, "destroyed", json_integer(summary.destroyed));
    json_object_set_new(object, "polling_rounds",
                        json_integer((json_int_t)statistics->polling_rounds));
    json_object_set_new(object, "objects", objects);
    json_object_set_new(object, "queue_pairs", queue_pairs);
    json_object_set_new(object, "sum", sum);
    return object;
}

static int print_json(const char *session, uint32_t link, json_t *processes)
{
    json_t *all = json_object();
    char text[LINK_TEXT_BYTES];
    link_describe(link, text);
    json_object_set_new(all, "session", json_string(session));
    json_object_set_new(all, "link", json_string(text));
    json_object_set_new(all, "processes", processes);
    int result = json_dumpf(all, stdout, JSON_INDENT(2));
    json_decref(all);
    putchar('\n');
    int status = ctl_flush();
    if (!status && result != 0) {
        complain("ctl: stats: no memory for JSON");
        status = EXIT_TROUBLE;
    }
    return status;
}

/* ---- Both ------------------------------------------------------------------------------------ */

static bool is_wanted(const struct ctl_process *process, const struct ctl_options *options)
{
    return process->state == CTL_ALIVE || process->state == CTL_DEAD ||
           (process->state == CTL_ENDED && options->all);
}

/* Prints the processes, or appends them to `processes` if that is not NULL. Returns how many there
 * were. */
static uint32_t look_at_all(struct ctl_session *session, const struct ctl_options *options,
                            json_t *processes)
{
    static struct fabric_process_statistics statistics; /* 38 KB */
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        struct ctl_process process;
        ctl_look(session, slot, &process);
        if (!is_wanted(&process, options) || !ctl_statistics(session, slot, &statistics)) {
            continue;
        }
        count++;
        if (processes) {
            json_array_append_new(processes, process_to_json(&process, &statistics, options));
        } else {
            print_process(&process, &statistics, options);
        }
    }
    return count;
}

int ctl_stats(const struct ctl_options *options)
{
    struct ctl_session session;
    int status = ctl_open(&session, options);
    if (status) {
        return status;
    }
    const char *name = session_name_in(session.directory);
    if (options->json) {
        json_t *processes = json_array();
        look_at_all(&session, options, processes);
        status = print_json(name, session.fabric.link, processes);
    } else {
        printf("session %s\n", name);
        if (look_at_all(&session, options, NULL) == 0) {
            printf("no process uses the devices\n");
        }
        status = ctl_flush();
    }
    ctl_close(&session);
    return status;
}
