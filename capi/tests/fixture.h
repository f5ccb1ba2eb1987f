/* fixture.h: two contexts of the public API on the in-memory NIC, with one connection between
 * them. */
#ifndef CAPI_TESTS_FIXTURE_H
#define CAPI_TESTS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "nic/memory/memory.h"

#define FIXTURE_COMPLETIONS 64
#define FIXTURE_KEPT 1024

struct fixture {
    crpc_context *left;  /* calls */
    crpc_context *right; /* answers */
    crpc_endpoint left_endpoint;
    crpc_endpoint right_endpoint;
    crpc_completion completions[FIXTURE_COMPLETIONS]; /* of the last poll */
    int32_t count;
    uint32_t flags;                        /* CRPC_CONTEXT_* of the contexts */
    crpc_completion kept[2][FIXTURE_KEPT]; /* by fixture_await, of left and right */
    uint32_t kept_count[2];
};

extern struct fixture fixture;

/* Setup and teardown of cmocka: a fresh fabric, two contexts, one connection. */
int fixture_open(void **state);
/* The same with CRPC_CONTEXT_RAILS: rail 0 of each is the other's rail 1. */
int fixture_open_with_rails(void **state);
/* The same with CRPC_CONTEXT_QUEUES. */
int fixture_open_with_queues(void **state);
/* With CRPC_CONTEXT_METRICS. */
int fixture_open_with_metrics(void **state);
/* With rails, queues and metrics. */
int fixture_open_with_all(void **state);
/* The same on InfiniBand; bit n of grh_required: the port of memory<n> requires a GRH. */
int fixture_open_on_infiniband(uint32_t grh_required);
int fixture_close(void **state);
crpc_context *fixture_context(const char *device);
/* One more connection between the two; CONNECTED has been taken. `options` may be NULL. */
void fixture_connect(const crpc_endpoint_options *options, crpc_endpoint *left,
                     crpc_endpoint *right);

/* Polls; the result is in fixture.completions and fixture.count. */
int32_t fixture_poll(crpc_context *context);
/* Polls until something of that kind comes, at most 100 times; fails the test otherwise. */
crpc_completion fixture_expect(crpc_context *context, uint8_t kind);
/* The same, but it may have come with the last poll. */
crpc_completion fixture_also(crpc_context *context, uint8_t kind);
crpc_op fixture_call_op(uint64_t user_data);
/* A call with a payload in a region. */
crpc_op fixture_region_op(crpc_region region, uint64_t offset, uint32_t bytes);
/* Submits one op; returns the reason. */
int32_t fixture_submit(crpc_context *context, const crpc_op *op, const void *payload,
                       uint64_t payload_bytes);
/* One call there, its request taken at the right. */
crpc_completion fixture_request(uint64_t user_data, const char *text, uint32_t reply_bytes_max);
int32_t fixture_reply(const crpc_completion *request, const char *text, uint8_t flags);

/* ---- Channels, for which both sides must be polled ------------------------------------------- */

/* Polls both sides once and keeps what they give. */
void fixture_pump(void);
/* Pumps until the context has a completion of that kind, and takes it; fails the test after 5 s. */
crpc_completion fixture_await(crpc_context *context, uint8_t kind);
/* Two that are connected with each other; CONNECTED has been taken. `options` may be NULL. */
void fixture_channels(const crpc_channel_options *options, crpc_channel *left, crpc_channel *right);

/* ---- Lanes ----------------------------------------------------------------------------------- */

/* One more connection, with a lane that is open. */
void fixture_lane(crpc_endpoint *left, crpc_endpoint *right);
/* With this lane_depth. */
void fixture_deep_lane(uint32_t depth, crpc_endpoint *left, crpc_endpoint *right);
/* A grant of the right side on its region, and what the left side makes of its bytes. */
crpc_grant fixture_grant(crpc_endpoint right, crpc_region region, void *address, uint32_t bytes,
                         uint16_t access);
crpc_grant fixture_open_grant(crpc_endpoint left, crpc_grant grant);
/* Submits one op; returns the reason. */
int32_t fixture_lane_submit(crpc_context *context, crpc_endpoint endpoint, const crpc_lane_op *op);

/* ---- Queues ---------------------------------------------------------------------------------- */

/* Makes an RC queue by a blob, which is thrown away: it is not connected. `options` may be NULL. */
crpc_queue fixture_lone_queue(crpc_context *context, const crpc_queue_options *options);
/* Two that are connected with each other; CONNECTED has been taken. `options` may be NULL. */
void fixture_queues(const crpc_queue_options *options, crpc_queue *left, crpc_queue *right);

#endif
