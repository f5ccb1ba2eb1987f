/* message_test.c: what arrives: one by one and grouped, through each of the tables. */
#include "harness.h"
#include "leave_out.h"
#include "place.h"
#include "signals.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* ---- One by one ------------------------------------------------------------------------------ */

#define WINDOW 4
#define BUFFER_BYTES (16u << 20)
#define SPARE_BYTES 64u
#define UNTOUCHED 0x5a

/* Receives are posted for buffers of BUFFER_BYTES, whatever is sent. */
static size_t message_bytes(uint32_t number)
{
    static const size_t sizes[] = {0,     1,      7,          64,      511,   4096,
                                   4097,  8,      65535,      65536,   65537, 12,
                                   99999, 262144, (1u << 20), 1048575, 0,     3145745};
    if (number % 75 == 74) {
        return BUFFER_BYTES;
    }
    return sizes[number * 7 % (sizeof(sizes) / sizeof(sizes[0]))];
}

static int message_tag(uint32_t number)
{
    return number % 3 == 0 ? -1 : (int)(number % 5);
}

struct plan {
    uint32_t messages;
    bool gpu; /* the receiver says that its memory is a GPU's, and flushes after each message */
    const char *setting[4][2];
};

/* Before the plugin is loaded, so in the parent. */
static void set_settings(const struct plan *plan, bool set)
{
    for (int i = 0; i < 4 && plan->setting[i][0] != NULL; i++) {
        if (set) {
            setenv(plan->setting[i][0], plan->setting[i][1], 1);
        } else {
            unsetenv(plan->setting[i][0]);
        }
    }
}

static void check_message(const uint8_t *buffer, uint32_t number, int bytes)
{
    size_t should = message_bytes(number);
    CHECK_EQUAL(bytes, should);
    CHECK(pattern_is(buffer, should, number));
    CHECK(all_are(buffer + should, SPARE_BYTES, UNTOUCHED));
}

static void receive_messages(struct side *side)
{
    const struct plan *plan = side->argument;
    unsigned flushed = 0;
    side->memory = plan->gpu ? NET_MEMORY_CUDA : NET_MEMORY_HOST;
    side_accept(side);
    size_t room = BUFFER_BYTES + SPARE_BYTES;
    uint8_t *memory = pages(WINDOW * room);
    void *registration = side_register(side, memory, WINDOW * room);
    void *requests[WINDOW];
    for (uint32_t number = 0; number < plan->messages + WINDOW; number++) {
        uint8_t *buffer = memory + number % WINDOW * room;
        if (number >= WINDOW) {
            int bytes = -1;
            side_finish(side, requests[number % WINDOW], &bytes);
            void *flush = (void *)1;
            CHECK_EQUAL(
                side->net.flush(side->comm, 1, (void **)&buffer, &bytes, &registration, &flush),
                NET_SUCCESS);
            CHECK_EQUAL(flush != NULL, plan->gpu && bytes > 0);
            if (flush != NULL) {
                side_finish(side, flush, NULL);
                flushed++;
            }
            check_message(buffer, number - WINDOW, bytes);
        }
        if (number < plan->messages) {
            memset(buffer + message_bytes(number), UNTOUCHED, SPARE_BYTES);
            size_t bytes = BUFFER_BYTES;
            int tag = message_tag(number);
            requests[number % WINDOW] =
                side_receive(side, 1, (void **)&buffer, &bytes, &tag, &registration);
        }
    }
    side_tell(side);
    side_deregister(side, registration);
    side_close_receiver(side);
    for (int rail = 0; rail < 2 && plan->gpu; rail++) { /* as many READs have completed on each */
        char words[64];
        snprintf(words, sizeof(words), "flushed %u times on rail %d", flushed, rail);
        CHECK(net_logged(words));
    }
}

static void send_messages(struct side *side)
{
    const struct plan *plan = side->argument;
    side_connect(side);
    uint8_t *memory = pages(WINDOW * (size_t)BUFFER_BYTES);
    void *registration = side_register(side, memory, WINDOW * (size_t)BUFFER_BYTES);
    void *requests[WINDOW];
    for (uint32_t number = 0; number < plan->messages + WINDOW; number++) {
        if (number >= WINDOW) {
            int bytes = -1;
            side_finish(side, requests[number % WINDOW], &bytes);
            CHECK_EQUAL(bytes, message_bytes(number - WINDOW));
        }
        if (number < plan->messages) {
            uint8_t *buffer = memory + number % WINDOW * (size_t)BUFFER_BYTES;
            pattern_fill(buffer, message_bytes(number), number);
            requests[number % WINDOW] =
                side_send(side, buffer, message_bytes(number), message_tag(number), registration);
        }
    }
    side_hear(side);
    side_deregister(side, registration);
    side_close_sender(side);
}

static void test_messages(void **state)
{
    (void)state;
    const struct plan plan = {.messages = 300};
    for (int version = NET_VERSION_MIN; version <= NET_VERSION_MAX; version++) {
        pair_run(version, receive_messages, send_messages, &plan, KILL_NOBODY, 240);
    }
}

static void test_messages_by_settings(void **state)
{
    (void)state;
    const struct plan plans[] = {
        {.messages = 80,
         .setting = {{"COPYRPC_NCCL_SHARE", "1024"}, {"COPYRPC_NCCL_QUEUE_PAIRS", "4"}}},
        {.messages = 80,
         .setting = {{"COPYRPC_NCCL_SHARE", "100"}, {"COPYRPC_NCCL_STRIPE_BYTES", "8192"}}},
        {.messages = 80, .setting = {{"COPYRPC_NCCL_HINT", "/copyrpc-nccl-test-none"}}},
        {.messages = 80, .setting = {{"COPYRPC_NCCL_RAILS", place_device(1)}}},
    };
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        set_settings(&plans[i], true);
        pair_run(12, receive_messages, send_messages, &plans[i], KILL_NOBODY, 240);
        set_settings(&plans[i], false);
        setenv("COPYRPC_NCCL_RAILS", getenv("HARNESS_RAILS"), 1);
    }
}

/* With the host's memory in the place of a GPU's: the flushes are the same. */
static void test_flush(void **state)
{
    (void)state;
    const struct plan plan = {.messages = 150, .gpu = true, .setting = {{"COPYRPC_NCCL_GDR", "1"}}};
    const int versions[] = {NET_VERSION_MIN, NET_VERSION_MAX};
    set_settings(&plan, true);
    for (int i = 0; i < 2; i++) {
        pair_run(versions[i], receive_messages, send_messages, &plan, KILL_NOBODY, 240);
    }
    set_settings(&plan, false);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

#define GROUPS 96
#define GROUPS_OPEN 3
#define PART_BYTES (192u << 10)
#define PARTS_MAX 8

static int group_parts(uint32_t group)
{
    return 2 + (int)(group % 7);
}

/* Every fifth group has one tag for all, to be filled in the order of the sends. */
static int group_tag(uint32_t group, int part)
{
    return group % 5 == 4 ? 7 : 1000 + part;
}

static size_t part_bytes(uint32_t group, int part)
{
    static const size_t sizes[] = {0, 13, 4096, 65536, 70001, PART_BYTES, 1, 32768, 131072};
    return sizes[(group * 5 + (uint32_t)part * 2) % (sizeof(sizes) / sizeof(sizes[0]))];
}

static uint64_t part_seed(uint32_t group, int part)
{
    return 1000 + group * PARTS_MAX + (uint32_t)part;
}

static size_t part_offset(uint32_t group, int part)
{
    return (group % GROUPS_OPEN * PARTS_MAX + (uint32_t)part) * (size_t)PART_BYTES;
}

static void check_group(const uint8_t *memory, uint32_t group, const int *bytes)
{
    for (int part = 0; part < group_parts(group); part++) {
        CHECK_EQUAL(bytes[part], part_bytes(group, part));
        CHECK(pattern_is(memory + part_offset(group, part), part_bytes(group, part),
                         part_seed(group, part)));
    }
    CHECK_EQUAL(bytes[group_parts(group)], -77); /* no more than asked for */
}

static void receive_groups(struct side *side)
{
    side_accept(side);
    size_t room = GROUPS_OPEN * PARTS_MAX * (size_t)PART_BYTES;
    uint8_t *memory = pages(room);
    void *registration = side_register(side, memory, room);
    void *requests[GROUPS_OPEN];
    for (uint32_t group = 0; group < GROUPS + GROUPS_OPEN; group++) {
        if (group >= GROUPS_OPEN) {
            int bytes[PARTS_MAX + 1];
            for (int i = 0; i <= PARTS_MAX; i++) {
                bytes[i] = -77;
            }
            side_finish(side, requests[group % GROUPS_OPEN], bytes);
            check_group(memory, group - GROUPS_OPEN, bytes);
        }
        if (group < GROUPS) {
            void *data[PARTS_MAX], *registrations[PARTS_MAX];
            size_t bytes[PARTS_MAX];
            int tags[PARTS_MAX];
            for (int part = 0; part < group_parts(group); part++) {
                data[part] = memory + part_offset(group, part);
                memset(data[part], UNTOUCHED, PART_BYTES);
                registrations[part] = registration;
                bytes[part] = PART_BYTES;
                tags[part] = group_tag(group, part);
            }
            requests[group % GROUPS_OPEN] =
                side_receive(side, group_parts(group), data, bytes, tags, registrations);
        }
    }
    side_tell(side);
    side_close_receiver(side);
}

/* The parts of a group go out in an order of their own. */
static int shuffled(uint32_t group, int position)
{
    int parts = group_parts(group);
    if (group % 5 == 4) {
        return position;
    }
    return group % 2 == 0 ? parts - 1 - position : (position * 1 + (int)group) % parts;
}

static void send_groups(struct side *side)
{
    side_connect(side);
    size_t room = GROUPS_OPEN * PARTS_MAX * (size_t)PART_BYTES;
    uint8_t *memory = pages(room);
    void *registration = side_register(side, memory, room);
    void *requests[GROUPS_OPEN][PARTS_MAX];
    for (uint32_t group = 0; group < GROUPS + GROUPS_OPEN; group++) {
        if (group >= GROUPS_OPEN) {
            uint32_t old = group - GROUPS_OPEN;
            for (int part = 0; part < group_parts(old); part++) {
                int bytes[2] = {-77, -77};
                side_finish(side, requests[old % GROUPS_OPEN][part], bytes);
                CHECK_EQUAL(bytes[0], part_bytes(old, part));
                CHECK_EQUAL(bytes[1], -77);
            }
        }
        for (int position = 0; group < GROUPS && position < group_parts(group); position++) {
            int part = shuffled(group, position);
            uint8_t *buffer = memory + part_offset(group, part);
            pattern_fill(buffer, part_bytes(group, part), part_seed(group, part));
            requests[group % GROUPS_OPEN][part] = side_send(side, buffer, part_bytes(group, part),
                                                            group_tag(group, part), registration);
        }
    }
    side_hear(side);
    side_close_sender(side);
}

static void test_groups(void **state)
{
    (void)state;
    for (int version = NET_VERSION_MIN; version <= NET_VERSION_MAX; version++) {
        pair_run(version, receive_groups, send_groups, NULL, KILL_NOBODY, 240);
    }
}

/* NCCL's sub-transfers run ahead of each other: all steps of one tag are sent before the first of
 * another, though each group wants both. */
#define STEPS 8
#define STEP_BYTES 40000u

static void receive_steps(struct side *side)
{
    side_accept(side);
    uint8_t *memory = pages(STEPS * 2 * (size_t)STEP_BYTES);
    void *registration = side_register(side, memory, STEPS * 2 * (size_t)STEP_BYTES);
    void *requests[STEPS];
    for (int step = 0; step < STEPS; step++) {
        uint8_t *at = memory + step * 2 * (size_t)STEP_BYTES;
        void *data[2] = {at, at + STEP_BYTES};
        size_t bytes[2] = {STEP_BYTES, STEP_BYTES};
        int tags[2] = {1, 2};
        void *registrations[2] = {registration, registration};
        requests[step] = side_receive(side, 2, data, bytes, tags, registrations);
    }
    for (int step = 0; step < STEPS; step++) {
        int bytes[2];
        side_finish(side, requests[step], bytes);
        for (int tag = 0; tag < 2; tag++) {
            CHECK_EQUAL(bytes[tag], STEP_BYTES - (unsigned)step);
            CHECK(pattern_is(memory + (step * 2 + tag) * (size_t)STEP_BYTES,
                             STEP_BYTES - (unsigned)step, (uint64_t)(step * 2 + tag)));
        }
    }
    side_tell(side);
    side_close_receiver(side);
}

static void send_steps(struct side *side)
{
    side_connect(side);
    uint8_t *memory = pages(STEPS * 2 * (size_t)STEP_BYTES);
    void *registration = side_register(side, memory, STEPS * 2 * (size_t)STEP_BYTES);
    void *requests[2][STEPS];
    for (int tag = 1; tag >= 0; tag--) {
        for (int step = 0; step < STEPS; step++) {
            uint8_t *at = memory + (step * 2 + tag) * (size_t)STEP_BYTES;
            pattern_fill(at, STEP_BYTES, (uint64_t)(step * 2 + tag));
            requests[tag][step] =
                side_send(side, at, STEP_BYTES - (unsigned)step, tag + 1, registration);
        }
    }
    for (int i = 0; i < 2 * STEPS; i++) {
        side_finish(side, requests[i / STEPS][i % STEPS], NULL);
    }
    side_hear(side);
    side_close_sender(side);
}

static void test_steps_ahead(void **state)
{
    (void)state;
    pair_run(12, receive_steps, send_steps, NULL, KILL_NOBODY, 240);
}

/* ---- Without room, and from two threads ------------------------------------------------------ */

#define MANY 600

/* More sends than a comm takes: at some point there is no request, and later there is again. */
static void send_many(struct side *side)
{
    side_connect(side);
    uint32_t *memory = pages(MANY * sizeof(*memory));
    void *registration = side_register(side, memory, MANY * sizeof(*memory));
    void *requests[MANY];
    uint32_t sent = 0, done = 0;
    bool refused = false;
    while (done < MANY) {
        if (sent < MANY) {
            memory[sent] = sent;
            CHECK_EQUAL(side->net.send(side->comm, &memory[sent], sizeof(*memory), 0, registration,
                                       NULL, &requests[sent]),
                        NET_SUCCESS);
            if (requests[sent] != NULL) {
                sent++;
                continue;
            }
            if (!refused) {
                refused = true;
                CHECK(sent >= 8 * NET_REQUESTS_PER_COMM);
                side_tell(side); /* now the receiver begins */
            }
        }
        side_finish(side, requests[done++], NULL);
    }
    CHECK(refused);
    side_hear(side);
    side_close_sender(side);
}

static void receive_many(struct side *side)
{
    side_accept(side);
    uint32_t *memory = pages(MANY * sizeof(*memory));
    void *registration = side_register(side, memory, MANY * sizeof(*memory));
    void *requests[MANY];
    uint32_t posted = 0, done = 0;
    bool refused = false;
    side_hear(side);
    while (done < MANY) {
        void *request = NULL;
        if (posted < MANY) {
            void *at = &memory[posted];
            size_t bytes = sizeof(*memory);
            int tag = 0;
            CHECK_EQUAL(
                side->net.receive(side->comm, 1, &at, &bytes, &tag, &registration, NULL, &request),
                NET_SUCCESS);
        }
        if (request != NULL) {
            requests[posted++] = request;
            continue;
        }
        if (!refused) {
            refused = true;
            CHECK(posted >= NET_REQUESTS_PER_COMM);
        }
        side_finish(side, requests[done], NULL);
        CHECK_EQUAL(memory[done], done);
        done++;
    }
    CHECK(refused);
    side_tell(side);
    side_close_receiver(side);
}

static void test_no_room(void **state)
{
    (void)state;
    pair_run(12, receive_many, send_many, NULL, KILL_NOBODY, 240);
}

struct registrar {
    struct side *side;
    bool stop;
    uint32_t rounds;
};

/* As NCCL's service thread does while the progress thread transfers. */
static void *register_all_the_time(void *opaque)
{
    struct registrar *registrar = opaque;
    const struct net *net = &registrar->side->net;
    void *data = pages(1u << 16);
    while (!__atomic_load_n(&registrar->stop, __ATOMIC_ACQUIRE) || registrar->rounds < 10) {
        void *registration = NULL;
        CHECK_EQUAL(net->register_memory(registrar->side->comm, data, 1u << 16, NET_MEMORY_HOST,
                                         &registration),
                    NET_SUCCESS);
        CHECK_EQUAL(net->deregister(registrar->side->comm, registration), NET_SUCCESS);
        registrar->rounds++;
    }
    munmap(data, 1u << 16);
    return NULL;
}

#define BESIDE_MESSAGES 400
#define BESIDE_BYTES 30000u

static void transfer_beside(struct side *side, bool receives)
{
    uint8_t *data = pages(BESIDE_BYTES);
    void *registration = side_register(side, data, BESIDE_BYTES);
    struct registrar registrar = {.side = side};
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, register_all_the_time, &registrar), 0);
    for (uint64_t i = 0; i < BESIDE_MESSAGES; i++) {
        size_t bytes = BESIDE_BYTES;
        int tag = 0;
        void *request;
        if (receives) {
            request = side_receive(side, 1, (void **)&data, &bytes, &tag, &registration);
        } else {
            pattern_fill(data, bytes, i);
            request = side_send(side, data, bytes, tag, registration);
        }
        side_finish(side, request, NULL);
        CHECK(!receives || pattern_is(data, bytes, i));
    }
    __atomic_store_n(&registrar.stop, true, __ATOMIC_RELEASE);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
}

static void receive_beside(struct side *side)
{
    side_accept(side);
    transfer_beside(side, true);
    side_tell(side);
    side_close_receiver(side);
}

static void send_beside(struct side *side)
{
    side_connect(side);
    transfer_beside(side, false);
    side_hear(side);
    side_close_sender(side);
}

static void test_two_threads(void **state)
{
    (void)state;
    pair_run(12, receive_beside, send_beside, NULL, KILL_NOBODY, 240);
}

/* ---- A rail that goes and comes -------------------------------------------------------------- */

#define LOSSY_MESSAGES 120

/* As a GPU's memory, if there is a plan: then each message is flushed, also while one of the rails cannot. */
static void receive_over_loss(struct side *side)
{
    side->memory = side->argument != NULL ? NET_MEMORY_CUDA : NET_MEMORY_HOST;
    side_accept(side);
    uint8_t *data = pages(1u << 20);
    void *registration = side_register(side, data, 1u << 20);
    for (uint32_t i = 0; i < LOSSY_MESSAGES; i++) {
        size_t bytes = 1u << 20;
        int tag = 0, received = 0;
        void *request = side_receive(side, 1, (void **)&data, &bytes, &tag, &registration);
        side_finish(side, request, &received);
        CHECK_EQUAL(received, (1u << 20) - i);
        if (side->argument != NULL) {
            CHECK_EQUAL(
                side->net.flush(side->comm, 1, (void **)&data, &received, &registration, &request),
                NET_SUCCESS);
            side_finish(side, request, NULL);
        }
        CHECK(pattern_is(data, (1u << 20) - i, i));
    }
    side_tell(side);
    side_close_receiver(side);
}

static void send_over_loss(struct side *side)
{
    side_connect(side);
    uint8_t *data = pages(1u << 20);
    void *registration = side_register(side, data, 1u << 20);
    for (uint32_t i = 0; i < LOSSY_MESSAGES; i++) {
        if (i == LOSSY_MESSAGES / 4) {
            CHECK_EQUAL(system(getenv("TEST_LINK1_DOWN")), 0);
        } else if (i == LOSSY_MESSAGES / 2) {
            CHECK_EQUAL(system(getenv("TEST_LINK1_UP")), 0);
        }
        pattern_fill(data, (1u << 20) - i, i);
        side_finish(side, side_send(side, data, (1u << 20) - i, 0, registration), NULL);
    }
    side_hear(side);
    side_close_sender(side);
}

/* NCCL sees nothing of it. */
static void test_rail_lost(void **state)
{
    (void)state;
    const struct plan plan = {.gpu = true, .setting = {{"COPYRPC_NCCL_GDR", "1"}}};
    pair_run(12, receive_over_loss, send_over_loss, NULL, KILL_NOBODY, 240);
    set_settings(&plan, true);
    pair_run(12, receive_over_loss, send_over_loss, &plan, KILL_NOBODY, 240);
    set_settings(&plan, false);
}

int main(void)
{
    signals_as_usual();
    char rails[140];
    snprintf(rails, sizeof(rails), "%s,%s", place_device(0), place_device(1));
    setenv("COPYRPC_NCCL_RAILS", rails, 1);
    setenv("HARNESS_RAILS", rails, 1);
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),    cmocka_unit_test(test_messages_by_settings),
        cmocka_unit_test(test_flush),       cmocka_unit_test(test_groups),
        cmocka_unit_test(test_steps_ahead), cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_two_threads), cmocka_unit_test(test_rail_lost),
    };
    if (getenv("TEST_LINK1_DOWN") == NULL) {
        LEAVE_OUT(tests, test_rail_lost, "nothing says how to take a link down");
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    cmocka_set_test_filter(getenv("HARNESS_FILTER")); /* of one test: "test_groups" */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
