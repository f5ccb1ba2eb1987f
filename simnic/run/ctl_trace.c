/* ctl_trace.c: the word `trace`: prints what the NICs put into their trace rings.
 *
 * There may be more than one tracer. Each has a cursor of its own. A ring's tail is where the
 * furthest of them is. A tracer that is behind checks whether what it has copied may have been
 * overwritten.
 *
 * Each tracer holds a shared flock on the fabric file. When a tracer leaves and gets the exclusive
 * lock, it was the last one, and turns tracing off. So a tracer that is killed does not count. */
#include "simnic/run/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "simnic/run/decode.h"
#include "simnic/run/words.h"

#define BODY_MAX_BYTES 2048u /* a WQE has 1024 */
#define NAP_NS 1000000u
/* A record is printed when it is so old that the records of other processes from before it are in
 * their rings, too. */
#define SETTLE_NS 1000000u
#define REMEMBERED 256u

struct record {
    uint64_t time_ns;
    uint32_t kind, number, count;
    uint8_t bytes[BODY_MAX_BYTES];
};

/* A slot's ring, as this tracer reads it. */
struct source {
    struct fabric_trace *trace;
    struct ctl_process process;
    uint64_t cursor, end; /* of what is to be read in this round */
    uint64_t lost_before; /* the writer's count when we came */
    uint64_t skipped;     /* times that something made no sense or was overwritten */
    bool full;            /* `next` is one */
    struct record next;
    struct {
        uint32_t number;
        uint8_t value;
    } type_of[REMEMBERED]; /* of QPs */
    struct {
        uint32_t number, value;
    } title_of[REMEMBERED]; /* the QP of a CQ's last whole CQE, which compressed ones belong to */
};

struct tracer {
    struct ctl_session session;
    const struct ctl_options *options;
    uint64_t start_ns, now_ns;
    struct source sources[FABRIC_SLOTS];
    struct source *open[FABRIC_SLOTS];
    uint32_t open_count;
};

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* the NICs' clock */
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void copy(const struct fabric_trace *trace, uint64_t at, void *to, uint32_t count)
{
    uint32_t start = (uint32_t)(at % FABRIC_TRACE_BYTES);
    uint32_t until_end = FABRIC_TRACE_BYTES - start < count ? FABRIC_TRACE_BYTES - start : count;
    memcpy(to, trace->bytes + start, until_end);
    memcpy((uint8_t *)to + until_end, trace->bytes, count - until_end);
}

/* Gives the room of what has been read back to the writer, unless another tracer has done so. */
static void release(struct fabric_trace *trace, uint64_t cursor)
{
    uint64_t tail = atomic_load_explicit(&trace->tail, memory_order_relaxed);
    while ((int64_t)(cursor - tail) > 0 &&
           !atomic_compare_exchange_weak_explicit(&trace->tail, &tail, cursor, memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

/* No tracer writes a tail ahead of the head. If it is there anyway, it would stop the writer for
 * good. */
static void mend_tail(struct fabric_trace *trace, uint64_t head)
{
    uint64_t tail = atomic_load_explicit(&trace->tail, memory_order_relaxed);
    if (head - tail > FABRIC_TRACE_BYTES) {
        atomic_store_explicit(&trace->tail, head, memory_order_release);
    }
}

/* What is between here and the end makes no sense. */
static void skip_all(struct source *source)
{
    source->skipped++;
    source->cursor = source->end;
    mend_tail(source->trace, source->end);
    release(source->trace, source->end);
}

/* Returns the record's size in the ring if it is sound, or 0. */
static uint32_t copy_record(struct source *source, struct record *record)
{
    struct fabric_trace_record header;
    uint64_t available = source->end - source->cursor;
    if (available < sizeof(header) || available > FABRIC_TRACE_BYTES) {
        return 0;
    }
    copy(source->trace, source->cursor, &header, sizeof(header));
    record->time_ns = header.time_ns;
    record->kind = header.kind;
    record->number = header.number;
    record->count = header.count;
    if (record->kind > FABRIC_TRACE_CQE || record->count > BODY_MAX_BYTES) {
        return 0;
    }
    uint32_t size = (uint32_t)sizeof(header) + ((record->count + 7) & ~7u);
    if (size > available) {
        return 0;
    }
    copy(source->trace, source->cursor + sizeof(header), record->bytes, record->count);
    return size;
}

/* Whether what has just been copied may have been overwritten meanwhile: another tracer has given
 * its room back, and the writer, which may be in the middle of a record, has come that far. */
static bool overwritten(const struct source *source)
{
    atomic_thread_fence(memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&source->trace->tail, memory_order_acquire);
    uint64_t head = atomic_load_explicit(&source->trace->head, memory_order_acquire);
    return (int64_t)(tail - source->cursor) > 0 &&
           head + sizeof(struct fabric_trace_record) + BODY_MAX_BYTES - source->cursor >
               FABRIC_TRACE_BYTES;
}

/* Makes source->next the next record, if there is one. */
static void advance(const struct tracer *tracer, struct source *source)
{
    source->full = false;
    if (source->cursor == source->end) {
        return;
    }
    uint32_t size = copy_record(source, &source->next);
    if (size == 0 || overwritten(source)) {
        skip_all(source);
        return;
    }
    source->cursor += size;
    release(source->trace, source->cursor);
    source->full = true;
    if (source->next.time_ns > tracer->now_ns) {
        source->next.time_ns = tracer->now_ns;
    }
    if (source->next.time_ns < tracer->start_ns) {
        source->next.time_ns = tracer->start_ns;
    }
}

/* ---- Printing -------------------------------------------------------------------------------- */

static uint8_t look_up_type(const struct tracer *tracer, uint32_t slot, uint32_t qpn)
{
    static struct fabric_process_statistics statistics;
    uint8_t type = 0;
    if (!ctl_statistics(&tracer->session, slot, &statistics)) {
        return 0;
    }
    for (uint32_t i = 0; i < FABRIC_STATISTICS_ENTRIES; i++) {
        const struct fabric_queue_pair_statistics *qp = &statistics.queue_pairs[i];
        if (qp->qpn == qpn && (!qp->destroyed || !type)) {
            type = qp->type;
        }
    }
    return type;
}

static uint8_t type_of(const struct tracer *tracer, struct source *source, uint32_t qpn)
{
    uint32_t place = qpn % REMEMBERED;
    if (source->type_of[place].number != qpn) {
        source->type_of[place].number = qpn;
        source->type_of[place].value = look_up_type(tracer, source->process.slot, qpn);
    }
    return source->type_of[place].value;
}

/* Returns the number of the QP that a record is about. */
static uint32_t qpn_of(struct source *source, const struct record *record)
{
    if (record->kind == FABRIC_TRACE_WQE) {
        return record->number;
    }
    uint32_t place = record->number % REMEMBERED;
    uint32_t qpn = decode_cqe_qpn(record->bytes, record->count);
    if (qpn != UINT32_MAX) {
        source->title_of[place].number = record->number;
        source->title_of[place].value = qpn;
    } else if (source->title_of[place].number == record->number) {
        qpn = source->title_of[place].value;
    }
    return qpn;
}

static void print_record(const struct tracer *tracer, struct source *source)
{
    const struct record *record = &source->next;
    uint64_t since = record->time_ns - tracer->start_ns;
    uint32_t qpn = qpn_of(source, record);
    if (tracer->options->one_queue_pair && qpn != tracer->options->qpn) {
        return;
    }
    uint8_t type = type_of(tracer, source, qpn);
    printf("%4llu.%09llu %u %s %s 0x%06x", (unsigned long long)(since / 1000000000),
           (unsigned long long)(since % 1000000000), source->process.pid, source->process.name,
           record->kind == FABRIC_TRACE_WQE ? "WQE qp" : "CQE cq", record->number);
    if (record->kind == FABRIC_TRACE_WQE) {
        decode_wqe(stdout, qpn, type, record->bytes, record->count);
    } else {
        decode_cqe(stdout, type, record->bytes, record->count);
    }
    putchar('\n');
    if (tracer->options->raw) {
        decode_raw(stdout, record->bytes, record->count);
    }
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Tracing begins where the rings are now. This uses pread, since rings of processes that do not
 * trace have no memory yet. */
static void note_heads(struct tracer *tracer)
{
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        struct source *source = &tracer->sources[slot];
        const off_t at =
            (off_t)(offsetof(struct fabric_file, trace) + slot * sizeof(struct fabric_trace) +
                    offsetof(struct fabric_trace, head));
        if (pread(tracer->session.fd, &source->cursor, sizeof(source->cursor), at) !=
            (ssize_t)sizeof(source->cursor)) {
            source->cursor = 0;
        }
        source->end = source->cursor;
    }
}

/* Gives the ring its memory. If /dev/shm were full, the first access to the ring would raise
 * SIGBUS, here or in the program that is traced. */
static int open_source(struct tracer *tracer, struct source *source, uint32_t slot)
{
    off_t at = (off_t)(offsetof(struct fabric_file, trace) + slot * sizeof(struct fabric_trace));
    int error = posix_fallocate(tracer->session.fd, at, sizeof(struct fabric_trace));
    if (error) {
        complain("ctl: trace: no room for what slot %u records: %s", slot, strerror(error));
        return EXIT_TROUBLE;
    }
    source->trace = &tracer->session.fabric.file->trace[slot];
    source->lost_before = atomic_load_explicit(&source->trace->lost, memory_order_relaxed);
    mend_tail(source->trace, source->cursor);
    release(source->trace, source->cursor);
    tracer->open[tracer->open_count++] = source;
    return 0;
}

/* Looks at every slot: who has it, and what is new. Returns 0 or the exit status. */
static int look_around(struct tracer *tracer)
{
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        struct source *source = &tracer->sources[slot];
        uint32_t generation = atomic_load_explicit(
            &tracer->session.fabric.file->slots[slot].generation, memory_order_acquire);
        if (generation == 0) {
            continue;
        }
        int status = source->trace ? 0 : open_source(tracer, source, slot);
        if (status) {
            return status;
        }
        if (generation != source->process.generation) {
            ctl_look(&tracer->session, slot, &source->process);
            memset(source->type_of, 0, sizeof(source->type_of));
        }
        source->end = atomic_load_explicit(&source->trace->head, memory_order_acquire);
        if (!source->full) {
            advance(tracer, source);
        }
    }
    return 0;
}

/* Prints what there is up to a time, oldest first. Returns whether there was anything. */
static bool print_until(struct tracer *tracer, uint64_t horizon_ns)
{
    bool any = false;
    for (;;) {
        struct source *oldest = NULL;
        for (uint32_t i = 0; i < tracer->open_count; i++) {
            struct source *source = tracer->open[i];
            if (source->full && source->next.time_ns <= horizon_ns &&
                (!oldest || source->next.time_ns < oldest->next.time_ns)) {
                oldest = source;
            }
        }
        if (!oldest) {
            return any;
        }
        print_record(tracer, oldest);
        advance(tracer, oldest);
        any = true;
    }
}

static bool session_is_gone(const struct tracer *tracer)
{
    struct stat status;
    return fstat(tracer->session.fd, &status) != 0 || status.st_nlink == 0;
}

static int follow(struct tracer *tracer)
{
    uint64_t end_ns = UINT64_MAX;
    int status = 0;
    if (tracer->options->seconds > 0) {
        end_ns = tracer->start_ns + (uint64_t)(tracer->options->seconds * 1e9);
    }
    while (!status) {
        tracer->now_ns = now();
        bool last = stopped || tracer->now_ns >= end_ns || session_is_gone(tracer);
        status = look_around(tracer);
        if (status) {
            break;
        }
        bool any = print_until(tracer, last ? UINT64_MAX : tracer->now_ns - SETTLE_NS);
        if (any) {
            status = ctl_flush();
        }
        if (last) {
            break;
        }
        if (!any) {
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        }
    }
    return status;
}

/* ---- Begin and end --------------------------------------------------------------------------- */

static void tell_losses(const struct tracer *tracer)
{
    for (uint32_t i = 0; i < tracer->open_count; i++) {
        const struct source *source = tracer->open[i];
        uint64_t lost = atomic_load_explicit(&source->trace->lost, memory_order_relaxed);
        if (lost != source->lost_before) {
            complain("ctl: trace: slot %u (%s): %llu records were lost, since there was no room",
                     source->process.slot, source->process.name,
                     (unsigned long long)(lost - source->lost_before));
        }
        if (source->skipped) {
            complain("ctl: trace: slot %u (%s): skipped what was overwritten, or made no sense",
                     source->process.slot, source->process.name);
        }
    }
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    action.sa_handler = SIG_IGN; /* writing fails then, and tracing is turned off */
    sigaction(SIGPIPE, &action, NULL);
}

static int turn_on(const struct tracer *tracer)
{
    int result;
    do {
        result = flock(tracer->session.fd, LOCK_SH);
    } while (result != 0 && errno == EINTR && !stopped);
    if (result != 0) {
        complain("ctl: trace: cannot lock the session: %s", strerror(errno));
        return EXIT_TROUBLE;
    }
    atomic_store(&tracer->session.fabric.file->tracing, 1);
    return 0;
}

static void turn_off(const struct tracer *tracer)
{
    /* A tracer that comes now waits for the lock, and then turns tracing on again. */
    if (flock(tracer->session.fd, LOCK_EX | LOCK_NB) == 0) {
        atomic_store(&tracer->session.fabric.file->tracing, 0);
    }
    flock(tracer->session.fd, LOCK_UN);
}

int ctl_trace(const struct ctl_options *options)
{
    static struct tracer tracer; /* too large for the stack */
    tracer.options = options;
    int status = ctl_open(&tracer.session, options);
    if (status) {
        return status;
    }
    catch_signals();
    tracer.start_ns = tracer.now_ns = now();
    note_heads(&tracer);
    status = look_around(&tracer);
    if (!status) {
        status = turn_on(&tracer);
    }
    if (!status) {
        status = follow(&tracer);
        turn_off(&tracer);
    }
    tell_losses(&tracer);
    ctl_close(&tracer.session);
    return status;
}
