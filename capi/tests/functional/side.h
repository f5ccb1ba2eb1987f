/* side.h: two processes that run one test, for the tests of channels: the test's own (side 0) and a
 * child made before any context is open (side 1). Both run the same function, and what they do
 * follows from the same seed, so that each knows what the other sends. They exchange words over a
 * socket, and poll their contexts while they wait.
 */
#ifndef FUNCTIONAL_SIDE_H
#define FUNCTIONAL_SIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "copyrpc.h"

#define SIDE_WORD_BYTES 320
#define SIDE_GONE_MAX 32
#define SIDE_CHILDREN_MAX 32

enum side_sleep {
    SIDE_WAIT = 0, /* crpc_wait */
    SIDE_EPOLL,    /* crpc_context_arm and epoll on crpc_context_fd */
    SIDE_SPIN,
};

struct side {
    int index;
    pid_t other; /* of side 0: the child, 0 once it is gone */
    int socket;
    uint32_t children; /* of side 0; of side 1: which of them it is */
    uint32_t child;
    pid_t pids[SIDE_CHILDREN_MAX];
    int sockets[SIDE_CHILDREN_MAX];
    uint64_t seed;
    enum side_sleep sleep;
    crpc_context *context;
    crpc_listener listeners[2]; /* for endpoints, and for channels */
    /* Gets what is no event of connections: ops, ROOM, requests and responses. */
    void (*take)(struct side *side, const crpc_completion *completion);
    /* Gets what the other leaves: of calls, beside streams. */
    void (*take_call)(struct side *side, const crpc_completion *completion);
    crpc_channel requested; /* by the last CONNECT_REQUEST of a channel */
    crpc_endpoint requested_endpoint;
    uint32_t requests;
    uint32_t connected;
    int32_t connected_status;
    uint32_t disconnected;
    int32_t disconnected_status;
    crpc_channel gone[SIDE_GONE_MAX]; /* the last that were DISCONNECTED */
    uint32_t rail_lost[2];            /* RAIL completions */
    uint32_t rail_back[2];
};

/* Runs it on both sides; fails if it fails on either. `seed` is printed. */
void sides_run(void (*body)(struct side *side), uint64_t seed);
/* The same with more children that can be side 1: each waits until the one before it is killed. */
void sides_run_many(void (*body)(struct side *side), uint64_t seed, uint32_t children);
/* Side 0: kill -9 to side 1. */
void side_kill(struct side *side);
/* Side 0: the next child is side 1 from now on. */
void side_replace(struct side *side);

/* Fails the test of both sides. */
void side_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            side_fail(__FILE__, __LINE__, #condition, __VA_ARGS__);                                \
        }                                                                                          \
    } while (0)
#define EXPECT_EQUAL(left, right)                                                                  \
    do {                                                                                           \
        long long left_value = (long long)(left), right_value = (long long)(right);                \
        if (left_value != right_value) {                                                           \
            side_fail(__FILE__, __LINE__, #left, "is %lld, not %lld", left_value, right_value);    \
        }                                                                                          \
    } while (0)

/* Both rails of the place, unless `options` says otherwise; it may be NULL. */
void side_open(struct side *side, const crpc_context_options *options);
void side_close(struct side *side);

/* One poll; if nothing came, sleeps for at most `sleep_ns`. Returns how many came. */
uint32_t side_poll(struct side *side, uint64_t sleep_ns);
/* Polls until the condition holds, which must be within 60 s. */
#define SIDE_UNTIL(side, condition)                                                                \
    do {                                                                                           \
        double until_end = side_seconds() + 60;                                                    \
        while (!(condition)) {                                                                     \
            EXPECT(side_seconds() < until_end, "not within 60 s");                                 \
            side_poll(side, 10000000);                                                             \
        }                                                                                          \
    } while (0)
/* Waits until the other side has come as far, polling. */
void side_meet(struct side *side);
/* Gives the other side a word, and takes one of its. */
void side_tell(struct side *side, const void *bytes, uint32_t count);
void side_hear(struct side *side, void *bytes, uint32_t count);
/* A word of the other is there to be heard. */
bool side_told(const struct side *side);

/* These options, or the defaults if NULL, with a minute to connect if they do not say how long: the 5 s that are the
 * default may pass on a busy machine, and few tests are about them. Likewise the retries, as of place.h. */
crpc_channel_options side_options(const crpc_channel_options *options);
/* Side 1 listens, side 0 connects. `options` may be NULL, and differ; as of side_options. */
crpc_channel side_connect(struct side *side, const crpc_channel_options *options);
/* The same by blobs. */
crpc_channel side_join(struct side *side, const crpc_channel_options *options);
/* Side 1 opens its listener (of these flags), if it has none; both then know its address. */
void side_listen(struct side *side, uint32_t flags, char address[64]);
/* Polls until the rails are in these states (CRPC_RAIL_*). A channel is connected once one rail is up and the other had its time: on
 * a busy machine the other comes later. */
void side_await_rails(struct side *side, crpc_channel channel, uint32_t rail0, uint32_t rail1);
/* Waits for DISCONNECTED of the channel; returns its status. */
int32_t side_wait_gone(struct side *side, crpc_channel channel);
/* Takes leave on both sides and closes. */
void side_leave(struct side *side, crpc_channel channel);

/* Once an op without a group: fails the test unless it is taken. */
void side_receive(struct side *side, crpc_channel channel, void *address, uint64_t bytes,
                  uint32_t tag, uint64_t user_data);
void side_send(struct side *side, crpc_channel channel, const void *address, uint64_t bytes,
               uint32_t tag, uint64_t user_data);

crpc_channel_info side_info(struct side *side, crpc_channel channel);
crpc_channel_stats side_stats(struct side *side, crpc_channel channel);
crpc_rail_info side_rail(struct side *side, uint32_t rail);

/* `simnic ctl fault WORDS`; elsewhere "rail1=down" and "none" alone. False: it cannot be. */
bool place_fault(const char *words);
/* What the devices of this machine have done on a rail: packets sent and received, and on simnic WQEs
 * of either kind. */
struct place_counters {
    uint64_t packets;
    uint64_t send_wqes;
    uint64_t receive_wqes;
    uint64_t compressed_blocks,
        compressed_arrays; /* of simnic alone; arrays: of these, those of the enhanced layout */
};
struct place_counters place_counters(uint32_t rail);

double side_seconds(void);
/* A number that depends on its arguments alone. */
uint64_t side_mix(uint64_t value);
/* The next of a series. */
uint64_t side_random(uint64_t *state);

#endif
