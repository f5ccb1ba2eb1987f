/* station.c: see station.h. */
#include "station.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

#define PART_BYTES 1024u
#define SEED 0x2545f4914f6cdd1du

struct nic_options station_options(void)
{
    return (struct nic_options){.receive_depth = 512,
                                .send_depth = 63,
                                .send_completion_depth = 1024,
                                .signal_interval = 16};
}

/* ---- Opening --------------------------------------------------------------------------------- */

static bool open_nic(const struct subject *subject, uint32_t which,
                     const struct station_setup *setup, struct nic **nic, struct outcome *outcome)
{
    struct nic_options options = setup->options;
    uint32_t driver = setup->driver;
    crpc_error error = {.struct_size = sizeof(error)};
    const char *device = subject->device[which < subject->devices ? which : 0];
    snprintf(options.device, sizeof(options.device), "%s", device);
    if (driver == 0) { /* by name, which leaves nothing out that an earlier run found to fail */
        driver = subject->direct ? CRPC_DRIVER_MLX5 : CRPC_DRIVER_VERBS;
    }
    int32_t status = nic_open(driver, &options, nic, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

static uint8_t *map(void)
{
    void *memory = mmap(NULL, STATION_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool enroll(struct nic *nic, uint8_t *memory, struct nic_keys *keys, struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |
                      (nic->atomics ? CRPC_ACCESS_REMOTE_ATOMIC : 0) |
                      (nic->windows ? NIC_ACCESS_WINDOWS : 0);
    if (!memory) {
        return fails(outcome, "no memory");
    }
    int32_t status =
        nic->operations->memory_register(nic, NULL, memory, STATION_BYTES, 0, access, keys, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

static bool connect_to(const struct station *station, struct nic_queue_pair *one,
                       const struct nic_queue_pair *other, struct outcome *outcome)
{
    struct nic_address address;
    crpc_error error = {.struct_size = sizeof(error)};
    other->operations->queue_pair_address(other, &address);
    if (station->mtu_code) {
        address.mtu_code = station->mtu_code;
    }
    if (address.link != one->nic->link) {
        return not_here(outcome, "%s and %s have different links", one->nic->device,
                        other->nic->device);
    }
    int32_t status =
        one->operations->queue_pair_connect(one, &address, &station->transport, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

bool station_connect(const struct station *station, struct nic_queue_pair *one,
                     struct nic_queue_pair *other, struct outcome *outcome)
{
    return connect_to(station, one, other, outcome) && connect_to(station, other, one, outcome);
}

static void destroy_pair(struct station *station)
{
    if (station->sender) {
        station->sender->operations->queue_pair_destroy(station->sender);
    }
    if (station->receiver) {
        station->receiver->operations->queue_pair_destroy(station->receiver);
    }
    station->sender = station->receiver = NULL;
}

/* How many messages may be open, where each queue pair has receives of its own. */
static uint32_t receives_of(const struct nic *nic)
{
    const uint32_t share = nic->receive_depth / 4;
    return share < 64 ? share : 64;
}

bool station_reconnect(struct station *station, struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    destroy_pair(station);
    station->sent_errors = station->received_errors = 0;
    if (nic_queue_pair_create(station->near, NULL, NULL, 0, &station->sender, &error) != CRPC_OK ||
        nic_queue_pair_create(station->far, NULL, NULL, receives_of(station->far),
                              &station->receiver, &error) != CRPC_OK) {
        return refused(outcome, error.status, error.message);
    }
    return station_connect(station, station->sender, station->receiver, outcome);
}

bool station_make_peer(struct station *station, struct nic_queue_pair *other,
                       struct nic_queue_pair **peer, struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    if (nic_queue_pair_create(station->far, NULL, NULL, receives_of(station->far), peer, &error) !=
        CRPC_OK) {
        return refused(outcome, error.status, error.message);
    }
    return station_connect(station, other, *peer, outcome);
}

bool station_open(struct station *station, const struct subject *subject,
                  const struct station_setup *setup, struct outcome *outcome)
{
    const struct station_setup usual = {.options = station_options()};
    *station = (struct station){
        .subject = subject,
        .random = SEED,
        .transport = {.retry_timeout = 14, .retry_count = 7, .atomics = true},
    };
    setup = setup ? setup : &usual;
    station->memory_borrowed = setup->memory_of != NULL;
    station->source = setup->memory_of ? setup->memory_of->source : map();
    station->sink = setup->memory_of ? setup->memory_of->sink : map();
    if (!open_nic(subject, 0, setup, &station->near, outcome)) {
        return false;
    }
    struct station_setup far = *setup;
    if (station->near->link == CRPC_LINK_INFINIBAND) { /* the first of its table may be another */
        far.options.network.partition_key = station->near->network.partition_key & 0x7fffu;
    }
    if (!open_nic(subject, 1, &far, &station->far, outcome) ||
        !enroll(station->near, station->source, &station->source_keys, outcome) ||
        !enroll(station->far, station->sink, &station->sink_keys, outcome)) {
        return false;
    }
    station->near->operations->refill(station->near);
    station->far->operations->refill(station->far);
    if (!station->memory_borrowed) {
        station_fill(station, station->source, STATION_BYTES);
    }
    return station_reconnect(station, outcome);
}

static void close_side(struct nic *nic, struct nic_keys *keys, uint8_t *memory)
{
    if (nic) {
        nic->operations->memory_deregister(nic, keys);
        nic->operations->close(nic);
    }
    if (memory) {
        munmap(memory, STATION_BYTES);
    }
}

void station_close(struct station *station)
{
    destroy_pair(station);
    const bool own = !station->memory_borrowed;
    close_side(station->near, &station->source_keys, own ? station->source : NULL);
    close_side(station->far, &station->sink_keys, own ? station->sink : NULL);
}

/* ---- Data ------------------------------------------------------------------------------------ */

uint32_t station_pick(struct station *station, uint32_t below)
{
    station->random = station->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((station->random >> 32) * below >> 32);
}

void station_fill(struct station *station, uint8_t *memory, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        memory[i] = (uint8_t)station_pick(station, 256);
    }
}

struct nic_transfer station_transfer(const struct station *station, uint32_t from, uint32_t to,
                                     uint32_t bytes, uint32_t immediate)
{
    return (struct nic_transfer){
        .local_address = (uint64_t)(uintptr_t)station->source + from,
        .remote_address = (uint64_t)(uintptr_t)station->sink + to,
        .bytes = bytes,
        .local_key = station->source_keys.local_key,
        .remote_key = station->sink_keys.remote_key,
        .immediate = immediate,
    };
}

/* From the end, which comes last, and fast: what was not there a moment ago may be there soon. */
bool station_same(const struct station *station, uint32_t from, uint32_t to, uint32_t bytes,
                  const char *what, struct outcome *outcome)
{
    const uint8_t *sent = station->source + from, *came = station->sink + to;
    uint32_t end = bytes;
    while (end > 0) {
        const uint32_t part = end < PART_BYTES ? end : PART_BYTES;
        uint8_t copy[PART_BYTES];
        memcpy(copy, came + end - part, part);
        if (memcmp(copy, sent + end - part, part) != 0) {
            uint32_t at = 0;
            while (copy[at] == sent[end - part + at]) {
                at++;
            }
            return fails(outcome, "%s: byte %u of %u was 0x%02x, not 0x%02x", what, end - part + at,
                         bytes, copy[at], sent[end - part + at]);
        }
        end -= part;
    }
    return true;
}

/* ---- Polling --------------------------------------------------------------------------------- */

static void note_error(const struct nic_completion *completion, uint32_t *errors,
                       struct nic_completion *first)
{
    if ((*errors)++ == 0) {
        *first = *completion;
    }
}

void station_poll(struct station *station)
{
    struct nic_completion completions[64];
    uint32_t count = station->near->operations->poll(station->near, completions, 64);
    for (uint32_t i = 0; i < count; i++) {
        if (completions[i].kind == NIC_COMPLETION_ERROR) {
            note_error(&completions[i], &station->sent_errors, &station->sent_error);
        }
    }
    count = station->far->operations->poll(station->far, completions, 64);
    for (uint32_t i = 0; i < count; i++) {
        if (completions[i].kind == NIC_COMPLETION_RECEIVE) {
            station->arrivals[station->arrived++ % STATION_ARRIVALS] = completions[i];
        } else if (completions[i].kind == NIC_COMPLETION_ERROR) {
            note_error(&completions[i], &station->received_errors, &station->received_error);
        }
    }
    if (!station->keep_receives_used &&
        station->far->receives_posted <= nic_receive_low_mark(station->far)) {
        station->far->operations->refill(station->far);
    }
}

const struct nic_completion *station_arrival(const struct station *station, uint32_t which)
{
    return &station->arrivals[which % STATION_ARRIVALS];
}

const char *station_error_name(uint8_t status)
{
    static const char *const names[] = {[NIC_ERROR_NONE] = "none",
                                        [NIC_ERROR_FLUSHED] = "flushed",
                                        [NIC_ERROR_RETRY] = "retries exceeded",
                                        [NIC_ERROR_RNR] = "receiver not ready",
                                        [NIC_ERROR_REMOTE_ACCESS] = "remote access",
                                        [NIC_ERROR_LOCAL] = "local",
                                        [NIC_ERROR_OTHER] = "other"};
    return status < sizeof(names) / sizeof(names[0]) && names[status] ? names[status] : "unknown";
}

static bool blame_error(const char *side, const struct nic_completion *error,
                        struct outcome *outcome)
{
    return fails(outcome, "the %s has failed: %s error, vendor syndrome 0x%x", side,
                 station_error_name(error->status), error->vendor_syndrome);
}

/* Whether to go on waiting. Sets *outcome if not. */
static bool may_wait(struct station *station, uint64_t start_ns, struct outcome *outcome)
{
    if (station->sent_errors > 0) {
        return blame_error("sender", &station->sent_error, outcome);
    }
    if (station->received_errors > 0) {
        return blame_error("receiver", &station->received_error, outcome);
    }
    return clock_now_ns() - start_ns < station->subject->patience_ms * 1000000ull ||
           fails(outcome, "late"); /* the caller says what */
}

bool station_wait_sent(struct station *station, struct outcome *outcome)
{
    const struct nic_queue_pair *sender = station->sender;
    uint64_t start_ns = clock_now_ns();
    outcome->seen[0] = '\0';
    station_poll(station);
    while (sender->completed != sender->posted || station->sent_errors > 0) {
        if (!may_wait(station, start_ns, outcome)) {
            return strcmp(outcome->seen, "late") != 0
                       ? false
                       : fails(outcome, "%u of %u WQEs have not completed within %u ms",
                               sender->posted - sender->completed, sender->posted,
                               station->subject->patience_ms);
        }
        station_poll(station);
    }
    return true;
}

bool station_wait_arrived(struct station *station, uint32_t count, struct outcome *outcome)
{
    uint64_t start_ns = clock_now_ns();
    outcome->seen[0] = '\0';
    station_poll(station);
    while ((int32_t)(station->arrived - count) < 0) {
        if (!may_wait(station, start_ns, outcome)) {
            return strcmp(outcome->seen, "late") != 0
                       ? false
                       : fails(outcome, "only %u of %u messages have come within %u ms",
                               station->arrived, count, station->subject->patience_ms);
        }
        station_poll(station);
    }
    return true;
}

bool station_wait_sent_error(struct station *station, struct outcome *outcome)
{
    uint64_t start_ns = clock_now_ns();
    station_poll(station);
    while (station->sent_errors == 0) {
        if (clock_now_ns() - start_ns > station->subject->patience_ms * 1000000ull) {
            return fails(outcome, "no error within %u ms: %u of %u WQEs have completed",
                         station->subject->patience_ms, station->sender->completed,
                         station->sender->posted);
        }
        station_poll(station);
    }
    return true;
}

void station_pass(struct station *station, uint32_t milliseconds)
{
    uint64_t start_ns = clock_now_ns();
    do {
        station_poll(station);
    } while (clock_now_ns() - start_ns < milliseconds * 1000000ull);
}
