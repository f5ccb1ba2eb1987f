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

/* A connection of the two contexts. user_data of each side's handle is 2 * its index + the side. */
struct link {
    bool channel;
    bool made[2]; /* there is a handle to be closed */
    uint64_t bits[2];
    bool told[2]; /* CONNECTED has come */
    int32_t status[2];
    bool over[2]; /* DISCONNECTED has come */
    bool refuse;  /* the server is to reject it */
    bool key;     /* both sides have it */
    bool hint;    /* the client splits by a hint in shared memory */
};

extern crpc_context *contexts[2];
extern struct link links[LINKS];
extern bool must_succeed; /* no call fails, and the machine has time */

/* Ends this process with a text for people. */
__attribute__((noreturn, format(printf, 1, 2))) void problem(const char *format, ...);

/* With a witness: a connection that must not be harmed. */
void world_open(void);

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

/* Connects, or tries to: returns true if both sides are connected. */
bool link_connect(uint32_t index, bool channel, const char *host);
bool link_join(uint32_t index, bool channel);

/* The client takes leave. */
void link_leave(uint32_t index);

/* Calls of the client; messages from the client. */
void link_call(uint32_t index, uint32_t count);
void link_send(uint32_t index, crpc_region sent, crpc_region received, uint32_t count);

/* Polls and waits until every op has ended. */
void ops_end(void);

/* One look at both sides. Sleeps a little if there is nothing. */
void pump(void);

#endif
