/* channel_peer.h: a sender of a channel that speaks docs/wire.md by verbs and rdma_cm, over rail 0 alone, and
 * may say and write anything. Its receiver is a program that uses copyrpc.
 */
#ifndef EXAMPLES_TESTS_CHANNEL_PEER_H
#define EXAMPLES_TESTS_CHANNEL_PEER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <rdma/rdma_cma.h>

#include "channel/wire.h"
#include "raw_peer.h"

#define PEER_SLOTS 8u /* the receiver has no fewer */
#define PEER_PAYLOAD_BYTES (1u << 20)
#define PATIENCE_S 60.0

struct channel_peer {
    uint32_t id; /* the token of its hello; from 1 on */
    struct rdma_event_channel *events;
    struct rdma_cm_id *identifier;
    struct ibv_mr *area_region;
    struct ibv_mr *payload_region;
    uint8_t *area; /* what the receiver writes */
    uint8_t *payload;
    struct channel_hello receiver; /* the body of its hello */
    uint32_t control_sequence;     /* of the next control message */
};

/* Connects and brings rail 0 up; waits until somebody listens there and has room. */
void peer_connect(struct channel_peer *peer, const char *address, uint32_t id);
/* Without taking leave. */
void peer_hang_up(struct channel_peer *peer);

/* The clear-to-send of message `number`, which has one buffer: waits for it. */
struct channel_cts peer_await_buffer(const struct channel_peer *peer, uint64_t number);

/* WRITEs or READs the first bytes of the payload; returns the status of the completion. */
enum ibv_wc_status peer_transfer(struct channel_peer *peer, enum ibv_wr_opcode opcode,
                                 uint64_t address, uint32_t key, uint32_t bytes,
                                 uint32_t immediate);
/* A message as it should be: all of it in one WRITE. */
void peer_send(struct channel_peer *peer, uint64_t number, uint32_t bytes);

/* The next control message, zeros but for what every one has. */
struct channel_control peer_control(const struct channel_peer *peer, uint8_t kind);
/* Says it, and that it is the next, whatever its sequence number. */
void peer_say(struct channel_peer *peer, const struct channel_control *message);
/* An immediate without bytes. */
void peer_say_immediate(struct channel_peer *peer, uint32_t immediate);
/* Of share 0 of a message. */
uint32_t peer_immediate(uint64_t number);

#endif
