/* port.c: the rate of a port, and its counters. */
#include "simnic/fabric/fabric.h"

/* What a port that had nothing to send may send at once: its NIC's thread may be late by as much, beside a machine that
 * has others to run, and the rate still holds. */
#define BURST_NS 1000000u

static uint32_t rate_kbps(const struct fabric *fabric, uint32_t rail)
{
    return rail < FABRIC_RAILS ? fabric->fault.rail_kbps[rail] : 0;
}

bool fabric_port_ready(const struct fabric *fabric, uint32_t rail)
{
    if (!fabric_wire_has_room(fabric, rail)) {
        return false;
    }
    if (rate_kbps(fabric, rail) == 0) {
        return true;
    }
    uint64_t free_ns =
        atomic_load_explicit(&fabric->file->ports[rail].free_ns, memory_order_relaxed);
    return free_ns <= fabric->now_ns + BURST_NS;
}

uint64_t fabric_port_due_ns(const struct fabric *fabric, uint32_t rail)
{
    if (!fabric_wire_has_room(fabric, rail)) {
        return fabric_wire_due_ns(fabric, rail);
    }
    if (rate_kbps(fabric, rail) == 0) {
        return fabric->now_ns;
    }
    /* Then there is time for some packets, and not for one. */
    return atomic_load_explicit(&fabric->file->ports[rail].free_ns, memory_order_relaxed) -
           BURST_NS / 2;
}

void fabric_port_take(struct fabric *fabric, const struct packet *packet)
{
    uint32_t rail = packet->rail & 15, kbps = rate_kbps(fabric, rail);
    if (kbps == 0) {
        return;
    }
    _Atomic uint64_t *free_ns = &fabric->file->ports[rail].free_ns;
    uint64_t cost_ns = (packet->payload_bytes + PACKET_HEADER_BYTES) * 8000000ull / kbps;
    uint64_t before = atomic_load_explicit(free_ns, memory_order_relaxed), after;
    do {
        after = (before > fabric->now_ns ? before : fabric->now_ns) + cost_ns;
    } while (!atomic_compare_exchange_weak_explicit(free_ns, &before, after, memory_order_relaxed,
                                                    memory_order_relaxed));
}

static void add(_Atomic uint64_t *counter, uint64_t count)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + count,
                          memory_order_relaxed);
}

void fabric_port_sent(struct fabric *fabric, const struct packet *packet)
{
    uint32_t rail = packet->rail & 15;
    if (rail < FABRIC_RAILS) {
        struct fabric_traffic *traffic = &fabric->file->traffic[fabric->slot][rail];
        add(&traffic->sent_bytes, packet->payload_bytes + PACKET_HEADER_BYTES);
        add(&traffic->sent_packets, 1);
    }
}

void fabric_port_received(struct fabric *fabric, const struct packet *packet)
{
    uint32_t rail = packet->rail >> 4;
    if (rail < FABRIC_RAILS) {
        struct fabric_traffic *traffic = &fabric->file->traffic[fabric->slot][rail];
        add(&traffic->received_bytes, packet->payload_bytes + PACKET_HEADER_BYTES);
        add(&traffic->received_packets, 1);
    }
}

void fabric_port_violated(struct fabric *fabric, uint32_t rail)
{
    atomic_fetch_add_explicit(&fabric->file->ports[rail].partition_violations, 1,
                              memory_order_relaxed);
}

uint16_t fabric_port_violations(const struct fabric *fabric, uint32_t rail)
{
    uint64_t count =
        atomic_load_explicit(&fabric->file->ports[rail].partition_violations, memory_order_relaxed);
    return count < UINT16_MAX ? (uint16_t)count : UINT16_MAX;
}
