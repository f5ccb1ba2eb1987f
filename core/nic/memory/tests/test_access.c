/* test_access.c: who may touch what: each way to be wrong about memory, for WRITE and READ, in both
 * modes, and who dies of it. */
#include "common.h"

struct access_case {
    const char *name;
    enum nic_error status;
    void (*change)(struct fixture *fixture, struct nic_transfer *transfer);
};

static void wrong_remote_key(struct fixture *f, struct nic_transfer *t)
{
    (void)f;
    t->remote_key ^= 1;
}

static void local_key_as_remote(struct fixture *f, struct nic_transfer *t)
{
    t->remote_key = t->remote_key == f->b.written_memory.remote_key ? f->b.written_memory.local_key
                                                                    : f->b.read_memory.local_key;
}

static void other_right(struct fixture *f, struct nic_transfer *t)
{
    const bool write = t->remote_key == f->b.written_memory.remote_key;

    t->remote_address = (uintptr_t)(write ? f->b.read : f->b.written);
    t->remote_key = write ? f->b.read_memory.remote_key : f->b.written_memory.remote_key;
}

static void key_of_another_nic(struct fixture *f, struct nic_transfer *t)
{
    const bool write = t->remote_key == f->b.written_memory.remote_key;

    t->remote_address = (uintptr_t)(write ? f->a.written : f->a.read);
    t->remote_key = write ? f->a.written_memory.remote_key : f->a.read_memory.remote_key;
}

static void remote_one_too_low(struct fixture *f, struct nic_transfer *t)
{
    (void)f;
    t->remote_address -= 1;
}

static void remote_one_too_high(struct fixture *f, struct nic_transfer *t)
{
    (void)f;
    t->remote_address += RING_BYTES - t->bytes + 1;
}

static void remote_wraps(struct fixture *f, struct nic_transfer *t)
{
    (void)f;
    t->remote_address = UINT64_MAX - 3;
}

static void remote_deregistered(struct fixture *f, struct nic_transfer *t)
{
    (void)t;
    OPERATIONS->memory_deregister(f->b.nic, &f->b.written_memory);
    OPERATIONS->memory_deregister(f->b.nic, &f->b.read_memory);
    /* Others take their slots. */
    f->b.written_memory = register_memory(f->b.nic, f->b.written, RING_BYTES, 7);
    f->b.read_memory = register_memory(f->b.nic, f->b.read, RING_BYTES, 7);
}

static void wrong_local_key(struct fixture *f, struct nic_transfer *t)
{
    (void)f;
    t->local_key ^= 0x7fff0000u;
}

static void remote_key_as_local(struct fixture *f, struct nic_transfer *t)
{
    t->local_key = t->local_key == f->a.source_memory.local_key ? f->a.source_memory.remote_key
                                                                : f->a.landing_memory.remote_key;
}

static void local_one_too_low(struct fixture *f, struct nic_transfer *t)
{
    (void)f;
    t->local_address -= 1;
}

static void local_one_too_high(struct fixture *f, struct nic_transfer *t)
{
    (void)f;
    t->local_address += RING_BYTES - t->bytes + 1;
}

static void local_deregistered(struct fixture *f, struct nic_transfer *t)
{
    (void)t;
    OPERATIONS->memory_deregister(f->a.nic, &f->a.source_memory);
    OPERATIONS->memory_deregister(f->a.nic, &f->a.landing_memory);
}

static void landing_without_right(struct fixture *f, struct nic_transfer *t)
{
    t->local_address = (uintptr_t)f->a.source;
    t->local_key = f->a.source_memory.local_key;
}

static const struct access_case access_cases[] = {
    {"wrong remote key", NIC_ERROR_REMOTE_ACCESS, wrong_remote_key},
    {"local key as remote key", NIC_ERROR_REMOTE_ACCESS, local_key_as_remote},
    {"right missing", NIC_ERROR_REMOTE_ACCESS, other_right},
    {"key of another nic", NIC_ERROR_REMOTE_ACCESS, key_of_another_nic},
    {"remote address one too low", NIC_ERROR_REMOTE_ACCESS, remote_one_too_low},
    {"remote address one too high", NIC_ERROR_REMOTE_ACCESS, remote_one_too_high},
    {"remote address wraps", NIC_ERROR_REMOTE_ACCESS, remote_wraps},
    {"remote memory deregistered", NIC_ERROR_REMOTE_ACCESS, remote_deregistered},
    {"wrong local key", NIC_ERROR_LOCAL, wrong_local_key},
    {"remote key as local key", NIC_ERROR_LOCAL, remote_key_as_local},
    {"local address one too low", NIC_ERROR_LOCAL, local_one_too_low},
    {"local address one too high", NIC_ERROR_LOCAL, local_one_too_high},
    {"local memory deregistered", NIC_ERROR_LOCAL, local_deregistered},
    {"landing without right", NIC_ERROR_LOCAL, landing_without_right}, /* READ only */
};

/* The peer's queue pair shows by what becomes of its own sends whether it has died. */
static void assert_peer(struct fixture *f, const struct access_case *access)
{
    const struct nic_transfer back = write_transfer(&f->b, &f->a, 0, 8, 5);
    const bool dead = access->status == NIC_ERROR_REMOTE_ACCESS;

    memory_fabric_options(f->fabric)->retry_steps = 0;
    OPERATIONS->post_write_immediate(f->b.queue_pairs[0], &back, NIC_POST_SIGNALED);
    OPERATIONS->ring_doorbell(f->b.queue_pairs[0]);
    assert_error(f->b.nic, f->b.queue_pairs[0], dead ? NIC_ERROR_FLUSHED : NIC_ERROR_RETRY, 1);
    assert_int_equal(counters(f)->remote_access_errors, dead);
    assert_int_equal(counters(f)->local_errors, !dead);
}

static void check_access(enum memory_mode mode, const struct access_case *access, bool read)
{
    struct fixture *f = fixture_create(1, mode, 2);
    struct nic_queue_pair *queue_pair = f->a.queue_pairs[0];
    struct nic_transfer transfer =
        read ? read_transfer(&f->a, &f->b, 0, 8) : write_transfer(&f->a, &f->b, 0, 8, 2);

    access->change(f, &transfer);
    fill(f->a.source, 8, 1);
    fill(f->b.read, 8, 1);
    OPERATIONS->post_write_immediate(queue_pair, &(struct nic_transfer){.immediate = 1}, 0);
    if (read) {
        OPERATIONS->post_read(queue_pair, &transfer, 0);
    } else {
        OPERATIONS->post_write_immediate(queue_pair, &transfer, 0);
    }
    OPERATIONS->post_write_immediate(queue_pair, &(struct nic_transfer){.immediate = 3}, 0);
    ring(f, 0);
    assert_true(memory_fabric_run(f->fabric, 10000));
    assert_error(f->a.nic, queue_pair, access->status, 2); /* the first was good, unsignaled */
    assert_error(f->a.nic, queue_pair, NIC_ERROR_FLUSHED, 3);
    assert_nothing(f->a.nic);
    if (mode == MEMORY_IMMEDIATE) {
        assert_receive(f->b.nic, f->b.queue_pairs[0], 1, 0);
        assert_nothing(f->b.nic);
        assert_peer(f, access);
    }
    assert_int_equal(f->b.written[0], 0);
    assert_int_equal(f->a.landing[0], 0);

    /* Posts are dropped now; the other pair does not notice. */
    OPERATIONS->post_write_immediate(queue_pair, &(struct nic_transfer){.immediate = 4}, 0);
    ring(f, 0);
    assert_int_equal(queue_pair->posted, 3);
    OPERATIONS->post_write_immediate(f->a.queue_pairs[1], &(struct nic_transfer){.immediate = 9},
                                     NIC_POST_SIGNALED);
    ring(f, 1);
    assert_true(memory_fabric_run(f->fabric, 10000));
    assert_sent(f->a.nic, f->a.queue_pairs[1], 1);
    fixture_destroy(f);
}

static void wrong_accesses_kill(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(access_cases) / sizeof(access_cases[0]); i++) {
        print_message("# %s\n", access_cases[i].name);
        check_access(MEMORY_IMMEDIATE, &access_cases[i], true);
        check_access(MEMORY_SCHEDULED, &access_cases[i], true);
        if (access_cases[i].change == landing_without_right) {
            continue;
        }
        check_access(MEMORY_IMMEDIATE, &access_cases[i], false);
        check_access(MEMORY_SCHEDULED, &access_cases[i], false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_accesses_kill),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("memory nic access", tests, NULL, NULL);
}
