/* wire.c: packets that take a while: a rail's latency (fault `rail0=latency:US`), and delays by chance (`delay=P:US`). Each sender keeps
 * what it has sent until that is due. A rail's packets keep their order; those that are late by chance are overtaken by all others. */
#include "simnic/fabric/fabric.h"

#include <stdlib.h>
#include <string.h>

#define DELAYED_COUNT 256u
#define RAIL_COUNT_MAX 1024u
#define RAIL_PAYLOAD_MAX                                                                           \
    768u /* the rest is for what has no payload, which does not wait for its port */
#define LOOK_AGAIN_NS 200000u /* at a packet whose ring had no room */

static uint32_t places(uint32_t which)
{
    return which == FABRIC_DELAYED ? DELAYED_COUNT : RAIL_COUNT_MAX;
}

static struct fabric_delayed *at(const struct fabric *fabric, uint32_t which, uint32_t position)
{
    return &fabric->wires[which].packets[position % places(which)];
}

static uint32_t used(const struct fabric *fabric, uint32_t which)
{
    return fabric->wires[which].head - fabric->wires[which].tail;
}

void fabric_wire_put(struct fabric *fabric, uint32_t which, uint32_t slot,
                     const struct packet *packet, uint64_t due_ns)
{
    struct fabric_wire *wire = &fabric->wires[which];
    if (!wire->packets) {
        wire->packets = calloc(places(which), sizeof(*wire->packets));
    }
    if (!wire->packets || used(fabric, which) == places(which)) {
        return;
    }
    struct fabric_delayed *d = at(fabric, which, wire->head++);
    d->due_ns = due_ns;
    d->slot = slot;
    d->gone = false;
    d->packet = *packet;
    memcpy(d->payload, fabric->scratch.payload, packet->payload_bytes);
    fabric->on_wires++;
}

bool fabric_wire_used(const struct fabric *fabric, uint32_t rail)
{
    return rail < FABRIC_RAILS && (fabric->fault.rail_latency_us[rail] || used(fabric, rail));
}

bool fabric_wire_has_room(const struct fabric *fabric, uint32_t rail)
{
    return rail >= FABRIC_RAILS || used(fabric, rail) < RAIL_PAYLOAD_MAX;
}

uint64_t fabric_wire_due_ns(const struct fabric *fabric, uint32_t which)
{
    if (used(fabric, which) == 0) {
        return UINT64_MAX;
    }
    uint64_t due_ns = at(fabric, which, fabric->wires[which].tail)->due_ns;
    /* What should have left waits for room in its ring. */
    return due_ns > fabric->now_ns ? due_ns : fabric->now_ns + LOOK_AGAIN_NS;
}

/* Whether the packet is off the wire: sent, or lost, and not waiting for room. */
static bool leave(struct fabric *fabric, uint32_t which, const struct fabric_delayed *d)
{
    return !fabric_owned(fabric, d->slot) ||
           fabric_transmit(fabric, d->slot, &d->packet, d->payload) || which == FABRIC_DELAYED;
}

/* Sends what is due by then. A ring without room holds up what goes to it, and nothing else. */
static void run(struct fabric *fabric, uint32_t which, uint64_t until_ns)
{
    struct fabric_wire *wire = &fabric->wires[which];
    uint64_t full_slots = 0;
    for (uint32_t position = wire->tail; position != wire->head; position++) {
        struct fabric_delayed *d = at(fabric, which, position);
        uint64_t slot = 1ull << d->slot;
        if (d->due_ns > until_ns) {
            break;
        }
        if (!d->gone && !(full_slots & slot)) {
            d->gone = leave(fabric, which, d);
            full_slots |= d->gone ? 0 : slot;
        }
    }
    while (wire->tail != wire->head && at(fabric, which, wire->tail)->gone) {
        wire->tail++;
        fabric->on_wires--;
    }
}

void fabric_wire_end(struct fabric *fabric)
{
    for (uint32_t which = 0; fabric->on_wires && which < FABRIC_RAILS; which++) {
        run(fabric, which, UINT64_MAX);
    }
}

void fabric_tick(struct fabric *fabric, uint64_t now_ns)
{
    fabric->now_ns = now_ns;
    for (uint32_t which = 0; fabric->on_wires && which < FABRIC_WIRES; which++) {
        run(fabric, which, now_ns);
    }
}

uint64_t fabric_next_delayed_ns(const struct fabric *fabric)
{
    uint64_t next_ns = UINT64_MAX;
    for (uint32_t which = 0; fabric->on_wires && which < FABRIC_WIRES; which++) {
        uint64_t due_ns = fabric_wire_due_ns(fabric, which);
        next_ns = due_ns < next_ns ? due_ns : next_ns;
    }
    return next_ns;
}
