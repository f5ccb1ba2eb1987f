/* malformed.h: batches that docs/wire.md forbids, one thing wrong in each, and good ones to send
 * beside them. They are for endpoint[0][0] of a pair whose first calls are open.
 */
#ifndef CORE_RPC_TESTS_MALFORMED_H
#define CORE_RPC_TESTS_MALFORMED_H

#include "pair.h"

/* What the peer sends: a good batch of two requests, to be spoiled. */
struct batch {
    struct wire_batch header;
    struct wire_message first;
    uint8_t first_payload[16];
    struct wire_message second;
    uint8_t second_payload[16];
    uint8_t rest[128];  /* for what is said to be longer */
    uint32_t immediate; /* in units */
    uint32_t bytes;     /* really written */
};

/* Opens the pair: two connections, and on the first one three calls of side 0, which have arrived and can be
 * answered. */
void malformed_open(struct pair *pair);
/* Two requests with call ids 3 and 4. */
struct batch malformed_good_requests(const struct pair *pair);
/* Answers to the endpoint's first two calls. */
struct batch malformed_good_responses(const struct pair *pair);
/* One without messages that takes leave. */
struct batch malformed_fin(const struct pair *pair);
/* Writes it to the endpoint's ring as the peer's device would. */
void malformed_send(const struct pair *pair, const struct batch *batch, uint64_t position);

/* Polls side 0: its connection must end over what was sent. */
void malformed_expect_end(struct pair *pair);

struct malformed {
    const char *name;
    bool responses; /* spoils good responses, else good requests */
    void (*spoil)(struct batch *batch);
};

extern const struct malformed malformed[];
extern const size_t malformed_count;

#endif
