/* fabric.h: packets between processes. A process attaches to the session's fabric, gets a slot,
 * sends packets to slots, and receives those sent to its own. Packets from one slot to another keep
 * their order, unless a fault changes it.
 *
 * Threads: one thread at a time uses a fabric (the shim's lock), except for fabric_wake and
 * fabric_slot_alive. */
#ifndef SIMNIC_FABRIC_FABRIC_H
#define SIMNIC_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "simnic/fabric/layout.h"
#include "simnic/fabric/packet.h"
#include "simnic/fabric/quirk.h"

#define FABRIC_PAYLOAD_MAX_BYTES 4160 /* an MTU and a GRH */

/* A packet that is not in a ring yet. */
struct fabric_delayed {
    uint64_t due_ns;
    uint32_t slot; /* where it goes */
    bool gone;     /* it has left before those in front of it */
    struct packet packet;
    uint8_t payload[FABRIC_PAYLOAD_MAX_BYTES];
};

/* Packets on their way, in the order in which they come: wire.c. */
struct fabric_wire {
    struct fabric_delayed *packets; /* a ring, made when first needed */
    uint32_t head, tail;
};
#define FABRIC_DELAYED FABRIC_RAILS /* the wire of packets that are late by chance */
#define FABRIC_WIRES (FABRIC_RAILS + 1)

struct fabric {
    struct fabric_file *file;
    uint32_t slot;
    uint32_t link;               /* the session's: LINK_ */
    uint32_t dead[FABRIC_SLOTS]; /* generation of a slot's owner that was found dead */
    uint64_t to_wake; /* bit s: slot s got packets that should wake it; see fabric_take_wakes */
    uint64_t now_ns;  /* as the last fabric_tick said */
    uint32_t fault_generation;
    bool faulty;                       /* anything of `fault` can happen to a packet */
    bool limited;                      /* a port has a rate, or a latency */
    struct fabric_fault fault;         /* a copy */
    struct fault_dice dice, late_dice; /* for packets, and for where their data land */
    struct fabric_wire wires[FABRIC_WIRES];
    uint32_t on_wires;                     /* packets on all of them */
    uint64_t ring_head[FABRIC_SLOTS];      /* our own copies of indices */
    uint64_t ring_tail_seen[FABRIC_SLOTS]; /* how far the reader was when last looked */
    uint64_t reader_tail[FABRIC_SLOTS];
    uint64_t to_answer; /* bit s: slot s has sent what is read and not answered yet */
    uint32_t full_slot; /* to which the last reservation that failed was, or FABRIC_SLOTS + the rail
                           whose port was not ready */
    struct fabric_delayed scratch; /* where a packet is written whose fate fabric_commit decides */
};

/* Attaches to the fabric file at `path`. Returns 0, or -errno: -EUSERS if all slots are taken,
 * -EPROTO if the file is of another version. */
int fabric_attach(struct fabric *fabric, const char *path);
void fabric_detach(struct fabric *fabric);

/* Gives the slot back and keeps the mapping, for a process that is ending. */
void fabric_leave(struct fabric *fabric);

/* The process that has this slot, living or not; 0: none. */
uint32_t fabric_pid(const struct fabric *fabric, uint32_t slot);

/* Returns whether a living process has this slot. Looks at /proc: not for the data path. */
bool fabric_slot_alive(struct fabric *fabric, uint32_t slot);

/* Reserves room for a packet to a slot, with packet->payload_bytes of payload. Returns where the
 * payload goes, or NULL if there is no room now, or its rail's port has sent all that its rate allows. fabric_commit sends the packet. The caller need
 * not: the next reservation takes the place of this one. */
uint8_t *fabric_reserve(struct fabric *fabric, uint32_t slot, const struct packet *packet);
void fabric_commit(struct fabric *fabric, uint32_t slot, const struct packet *packet);

/* Returns the slots to which packets with PACKET_WAKE were sent since the last call. fabric_wake
 * wakes those of them that sleep. Call both after a series of commits, and fabric_wake without the
 * lock, as whoever is woken may run at once. */
uint64_t fabric_take_wakes(struct fabric *fabric);
void fabric_wake(const struct fabric *fabric, uint64_t slots);
#define FABRIC_NO_WAKER UINT32_MAX
/* Returns the processor on which another process ran as it woke this one, or FABRIC_NO_WAKER if
 * none has since the last call. A hint: the other process wrote it. */
uint32_t fabric_take_waker(struct fabric *fabric);

/* Where a series of receives is in its round of slots. */
struct fabric_cursor {
    uint64_t slots; /* still to look at */
    uint32_t slot;
    uint64_t next_tail;
};
void fabric_receive_start(struct fabric *fabric, struct fabric_cursor *cursor);
/* Gives the next packet: a copy of its header, and its payload, which stays valid until
 * fabric_consume. Returns false if there is none. */
bool fabric_receive(struct fabric *fabric, struct fabric_cursor *cursor, struct packet *packet,
                    const uint8_t **payload);
void fabric_consume(struct fabric *fabric, struct fabric_cursor *cursor);

/* Ends a series before fabric_receive has returned false. What is left comes in the next series. */
void fabric_receive_stop(struct fabric *fabric, struct fabric_cursor *cursor);

/* What was received is answered, as far as it can be now: whoever waits for it from now on waits for what was lost. */
void fabric_answered(struct fabric *fabric);

/* Returns whether a living process has not yet read and answered something that was sent to its slot. Looks at
 * /proc. */
bool fabric_unread(struct fabric *fabric, uint32_t slot);

/* How much the process of a slot, or its predecessors, have written into the ring to this process. */
uint64_t fabric_written(const struct fabric *fabric, uint32_t slot);

/* Returns whether all of that up to `end` was received. If not, the next series of receives looks at that
 * ring, even if its writer died before it could tell of what it wrote. */
bool fabric_has_read(struct fabric *fabric, uint32_t slot, uint64_t end);

/* Sets the time, and sends packets on their way that are due. */
void fabric_tick(struct fabric *fabric, uint64_t now_ns);

/* Returns when the next of them is due, or UINT64_MAX. */
uint64_t fabric_next_delayed_ns(const struct fabric *fabric);

/* ---- wire.c: packets that take a while (faults `delay=P:US` and `rail0=latency:US`) ---- */
/* The packet to a slot, whose payload is in `scratch`, comes then, behind those that are on the wire already. If there is no room it
 * is lost, as on a wire. */
void fabric_wire_put(struct fabric *fabric, uint32_t which, uint32_t slot,
                     const struct packet *packet, uint64_t due_ns);
/* Whether a packet that leaves by this rail goes by its wire, and not at once. */
bool fabric_wire_used(const struct fabric *fabric, uint32_t rail);
/* Whether the wire takes more packets with payload. */
bool fabric_wire_has_room(const struct fabric *fabric, uint32_t rail);
/* When there is something to do about the first packet of a wire; UINT64_MAX: there is none. */
uint64_t fabric_wire_due_ns(const struct fabric *fabric, uint32_t which);
/* The sender ends: what it has sent comes now. */
void fabric_wire_end(struct fabric *fabric);
/* fabric.c, for wire.c: puts a packet with its payload into its ring; returns false if there is no room. */
bool fabric_transmit(struct fabric *fabric, uint32_t slot, const struct packet *packet,
                     const uint8_t *payload);
/* Whether a process has the slot, as far as is known. */
bool fabric_owned(const struct fabric *fabric, uint32_t slot);

/* Takes note of a new fault specification. Returns whether there was one. */
bool fabric_faults_changed(struct fabric *fabric);

/* Returns the rails whose devices are unplugged, a bit for each, in the session whose fabric file is at `path`. For processes that may
 * not have attached to it. */
uint32_t fabric_rails_unplugged(const char *path);
/* ---- port.c: the rate of a port (fault `rail0=rate:GBPS`), with all processes of the session together ---- */
/* Whether the port may send packets with payload now: its rate allows it, and so does its wire. Those without are sent at any time,
 * and counted. */
bool fabric_port_ready(const struct fabric *fabric, uint32_t rail);
/* When it is worth to look again. */
uint64_t fabric_port_due_ns(const struct fabric *fabric, uint32_t rail);
/* A packet is sent. */
void fabric_port_take(struct fabric *fabric, const struct packet *packet);
/* Count a packet at the port that it leaves by, or comes in by. */
void fabric_port_sent(struct fabric *fabric, const struct packet *packet);
void fabric_port_received(struct fabric *fabric, const struct packet *packet);
/* Counts a packet that came to a QP of another partition; and returns how many did, as ibv_query_port tells. */
void fabric_port_violated(struct fabric *fabric, uint32_t rail);
uint16_t fabric_port_violations(const struct fabric *fabric, uint32_t rail);

/* Appends a trace record, if there is room. */
void fabric_trace(struct fabric *fabric, uint32_t kind, uint32_t number, const void *bytes,
                  uint32_t count);

static inline bool fabric_rail_down(const struct fabric *fabric, int rail)
{
    return (fabric->fault.rails_down | fabric->fault.rails_unplugged) >> rail & 1;
}

/* Where it happens, the device asks this. */
static inline bool fabric_has_quirk(const struct fabric *fabric, enum quirk quirk)
{
    return fabric->fault.quirks >> quirk & 1;
}

static inline bool fabric_pending(const struct fabric *fabric)
{
    return atomic_load_explicit(&fabric->file->slots[fabric->slot].pending, memory_order_acquire) !=
           0;
}

#endif
