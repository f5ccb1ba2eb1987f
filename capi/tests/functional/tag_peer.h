/* tag_peer.h: a peer of plain verbs that matches tags: ibv_create_srq_ex and ibv_post_srq_ops. For cmocka: what does
 * not work fails the test. */
#ifndef FUNCTIONAL_TAG_PEER_H
#define FUNCTIONAL_TAG_PEER_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>

#include "copyrpc.h"

#define TAG_PEER_BYTES 65536u
#define TAG_PEER_TAGS_AT 16384u
#define TAG_PEER_RECEIVES_AT 32768u
#define TAG_PEER_PAYLOAD_AT 49152u
#define TAG_PEER_CONTEXT 0x00c0ffeeu

struct tag_peer {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *sends;
    struct ibv_cq_ex *tags;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *region;
    uint8_t *memory;
};

/* Behind the header of a rendezvous request, big-endian. */
struct tag_peer_rendezvous {
    uint64_t address;
    uint32_t key;
    uint32_t bytes;
};

struct tag_peer_message {
    bool matched;
    uint64_t id;
    uint64_t tag;
    uint32_t context;
    uint32_t bytes;
};

void tag_peer_open(struct tag_peer *peer);
/* Connects to this queue; *its is what the other side has to connect to. */
void tag_peer_connect(struct tag_peer *peer, const crpc_queue_address *to, crpc_queue_address *its);
void tag_peer_close(struct tag_peer *peer);
void tag_peer_fail(struct tag_peer *peer);

/* Sends a header, with so many bytes behind it; or for a rendezvous where so many others are. */
void tag_peer_send(struct tag_peer *peer, uint8_t kind, uint64_t tag, uint32_t bytes,
                   uint32_t elsewhere);
/* A buffer for the tag, at TAG_PEER_TAGS_AT; returns when the device has it. */
void tag_peer_add(struct tag_peer *peer, uint64_t id, uint64_t tag, uint32_t bytes);
struct tag_peer_message tag_peer_await(struct tag_peer *peer);

#endif
