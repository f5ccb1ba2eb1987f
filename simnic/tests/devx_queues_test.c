/* devx_queues_test.c: completion queues and queue pairs by device commands (DevX); to be run under simnic. Between two such queue pairs go
 * WRITEs with immediates, whose completions are compressed in the enhanced layout. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "simnic/tests/devx_world.h"

/* Bursts whose immediates are alike at times, for more laps than one. */
static void exchange(struct ends *e, uint32_t rounds)
{
    uint32_t sent = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        const uint32_t burst = 1 + round * 7 % 40, immediate = round % 5;
        post_receives(e, burst);
        for (uint32_t i = 0; i < burst; i++) {
            post(e, &e->end[0], immediate + (i % 16 == 15), 1000 + round);
        }
        ring(e, &e->end[0]);
        for (uint32_t i = 0; i < burst; i++) {
            struct mlx5_cqe64 receive = next(&e->receives), send = next(&e->sends);
            assert_int_equal(receive.op_own >> 4, MLX5_CQE_RESP_WR_IMM);
            assert_int_equal(be32toh(receive.imm_inval_pkey), immediate + (i % 16 == 15));
            assert_int_equal(be32toh(receive.byte_cnt), 8);
            assert_int_equal(be32toh(receive.sop_drop_qpn) & 0xffffff, e->end[1].number);
            assert_int_equal(send.op_own >> 4, MLX5_CQE_REQ);
            assert_int_equal(be16toh(send.wqe_counter), sent & 0xffff);
            assert_int_equal(be32toh(send.sop_drop_qpn) & 0xffffff, e->end[0].number);
            sent++;
        }
        assert_int_equal(e->target[immediate], 1000 + round);
    }
}

static void test_enhanced(void **state)
{
    static struct ends e;
    ends_make(&e, *state, true);
    end_connect(&e, &e.end[0], e.end[1].number);
    end_connect(&e, &e.end[1], e.end[0].number);
    exchange(&e, 200);
    print_message("# %u arrays of sends, %u of receives\n", e.sends.arrays, e.receives.arrays);
    assert_true(e.sends.arrays > 100 && e.receives.arrays > 100);
    ends_free(&e);
}

static void test_plain(void **state)
{
    static struct ends e;
    ends_make(&e, *state, false);
    end_connect(&e, &e.end[0], e.end[1].number);
    end_connect(&e, &e.end[1], e.end[0].number);
    exchange(&e, 50);
    assert_int_equal(e.sends.arrays + e.receives.arrays, 0);
    ends_free(&e);
}

static void test_queried(void **state)
{
    static struct ends e;
    ends_make(&e, *state, true);
    end_connect(&e, &e.end[0], e.end[1].number);
    struct movement m = movement(QUERY_QP, &e.end[0]);
    uint32_t answer[6 + 58];
    assert_int_equal(mlx5dv_devx_obj_query(e.end[0].object, &m, 16, answer, sizeof(answer)), 0);
    assert_int_equal(be32toh(answer[6]) >> 28, 3); /* RTS */
    assert_int_equal(be32toh(answer[6 + 5]) & 0xffffff, e.end[1].number);
    assert_int_equal(be32toh(answer[6 + 14]) & 0xffff, 0xc123); /* udp_sport */
    m = movement(QUERY_QP, &e.end[1]);
    assert_int_equal(mlx5dv_devx_obj_query(e.end[0].object, &m, 16, answer, sizeof(answer)),
                     EINVAL);
    ends_free(&e);
}

static struct mlx5dv_devx_event_channel *make_channel(struct world *w)
{
    struct mlx5dv_devx_event_channel *channel = mlx5dv_devx_create_event_channel(
        w->context, MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA);
    assert_non_null(channel);
    assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    return channel;
}

/* Returns the cookie, and 0 if nothing comes within so many milliseconds. */
static uint64_t wait_cookie(struct mlx5dv_devx_event_channel *channel, int timeout_ms)
{
    struct mlx5dv_devx_async_event_hdr event = {0};
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    if (poll(&fd, 1, timeout_ms) == 0) {
        assert_int_equal(mlx5dv_devx_get_event(channel, &event, sizeof(event)), -1);
        assert_int_equal(errno, EAGAIN);
        return 0;
    }
    assert_int_equal(mlx5dv_devx_get_event(channel, &event, sizeof(event)), sizeof(event.cookie));
    return event.cookie;
}

static void test_completion_events(void **state)
{
    static struct ends e;
    uint16_t type = EVENT_COMPLETION;
    ends_make(&e, *state, true);
    struct mlx5dv_devx_event_channel *channel = make_channel(*state);
    assert_int_equal(
        mlx5dv_devx_subscribe_devx_event(channel, e.receives.object, sizeof(type), &type, COOKIE),
        0);
    end_connect(&e, &e.end[0], e.end[1].number);
    end_connect(&e, &e.end[1], e.end[0].number);
    for (uint32_t i = 0; i < 20; i++) {
        post_receives(&e, 2);
        post(&e, &e.end[0], 7, 1);
        ring(&e, &e.end[0]); /* it is not armed */
        next(&e.sends);
        next(&e.receives);
        assert_int_equal(wait_cookie(channel, 5), 0);
        arm(&e.receives, e.uar, i);
        assert_int_equal(wait_cookie(channel, 5), 0);
        post(&e, &e.end[0], 7, 1);
        ring(&e, &e.end[0]);
        assert_true(wait_cookie(channel, 1000 * WORLD_PATIENCE_S) == COOKIE);
        next(&e.sends);
        next(&e.receives);
    }
    /* What has come of one that is gone can still be read, as of the kernel's. */
    post_receives(&e, 1);
    arm(&e.receives, e.uar, 20);
    post(&e, &e.end[0], 7, 1);
    ring(&e, &e.end[0]);
    next(&e.receives);
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 1000 * WORLD_PATIENCE_S), 1);
    ends_free(&e);
    assert_true(wait_cookie(channel, 0) == COOKIE);
    assert_int_equal(wait_cookie(channel, 5), 0);
    mlx5dv_devx_destroy_event_channel(channel);
}

/* Receives that it holds are flushed, and then it says that they were the last; once. */
static void test_last_wqe(void **state)
{
    static struct ends e;
    uint16_t types[] = {EVENT_LAST_WQE, 0x05, 0x10, 0x11};
    ends_make(&e, *state, true);
    struct mlx5dv_devx_event_channel *channel = make_channel(*state);
    assert_int_equal(
        mlx5dv_devx_subscribe_devx_event(channel, e.end[1].object, sizeof(types), types, COOKIE),
        0);
    end_connect(&e, &e.end[0], e.end[1].number);
    end_connect(&e, &e.end[1], e.end[0].number);
    struct movement error = movement(ERR_QP, &e.end[1]);
    uint32_t answer[4];
    assert_int_equal(wait_cookie(channel, 5), 0);
    assert_int_equal(
        mlx5dv_devx_obj_modify(e.end[1].object, &error, sizeof(error), answer, sizeof(answer)),
        EREMOTEIO); /* no context belongs to it */
    assert_int_equal(status_of(answer), BAD_LENGTH);
    assert_int_equal(move(&e.end[1], &error), 0);
    assert_true(wait_cookie(channel, 1000 * WORLD_PATIENCE_S) == COOKIE);
    assert_int_equal(wait_cookie(channel, 5), 0);
    struct movement reset = movement(RST_QP, &e.end[1]);
    assert_int_equal(move(&e.end[1], &reset), 0);
    end_connect(&e, &e.end[1], e.end[0].number);
    ends_free(&e);
    mlx5dv_devx_destroy_event_channel(channel);
}

static void test_states(void **state)
{
    static struct ends e;
    ends_make(&e, *state, true);
    struct pair_end *end = &e.end[0];
    struct movement init = to_init(end), rtr = to_rtr(&e, end, e.end[1].number), rts = to_rts(end);
    assert_int_equal(move(end, &rtr), BAD_STATE);
    assert_int_equal(move(end, &rts), BAD_STATE);
    assert_int_equal(move(end, &init), 0);
    assert_int_equal(move(end, &init), BAD_STATE);
    struct movement bad = rtr;
    bad.words[6 + 6 + 4] = bad.words[6 + 6 + 5] = bad.words[6 + 6 + 6] = bad.words[6 + 6 + 7] = 0;
    assert_int_equal(move(end, &bad), BAD_PARAMETER); /* no GID */
    bad = rtr;
    set(bad.words, 0x80, 32, 1u << 20);
    assert_int_equal(move(end, &bad), BAD_PARAMETER); /* an optional parameter that is none here */
    bad = rtr;
    set(bad.words + 6, 0x492, 1, 1);
    assert_int_equal(move(end, &bad), BAD_PARAMETER); /* atomics of no kind */
    assert_int_equal(move(end, &rtr), 0);
    assert_int_equal(move(end, &rts), 0);
    /* The kernel knows which queue pair the object is. */
    struct movement other = movement(ERR_QP, &e.end[1]);
    uint32_t answer[4];
    assert_int_equal(
        mlx5dv_devx_obj_modify(end->object, &other, sizeof(other), answer, sizeof(answer)), EINVAL);
    ends_free(&e);
}

/* Frames go to the MAC address that the program has said, whoever has the GID. */
static void test_wrong_mac(void **state)
{
    static struct ends e;
    ends_make(&e, *state, true);
    struct pair_end *end = &e.end[0];
    end_connect(&e, &e.end[1], end->number);
    struct movement init = to_init(end), rtr = to_rtr(&e, end, e.end[1].number), rts = to_rts(end);
    ((uint8_t *)(rtr.words + 6 + 6))[0x130 / 8 + 5] ^= 1;
    memset(&rts.words[6 + 6 + 2], 0, 4);
    set(rts.words + 6, 0xc0 + 0x40, 5, 10);
    assert_int_equal(move(end, &init), 0);
    assert_int_equal(move(end, &rtr), 0);
    assert_int_equal(move(end, &rts), 0);
    post_receives(&e, 1);
    post(&e, end, 7, 1);
    ring(&e, end);
    struct mlx5_cqe64 cqe = next(&e.sends);
    assert_int_equal(cqe.op_own >> 4, MLX5_CQE_REQ_ERR);
    assert_int_equal(((struct mlx5_err_cqe *)&cqe)->syndrome,
                     MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    ends_free(&e);
}

static void test_refused_completion_queues(void **state)
{
    struct world *w = *state;
    struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(w->context, MLX5DV_UAR_ALLOC_TYPE_BF);
    struct memory m = memory_make(w);
    const struct cq_command good = cq_command(w, &m, uar, true);
    struct cq_command bad = good;
    uint32_t event_queue;
    assert_int_not_equal(mlx5dv_devx_query_eqn(w->context, 1000, &event_queue), 0);
    bad.words[0x2c0 / 32] = htobe32(m.umem->umem_id + 1000);
    assert_int_equal(refused(w, &bad, sizeof(bad)), BAD_RESOURCE);
    bad = good;
    bad.words[0x2a0 / 32] = htobe32(BUFFER_BYTES - 64 * CQ_ENTRIES + 64); /* cq_umem_offset */
    assert_int_equal(refused(w, &bad, sizeof(bad)), BAD_RESOURCE);
    bad = good;
    bad.words[4 + 0x1e0 / 32] = htobe32(BUFFER_BYTES - 4); /* dbr_addr */
    assert_int_equal(refused(w, &bad, sizeof(bad)), BAD_RESOURCE);
    bad = good;
    bad.words[4 + 0xa0 / 32] = htobe32(200); /* c_eqn */
    assert_int_equal(refused(w, &bad, sizeof(bad)), BAD_RESOURCE);
    bad = good;
    set(bad.words + 4, 0x68, 24, 0xffffff); /* uar_page */
    assert_int_equal(refused(w, &bad, sizeof(bad)), BAD_RESOURCE);
    bad = good;
    set(bad.words + 4, 0x63, 5, 0x1f);
    assert_int_equal(refused(w, &bad, sizeof(bad)), BAD_SIZE);
    bad = good;
    set(bad.words + 4, 0x19, 7, 2); /* a layout that there is not */
    assert_int_equal(refused(w, &bad, sizeof(bad)), BAD_PARAMETER);
    assert_null(mlx5dv_devx_obj_create(w->context, &good, 64, (uint32_t[4]){0}, 16));
    assert_null(mlx5dv_devx_umem_reg(w->context, (void *)(uintptr_t)4096, 4096,
                                     IBV_ACCESS_LOCAL_WRITE)); /* nothing is there */
    /* Another context's commands cannot name this one's memory. */
    void *other = NULL;
    world_set_up(&other);
    assert_int_equal(refused(other, &good, sizeof(good)), BAD_RESOURCE);
    world_tear_down(&other);
    memory_free(&m);
    mlx5dv_devx_free_uar(uar);
}

static void test_refused_queue_pairs(void **state)
{
    static struct ends e;
    ends_make(&e, *state, true);
    struct memory m = memory_make(*state);
    const struct qp_command good = qp_command(&e, &m);
    const struct {
        uint32_t at, bits, value, status;
    } wrong[] = {
        {0x08, 8, 2, BAD_PARAMETER},             /* st: UD */
        {0x50, 1, 1, BAD_PARAMETER},             /* no_sq */
        {0x28, 24, 0xffffff, BAD_RESOURCE},      /* pd */
        {0x68, 24, 0xffffff, BAD_RESOURCE},      /* uar_page */
        {0x3e8, 24, 0xffffff, BAD_RESOURCE},     /* cqn_snd */
        {0x4e8, 24, 0xffffff, BAD_RESOURCE},     /* cqn_rcv */
        {0x568, 24, 0xffffff, BAD_RESOURCE},     /* srqn */
        {0x520, 32, BUFFER_BYTES, BAD_RESOURCE}, /* dbr_addr */
        {0x720, 32, 0xffffffff, BAD_RESOURCE},   /* dbr_umem_id */
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct qp_command bad = good;
        set(bad.words + 6, wrong[i].at, wrong[i].bits, wrong[i].value);
        assert_int_equal(refused(e.w, &bad, sizeof(bad)), wrong[i].status);
    }
    /* What is in use stays. */
    assert_int_not_equal(mlx5dv_devx_umem_dereg(e.end[0].memory.umem), 0);
    assert_int_not_equal(mlx5dv_devx_obj_destroy(e.sends.object), 0);
    memory_free(&m);
    end_connect(&e, &e.end[0], e.end[1].number);
    end_connect(&e, &e.end[1], e.end[0].number);
    exchange(&e, 3);
    ends_free(&e);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_enhanced),
        TEST(test_plain),
        TEST(test_queried),
        TEST(test_completion_events),
        TEST(test_last_wqe),
        TEST(test_states),
        TEST(test_wrong_mac),
        TEST(test_refused_completion_queues),
        TEST(test_refused_queue_pairs),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("queues by DevX", tests, NULL, NULL);
}
