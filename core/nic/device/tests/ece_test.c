/* ece_test.c: what of ECE a device is asked for when a queue pair connects, and what becomes of the connection if it does not take it. Runs
 * without RDMA.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nic/device/device.h"

#define OFFERED 0x30000007u
#define REDUCED 0x30000003u
#define OTHER_VENDOR 0x1234u

/* A device, with one queue pair. */
static struct {
    struct ibv_ece offered;
    int query_error, set_error;
    int ready_error;      /* of becoming ready, with options ... */
    int ready_error_bare; /* ... and without */
    uint32_t wanted;      /* options that were set, and wait for the next change of state */
    uint32_t in_force;
    uint32_t sets, changes;
} fake;

int __wrap_ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int __wrap_ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    *ece = fake.offered;
    if (fake.changes > 0) {
        ece->options = fake.in_force;
    }
    return fake.query_error;
}

int __wrap_ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int __wrap_ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    assert_int_equal(ece->vendor_id, NIC_ECE_VENDOR);
    assert_int_equal(ece->comp_mask, 0);
    fake.sets++;
    if (fake.set_error == 0) {
        fake.wanted = ece->options;
    }
    return fake.set_error;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    (void)qp;
    assert_int_equal(attributes->qp_state, IBV_QPS_RTR);
    assert_int_equal(mask, IBV_QP_STATE);
    fake.changes++;
    if (fake.wanted == 0) {
        return fake.ready_error_bare;
    }
    if (fake.ready_error == 0) {
        fake.in_force = fake.wanted & REDUCED;
        fake.wanted = 0;
    }
    return fake.ready_error;
}

/* ---- The common part -------------------------------------------------------------------------- */

static void the_common_part_is_the_same_for_both(void **state)
{
    static const struct {
        struct nic_ece one, other;
        uint32_t common;
    } cases[] = {
        {{NIC_ECE_VENDOR, OFFERED}, {NIC_ECE_VENDOR, OFFERED}, OFFERED},
        {{NIC_ECE_VENDOR, OFFERED}, {NIC_ECE_VENDOR, 0x20000001}, 0x20000001},
        {{NIC_ECE_VENDOR, OFFERED}, {NIC_ECE_VENDOR, 0x10000000}, 0x10000000},
        {{NIC_ECE_VENDOR, OFFERED}, {NIC_ECE_VENDOR, 0xffffffff}, OFFERED},
        {{NIC_ECE_VENDOR, OFFERED}, {NIC_ECE_VENDOR, 0x0fffffff}, 0}, /* no version */
        {{NIC_ECE_VENDOR, OFFERED}, {NIC_ECE_VENDOR, 0}, 0},
        {{NIC_ECE_VENDOR, OFFERED}, {0, 0}, 0},
        {{NIC_ECE_VENDOR, OFFERED}, {OTHER_VENDOR, OFFERED}, 0},
        {{OTHER_VENDOR, OFFERED}, {OTHER_VENDOR, OFFERED}, 0}, /* nobody knows what they are */
        {{0, 0}, {0xffffffff, 0xffffffff}, 0},
        {{0, 0}, {0, 0xffffffff}, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(nic_ece_common(cases[i].one, cases[i].other), cases[i].common);
        assert_int_equal(nic_ece_common(cases[i].other, cases[i].one), cases[i].common);
    }
}

/* ---- A queue pair ----------------------------------------------------------------------------- */

struct pair {
    struct device_nic nic;
    struct ibv_qp qp;
    struct device_queue_pair queue_pair;
};

static const struct nic_ece like = {NIC_ECE_VENDOR, OFFERED};

static int set_up(void **state)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    assert_non_null(pair);
    memset(&fake, 0, sizeof(fake));
    fake.offered = (struct ibv_ece){.vendor_id = NIC_ECE_VENDOR, .options = OFFERED};
    pair->nic.base.ece = true;
    pair->qp.qp_type = IBV_QPT_RC;
    pair->queue_pair.base.nic = &pair->nic.base;
    pair->queue_pair.qp = &pair->qp;
    *state = pair;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

/* Returns what becoming ready has returned. */
static int connect_to(struct pair *pair, struct nic_ece peer)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR};
    device_ece_offer(&pair->queue_pair);
    return device_ready_to_receive(&pair->queue_pair, peer, &attributes, IBV_QP_STATE);
}

/* Returns whether the log will be told. */
static bool refused(struct pair *pair)
{
    return atomic_exchange(&pair->nic.base.ece_refused, false);
}

static void what_is_in_force_is_what_the_device_says(void **state)
{
    struct pair *pair = *state;
    struct nic_address address;
    device_ece_offer(&pair->queue_pair);
    device_queue_pair_address(&pair->queue_pair.base, &address);
    assert_int_equal(address.ece.vendor, NIC_ECE_VENDOR);
    assert_int_equal(address.ece.options, OFFERED);
    assert_int_equal(connect_to(pair, like), 0);
    device_queue_pair_address(&pair->queue_pair.base, &address);
    assert_int_equal(address.ece.options, REDUCED);
    assert_int_equal(fake.in_force, REDUCED);
    assert_int_equal(fake.sets, 1);
    assert_int_equal(fake.changes, 1);
    assert_false(refused(pair));
}

/* Then the device is asked for nothing, and it is told of nothing. */
static void nothing_in_common(void **state)
{
    struct pair *pair = *state;
    static const struct nic_ece peers[] = {
        {0, 0}, {NIC_ECE_VENDOR, 0}, {OTHER_VENDOR, OFFERED}, {NIC_ECE_VENDOR, 0x0fffffff}};
    for (size_t i = 0; i < sizeof(peers) / sizeof(peers[0]); i++) {
        fake.changes = 0;
        assert_int_equal(connect_to(pair, peers[i]), 0);
        assert_int_equal(fake.changes, 1);
        assert_int_equal(pair->queue_pair.ece.options, 0);
    }
    assert_int_equal(fake.sets, 0);
    assert_false(refused(pair));
}

static void one_that_offers_nothing(void **state)
{
    struct pair *pair = *state;
    for (uint32_t why = 0; why < 4; why++) {
        fake.query_error = why == 0 ? EOPNOTSUPP : 0; /* as Soft-RoCE's */
        fake.offered.options = why == 1 ? 0 : OFFERED;
        pair->nic.base.ece = why != 2;
        pair->qp.qp_type = why == 3 ? IBV_QPT_UD : IBV_QPT_RC;
        fake.changes = 0;
        device_ece_offer(&pair->queue_pair);
        assert_int_equal(pair->queue_pair.ece.vendor, 0);
        assert_int_equal(pair->queue_pair.ece.options, 0);
        assert_int_equal(connect_to(pair, like), 0);
        assert_int_equal(fake.sets, 0);
        assert_int_equal(fake.changes, 1);
    }
    assert_false(refused(pair));
}

static void options_that_cannot_be_set(void **state)
{
    struct pair *pair = *state;
    fake.set_error = EINVAL;
    assert_int_equal(connect_to(pair, like), 0);
    assert_int_equal(fake.changes, 1);
    assert_int_equal(fake.in_force, 0);
    assert_int_equal(pair->queue_pair.ece.options, 0);
    assert_true(refused(pair));
}

/* The second try is without them. */
static void options_that_the_device_refuses(void **state)
{
    struct pair *pair = *state;
    static const int errors[] = {EINVAL, EOPNOTSUPP, EREMOTEIO, EIO};
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        fake.ready_error = errors[i];
        fake.wanted = fake.changes = fake.sets = 0;
        assert_int_equal(connect_to(pair, like), 0);
        assert_int_equal(fake.changes, 2);
        assert_int_equal(fake.sets, 2);
        assert_int_equal(fake.in_force, 0);
        assert_int_equal(pair->queue_pair.ece.options, 0);
        assert_true(refused(pair));
    }
}

/* As if there is no way to the peer. A second look for it would take as long again. */
static void what_fails_for_another_reason(void **state)
{
    struct pair *pair = *state;
    fake.ready_error = ENETUNREACH;
    assert_int_equal(connect_to(pair, like), ENETUNREACH);
    assert_int_equal(fake.changes, 1);
    fake.ready_error = fake.ready_error_bare = EINVAL;
    fake.wanted = fake.changes = 0;
    assert_int_equal(connect_to(pair, like), EINVAL);
    assert_int_equal(fake.changes, 2);
    assert_int_equal(pair->queue_pair.ece.options, 0);
    assert_false(refused(pair));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_common_part_is_the_same_for_both),
        TEST(what_is_in_force_is_what_the_device_says),
        TEST(nothing_in_common),
        TEST(one_that_offers_nothing),
        TEST(options_that_cannot_be_set),
        TEST(options_that_the_device_refuses),
        TEST(what_fails_for_another_reason),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
