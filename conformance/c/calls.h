/* calls.h: what the runner in C keeps: names, calls that wait for room, requests to be answered. Other languages have tables,
 * and bindings that do the rest. */
#ifndef CONFORMANCE_CALLS_H
#define CONFORMANCE_CALLS_H

#include "line.h"

#include <copyrpc.h>

#define THINGS_MAX 4096

/* What run.py has names for: endpoints, listeners, peers that want to connect, requests of peers. */
struct thing {
    char name[32], mode[8];
    crpc_endpoint endpoint; /* a listener's handle too, so that run.py can try the wrong kind */
    uint64_t token;         /* of a request, as all below */
    uint32_t bytes;
    uint8_t *payload;
};

extern crpc_context *context;
extern struct thing things
    [THINGS_MAX]; /* the first is none; endpoints and listeners have their place as user_data */
extern const char *unknown; /* what of the line in hand is not known */

uint32_t number(const struct line *line, const char *key);
const char *status_text(int32_t status);

struct thing *thing_add(const char *name);
struct thing *thing_add_numbered(crpc_endpoint endpoint);
struct thing *thing_of(const struct line *line, const char *key);
void forget_all(void);

crpc_endpoint_options options_of(const struct line *line, const struct thing *endpoint);

int32_t do_call(crpc_endpoint endpoint, const struct line *line);
int32_t do_cancel(crpc_endpoint endpoint, uint64_t id);
void submit_calls(void);
int calls_wait(void); /* whether some have found no room yet */
void tell_response(uint64_t id, int32_t status, const void *payload, uint32_t bytes);

int32_t answer(const struct thing *request, uint8_t opcode, int32_t status, const void *payload,
               uint32_t bytes);
int32_t do_reply(const struct thing *request, const struct line *line);
void take_request(const crpc_completion *done);

#endif
