/* ends.h: contexts with initiators, and many endpoints that share them: calls whose payloads are checked, and books of all
 * completions. The peers are a second context of this process, or other processes (peer.h).
 */
#ifndef FUNCTIONAL_ENDS_H
#define FUNCTIONAL_ENDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "peer.h"

#define ENDS 64u
#define CALLS_MAX 4096u
#define ENDS_PATIENCE_S 60.0

enum { HERE, THERE };

extern crpc_context *contexts[2]; /* THERE: NULL if the peers are other processes */

/* The user_data of an endpoint is its index. */
struct end {
    crpc_endpoint handle[2];
    uint32_t connected[2], disconnected[2]; /* completions */
    int32_t connected_status[2], disconnected_status[2];
};
extern struct end ends[ENDS];

/* The user_data of a call is its index. */
struct call {
    uint32_t end, bytes;
    uint32_t ended; /* completions */
    int32_t status;
};
extern struct call calls[CALLS_MAX];
extern uint32_t call_count, ended_count;
extern uint32_t canceled; /* calls, as completions of CANCEL say */

crpc_context *ends_context(uint32_t initiators);
/* `there`: opens both. */
void ends_open(uint32_t initiators, bool there);
void ends_close(void);
/* Polls. Where there is one context, it sleeps if nothing comes: nothing but what comes may end that. */
void ends_pump(void);
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        double until_end = now_seconds() + ENDS_PATIENCE_S;                                        \
        while (!(condition)) {                                                                     \
            if (now_seconds() > until_end) {                                                       \
                fail_msg("not within a minute: %s", #condition);                                   \
            }                                                                                      \
            ends_pump();                                                                           \
        }                                                                                          \
    } while (0)

crpc_endpoint_options ends_options(uint32_t end);
/* Begins to connect, from HERE. */
void ends_connect(uint32_t end, const char *address, const crpc_endpoint_options *options);
crpc_listener ends_listen_there(char address[64]);
/* The next request of a peer, THERE. */
crpc_endpoint ends_await_request(void);
void ends_blob(int side, uint32_t end, uint8_t blob[CRPC_BLOB_BYTES_MAX], uint32_t *bytes);
/* Joins both sides. */
void ends_join(uint32_t end);

/* One call, which the peer echoes. Returns why it was not taken, or CRPC_OK. */
int32_t ends_call(int side, uint32_t end, uint32_t bytes, bool from_region, uint64_t timeout_ns);
/* How many WQEs it has sent. */
uint64_t ends_sends(int side, uint32_t end);
/* All calls of this end have ended, each once and so. */
void ends_expect(uint32_t end, int32_t status);

#endif
