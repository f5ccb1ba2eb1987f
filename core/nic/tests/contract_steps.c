/* contract_steps.c: queue pairs that are made step by step, the slow one in other threads, beside polls; and what is
 * left of those that are given up in between.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "contract.h"
#include "nic/memory/memory.h"
#include "pair.h"

#define MAKINGS 3u /* beside the pair's own, as many as find receives where there is no SRQ */
#define WINDOWS 8u
#define ROUNDS 10u

struct making {
    struct nic_queue_pair *queue_pair;
    struct nic *nic;
    struct nic_window windows[WINDOWS];
    bool threaded;
    pthread_t thread;
    _Atomic bool done;
    bool good;
};

static struct nic_queue_pair *begin(struct nic *nic)
{
    struct nic_queue_pair *queue_pair = NULL;
    assert_int_equal(nic->operations->queue_pair_begin(nic, NULL, nic->send_depth, PAIR_RECEIVES,
                                                       &queue_pair, NULL),
                     CRPC_OK);
    return queue_pair;
}

/* Windows come and go there, too. */
static void *make(void *argument)
{
    struct making *making = argument;
    const struct nic_operations *operations = making->nic->operations;
    bool good = operations->queue_pair_make(making->queue_pair, NULL, NULL) == CRPC_OK;
    for (uint32_t i = 0; i < WINDOWS && making->nic->windows; i++) {
        good &= operations->window_create(making->nic, &making->windows[i], NULL) == CRPC_OK;
    }
    for (uint32_t i = 0; i < WINDOWS && making->nic->windows; i++) {
        operations->window_destroy(making->nic, &making->windows[i]);
    }
    making->good = good;
    atomic_store(&making->done, true);
    return NULL;
}

/* The in-memory NIC is one of one thread. */
static void start(struct making *making, struct nic *nic)
{
    *making = (struct making){
        .queue_pair = begin(nic), .nic = nic, .threaded = pair_driver() != NIC_DRIVER_MEMORY};
    if (making->threaded) {
        assert_int_equal(pthread_create(&making->thread, NULL, make, making), 0);
    } else {
        make(making);
    }
}

static void finish(struct making *making)
{
    if (making->threaded) {
        assert_int_equal(pthread_join(making->thread, NULL), 0);
    }
    assert_true(making->good);
    assert_int_equal(making->nic->operations->queue_pair_adopt(making->queue_pair, NULL), CRPC_OK);
}

static void send(struct pair *pair, struct nic_queue_pair *sender, uint32_t immediate)
{
    const struct nic_transfer write = pair_write(pair, 0, 0, 64, immediate);
    sender->operations->post_write_immediate(sender, &write, NIC_POST_SIGNALED);
    sender->operations->ring_doorbell(sender);
}

/* One message over the pair's own queue pairs. */
static void exchange(struct pair *pair, uint32_t immediate)
{
    const uint32_t before = pair->sender->completed;
    const struct nic_completion *last;
    pair->near.count = pair->far.count = 0;
    send(pair, pair->sender, immediate);
    do { /* what others leave may come, too */
        inbox_wait(&pair->far, pair->far.count + 1);
        last = inbox_last(&pair->far);
    } while (last->queue_pair_number != pair->receiver->number);
    inbox_wait_completed(&pair->near, pair->sender, before + 1);
    assert_int_equal(last->kind, NIC_COMPLETION_RECEIVE);
    assert_int_equal(last->immediate, immediate);
    pair->far.nic->operations->refill(pair->far.nic);
}

static void expect_use(struct pair *pair, struct nic_queue_pair *from, struct nic_queue_pair *to)
{
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    pair_connect(from, to, &transport);
    pair->near.count = pair->far.count = 0;
    send(pair, from, 7);
    inbox_wait(&pair->far, 1);
    inbox_wait_completed(&pair->near, from, 1);
    assert_int_equal(pair->far.completions[0].queue_pair_number, to->number);
    assert_int_equal(pair->far.completions[0].immediate, 7);
}

void test_steps(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    static struct making makings[MAKINGS][2];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        bool done = false;
        for (uint32_t i = 0; i < MAKINGS; i++) {
            start(&makings[i][0], pair->near.nic);
            start(&makings[i][1], pair->far.nic);
        }
        for (uint32_t message = 0; !done; message++) {
            exchange(pair, message);
            done = true;
            for (uint32_t i = 0; i < MAKINGS; i++) {
                done &= atomic_load(&makings[i][0].done) && atomic_load(&makings[i][1].done);
            }
        }
        for (uint32_t i = 0; i < MAKINGS; i++) {
            finish(&makings[i][0]);
            finish(&makings[i][1]);
        }
        for (uint32_t i = 0; i < MAKINGS; i++) {
            expect_use(pair, makings[i][0].queue_pair, makings[i][1].queue_pair);
        }
        for (uint32_t i = 0; i < MAKINGS; i++) {
            operations->queue_pair_destroy(makings[i][0].queue_pair);
            operations->queue_pair_destroy(makings[i][1].queue_pair);
        }
        exchange(pair, round);
    }
}

static void *settle(void *argument)
{
    struct making *making = argument;
    making->nic->operations->queue_pair_settle(making->queue_pair);
    atomic_store(&making->done, true);
    return NULL;
}

static void *unmake(void *argument)
{
    struct making *making = argument;
    making->nic->operations->queue_pair_unmake(making->queue_pair);
    atomic_store(&making->done, true);
    return NULL;
}

/* In a thread, beside messages over the pair's own queue pairs. */
static void do_beside(struct pair *pair, struct making *making, void *(*step)(void *))
{
    atomic_store(&making->done, false);
    if (!making->threaded) {
        step(making);
    } else {
        assert_int_equal(pthread_create(&making->thread, NULL, step, making), 0);
    }
    do {
        exchange(pair, 1);
    } while (!atomic_load(&making->done));
    if (making->threaded) {
        assert_int_equal(pthread_join(making->thread, NULL), 0);
    }
}

/* Step by step, as it was made. What it was doing is discarded; no receive is lost; and the next has its number where the device
 * uses it again, also while the one before is there. */
void test_steps_to_the_end(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct nic_queue_pair *before = NULL;
    for (uint32_t round = 0; round < 3 * ROUNDS; round++) {
        struct making near, far;
        start(&near, pair->near.nic);
        start(&far, pair->far.nic);
        finish(&near);
        finish(&far);
        if (before) { /* of the round before: it was unmade before these were made */
            operations->queue_pair_destroy(before);
            before = NULL;
        }
        pair_connect(near.queue_pair, far.queue_pair, &transport);
        for (uint32_t i = 0; i < 5; i++) {
            send(pair, near.queue_pair, i);
        }
        pair_pass(round % 3 * 2000); /* some have come by then, or none */
        operations->queue_pair_fail(near.queue_pair);
        operations->queue_pair_fail(far.queue_pair);
        const uint32_t numbers[2] = {near.queue_pair->number, far.queue_pair->number};
        do_beside(pair, &near, settle);
        do_beside(pair, &far, settle);
        operations->queue_pair_drop(near.queue_pair);
        operations->queue_pair_drop(far.queue_pair);
        do_beside(pair, &near, unmake);
        do_beside(pair, &far, unmake);
        if (round % 2) {
            before = far.queue_pair;
        } else {
            operations->queue_pair_destroy(far.queue_pair);
        }
        operations->queue_pair_destroy(near.queue_pair);
        pair->near.count = pair->far.count = 0;
        exchange(pair, round);
        for (uint32_t i = 0; i < pair->near.count; i++) {
            assert_int_not_equal(pair->near.completions[i].queue_pair_number, numbers[0]);
        }
    }
    if (before) {
        operations->queue_pair_destroy(before);
    }
    /* What the nic believes to be posted is there, and no more. */
    pair->far.nic->operations->refill(pair->far.nic);
    pair->near.count = pair->far.count = 0;
    const uint32_t receives = pair_receives(pair->far.nic);
    for (uint32_t i = 0; i <= receives; i++) {
        while (nic_send_room(pair->sender) == 0) {
            pair->near.count = 0;
            inbox_poll(&pair->near);
        }
        send(pair, pair->sender, i);
    }
    inbox_wait(&pair->far, receives);
    inbox_expect_silence(&pair->far);
}

/* One is given up after each step, and leaves the room that it had; other queue pairs go on. */
void test_steps_given_up(void **state)
{
    struct pair *pair = *state;
    struct nic *far = pair->far.nic;
    const struct nic_operations *operations = far->operations;
    for (uint32_t round = 0; round < 3 * ROUNDS; round++) {
        struct nic_queue_pair *made[MAKINGS], *more = NULL;
        for (uint32_t i = 0; i < MAKINGS; i++) {
            made[i] = begin(far);
        }
        if (far->receive_queue_max > 0) { /* all of it is taken, though nothing is made */
            assert_int_equal(operations->queue_pair_begin(far, NULL, far->send_depth, PAIR_RECEIVES,
                                                          &more, NULL),
                             CRPC_E_NO_RESOURCE);
        }
        for (uint32_t i = 0; i < MAKINGS; i++) {
            if (round % 3 > 0) {
                assert_int_equal(operations->queue_pair_make(made[i], NULL, NULL), CRPC_OK);
            }
            if (round % 3 > 1) {
                assert_int_equal(operations->queue_pair_adopt(made[i], NULL), CRPC_OK);
            }
            operations->queue_pair_destroy(made[i]);
        }
        exchange(pair, round);
    }
}
