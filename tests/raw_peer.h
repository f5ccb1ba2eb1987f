/* raw_peer.h: how a peer that knows nothing of this library connects to one that does: by verbs and rdma_cm,
 * with a hello of docs/wire.md. For programs with cmocka and core's headers; whatever fails ends the test.
 */
#ifndef TESTS_RAW_PEER_H
#define TESTS_RAW_PEER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include <cmocka.h>

#include "link/wire.h"

#define RAW_RESOLVE_MS 60000

static inline double raw_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline struct sockaddr_in raw_address(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[64];
    unsigned port;
    assert_int_equal(sscanf(text, "%63[^:]:%u", host, &port), 2);
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    address.sin_port = htons((uint16_t)port);
    return address;
}

static inline void raw_expect_event(struct rdma_event_channel *events, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    assert_int_equal(rdma_get_cm_event(events, &event), 0);
    if (event->event != type) {
        fail_msg("rdma_cm says %s, not %s", rdma_event_str(event->event), rdma_event_str(type));
    }
    rdma_ack_cm_event(event);
}

/* Makes both, and finds the way to "host:port". The caller then makes its queue pair. */
static inline void raw_resolve(const char *text, struct rdma_event_channel **events,
                               struct rdma_cm_id **identifier)
{
    struct sockaddr_in address = raw_address(text);
    *events = rdma_create_event_channel();
    assert_non_null(*events);
    assert_int_equal(rdma_create_id(*events, identifier, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(
        rdma_resolve_addr(*identifier, NULL, (struct sockaddr *)&address, RAW_RESOLVE_MS), 0);
    raw_expect_event(*events, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(*identifier, RAW_RESOLVE_MS), 0);
    raw_expect_event(*events, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* Connects with this hello, and takes the body of the answer's. Returns false if the other side refused:
 * nobody listens, or there is no room. */
static inline bool raw_connect(struct rdma_event_channel *events, struct rdma_cm_id *identifier,
                               const struct link_hello *hello, void *body, size_t body_bytes)
{
    struct rdma_conn_param parameters = {.private_data = hello,
                                         .private_data_len = sizeof(*hello),
                                         .responder_resources = 1,
                                         .initiator_depth = 1,
                                         .retry_count = 7,
                                         .rnr_retry_count = 7};
    struct rdma_cm_event *event;
    assert_int_equal(rdma_connect(identifier, &parameters), 0);
    assert_int_equal(rdma_get_cm_event(events, &event), 0);
    bool accepted = event->event == RDMA_CM_EVENT_ESTABLISHED;
    if (accepted) {
        struct link_hello answer;
        assert_true(event->param.conn.private_data_len >= sizeof(answer));
        memcpy(&answer, event->param.conn.private_data, sizeof(answer));
        assert_int_equal(answer.magic, LINK_MAGIC);
        memcpy(body, answer.body, body_bytes);
    } else if (event->event != RDMA_CM_EVENT_REJECTED) {
        fail_msg("rdma_cm says %s", rdma_event_str(event->event));
    }
    rdma_ack_cm_event(event);
    return accepted;
}

#endif
