/* harness.h: the plugin called as NCCL calls it, from two processes.
 *
 * A child that finds something wrong says so and exits with 1; the test, in the parent, is cmocka's.
 */
#ifndef NCCL_TESTS_HARNESS_H
#define NCCL_TESTS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "net_api.h"

/* ---- A table, whatever its version ----------------------------------------------------------- */

struct net {
    int version;
    void *library;
    const char *name;
    int traffic_class; /* that NCCL asks for, from version 10 on; -1 = none */
    void *instance;    /* of versions 11 and 12 */
    NET_CALLS_FROM_ACCEPT;
};

#define NET_VERSION_MIN 7
#define NET_VERSION_MAX 12

/* Warnings that the plugin gave so far; they are printed if HARNESS_LOG is set. */
extern unsigned warnings;

/* One at a time is loaded. */
/* True if the plugin has logged these words since it was loaded. */
bool net_logged(const char *words);
bool net_load(struct net *net, int version);
void net_unload(struct net *net);
int net_init(struct net *net);
int net_devices(struct net *net, int *count);
int net_properties(struct net *net, int device, struct net_properties_v12 *properties);
int net_listen(struct net *net, int device, void *handle, void **listen_comm);
int net_connect(struct net *net, int device, void *handle, void **send_comm);
int net_finalize(struct net *net);

/* ---- Two processes --------------------------------------------------------------------------- */

#define REGISTRATIONS_MAX 4

struct side {
    struct net net;
    int devices;
    int memory; /* NET_MEMORY_* of what side_register registers */
    int socket; /* to the other side: handles, and words in between */
    void *listen_comm;
    void *comm; /* the receive or the send comm */
    const void *argument;
    /* What side_register made, and side_deregister or a close is to give back. */
    struct {
        void *comm;
        void *registration;
    } registered[REGISTRATIONS_MAX];
};

typedef void (*side_work)(struct side *side);

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            side_fail(__FILE__, __LINE__, #condition);                                             \
        }                                                                                          \
    } while (0)
#define CHECK_EQUAL(is, should)                                                                    \
    do {                                                                                           \
        long long is_ = (long long)(is), should_ = (long long)(should);                            \
        if (is_ != should_) {                                                                      \
            side_fail_values(__FILE__, __LINE__, #is, is_, should_);                               \
        }                                                                                          \
    } while (0)

_Noreturn void side_fail(const char *file, int line, const char *what);
_Noreturn void side_fail_values(const char *file, int line, const char *what, long long is,
                                long long should);

/* What pair_run leaves to `kill_me`. */
#define KILL_NOBODY 0
#define KILL_RECEIVER 1
#define KILL_SENDER 2

/* Runs `receive` and `send` in a process each, with the plugin loaded and initialized there. The
 * one named by `kill` asks for its end with side_ask_for_death. Fails the cmocka test unless both
 * (or the other one) end well within `seconds`. */
void pair_run(int version, side_work receive, side_work send, const void *argument, int kill,
              unsigned seconds);
/* Is killed with SIGKILL, from outside, without a chance to say anything. */
_Noreturn void side_ask_for_death(struct side *side);

/* One byte to the other side, and one from it: without a call of the plugin in between. */
void side_tell(struct side *side);
void side_hear(struct side *side);

/* As NCCL's proxy does: listen, give the handle away, accept and connect until there is a comm.
 * The receiver then sits still until the sender is connected too. */
void side_accept(struct side *side);
void side_connect(struct side *side);
void side_send_handle(struct side *side, const void *handle);
void side_take_handle(struct side *side, void *handle);
void side_close_receiver(struct side *side);
void side_close_sender(struct side *side);

double now_seconds(void);

/* ---- Transfers ------------------------------------------------------------------------------- */

/* Until there is a request. */
void *side_send(struct side *side, void *data, size_t bytes, int tag, void *registration);
void *side_receive(struct side *side, int count, void **data, size_t *bytes, int *tags,
                   void **registrations);
/* Until it is done well. */
void side_finish(struct side *side, void *request, int *bytes);
/* Until it is done or fails; its result. Fails the test after `seconds`. */
int side_outcome(struct side *side, void *request, double seconds);

void *side_register(struct side *side, void *data, size_t bytes);
void side_deregister(struct side *side, void *registration);
/* Pages of zeros. */
void *pages(size_t bytes);

/* Bytes that say which message they are of, and where in it they lie. */
void pattern_fill(void *data, size_t bytes, uint64_t seed);
bool pattern_is(const void *data, size_t bytes, uint64_t seed);
/* True if all of [data, data + bytes) is `value`. */
bool all_are(const uint8_t *data, size_t bytes, uint8_t value);

#endif
