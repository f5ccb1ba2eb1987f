/* devx_test.c: completion queues and queue pairs that are made by DevX, on a simnic device: each step of making them fails once, the
 * device lacks what it takes, their paths are those that the verbs would give them, and their events tell of nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>

#include "../../tests/pair.h"
#include "nic/mlx5/devx.h"
#include "place.h"

static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};

/* ---- Steps that fail ------------------------------------------------------------------------- */

static uint32_t steps;     /* that were asked for */
static uint32_t fail_step; /* this one fails; 0 = none */
static int32_t live;       /* made, and not gone again */

static bool fails(void)
{
    errno = EREMOTEIO;
    return ++steps == fail_step;
}

/* Capabilities that a device has, besides those of simnic. */
static uint32_t lacks; /* bits of these: */
#define LACKS_LAYOUT 1u
#define LACKS_64 2u
#define LACKS_128 4u

int __real_mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t in_bytes,
                                   void *out, size_t out_bytes);
int __wrap_mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t in_bytes,
                                   void *out, size_t out_bytes);
int __wrap_mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t in_bytes,
                                   void *out, size_t out_bytes)
{
    if (fails()) {
        return EREMOTEIO;
    }
    int result = __real_mlx5dv_devx_general_cmd(context, in, in_bytes, out, out_bytes);
    uint32_t *words = (uint32_t *)out + 4;
    assert_int_equal(devx_get(words, 0x5b0, 1) & devx_get(words, 0x5be, 2), 1);
    words[0x5b0 / 32] &= htobe32(~(lacks & LACKS_LAYOUT ? 1u << 15 : 0));
    words[0x5b0 / 32] &= htobe32(~(lacks & LACKS_64 ? 1u : 0));
    words[0x5b0 / 32] &= htobe32(~(lacks & LACKS_128 ? 2u : 0));
    return result;
}

/* Each is given once as libmlx5 has it, and once as the driver calls it. */
#define WRAP(type, name, parameters, arguments, failed, count)                                     \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        if (fails()) {                                                                             \
            return failed;                                                                         \
        }                                                                                          \
        type result = __real_##name arguments;                                                     \
        live += count;                                                                             \
        return result;                                                                             \
    }
#define UNDO(name, type)                                                                           \
    int __real_##name(type *thing);                                                                \
    int __wrap_##name(type *thing);                                                                \
    int __wrap_##name(type *thing)                                                                 \
    {                                                                                              \
        int result = __real_##name(thing);                                                         \
        assert_int_equal(result, 0);                                                               \
        live--;                                                                                    \
        return result;                                                                             \
    }

WRAP(struct mlx5dv_devx_uar *, mlx5dv_devx_alloc_uar,
     (struct ibv_context * context, uint32_t flags), (context, flags), NULL, 0)
WRAP(struct mlx5dv_devx_umem *, mlx5dv_devx_umem_reg,
     (struct ibv_context * context, void *address, size_t bytes, uint32_t access),
     (context, address, bytes, access), NULL, 1)
WRAP(int, mlx5dv_devx_query_eqn,
     (struct ibv_context * context, uint32_t vector, uint32_t *event_queue),
     (context, vector, event_queue), EREMOTEIO, 0)
WRAP(struct mlx5dv_devx_obj *, mlx5dv_devx_obj_create,
     (struct ibv_context * context, const void *in, size_t in_bytes, void *out, size_t out_bytes),
     (context, in, in_bytes, out, out_bytes), NULL, 1)
WRAP(int, mlx5dv_devx_obj_modify,
     (struct mlx5dv_devx_obj * object, const void *in, size_t in_bytes, void *out,
      size_t out_bytes),
     (object, in, in_bytes, out, out_bytes), EREMOTEIO, 0)
WRAP(struct mlx5dv_devx_event_channel *, mlx5dv_devx_create_event_channel,
     (struct ibv_context * context, enum mlx5dv_devx_create_event_channel_flags flags),
     (context, flags), NULL, 0)
WRAP(int, mlx5dv_devx_subscribe_devx_event,
     (struct mlx5dv_devx_event_channel * channel, struct mlx5dv_devx_obj *object, uint16_t bytes,
      uint16_t types[], uint64_t cookie),
     (channel, object, bytes, types, cookie), EREMOTEIO, 0)
WRAP(int, mlx5dv_devx_qp_query,
     (struct ibv_qp * qp, const void *in, size_t in_bytes, void *out, size_t out_bytes),
     (qp, in, in_bytes, out, out_bytes), EREMOTEIO, 0)
UNDO(mlx5dv_devx_umem_dereg, struct mlx5dv_devx_umem)
UNDO(mlx5dv_devx_obj_destroy, struct mlx5dv_devx_obj)

static struct nic_options options_of(void)
{
    struct nic_options options = pair_options();
    options.features = CRPC_FEATURE_CQE_COMPRESSION;
    options.compressed_receives = true;
    options.enhanced_layout = true;
    return options;
}

static struct pair *open_pair(void)
{
    struct nic_options options = options_of();
    return pair_open(&options);
}

static bool is_enhanced(const struct nic *nic)
{
    const bool made = container_of(nic, struct mlx5_nic, device.base)->devx;
    assert_int_equal(made, nic->layout_missing[0] == 0);
    return made;
}

static void exchange(struct pair *pair, struct nic_queue_pair *sender,
                     const struct nic_queue_pair *receiver, uint32_t immediate)
{
    const uint32_t completed = sender->completed;
    const struct nic_transfer write = pair_write(pair, 0, 0, 64, immediate);
    pair->near.count = pair->far.count = 0;
    sender->operations->post_write_immediate(sender, &write, NIC_POST_SIGNALED);
    sender->operations->ring_doorbell(sender);
    inbox_wait(&pair->far, 1);
    inbox_wait_completed(&pair->near, sender, completed + 1);
    assert_int_equal(pair->far.completions[0].queue_pair_number, receiver->number);
    assert_int_equal(pair->far.completions[0].immediate, immediate);
    pair->far.nic->operations->refill(pair->far.nic);
}

/* Whatever of opening fails, the nic is there, nothing is left of what was made, and the log says what it was. A page whose writes are
 * combined is the only thing that it can do without. */
static void test_open_fails(void **state)
{
    uint32_t fell_back = 0, enhanced = 0;
    (void)state;
    for (fail_step = 1;; fail_step++) {
        steps = 0;
        struct nic_options options = options_of();
        struct nic *nic = pair_open_nic(&options);
        const bool failed = steps >= fail_step;
        if (is_enhanced(nic)) {
            enhanced++;
            assert_int_equal(!!(nic->features & CRPC_FEATURE_BLUEFLAME), !failed);
        } else {
            fell_back++;
            assert_true(failed);
            assert_int_equal(live, 0);
            assert_int_equal(to_mlx5_nic(nic)->sends.layout, COMPLETION_COMPRESSED);
            assert_int_equal(to_device_nic(nic)->trouble_fd, -1);
            assert_non_null(strstr(nic->layout_missing, strerror(EIO)));
        }
        const uint32_t all = fail_step;
        fail_step = 0;
        nic->operations->close(nic);
        assert_int_equal(live, 0);
        fail_step = all;
        if (!failed) {
            break;
        }
    }
    print_message("# %u steps\n", fail_step - 1);
    assert_true(fell_back > 15);
    assert_int_equal(enhanced, 2);
    fail_step = 0;
}

/* The queue pairs that there are go on. */
static void test_make_fails(void **state)
{
    struct pair *pair = open_pair();
    const struct nic_operations *operations = pair->near.nic->operations;
    const int32_t before = live;
    uint32_t failures = 0;
    crpc_error error = {.struct_size = sizeof(error)};
    (void)state;
    assert_true(is_enhanced(pair->near.nic));
    for (fail_step = 1;; fail_step++) {
        struct nic_queue_pair *made = NULL;
        steps = 0;
        int32_t status = nic_queue_pair_create(pair->near.nic, NULL, NULL, 1, &made, &error);
        exchange(pair, pair->sender, pair->receiver, fail_step);
        if (status == CRPC_OK) {
            operations->queue_pair_destroy(made);
            break;
        }
        assert_int_equal(status, CRPC_E_SYSTEM);
        assert_int_equal(live, before);
        failures++;
    }
    fail_step = 0;
    assert_int_equal(live, before);
    assert_int_equal(failures, 6); /* memory, the queue pair, four subscriptions */
    pair_close(pair);
    assert_int_equal(live, 0);
}

static void test_connect_fails(void **state)
{
    struct pair *pair = open_pair();
    const struct nic_operations *operations = pair->near.nic->operations;
    struct nic_address address;
    crpc_error error = {.struct_size = sizeof(error)};
    (void)state;
    operations->queue_pair_address(pair->receiver, &address);
    for (uint32_t state_moved_to = 1; state_moved_to <= 3; state_moved_to++) {
        struct nic_queue_pair *made = NULL;
        assert_int_equal(nic_queue_pair_create(pair->near.nic, NULL, NULL, 1, &made, &error),
                         CRPC_OK);
        steps = 0;
        fail_step = state_moved_to;
        assert_int_equal(operations->queue_pair_connect(made, &address, &transport, &error),
                         state_moved_to == 2 ? CRPC_E_UNREACHABLE : CRPC_E_SYSTEM);
        fail_step = 0;
        operations->queue_pair_destroy(made);
        exchange(pair, pair->sender, pair->receiver, state_moved_to);
    }
    pair_close(pair);
    assert_int_equal(live, 0);
}

/* ---- What a device has ----------------------------------------------------------------------- */

static uint32_t entry_bytes(uint32_t missing)
{
    lacks = missing;
    struct pair *pair = open_pair();
    lacks = 0;
    const struct mlx5_nic *nic = to_mlx5_nic(pair->far.nic);
    const uint32_t bytes = is_enhanced(pair->far.nic) ? 1u << nic->receives.shift : 0;
    for (uint32_t i = 0; i < 3 * (nic->receives.mask + 1); i++) {
        exchange(pair, pair->sender, pair->receiver, i / 100);
    }
    pair_close(pair);
    return bytes;
}

/* Where CQEs of the size that libmlx5 would choose are not compressed, they have the other. */
static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(entry_bytes(0), 64);
    assert_int_equal(entry_bytes(LACKS_64), 128);
    assert_int_equal(entry_bytes(LACKS_128), 64);
    assert_int_equal(entry_bytes(LACKS_64 | LACKS_128), 0);
    assert_int_equal(entry_bytes(LACKS_LAYOUT), 0);
    setenv("MLX5_CQE_SIZE", "128", 1);
    assert_int_equal(entry_bytes(0), 128);
    assert_int_equal(entry_bytes(LACKS_128), 64);
    unsetenv("MLX5_CQE_SIZE");
}

/* Initiators and DCTs complete to the same queues, and are of the verbs. */
static void test_initiators(void **state)
{
    struct nic_options options = options_of();
    (void)state;
    options.initiators = 2;
    struct nic *nic = pair_open_nic(&options);
    assert_false(is_enhanced(nic));
    assert_non_null(strstr(nic->layout_missing, "DC"));
    nic->operations->close(nic);
    options.enhanced_layout = false; /* then there is nothing to say */
    nic = pair_open_nic(&options);
    assert_string_equal(nic->layout_missing, "");
    nic->operations->close(nic);
}

/* Receives may be as they are without compression, and be read beside sends of the enhanced layout. */
static void test_sends_alone(void **state)
{
    struct nic_options options = options_of();
    (void)state;
    options.compressed_receives = false;
    struct pair *pair = pair_open(&options);
    assert_true(is_enhanced(pair->far.nic));
    for (uint32_t round = 0; round < 300; round++) {
        const uint32_t completed = pair->sender->completed;
        pair->near.count = pair->far.count = 0;
        for (uint32_t i = 0; i < 20; i++) {
            const struct nic_transfer write = pair_write(pair, 0, 0, 16, round);
            pair->sender->operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
        }
        pair->sender->operations->ring_doorbell(pair->sender);
        inbox_wait(&pair->far, 20);
        inbox_wait_completed(&pair->near, pair->sender, completed + 20);
        pair->far.nic->operations->refill(pair->far.nic);
    }
    assert_true(to_mlx5_nic(pair->near.nic)->sends.blocks > 300);
    assert_int_equal(to_mlx5_nic(pair->far.nic)->receives.blocks, 0);
    assert_int_equal(pair->far.nic->unknown_completions, 0);
    pair_close(pair);
}

/* An event is of one of both, which is armed with the next sequence number then. */
static void test_arm(void **state)
{
    struct pair *pair = open_pair();
    (void)state;
    for (uint32_t i = 1; i <= 5; i++) {
        assert_int_equal(pair->near.nic->operations->arm(pair->near.nic), 0);
        assert_int_equal(pair->far.nic->operations->arm(pair->far.nic), 0);
        exchange(pair, pair->sender, pair->receiver, i);
        struct pollfd wait[] = {{.fd = pair->near.nic->event_fd, .events = POLLIN},
                                {.fd = pair->far.nic->event_fd, .events = POLLIN}};
        assert_int_equal(poll(&wait[0], 1, PAIR_WAIT_S * 1000), 1);
        assert_int_equal(poll(&wait[1], 1, PAIR_WAIT_S * 1000), 1);
        pair->near.nic->operations->disarm(pair->near.nic);
        pair->far.nic->operations->disarm(pair->far.nic);
        assert_int_equal(poll(wait, 2, 0), 0);
        assert_int_equal(to_mlx5_nic(pair->near.nic)->sends.arm_sequence, i);
        assert_int_equal(to_mlx5_nic(pair->near.nic)->receives.arm_sequence, 0);
        assert_int_equal(to_mlx5_nic(pair->far.nic)->sends.arm_sequence, 0);
        assert_int_equal(to_mlx5_nic(pair->far.nic)->receives.arm_sequence, i);
    }
    pair_close(pair);
}

/* ---- Paths ----------------------------------------------------------------------------------- */

/* What simnic tells of the path that a queue pair was given. */
static void read_path(uint32_t number, char *text, size_t bytes)
{
    char line[512], wanted[64];
    bool here = false, path = false;
    snprintf(line, sizeof(line), "'%s' ctl stats --json", getenv("TEST_SIMNIC"));
    snprintf(wanted, sizeof(wanted), "\"qpn\": %u,", number);
    text[0] = 0;
    FILE *output = popen(line, "r");
    assert_non_null(output);
    while (fgets(line, sizeof(line), output)) {
        here = strstr(line, "\"qpn\": ") ? strstr(line, wanted) != NULL : here;
        path = (path || strstr(line, "\"path\": ")) && !strchr(line, '}');
        if (here && path) {
            assert_true(strlen(text) + strlen(line) < bytes);
            strcat(text, line);
        }
    }
    assert_int_equal(pclose(output), 0);
}

#define WORD_COUNTERS 3u /* of a context: counter_set_id and the page */
#define WORD_SOURCE_PORT 14u

/* Of a context, what the transport is told: MTU; ACK timeout; retries and READs at once; READs of the peer and rights; RNR timer. */
static const struct {
    uint32_t word, mask;
} transport_words[] = {
    {2, 0xe0000000}, {8, 0xf8000000}, {28, 0x00f7e000}, {36, 0x00efe000}, {37, 0x1f000000}};

static uint32_t context_word(struct nic_queue_pair *queue_pair, uint32_t word)
{
    struct ibv_qp *qp = device_qp(queue_pair);
    uint32_t in[4] = {htobe32(0x50bu << 16), 0, htobe32(queue_pair->number)}, out[6 + 58] = {0};
    if (qp) {
        assert_int_equal(mlx5dv_devx_qp_query(qp, in, sizeof(in), out, sizeof(out)), 0);
    } else {
        struct mlx5dv_devx_obj *object = devx_of(to_device_queue_pair(queue_pair))->object;
        assert_int_equal(mlx5dv_devx_obj_query(object, in, sizeof(in), out, sizeof(out)), 0);
    }
    return be32toh(out[6 + word]);
}

/* As Linux derives it from both numbers. */
static uint32_t source_port(const struct nic_queue_pair *queue_pair, uint32_t peer)
{
    uint64_t mixed = (uint64_t)queue_pair->number * peer;
    mixed ^= mixed >> 20;
    mixed ^= mixed >> 40;
    return ibv_flow_label_to_udp_sport((uint32_t)mixed & 0xfffff);
}

/* One that is made by DevX, and one of the verbs, which are told the same. Without a GRH there is no traffic class, though simnic shows
 * what the verbs were told. */
static void test_paths(void **state)
{
    static const struct nic_transport transports[] = {
        {.retry_timeout = 14, .retry_count = 7},
        {.retry_timeout = 9, .retry_count = 3, .rnr_tries = 2, .atomics = true},
        {.retry_timeout = 31, .retry_count = 1, .rnr_tries = 7},
    };
    static const struct nic_network networks[] = {
        {0}, {.traffic_class = 104, .service_level = 3}, {.service_level = 7}};
    const bool grh = getenv("TEST_GRH");
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct nic_options options = options_of();
        options.network = networks[i];
        options.network.traffic_class = grh ? networks[i].traffic_class : 0;
        struct pair *pair = pair_open(&options);
        options.enhanced_layout = false;
        struct nic *other = pair_open_nic(&options);
        struct nic_queue_pair *made, *ordinary;
        struct nic_address address;
        char paths[2][4096];
        pair->far.nic->operations->queue_pair_address(pair->receiver, &address);
        assert_int_equal(nic_queue_pair_create(pair->near.nic, NULL, NULL, 1, &made, NULL),
                         CRPC_OK);
        assert_int_equal(nic_queue_pair_create(other, NULL, NULL, 1, &ordinary, NULL), CRPC_OK);
        assert_null(device_qp(made));
        assert_non_null(device_qp(ordinary));
        assert_int_equal(made->operations->queue_pair_connect(made, &address, &transports[i], NULL),
                         CRPC_OK);
        assert_int_equal(
            other->operations->queue_pair_connect(ordinary, &address, &transports[i], NULL),
            CRPC_OK);
        read_path(made->number, paths[0], sizeof(paths[0]));
        read_path(ordinary->number, paths[1], sizeof(paths[1]));
        assert_true(strlen(paths[0]) > 100);
        assert_string_equal(paths[0], paths[1]);
        for (uint32_t k = 0; k < sizeof(transport_words) / sizeof(transport_words[0]); k++) {
            const uint32_t word = transport_words[k].word, mask = transport_words[k].mask;
            assert_int_not_equal(context_word(ordinary, word) & mask, 0);
            assert_int_equal(context_word(made, word) & mask, context_word(ordinary, word) & mask);
        }
        const uint32_t counters = context_word(ordinary, WORD_COUNTERS) >> 24;
        assert_int_not_equal(counters, 0);
        assert_int_equal(context_word(made, WORD_COUNTERS) >> 24, counters);
        if (other->link == CRPC_LINK_ETHERNET) {
            assert_int_equal(context_word(made, WORD_SOURCE_PORT) & 0xffff,
                             source_port(made, address.queue_pair_number));
        }
        made->operations->queue_pair_destroy(made);
        other->operations->queue_pair_destroy(ordinary);
        other->operations->close(other);
        pair_close(pair);
    }
}

/* ---- Events ---------------------------------------------------------------------------------- */

static uint32_t told_count, told_number;
static enum ibv_event_type told_type;

static void told(void *argument, enum ibv_event_type type, uint32_t number)
{
    (void)argument;
    told_count++;
    told_type = type;
    told_number = number;
}

static void wait_for_trouble(struct nic *nic)
{
    struct pollfd wait = {.fd = to_device_nic(nic)->trouble_fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, PAIR_WAIT_S * 1000), 1);
}

/* As core/cm's thread does. Returns how many there were. */
static uint32_t take_troubles(struct nic *nic)
{
    struct device_nic *device = to_device_nic(nic);
    uint32_t taken = 0;
    while (device->take_trouble(device, told, NULL)) {
        taken++;
    }
    return taken;
}

/* What waits of a queue pair that is gone says nothing of the next, not even if that has its number, which simnic gives to none for long:
 * the test gives it. */
static void test_stale_events(void **state)
{
    struct pair *pair = open_pair();
    struct nic *far = pair->far.nic;
    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        const uint32_t number = pair->receiver->number;
        pair->receiver->operations->queue_pair_fail(pair->receiver);
        wait_for_trouble(far); /* its last WQE has come back, which nobody has heard yet */
        pair_reconnect(pair);
        struct table *known = &to_mlx5_nic(far)->devx->queue_pairs;
        assert_null(table_get(known, number));
        assert_true(table_set(known, number, devx_of(to_device_queue_pair(pair->receiver))));
        assert_int_equal(take_troubles(far), 1);
        table_clear(known, number);
        assert_false(to_device_queue_pair(pair->receiver)->last_wqe_reached);
        exchange(pair, pair->sender, pair->receiver, i);
    }
    pair->receiver->operations->queue_pair_fail(pair->receiver);
    wait_for_trouble(far);
    assert_int_equal(take_troubles(far), 1);
    assert_true(to_device_queue_pair(pair->receiver)->last_wqe_reached);
    assert_int_equal(told_count, 0);
    pair_close(pair);
}

/* The device refuses what a peer asks for, and says so of the queue pair. */
static void test_access_error(void **state)
{
    struct pair *pair = open_pair();
    (void)state;
    struct nic_transfer write = pair_write(pair, 0, 0, 16, 0);
    write.remote_key ^= 0xffffff00;
    pair->sender->operations->post_write(pair->sender, &write, NIC_POST_SIGNALED);
    pair->sender->operations->ring_doorbell(pair->sender);
    inbox_wait_completed(&pair->near, pair->sender, 1);
    assert_int_equal(inbox_last(&pair->near)->status, NIC_ERROR_REMOTE_ACCESS);
    while (told_count == 0) { /* it also gives back its last WQE, then or later */
        wait_for_trouble(pair->far.nic);
        take_troubles(pair->far.nic);
    }
    assert_int_equal(told_count, 1);
    assert_int_equal(told_type, IBV_EVENT_QP_ACCESS_ERR);
    assert_int_equal(told_number, pair->receiver->number);
    told_count = 0;
    pair_close(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_fails),    cmocka_unit_test(test_make_fails),
        cmocka_unit_test(test_connect_fails), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_initiators),    cmocka_unit_test(test_sends_alone),
        cmocka_unit_test(test_paths),         cmocka_unit_test(test_stale_events),
        cmocka_unit_test(test_access_error),  cmocka_unit_test(test_arm),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
