/* fabric.h: bytes between processes. A process attaches to the session's fabric, gets a slot, sends
 * packets to slots and receives those sent to it. Packets from one slot to another keep their
 * order, unless a fault says otherwise.
 *
 * Threads: a fabric is used by one thread at a time (the device's lock), except fabric_wait, which
 * only the waiting thread calls, and fabric_wake_self. */
#ifndef SIMNIC_FABRIC_H
#define SIMNIC_FABRIC_H

#include "layout.h"
#include "packet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FABRIC_PAYLOAD_MAX_BYTES 4160 /* an MTU and a GRH */

/* Where a delayed packet is kept. */
struct fabric_delayed {
    uint64_t due_ns;
    struct packet packet;
    uint8_t payload[FABRIC_PAYLOAD_MAX_BYTES];
};

struct fabric {
    struct fabric_file *file;
    uint32_t slot;
    uint32_t dead[FABRIC_SLOTS]; /* generation of a slot's owner that was found dead */
    uint64_t to_wake; /* bit s: slot s has something new and was asked to wake; see fabric_flush */
    uint64_t now_ns;  /* as the last fabric_tick said */
    uint32_t fault_generation;
    bool faulty;               /* anything of `fault` can happen */
    struct fabric_fault fault; /* a copy */
    struct fault_dice dice;
    struct fabric_delayed *delayed; /* a ring of delayed packets, made when first needed */
    uint32_t delayed_head, delayed_tail;
    /* The packet being written by fabric_reserve, in a ring or, if it is to be lost or delayed, in
     * `scratch`. */
    struct fabric_ring *ring;
    uint64_t ring_head[FABRIC_SLOTS];      /* own copies of indices */
    uint64_t ring_tail_seen[FABRIC_SLOTS]; /* how far the reader was when last looked */
    uint64_t reader_tail[FABRIC_SLOTS];
    struct fabric_delayed scratch;
};

/* Attaches to the fabric file at `path`. Returns 0, or -errno: -EUSERS if all slots are taken,
 * -EPROTO if the file is of another version. */
int fabric_attach(struct fabric *fabric, const char *path);
void fabric_detach(struct fabric *fabric);

/* Gives the slot back and leaves the mapping, for a process that is ending. */
void fabric_leave(struct fabric *fabric);

/* The process that has this slot, living or not; 0: none. */
uint32_t fabric_pid(const struct fabric *fabric, uint32_t slot);

/* Returns whether a living process has this slot. Looks at /proc: not for the data path. */
bool fabric_slot_alive(struct fabric *fabric, uint32_t slot);

/* Reserves a packet with room for payload_bytes for the process that has `packet->destination_qpn`
 * (or, for a PACKET_CM, the slot). The packet's header must be complete. Returns where the payload
 * goes; NULL if there is no room now. Between reserve and commit or abandon no other packet may be
 * reserved. */
uint8_t *fabric_reserve(struct fabric *fabric, uint32_t slot, const struct packet *packet);
void fabric_commit(struct fabric *fabric, uint32_t slot, const struct packet *packet);
/* abandon: nothing to do, the next reservation overwrites. */

/* Returns the slots to which packets with PACKET_WAKE were sent since the last call; fabric_wake
 * wakes those of them that sleep. Call both after a series of commits, fabric_wake without the
 * lock: who is woken may run at once. */
uint64_t fabric_take_wakes(struct fabric *fabric);
void fabric_wake(const struct fabric *fabric, uint64_t slots);
#define FABRIC_NO_WAKER UINT32_MAX
/* Returns the processor on which another process ran as it woke this one, or FABRIC_NO_WAKER if none
 * has since the last call. A hint: the other process wrote it. */
uint32_t fabric_take_waker(struct fabric *fabric);

/* Gives the next packet, its header copied to *packet, and its payload, which stays valid until
 * fabric_consume. Returns false if there is none. *cursor keeps the place in the round of slots:
 * zero it before the first call of a series. */
struct fabric_cursor {
    uint64_t slots; /* still to look at */
    uint32_t slot;
    uint64_t next_tail;
};
void fabric_receive_start(struct fabric *fabric, struct fabric_cursor *cursor);
bool fabric_receive(struct fabric *fabric, struct fabric_cursor *cursor, struct packet *packet,
                    const uint8_t **payload);
void fabric_consume(struct fabric *fabric, struct fabric_cursor *cursor);

/* Ends a series before fabric_receive said false: what is left comes in the next. */
void fabric_receive_stop(struct fabric *fabric, struct fabric_cursor *cursor);

/* Returns whether a living process has not yet read something that was sent to its slot. Looks at
 * /proc. */
bool fabric_unread(struct fabric *fabric, uint32_t slot);

/* Tells the time, and sends delayed packets that are due. */
void fabric_tick(struct fabric *fabric, uint64_t now_ns);

/* Returns when the next delayed packet is due, or UINT64_MAX. */
uint64_t fabric_next_delayed_ns(const struct fabric *fabric);

/* Takes note of a new fault specification. Returns true if there was one. */
bool fabric_faults_changed(struct fabric *fabric);

/* Appends a trace record, if there is room: kind 0 is a send WQE of QP `number`, 1 a CQE of CQ
 * `number`. */
void fabric_trace(struct fabric *fabric, uint32_t kind, uint32_t number, const void *bytes,
                  uint32_t count);

static inline bool fabric_rail_down(const struct fabric *fabric, int rail)
{
    return fabric->fault.rails_down >> rail & 1;
}

static inline bool fabric_pending(const struct fabric *fabric)
{
    return atomic_load_explicit(&fabric->file->slots[fabric->slot].pending, memory_order_acquire) !=
           0;
}

#endif
