/* ucx_wireup.h: how a worker of UCX (UCP) connects its RC queue pairs to ours. It knows our UD queue, by the
 * address that it got over TCP. By datagrams it makes a connection of its own (UCT's ud), over which it says the
 * numbers of its two queue pairs: one sends, and the other belongs to its TM-SRQ. It is answered with the same
 * message, but for our numbers.
 * Layouts: openucx/ucx 1.13, ud_def.h and ud_ep.h (uct_ud_neth, uct_ud_ctl_hdr), wireup.h (ucp_wireup_msg),
 * address.c (version 1), rc_mlx5.h (uct_rc_mlx5_ep_address_t). */
#ifndef CAPI_TESTS_FUNCTIONAL_UCX_WIREUP_H
#define CAPI_TESTS_FUNCTIONAL_UCX_WIREUP_H

#include <stdbool.h>
#include <stdint.h>

#define UCX_DATAGRAM_KEY 0x1ee7a330u /* of all UD queue pairs of UCX: UCT_IB_KEY */
#define UCX_DATAGRAM_BYTES_MAX 1024u

/* Queue pairs of a side. */
struct ucx_numbers {
    uint32_t datagrams; /* UD */
    uint32_t sender;    /* RC: connected to the other's receiver */
    uint32_t receiver;  /* RC, with the TM-SRQ */
};

/* What a datagram asks for. */
enum ucx_demand {
    UCX_NO_DEMAND,
    UCX_ANSWER,  /* send ucx_wireup_answer */
    UCX_CONNECT, /* connect to ucx_wireup_numbers, and then send ucx_wireup_reply */
};

void ucx_wireup_open(const struct ucx_numbers *ours);
/* Puts our numbers into an address of the client's worker. */
void ucx_wireup_change(uint8_t *address, uint32_t bytes);
enum ucx_demand ucx_wireup_take(const uint8_t *datagram, uint32_t bytes);
/* Returns the answer to the last datagram, and how long it is. */
const uint8_t *ucx_wireup_answer(uint32_t *bytes);
/* The same to the last that has had the demand UCX_CONNECT, however many came since. */
const uint8_t *ucx_wireup_reply(uint32_t *bytes);
/* The client's, after UCX_CONNECT. */
const struct ucx_numbers *ucx_wireup_numbers(void);

#endif
