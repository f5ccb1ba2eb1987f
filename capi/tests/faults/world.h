/* world.h: two contexts of one process, what connects them, and what came of each op; for scenarios in which one call that
 * the library makes fails (inject.h). */
#ifndef CAPI_TESTS_FAULTS_WORLD_H
#define CAPI_TESTS_FAULTS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "copyrpc.h"

#define LINKS 4
#define HINT "/copyrpc-faults-hint" /* the name of the shared memory */
#define SERVER 0
#define CLIENT 1

enum link_kind { OF_CALLS, OF_CHANNELS, OF_QUEUES, LINK_KINDS };

/* A connection of the two contexts. user_data of each side's handle is 2 * its index + the side. */
struct link {
    enum link_kind kind;
    bool made[2]; /* there is a handle to be closed */
    uint64_t bits[2];
    bool told[2]; /* CONNECTED has come */
    int32_t status[2];
    bool over[2]; /* DISCONNECTED has come */
    bool refuse;  /* the server is to reject it */
    bool hands; /* the server hands the request over to the client's context, which hands it back */
    bool key;   /* both sides have it */
    bool hint;  /* the client splits by a hint in shared memory */
    bool left;  /* a side has left whose other is not told so: a queue has no protocol for that */
    crpc_queue shared; /* of the server: the SRQ that has a queue's receives; none = its own */
};

extern crpc_context *contexts[2];
extern struct link links[LINKS];
extern bool must_succeed; /* no call fails, and the machine has time */

/* Ends this process with a text for people. */
__attribute__((noreturn, format(printf, 1, 2))) void problem(const char *format, ...);

/* With a witness: a connection that must not be harmed. `queues`: the contexts have them. */
void world_open(bool queues);

/* Closes all links, demands that each op has ended once and that the witness still works, and closes
 * the contexts. */
void world_close(void);

/* Returns true after CRPC_OK. An error must have a message, and a reason: that a call has failed. */
bool checked(const char *what, int32_t status, const crpc_error *error);

/* What fails is tried again, and must then succeed: nothing was changed. */
#define TRY(what, call)                                                                            \
    do {                                                                                           \
        crpc_error error = {.struct_size = sizeof(error)};                                         \
        if (!checked(what, call, &error)) {                                                        \
            crpc_error again = error;                                                              \
            error.message[0] = 0;                                                                  \
            if ((call) != CRPC_OK) {                                                               \
                problem("%s fails again: %s; before: %s", what, error.message, again.message);     \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* Returns true if both sides are connected, and neither has heard of its end. */
bool link_is_up(uint32_t index);

/* Connects, or tries to: returns true if both sides are connected. */
bool link_connect(uint32_t index, enum link_kind kind, const char *host);
bool link_join(uint32_t index, enum link_kind kind);

/* The client takes leave. */
void link_leave(uint32_t index);

/* Calls of the client; messages from the client. */
void link_call(uint32_t index, uint32_t count);
void link_send(uint32_t index, crpc_region sent, crpc_region received, uint32_t count);

/* Submits an op of a queue. Returns true if it was accepted. */
bool queue_submit(uint32_t side, crpc_queue queue, crpc_queue_op op);

/* The user_data of the next op that is submitted. */
uint64_t op_next(void);

/* Polls and waits until the op with this user_data has ended, if it was accepted. */
void op_end(uint64_t op);

/* Polls and waits until every op has ended. */
void ops_end(void);

/* One look at both sides. Sleeps a little if there is nothing. */
void pump(void);

/* Of connecting and leaving. */
uint64_t timeout(void);

/* kinds.c: the functions of the API that all kinds of connections have. */
int32_t kind_connect(uint32_t index, const char *address, crpc_error *error);
int32_t kind_accept(uint32_t index, crpc_error *error);
int32_t kind_reject(uint32_t index);
int32_t kind_hand_over(uint32_t index, uint32_t side, uint64_t bits, uint64_t user_data,
                       crpc_error *error);
int32_t kind_blob(uint32_t index, uint32_t side, uint8_t *blob, uint32_t *bytes, crpc_error *error);
int32_t kind_join(uint32_t index, uint32_t side, const uint8_t *blob, uint32_t bytes,
                  crpc_error *error);
int32_t kind_leave(uint32_t index, uint32_t side);
int32_t kind_close(uint32_t index, uint32_t side);
void kind_get_error(uint32_t index, uint32_t side, crpc_error *error);

#endif
