/* ctl_fault.c: the word `fault`: sets faults, or shows them. */
#include "simnic/run/ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "simnic/fabric/format.h"
#include "simnic/fabric/quirk.h"
#include "simnic/run/sysfs.h"
#include "simnic/run/words.h"
#include "simnic/session/rails.h"

#define PATIENCE 1000 /* looks at a fault that is being written, 1 ms apart */

/* Appends ",word" to a specification. */
__attribute__((format(printf, 3, 4))) static void append(char *specification, size_t bytes,
                                                         const char *format, ...)
{
    size_t length = strlen(specification);
    if (length && length + 1 < bytes) {
        specification[length++] = ',';
        specification[length] = '\0';
    }
    va_list values;
    va_start(values, format);
    vsnprintf(specification + length, bytes - length, format, values);
    va_end(values);
}

static void append_quirks(const struct fabric_fault *fault, int first, int end, char *specification,
                          size_t bytes)
{
    for (int quirk = first; quirk < end; quirk++) {
        if (fault->quirks >> quirk & 1) {
            append(specification, bytes, "quirk=%s", quirk_name((enum quirk)quirk));
        }
    }
}

/* Writes a fault the way that fault_parse reads it. */
static void describe(const struct fabric_fault *fault, char *specification, size_t bytes)
{
    *specification = '\0';
    append_quirks(fault, 0, QUIRK_FIRST_LASTING, specification, bytes);
    if (fault->lose_per_million) {
        append(specification, bytes, "lose=%.6g", fault->lose_per_million / 1e6);
    }
    if (fault->duplicate_per_million) {
        append(specification, bytes, "duplicate=%.6g", fault->duplicate_per_million / 1e6);
    }
    if (fault->delay_per_million) {
        append(specification, bytes, "delay=%.6g:%u", fault->delay_per_million / 1e6,
               fault->delay_us);
    }
    for (uint32_t rail = 0; rail < 2; rail++) {
        if (fault->rails_down >> rail & 1) {
            append(specification, bytes, "rail%u=down", rail);
        }
        if (fault->rails_unplugged >> rail & 1) {
            append(specification, bytes, "rail%u=unplugged", rail);
        }
        if (fault->rail_kbps[rail]) {
            append(specification, bytes, "rail%u=rate:%.6f", rail, fault->rail_kbps[rail] / 1e6);
        }
        if (fault->rail_latency_us[rail]) {
            append(specification, bytes, "rail%u=latency:%u", rail, fault->rail_latency_us[rail]);
        }
        if (fault->rails_ece_said >> rail & 1 && fault->rail_ece[rail] != FAULT_ECE_CARD) {
            append(specification, bytes, "rail%u=ece:0x%08x", rail, fault->rail_ece[rail]);
        }
    }
    if (fault->kill_qpn) {
        append(specification, bytes, "kill=0x%06x", fault->kill_qpn);
    }
    if (fault->stall_us) {
        append(specification, bytes, "stall=%u", fault->stall_us);
    }
    if (fault->fill_cqn) {
        append(specification, bytes, "fill=%u", fault->fill_cqn);
    }
    if (fault->taken_count) {
        append(specification, bytes, "taken=%u:%u", fault->taken_count, fault->taken_us);
    }
    if (fault->placement_per_million) {
        append(specification, bytes, "placement=%.6g:%u", fault->placement_per_million / 1e6,
               fault->placement_us);
    }
    append_quirks(fault, QUIRK_FIRST_LASTING, QUIRK_COUNT, specification, bytes);
    if (fault->seed > 1) { /* 1 is the default, and 0 what nobody ever set */
        append(specification, bytes, "seed=%llu", (unsigned long long)fault->seed);
    }
    if (!*specification) {
        append(specification, bytes, "none");
    }
}

/* Copies the fault between two looks at the same even generation. Returns false if its writer was
 * killed in the middle. */
static bool copy_fault(const struct fabric_file *file, struct fabric_fault *fault)
{
    for (int i = 0; i < PATIENCE; i++) {
        uint32_t before = atomic_load_explicit(&file->fault_generation, memory_order_acquire);
        *fault = file->fault;
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) &&
            atomic_load_explicit(&file->fault_generation, memory_order_relaxed) == before) {
            return true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

static int show(struct ctl_session *session)
{
    struct fabric_fault fault;
    char specification[512];
    if (!copy_fault(session->fabric.file, &fault)) {
        complain("ctl: fault: the faults were left half written; set them again");
        return EXIT_TROUBLE;
    }
    describe(&fault, specification, sizeof(specification));
    puts(specification);
    return ctl_flush();
}

/* Whether the specification is right, before the session is looked for. */
static int check(const char *specification)
{
    struct fabric_fault fault;
    char error[640];
    if (fault_parse(specification, &fault, error, sizeof(error))) {
        return 0;
    }
    for (char *c = error; *c; c++) {
        if ((unsigned char)*c < ' ') {
            *c = ' '; /* the message is one line */
        }
    }
    complain("ctl: fault: %s", error);
    return EXIT_USAGE;
}

static int set(const struct ctl_session *session, const char *specification)
{
    char fabric[SESSION_PATH_BYTES], sysfs[SESSION_PATH_BYTES], error[640] = "";
    session_file(session->directory, SESSION_FABRIC, fabric);
    session_file(session->directory, SESSION_SYSFS, sysfs);
    int result = fabric_set_fault(fabric, specification, error, sizeof(error));
    const uint32_t unplugged = result ? 0 : fabric_rails_unplugged(fabric);
    for (int rail = 0; rail < RAIL_COUNT; rail++) {
        if (unplugged >> rail & 1) {
            result = sysfs_renew(sysfs, rail);
        }
    }
    if (result) {
        complain("ctl: fault: %s", *error ? error : strerror(-result));
        return EXIT_TROUBLE;
    }
    return 0;
}

int ctl_fault(const struct ctl_options *options)
{
    struct ctl_session session;
    int status = options->specification ? check(options->specification) : 0;
    if (!status) {
        status = ctl_open(&session, options);
    }
    if (status) {
        return status;
    }
    status = options->specification ? set(&session, options->specification) : show(&session);
    ctl_close(&session);
    return status;
}
