/* channel_calls_test.c: who makes and destroys the queue pairs and windows of a rail that is lost and comes back: not the thread
 * that polls. The functions of libibverbs are defined in this program, which the loader searches first.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "place.h"
#include "signals.h"
#include "stream.h"

/* ---- Counting -------------------------------------------------------------------------------- */

#define PUBLIC __attribute__((visibility("default")))

static _Atomic uint64_t made_by_poller, made_by_others, ended_by_poller, ended_by_others;

/* A side polls in its process's first thread. */
static void count(_Atomic uint64_t *by_poller, _Atomic uint64_t *by_others)
{
    atomic_fetch_add(gettid() == getpid() ? by_poller : by_others, 1);
}

PUBLIC struct ibv_qp *ibv_create_qp(struct ibv_pd *domain, struct ibv_qp_init_attr *attributes)
{
    struct ibv_qp *(*next)(struct ibv_pd *, struct ibv_qp_init_attr *) =
        dlsym(RTLD_NEXT, "ibv_create_qp");
    count(&made_by_poller, &made_by_others);
    return next(domain, attributes);
}

PUBLIC int ibv_destroy_qp(struct ibv_qp *qp)
{
    int (*next)(struct ibv_qp *) = dlsym(RTLD_NEXT, "ibv_destroy_qp");
    count(&ended_by_poller, &ended_by_others);
    return next(qp);
}

/* Windows are made through a table of the context. */
static struct ibv_context_ops real;

static struct ibv_mw *alloc_mw(struct ibv_pd *domain, enum ibv_mw_type type)
{
    count(&made_by_poller, &made_by_others);
    return real.alloc_mw(domain, type);
}

static int dealloc_mw(struct ibv_mw *window)
{
    count(&ended_by_poller, &ended_by_others);
    return real.dealloc_mw(window);
}

PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *(*next)(struct ibv_device *) = dlsym(RTLD_NEXT, "ibv_open_device");
    struct ibv_context *context = next(device);
    if (context) {
        if (!real.alloc_mw) {
            real = context->ops;
        }
        context->ops.alloc_mw = alloc_mw;
        context->ops.dealloc_mw = dealloc_mw;
    }
    return context;
}

static void forget_counts(void)
{
    made_by_poller = made_by_others = ended_by_poller = ended_by_others = 0;
}

/* ---- The test -------------------------------------------------------------------------------- */

#define QUEUE_PAIRS 2u
#define LOSSES 3u

static void step(struct side *side, crpc_channel channel, struct stream *stream, double end)
{
    crpc_error error = {.struct_size = sizeof(error)};
    EXPECT(side_seconds() < end, "rail 1 was lost %u times, and is back %u times",
           side->rail_lost[1], side->rail_back[1]);
    stream_step(stream);
    crpc_channel_get_error(side->context, channel, &error);
    EXPECT(error.status == CRPC_OK, "the channel has ended: %s", error.message);
}

/* Side 0 takes the link of rail 1 down and up, and then says so; messages go on over rail 0. */
static void lose(struct side *side, crpc_channel channel, struct stream *stream)
{
    for (uint32_t i = 1; i <= LOSSES; i++) {
        double end = side_seconds() + 60;
        EXPECT(place_fault("rail1=down"), "rail1=down");
        while (side->rail_lost[1] < i) {
            step(side, channel, stream, end);
        }
        EXPECT(place_fault("none"), "none");
        while (side->rail_back[1] < i) {
            step(side, channel, stream, end);
        }
    }
}

static void a_rail_comes_back(struct side *side)
{
    const crpc_channel_options options = {.struct_size = sizeof(options),
                                          .split = CRPC_SPLIT_FIXED,
                                          .rail0_share = 512,
                                          .slots = 16,
                                          .queue_pairs = QUEUE_PAIRS,
                                          .stripe_bytes_min = 4096,
                                          .rail_retry_ns = 10000000,
                                          .retry_timeout = 10,
                                          .retry_count = 4};
    const struct stream_options endless = {.messages = {STREAM_ENDLESS, STREAM_ENDLESS},
                                           .window = 8,
                                           .group_max = 4,
                                           .bytes_max = 30000,
                                           .ends_with = {CRPC_E_DISCONNECTED}};
    char word = 0;
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, &options);
    side_await_rails(side, channel, CRPC_RAIL_UP, CRPC_RAIL_UP);
    side_meet(side);
    while (side_poll(side, 0) > 0) { /* a rail that came late is told */
    }
    memset(side->rail_lost, 0, sizeof(side->rail_lost));
    memset(side->rail_back, 0, sizeof(side->rail_back));
    forget_counts();
    side_meet(side);
    struct stream *stream = stream_start(side, channel, &endless, side->seed, 0);
    if (side->index == 0) {
        lose(side, channel, stream);
        side_tell(side, &word, 1);
    }
    double end = side_seconds() + 60;
    while (side->index == 1 && (!side_told(side) || side->rail_back[1] < LOSSES)) {
        step(side, channel, stream, end + 60);
    }
    if (side->index == 1) {
        side_hear(side, &word, 1);
    }
    EXPECT_EQUAL(made_by_poller, 0);
    EXPECT_EQUAL(ended_by_poller, 0);
    /* Each time its queue pairs, and of each at least a window for each of its eight slots. */
    EXPECT(made_by_others >= LOSSES * QUEUE_PAIRS * (1 + 8), "%llu were made",
           (unsigned long long)made_by_others);
    EXPECT(ended_by_others >= LOSSES * QUEUE_PAIRS * (1 + 8), "%llu were destroyed",
           (unsigned long long)ended_by_others);
    stream_settle(stream, 60);
    EXPECT_EQUAL(side->disconnected, 0);
    side_meet(side);
    side_leave(side, channel); /* receives that remain end with it */
    EXPECT(stream_idle(stream), "DISCONNECTED came before the last op");
    stream_end(stream);
}

static void a_rail_comes_back_test(void **state)
{
    (void)state;
    sides_run(a_rail_comes_back, 1);
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rail_comes_back_test),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
