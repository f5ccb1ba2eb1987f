/* fabric.c: what the transport does: packets of each size, peers that are gone, and what peers may not do. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "station.h"

/* ---- MTU ------------------------------------------------------------------------------------- */

static bool one_size(struct station *station, uint32_t bytes, uint32_t mtu_bytes,
                     struct outcome *outcome)
{
    char what[64];
    const uint32_t arrived = station->arrived;
    const struct nic_transfer write = station_transfer(station, 0, 0, bytes, bytes);
    station_fill(station, station->source, bytes);
    station->near->operations->post_write_immediate(station->sender, &write, NIC_POST_SIGNALED);
    station->near->operations->ring_doorbell(station->sender);
    snprintf(what, sizeof(what), "a WRITE with an MTU of %u", mtu_bytes);
    if (!station_wait_arrived(station, arrived + 1, outcome) ||
        !station_wait_sent(station, outcome) ||
        !station_same(station, 0, 0, bytes, what, outcome)) {
        return false;
    }
    station_fill(station, station->sink, bytes);
    station->near->operations->post_read(station->sender, &write, NIC_POST_SIGNALED);
    station->near->operations->ring_doorbell(station->sender);
    snprintf(what, sizeof(what), "a READ with an MTU of %u", mtu_bytes);
    return station_wait_sent(station, outcome) && station_same(station, 0, 0, bytes, what, outcome);
}

/* connect.c: the path has the smaller MTU of both ports; a message is cut into packets of it. */
void check_mtu(struct station *station, struct outcome *outcome)
{
    uint32_t highest = 1;
    while (128u << highest < station->near->mtu_bytes && highest < 5) {
        highest++;
    }
    for (uint32_t code = 1; code <= highest; code++) {
        const uint32_t mtu_bytes = 128u << code;
        station->mtu_code = (uint8_t)code;
        if (!station_reconnect(station, outcome)) {
            return;
        }
        for (uint32_t packets = 1; packets <= 4; packets++) {
            for (uint32_t off = 0; off < 3; off++) {
                if (!one_size(station, packets * mtu_bytes + off - 1, mtu_bytes, outcome)) {
                    return;
                }
            }
        }
    }
    passes(outcome, "messages of 1 to 5 packets with each MTU from 256 to %u", 128u << highest);
}

/* ---- Peers that are gone --------------------------------------------------------------------- */

/* A WRITE to a peer that is gone. *took_ns: until the sender has given up. */
static bool give_up(struct station *station, uint32_t timeout, uint32_t retries, uint64_t *took_ns,
                    struct outcome *outcome)
{
    station->transport.retry_timeout = timeout;
    station->transport.retry_count = retries;
    if (!station_reconnect(station, outcome)) {
        return false;
    }
    station->receiver->operations->queue_pair_destroy(station->receiver);
    station->receiver = NULL;
    const uint64_t start_ns = clock_now_ns();
    const struct nic_transfer transfer = station_transfer(station, 0, 0, 64, 0);
    station->near->operations->post_write(station->sender, &transfer, NIC_POST_SIGNALED);
    station->near->operations->ring_doorbell(station->sender);
    if (!station_wait_sent_error(station, outcome)) {
        return false;
    }
    *took_ns = clock_now_ns() - start_ns;
    return station->sent_error.status == NIC_ERROR_RETRY ||
           fails(outcome, "a sender whose peer is gone has a %s error",
                 station_error_name(station->sent_error.status));
}

/* connect.c: who hears nothing from a peer tries again so often, and then fails. */
void check_retry(struct station *station, struct outcome *outcome)
{
    uint64_t took_ns;
    if (give_up(station, 12, 2, &took_ns, outcome)) { /* 17 ms, which some devices make longer */
        passes(outcome, "gave up after %u ms with 2 retries of at least 17 ms",
               (uint32_t)(took_ns / 1000000));
    }
}

#define TICK_NS 10000000u /* the longest of Linux: a timer of Soft-RoCE may end so much early */

/* docs/network.md: a connection is not given up before all tries have waited as long as was asked (IBTA 9.7.6.1.3: once to four
 * times that). */
void check_retry_early(struct station *station, struct outcome *outcome)
{
    const uint32_t timeout = 13, retries = 3;
    const uint64_t each_ns = 4096ull << timeout, least_ns = (retries + 1) * (each_ns - TICK_NS);
    uint64_t took_ns;
    if (!give_up(station, timeout, retries, &took_ns, outcome)) {
        return;
    }
    if (took_ns < least_ns) {
        fails(
            outcome,
            "gave up after %u ms, though it had %u tries of %u ms: is adaptive retransmission on, "
            "which tries faster?",
            (uint32_t)(took_ns / 1000000), retries + 1, (uint32_t)(each_ns / 1000000));
        return;
    }
    passes(outcome, "gave up after %u ms, having had %u tries of %u ms",
           (uint32_t)(took_ns / 1000000), retries + 1, (uint32_t)(each_ns / 1000000));
}

/* ---- What peers may not do ------------------------------------------------------------------- */

/* A WRITE that has to be refused. The memory stays as it was. */
static bool is_refused(struct station *station, const struct nic_transfer *transfer,
                       const uint8_t *memory, const char *what, struct outcome *outcome)
{
    uint8_t before[64];
    memcpy(before, memory, sizeof(before));
    station_fill(station, station->source, sizeof(before));
    station->near->operations->post_write(station->sender, transfer, NIC_POST_SIGNALED);
    station->near->operations->ring_doorbell(station->sender);
    if (!station_wait_sent_error(station, outcome)) {
        return fails_in(outcome, "%s", what);
    }
    if (station->sent_error.status != NIC_ERROR_REMOTE_ACCESS ||
        memcmp(before, memory, sizeof(before)) != 0) {
        return fails(outcome, "%s: %s error, and memory %s", what,
                     station_error_name(station->sent_error.status),
                     memcmp(before, memory, sizeof(before)) ? "has changed" : "is as it was");
    }
    return station_reconnect(station, outcome);
}

/* nic.h: a peer reaches memory by its key and within its bounds alone. */
void check_keys(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 4 : 50;
    const uint8_t *memory = station->sink;
    for (uint32_t i = 0; i < rounds; i++) {
        struct nic_transfer transfer = station_transfer(station, 0, 0, 64, 0);
        transfer.remote_key ^= 1u << station_pick(station, 8); /* another variant of the key */
        if (!is_refused(station, &transfer, memory, "another variant of a key", outcome)) {
            return;
        }
        transfer = station_transfer(station, 0, STATION_BYTES - 63, 64, 0);
        if (!is_refused(station, &transfer, memory + STATION_BYTES - 64, "a byte beyond the end",
                        outcome)) {
            return;
        }
    }
    passes(outcome, "%u wrong keys and addresses, all refused", 2 * rounds);
}

/* nic.h: "a peer reaches no memory of other protection domains than that of its connection's queue pair". */
void check_domains(struct station *station, struct outcome *outcome)
{
    static uint8_t memory[4096] __attribute__((aligned(4096)));
    struct nic *far = station->far;
    struct nic_domain *domain = NULL;
    struct nic_keys keys = {0};
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = far->operations->domain_create(far, &domain, &error);
    if (status == CRPC_OK) {
        status = far->operations->memory_register(
            far, domain, memory, sizeof(memory), 0,
            CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, &keys, &error);
    }
    if (status != CRPC_OK) {
        refused(outcome, status, error.message);
    } else {
        struct nic_transfer transfer = station_transfer(station, 0, 0, 64, 0);
        transfer.remote_address = (uint64_t)(uintptr_t)memory;
        transfer.remote_key = keys.remote_key;
        if (is_refused(station, &transfer, memory, "memory of another domain", outcome)) {
            passes(outcome, "a WRITE to memory of another domain was refused");
        }
        far->operations->memory_deregister(far, &keys);
    }
    if (domain) {
        far->operations->domain_destroy(domain);
    }
}

#define STREAM_BYTES 4096u

/* One more WRITE of a stream, with another number at its start. */
static void write_on(struct station *station)
{
    const struct nic_transfer transfer = station_transfer(station, 0, 0, STREAM_BYTES, 0);
    if (nic_send_room(station->sender) > 0 && station->sent_errors == 0) {
        ++*(volatile uint32_t *)(void *)station->source;
        station->near->operations->post_write(station->sender, &transfer, 0);
        station->near->operations->ring_doorbell(station->sender);
    }
    station_poll(station);
}

/* A stream of WRITEs, in the midst of which the receiver fails. */
static bool stop_a_stream(struct station *station, struct outcome *outcome)
{
    static uint8_t after[STREAM_BYTES];
    for (uint32_t i = 0; i < 20; i++) {
        write_on(station);
    }
    station->receiver->operations->queue_pair_fail(station->receiver);
    memset(station->sink, 0, STREAM_BYTES);
    memcpy(after, station->sink, STREAM_BYTES);
    const uint64_t start_ns = clock_now_ns();
    do {
        write_on(station);
    } while (clock_now_ns() - start_ns < 2000000ull);
    if (memcmp(after, station->sink, STREAM_BYTES) != 0) {
        return fails(outcome, "a peer wrote over a queue pair that had failed");
    }
    return station_reconnect(station, outcome);
}

/* nic.h: "a peer can write nothing more over a queue pair in the error state". */
void check_closed(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 20 : 200;
    for (uint32_t i = 0; i < rounds; i++) {
        if (!stop_a_stream(station, outcome)) {
            return;
        }
    }
    passes(outcome, "%u times, the WRITEs of a peer ended when the queue pair failed", rounds);
}
