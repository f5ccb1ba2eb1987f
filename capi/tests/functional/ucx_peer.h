/* ucx_peer.h: the server's side of ucx_perftest, as a DC program (-x dc_mlx5) or with a test of tags: what it
 * says over TCP before and after its test, and what the two sides know of each other by that.
 *
 * The client says first how it was called, in a struct of its version of UCX, and the size of its messages.
 * Then come messages that begin with their length in 8 bytes: one byte with a status, and where the client
 * is. There are barriers, four bytes that both sides send. A server that answers each of these with the same is
 * as good as any, if it puts its own numbers where the client's are.
 * All integers are little-endian, those of InfiniBand too. Layouts: openucx/ucx 1.13 (those of TCP and DC
 * are the same up to 1.20), perftest.c, libperf.c (ucx_perf_ep_info_t), dc_mlx5.h (uct_dc_mlx5_iface_addr_t),
 * ib_iface.c (uct_ib_address_pack), ib_md.h (uct_ib_md_pack_rkey). */
#ifndef CAPI_TESTS_FUNCTIONAL_UCX_PEER_H
#define CAPI_TESTS_FUNCTIONAL_UCX_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "copyrpc.h"
#include "foreign.h"

#define UCX_ACCESS_KEY UINT64_C(0x1ee7a330) /* of all DCTs of UCX: UCT_IB_KEY */

/* Where messages and one-sided ops of a side go to. */
struct ucx_place {
    uint64_t memory;
    uint32_t memory_key;
    uint32_t dct; /* its number */
    uint8_t gid[16];
    uint16_t lid; /* InfiniBand: in place of the GID */
};

/* What the client has said last. */
enum ucx_word {
    UCX_NOTHING, /* nothing new */
    UCX_BARRIER, /* it waits for ucx_peer_answer */
    UCX_CLOSED,  /* it has closed the connection */
};

/* Listens on 127.0.0.1 for one client, whose messages have so many bytes. `ours` is what it is told. */
void ucx_peer_open(const struct ucx_place *ours, uint64_t message_bytes,
                   char port[FOREIGN_PORT_BYTES]);
/* The same for a test of tags: `change` puts our numbers into the address of the client's worker, which is then
 * ours. There is no ucx_place. */
void ucx_peer_open_tags(void (*change)(uint8_t *address, uint32_t bytes), uint64_t message_bytes,
                        char port[FOREIGN_PORT_BYTES]);
void ucx_peer_close(void);
/* Reads what has come, and answers all but barriers. Does not block. */
enum ucx_word ucx_peer_listen(void);
void ucx_peer_answer(void);
/* Where the client is; known when the first barrier comes. */
const struct ucx_place *ucx_peer_place(void);

#endif
