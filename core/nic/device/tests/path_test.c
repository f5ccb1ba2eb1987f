/* path_test.c: which way packets are told to go, on InfiniBand and on Ethernet, by queues of all kinds: what the device gets to hear of
 * GRH, LID, service level, traffic class and P_Key. Runs without RDMA.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nic/device/queue.h"

#define CHANGES_MAX 8
#define PARTITION_INDEX 3

static struct {
    struct ibv_qp_attr changes[CHANGES_MAX];
    int masks[CHANGES_MAX];
    uint32_t change_count;
    struct ibv_ah_attr target;
    struct ibv_ah ah;
    const uint16_t *keys; /* of the port's table, in host byte order */
    uint32_t key_count;
} fake;

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    (void)qp;
    assert_true(fake.change_count < CHANGES_MAX);
    fake.masks[fake.change_count] = mask;
    fake.changes[fake.change_count++] = *attributes;
    return 0;
}

struct ibv_ah *__wrap_ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attributes);
struct ibv_ah *__wrap_ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attributes)
{
    (void)pd;
    fake.target = *attributes;
    return &fake.ah;
}

int __wrap_ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *key);
int __wrap_ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *key)
{
    (void)context;
    assert_int_equal(port, 1);
    if (index < 0 || (uint32_t)index >= fake.key_count) {
        return -1;
    }
    *key = htobe16(fake.keys[index]);
    return 0;
}

const char *__wrap_ibv_get_device_name(struct ibv_device *device);
const char *__wrap_ibv_get_device_name(struct ibv_device *device)
{
    (void)device;
    return "fake_0";
}

/* ---- Two ports, and a queue pair of the first ------------------------------------------------- */

#define SUBNET_A 0xfe, 0x80, 0, 0, 0, 0, 0, 0
#define SUBNET_B 0xfe, 0x80, 0, 0, 0, 0, 0, 7
/* For routing by FLID: its number is 0x1234 (0x4321), and that of the subnet 7 (8). */
#define FLID_SUBNET_7 0xfe, 0xc0, 0, 0, 0x12, 0x34, 0, 7
#define FLID_SUBNET_8 0xfe, 0xc0, 0, 0, 0x43, 0x21, 0, 8
#define OTHER_FLID_SUBNET_7 0xfe, 0xc0, 0, 0, 0x12, 0x35, 0, 7
#define NEAR_ID 0, 0, 0, 0, 0, 0, 0, 1
#define FAR_ID 0, 0, 0, 0, 0, 0, 0, 2

struct pair {
    struct device_nic nic;
    struct ibv_qp qp;
    struct device_queue_pair queue_pair;
};

static struct pair make_pair(uint32_t link, const uint8_t gid[16], enum ibv_qp_type type)
{
    struct pair pair = {
        .nic = {.base = {.link = link, .port = 1, .gid_index = 5, .device = "fake_0"},
                .lid = 10,
                .mtu_code = 5,
                .partition_index = PARTITION_INDEX,
                .read_depth_in = 1,
                .read_depth_out = 1},
        .qp = {.qp_type = type, .qp_num = 77},
    };
    memcpy(pair.nic.base.gid, gid, 16);
    memset(&fake, 0, sizeof(fake));
    return pair;
}

static struct nic_queue_pair *base_of(struct pair *pair)
{
    pair->queue_pair.base.nic = &pair->nic.base;
    pair->queue_pair.base.number = 77;
    pair->queue_pair.qp = &pair->qp;
    return &pair->queue_pair.base;
}

static struct nic_address far_address(uint32_t link, const uint8_t gid[16])
{
    struct nic_address address = {
        .queue_pair_number = 88, .lid = 20, .link = (uint8_t)link, .mtu_code = 4};
    memcpy(address.gid, gid, 16);
    return address;
}

/* Connects an RC queue pair; returns the address vector that the device has got. */
static struct ibv_ah_attr connect_rc(struct pair *pair, const struct nic_address *peer)
{
    static const struct nic_transport transport = {.retry_timeout = 17, .retry_count = 6};
    fake.change_count = 0;
    assert_int_equal(device_queue_pair_connect(base_of(pair), peer, &transport, NULL), CRPC_OK);
    assert_int_equal(fake.change_count, 3);
    assert_true(fake.masks[0] & IBV_QP_PKEY_INDEX);
    assert_int_equal(fake.changes[0].pkey_index, PARTITION_INDEX);
    assert_true(fake.masks[1] & IBV_QP_AV);
    assert_int_equal(fake.changes[2].timeout, 17);
    assert_int_equal(fake.changes[2].retry_cnt, 6);
    return fake.changes[1].ah_attr;
}

/* With a GRH to the peer's GID, or without. */
static void expect_grh(const struct ibv_ah_attr *way, const struct nic_address *peer, bool global)
{
    assert_int_equal(way->is_global, global);
    assert_int_equal(way->port_num, 1);
    if (global) {
        assert_memory_equal(way->grh.dgid.raw, peer->gid, 16);
        assert_int_equal(way->grh.sgid_index, 5);
        assert_true(way->grh.hop_limit > 1);
    }
}

static const uint8_t near_gid[16] = {SUBNET_A, NEAR_ID};
static const uint8_t far_gid[16] = {SUBNET_A, FAR_ID};
static const uint8_t foreign_gid[16] = {SUBNET_B, FAR_ID};

/* ---- GRH --------------------------------------------------------------------------------------- */

static void within_a_subnet_the_lid_is_enough(void **state)
{
    (void)state;
    struct pair pair = make_pair(CRPC_LINK_INFINIBAND, near_gid, IBV_QPT_RC);
    const struct nic_address peer = far_address(CRPC_LINK_INFINIBAND, far_gid);
    const struct ibv_ah_attr way = connect_rc(&pair, &peer);
    expect_grh(&way, &peer, false);
    assert_int_equal(way.dlid, 20);
}

static void a_grh_is_used_if_either_side_needs_it(void **state)
{
    (void)state;
    for (int who = 1; who <= 3; who++) {
        struct pair pair = make_pair(CRPC_LINK_INFINIBAND, near_gid, IBV_QPT_RC);
        struct nic_address peer = far_address(CRPC_LINK_INFINIBAND, far_gid);
        pair.nic.base.grh_required = who & 1;
        peer.grh_required = who & 2;
        const struct ibv_ah_attr way = connect_rc(&pair, &peer);
        expect_grh(&way, &peer, true);
        assert_int_equal(way.dlid, 20);
    }
}

static void between_subnets_a_grh_is_used(void **state)
{
    (void)state;
    struct pair pair = make_pair(CRPC_LINK_INFINIBAND, near_gid, IBV_QPT_RC);
    const struct nic_address peer = far_address(CRPC_LINK_INFINIBAND, foreign_gid);
    const struct ibv_ah_attr way = connect_rc(&pair, &peer);
    expect_grh(&way, &peer, true);
    assert_int_equal(way.dlid, 20); /* there is no FLID */
}

static void ethernet_always_has_one(void **state)
{
    (void)state;
    struct pair pair = make_pair(CRPC_LINK_ETHERNET, near_gid, IBV_QPT_RC);
    const struct nic_address peer = far_address(CRPC_LINK_ETHERNET, far_gid);
    const struct ibv_ah_attr way = connect_rc(&pair, &peer);
    expect_grh(&way, &peer, true);
}

static void an_address_says_that_its_port_needs_one(void **state)
{
    (void)state;
    struct nic_address address;
    struct pair pair = make_pair(CRPC_LINK_INFINIBAND, near_gid, IBV_QPT_RC);
    device_queue_pair_address(base_of(&pair), &address);
    assert_false(address.grh_required);
    pair.nic.base.grh_required = true;
    device_queue_pair_address(base_of(&pair), &address);
    assert_true(address.grh_required);
}

/* ---- Routers ----------------------------------------------------------------------------------- */

static void across_a_router_the_lid_is_the_flid(void **state)
{
    (void)state;
    static const struct {
        uint8_t here[16], there[16];
        uint16_t lid;
        bool global;
    } cases[] = {
        {{FLID_SUBNET_7, NEAR_ID}, {FLID_SUBNET_8, FAR_ID}, 0x4321, true},
        {{SUBNET_A, NEAR_ID}, {FLID_SUBNET_8, FAR_ID}, 20, true}, /* this side has none */
        {{FLID_SUBNET_7, NEAR_ID}, {OTHER_FLID_SUBNET_7, FAR_ID}, 20, true}, /* one subnet */
        {{FLID_SUBNET_7, NEAR_ID}, {FLID_SUBNET_7, FAR_ID}, 20, false},
        /* Site-local, without a FLID; and a global prefix, where these bytes are something else. */
        {{FLID_SUBNET_7, NEAR_ID}, {0xfe, 0xc0, 0, 0, 0, 0, 0, 8, FAR_ID}, 20, true},
        {{FLID_SUBNET_7, NEAR_ID}, {0x20, 0x01, 0x0d, 0xb8, 0x43, 0x21, 0, 8, FAR_ID}, 20, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair pair = make_pair(CRPC_LINK_INFINIBAND, cases[i].here, IBV_QPT_RC);
        const struct nic_address peer = far_address(CRPC_LINK_INFINIBAND, cases[i].there);
        const struct ibv_ah_attr way = connect_rc(&pair, &peer);
        expect_grh(&way, &peer, cases[i].global);
        assert_int_equal(way.dlid, cases[i].lid);
    }
}

/* ---- Service level and traffic class ------------------------------------------------------------ */

static void the_options_of_the_nic_come_first(void **state)
{
    (void)state;
    struct pair pair = make_pair(CRPC_LINK_ETHERNET, near_gid, IBV_QPT_RC);
    struct nic_address peer = far_address(CRPC_LINK_ETHERNET, far_gid);
    struct ibv_ah_attr way = connect_rc(&pair, &peer);
    assert_int_equal(way.sl, 0);
    assert_int_equal(way.grh.traffic_class, 0);
    peer.service_level = 2; /* what rdma_cm has found */
    peer.traffic_class = 3;
    way = connect_rc(&pair, &peer);
    assert_int_equal(way.sl, 2);
    assert_int_equal(way.grh.traffic_class, 3);
    pair.nic.base.network = (struct nic_network){.traffic_class = 106, .service_level = 5};
    way = connect_rc(&pair, &peer);
    assert_int_equal(way.sl, 5);
    assert_int_equal(way.grh.traffic_class, 106);
}

static void a_way_of_rdma_cm_is_amended(void **state)
{
    (void)state;
    struct pair pair = make_pair(CRPC_LINK_INFINIBAND, near_gid, IBV_QPT_RC);
    struct ibv_ah_attr way = {.sl = 2, .dlid = 9};
    device_way_amend(&pair.nic, &way);
    assert_int_equal(way.sl, 2);
    assert_int_equal(way.grh.traffic_class, 0);
    pair.nic.base.network = (struct nic_network){.traffic_class = 106, .service_level = 5};
    way.grh.traffic_class = 3;
    device_way_amend(&pair.nic, &way);
    assert_int_equal(way.sl, 5);
    assert_int_equal(way.grh.traffic_class, 106);
    assert_int_equal(way.dlid, 9);
    assert_int_equal(way.is_global, 0);
}

/* ---- Other kinds ------------------------------------------------------------------------------- */

static struct ibv_ah_attr make_target(struct pair *pair, const struct nic_target_options *options)
{
    struct nic_target *target = NULL;
    pair->nic.base.dc = true;
    assert_int_equal(device_target_create(sizeof(struct device_target), &pair->nic.base, NULL,
                                          options, &target, NULL),
                     CRPC_OK);
    free(target);
    return fake.target;
}

static void targets_take_the_same_way(void **state)
{
    (void)state;
    const uint32_t kinds[] = {NIC_QUEUE_UD, NIC_QUEUE_DCI};
    for (size_t i = 0; i < 2; i++) {
        struct pair pair = make_pair(CRPC_LINK_INFINIBAND, near_gid, IBV_QPT_UD);
        struct nic_target_options options = {.kind = kinds[i],
                                             .address = far_address(CRPC_LINK_INFINIBAND, far_gid)};
        struct ibv_ah_attr way = make_target(&pair, &options);
        expect_grh(&way, &options.address, false);
        options.address.grh_required = true;
        options.address.service_level = 3; /* of rdma_cm's route */
        way = make_target(&pair, &options);
        expect_grh(&way, &options.address, true);
        assert_int_equal(way.sl, 3);
        pair.nic.base.network = (struct nic_network){.traffic_class = 106, .service_level = 5};
        way = make_target(&pair, &options);
        assert_int_equal(way.sl, 5);
        assert_int_equal(way.grh.traffic_class, 106);
        options.service_level = 7; /* asked for this target */
        way = make_target(&pair, &options);
        assert_int_equal(way.sl, 7);
        options.address = far_address(CRPC_LINK_INFINIBAND, foreign_gid);
        options.address.grh_required = false;
        way = make_target(&pair, &options);
        expect_grh(&way, &options.address, true);
    }
}

/* Who has sent a datagram without a GRH is known by its LID alone. */
static void a_target_without_a_gid_has_its_lid(void **state)
{
    (void)state;
    static const uint8_t none[16];
    struct pair pair = make_pair(CRPC_LINK_INFINIBAND, near_gid, IBV_QPT_UD);
    const struct nic_target_options options = {.kind = NIC_QUEUE_UD,
                                               .address = far_address(CRPC_LINK_INFINIBAND, none)};
    const struct ibv_ah_attr way = make_target(&pair, &options);
    expect_grh(&way, &options.address, false);
    assert_int_equal(way.dlid, 20);
    /* And a port that needs a GRH cannot reach it: that is said. */
    crpc_error error = {.struct_size = sizeof(error)};
    struct nic_target *target;
    pair.nic.base.grh_required = true;
    assert_int_equal(device_target_create(sizeof(struct device_target), &pair.nic.base, NULL,
                                          &options, &target, &error),
                     CRPC_E_UNREACHABLE);
    assert_non_null(strstr(error.message, "GRH"));
    assert_non_null(strstr(error.message, "fake_0"));
}

static void all_kinds_are_in_the_partition(void **state)
{
    (void)state;
    static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_DRIVER};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct nic_queue queue = {.kind = NIC_QUEUE_UD, .queue_key = 9};
        struct pair pair = make_pair(CRPC_LINK_INFINIBAND, near_gid, types[i]);
        base_of(&pair)->owner = &queue;
        assert_int_equal(device_queue_pair_to_init(base_of(&pair)), 0);
        assert_int_equal(fake.change_count, 1);
        assert_true(fake.masks[0] & IBV_QP_PKEY_INDEX);
        assert_int_equal(fake.changes[0].pkey_index, PARTITION_INDEX);
        assert_int_equal(fake.changes[0].port_num, 1);
    }
}

/* DCTs answer with their own address vector, and DCIs have one until their first op. */
static void dc_queue_pairs_have_what_the_nic_has(void **state)
{
    (void)state;
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    for (int dct = 0; dct < 2; dct++) {
        struct pair pair = make_pair(CRPC_LINK_INFINIBAND, near_gid, IBV_QPT_DRIVER);
        pair.nic.base.network = (struct nic_network){.traffic_class = 106, .service_level = 5};
        pair.nic.base.grh_required = true;
        assert_int_equal(dct ? device_dct_ready(base_of(&pair))
                             : device_dci_ready(base_of(&pair), &transport),
                         0);
        assert_int_equal(fake.change_count, 2);
        const struct ibv_qp_attr *ready = &fake.changes[dct ? 1 : 0];
        assert_int_equal(ready->qp_state, IBV_QPS_RTR);
        assert_int_equal(ready->ah_attr.sl, 5);
        assert_int_equal(ready->ah_attr.is_global, 1);
        assert_int_equal(ready->ah_attr.grh.traffic_class, 106);
    }
}

/* ---- P_Keys ------------------------------------------------------------------------------------ */

static struct device_port port_of(uint8_t link_layer, const uint16_t *keys, uint32_t count)
{
    static struct ibv_context context;
    memset(&fake, 0, sizeof(fake));
    fake.keys = keys;
    fake.key_count = count;
    return (struct device_port){
        .context = &context,
        .number = 1,
        .attributes = {.link_layer = link_layer, .pkey_tbl_len = (uint16_t)count}};
}

static void a_port_gives_the_key_that_is_wanted(void **state)
{
    (void)state;
    static const uint16_t keys[] = {0x7fff, 0, 0x8001, 0x8002};
    crpc_error error = {.struct_size = sizeof(error)};
    struct nic_options options = {0};
    struct device_port port = port_of(IBV_LINK_LAYER_INFINIBAND, keys, 4);
    assert_int_equal(device_port_network(&port, &options.network, &error), CRPC_OK);
    assert_int_equal(port.partition_index, 2);
    assert_int_equal(port.partition_key, 0x8001);
    options.network.partition_key = 0x0002;
    assert_int_equal(device_port_network(&port, &options.network, &error), CRPC_OK);
    assert_int_equal(port.partition_index, 3);
    assert_int_equal(port.partition_key, 0x8002);
    options.network.partition_key = 0x8003;
    assert_int_equal(device_port_network(&port, &options.network, &error), CRPC_E_INVALID);
    assert_string_equal(error.message,
                        "fake_0 port 1 has no P_Key 0x8003; it has 0x7fff, 0x8001, 0x8002");
}

/* On Ethernet the table is not asked: all devices have the default key there. */
static void ethernet_has_one_key_and_eight_priorities(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    struct nic_network wanted = {.service_level = 7};
    struct device_port port = port_of(IBV_LINK_LAYER_ETHERNET, NULL, 0);
    assert_int_equal(device_port_network(&port, &wanted, &error), CRPC_OK);
    assert_int_equal(port.partition_index, 0);
    assert_int_equal(port.partition_key, 0xffff);
    wanted.service_level = 8;
    assert_int_equal(device_port_network(&port, &wanted, &error), CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "service_level is 8"));
    wanted = (struct nic_network){.partition_key = 0x8001};
    assert_int_equal(device_port_network(&port, &wanted, &error), CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "it has 0xffff"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_a_subnet_the_lid_is_enough),
        cmocka_unit_test(a_grh_is_used_if_either_side_needs_it),
        cmocka_unit_test(between_subnets_a_grh_is_used),
        cmocka_unit_test(ethernet_always_has_one),
        cmocka_unit_test(an_address_says_that_its_port_needs_one),
        cmocka_unit_test(across_a_router_the_lid_is_the_flid),
        cmocka_unit_test(the_options_of_the_nic_come_first),
        cmocka_unit_test(a_way_of_rdma_cm_is_amended),
        cmocka_unit_test(targets_take_the_same_way),
        cmocka_unit_test(a_target_without_a_gid_has_its_lid),
        cmocka_unit_test(all_kinds_are_in_the_partition),
        cmocka_unit_test(dc_queue_pairs_have_what_the_nic_has),
        cmocka_unit_test(a_port_gives_the_key_that_is_wanted),
        cmocka_unit_test(ethernet_has_one_key_and_eight_priorities),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
