/* ib_test.c: InfiniBand ports: which port a packet reaches by its LIDs and its GRH, who may talk by
 * P_Keys, and what a datagram's receiver is told of the way. What reaches nobody gets no answer. */
#include "simnic/nic/tests/expect.h"

#define GRH 40u
#define QUEUE_KEY 0x11111111u
#define SL 5u

/* Both QPs of a pair on rails of an InfiniBand fabric. */
static struct pair *pair_on(uint32_t link, uint32_t type, uint8_t rail, uint8_t far_rail)
{
    struct rig *rig = rig_new_linked(LINK_INFINIBAND | link);
    struct rig_qp_options options = {.type = type, .rail = rail};
    struct pair *pair = rig_allocate(rig, sizeof(*pair));
    pair->rig = rig;
    pair->cq = rig_cq_new(rig, 256, 64);
    pair->far = rig_cq_new(rig, 256, 64);
    pair->a = rig_qp_new(rig, pair->cq, &options);
    options.rail = far_rail;
    pair->b = rig_qp_new(rig, pair->far, &options);
    pair->near = rig_memory(rig, PAIR_BYTES);
    pair->there = rig_memory(rig, PAIR_BYTES);
    rig_fill(pair->near.bytes, PAIR_BYTES, 1);
    rig_qp_way(pair->a, far_rail);
    rig_qp_way(pair->b, rail);
    return pair;
}

static void end(struct pair *pair)
{
    rig_delete(pair->rig);
}

/* ---- connections ---- */

/* Connects, and sends one message from `a` to `b`. */
static void expect_talk(struct pair *p)
{
    rig_connect(p->a, p->b);
    uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
    uint16_t sent = rig_send_message(p->a, SIGNALLED, &p->near, 0, 100);
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, 100);
    expect_sent(p->cq, p->a, sent);
    assert_memory_equal(p->there.bytes, p->near.bytes, 100);
    end(p);
}

static void expect_silence(struct pair *p)
{
    rig_connect(p->a, p->b);
    rig_receive(p->b, &p->there, 0, 1000);
    uint16_t sent = rig_send_message(p->a, SIGNALLED, &p->near, 0, 100);
    rig_pass(p->rig, 100000000000);
    expect_send_error(p->cq, p->a, sent, TRANSPORT_RETRY_EXC_ERR);
    assert_int_equal(p->a->qp->statistics->retries, 7);
    expect_none(p->far);
    end(p);
}

static void test_lids(void **state)
{
    (void)state;
    expect_talk(pair_on(0, TYPE_RC, 0, 0));
    expect_talk(pair_on(0, TYPE_RC, 0, 1));
    expect_talk(pair_on(0, TYPE_RC, 1, 0));
}

static struct pair *pair_with_lid(uint16_t lid)
{
    struct pair *p = pair_on(0, TYPE_RC, 0, 1);
    struct rail_way way = {.lid = lid};
    rig_qp_follow(p->a, &way);
    return p;
}

static void test_wrong_lid(void **state)
{
    (void)state;
    const uint16_t lid = rails[1].lid;
    expect_talk(pair_with_lid(lid));
    expect_talk(pair_with_lid(lid + 1)); /* the port has 2^LMC of them */
    expect_silence(pair_with_lid(lid + 2));
    expect_silence(pair_with_lid(lid - 1));
    expect_silence(pair_with_lid(rails[0].lid)); /* the other port, which has no such QP */
    expect_silence(pair_with_lid(RAIL_MANAGER_LID));
    expect_silence(pair_with_lid(RAIL_ROUTER_LID));
    expect_silence(pair_with_lid(0));
    expect_silence(pair_with_lid(RAIL_MULTICAST_LID));
    expect_silence(pair_with_lid(RAIL_PERMISSIVE_LID));
}

/* A GRH may be there also where none is required. It must name the port that the LID leads to. */
static void test_grh_within_a_subnet(void **state)
{
    (void)state;
    for (int gid_of = 0; gid_of < 2; gid_of++) {
        struct pair *p = pair_on(0, TYPE_RC, 0, 1);
        struct rail_way way = {.lid = rails[1].lid, .grh = true};
        struct rail_gid gid = rail_gid(p->rig->fabric.link, gid_of, 0);
        memcpy(way.gid, gid.raw, sizeof(way.gid));
        rig_qp_follow(p->a, &way);
        if (gid_of == 1) {
            expect_talk(p);
        } else {
            expect_silence(p);
        }
    }
}

static struct pair *pair_without_grh(uint32_t link, bool answers_too)
{
    struct pair *p = pair_on(link, TYPE_RC, 0, 1);
    struct rail_way way = {.lid = rails[1].lid}, back = {.lid = rails[0].lid};
    rig_qp_follow(p->a, &way);
    if (answers_too) {
        rig_qp_follow(p->b, &back);
    }
    return p;
}

/* The port at the other end decides. */
static void test_grh_required(void **state)
{
    (void)state;
    expect_talk(pair_on(LINK_GRH(0) | LINK_GRH(1), TYPE_RC, 0, 1));
    expect_talk(pair_on(LINK_GRH(1), TYPE_RC, 0, 1));
    expect_silence(pair_without_grh(LINK_GRH(0) | LINK_GRH(1), false));
    expect_silence(pair_without_grh(LINK_GRH(1), false));
    expect_talk(pair_without_grh(LINK_GRH(0), false));
    /* Here the request arrives, and the answer does not. */
    struct pair *p = pair_without_grh(LINK_GRH(0), true);
    rig_connect(p->a, p->b);
    uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
    uint16_t sent = rig_send_message(p->a, SIGNALLED, &p->near, 0, 100);
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, 100);
    rig_pass(p->rig, 100000000000);
    expect_send_error(p->cq, p->a, sent, TRANSPORT_RETRY_EXC_ERR);
    end(p);
}

static struct pair *routed_pair(uint16_t lid, bool grh, uint32_t gid_index, uint8_t hop_limit)
{
    struct pair *p = pair_on(LINK_SUBNETS, TYPE_RC, 0, 1);
    struct rail_way way = {.lid = lid, .grh = grh, .hop_limit = hop_limit};
    struct rail_gid gid = rail_gid(p->rig->fabric.link, 1, gid_index);
    memcpy(way.gid, gid.raw, sizeof(way.gid));
    rig_qp_follow(p->a, &way);
    return p;
}

static void test_routers(void **state)
{
    (void)state;
    expect_talk(pair_on(LINK_SUBNETS, TYPE_RC, 0, 1)); /* as a path record says */
    expect_talk(pair_on(LINK_SUBNETS, TYPE_RC, 1, 1));
    for (uint32_t gid_index = 0; gid_index < 2; gid_index++) {
        expect_talk(routed_pair(RAIL_ROUTER_LID, true, gid_index, 2));
        expect_talk(routed_pair(rails[1].far_lid, true, gid_index, 64));
    }
    expect_silence(routed_pair(rails[1].lid, true, 0, 64)); /* a LID of the other subnet */
    expect_silence(routed_pair(rails[0].far_lid, true, 0, 64));
    expect_silence(routed_pair(RAIL_ROUTER_LID, false, 0, 64));
    expect_silence(routed_pair(RAIL_ROUTER_LID, true, 0, 1));
    expect_silence(routed_pair(RAIL_ROUTER_LID, true, 2, 64)); /* no such GID */
}

/* ---- partitions ---- */

static struct pair *pair_in(uint16_t near, uint16_t there)
{
    struct pair *p = pair_on(0, TYPE_RC, 0, 1);
    p->a->qp->attributes.partition = near;
    p->b->qp->attributes.partition = there;
    return p;
}

static void test_partitions(void **state)
{
    (void)state;
    expect_talk(pair_in(0x8011, 0x8011));
    expect_talk(pair_in(0x8011, 0x0011));
    expect_talk(pair_in(0x0011, 0x8011));
    expect_silence(pair_in(0x0011, 0x0011)); /* limited members only talk to full ones */
    expect_silence(pair_in(0x8011, 0x8022));
    expect_silence(pair_in(0xffff, 0x8011));
    expect_talk(pair_in(0xffff, 0x7fff));
    expect_silence(pair_in(0x8000, 0x8000)); /* no partition */
    expect_silence(pair_in(0, 0));
}

/* The port where they come counts them, as ibv_query_port tells: a message that was sent 8 times. */
static void test_violations(void **state)
{
    (void)state;
    struct pair *p = pair_in(0x8011, 0x8022);
    rig_connect(p->a, p->b);
    rig_send_message(p->a, SIGNALLED, &p->near, 0, 100);
    rig_pass(p->rig, 100000000000);
    assert_int_equal(fabric_port_violations(&p->rig->fabric, 1), 8);
    assert_int_equal(fabric_port_violations(&p->rig->fabric, 0), 0);
    end(p);
}

/* A free place in the table is 0, which matches nothing. */
static void test_table(void **state)
{
    (void)state;
    const uint32_t link = LINK_INFINIBAND;
    assert_int_equal(rail_partition_count(link), 128);
    assert_int_equal(rail_partition(link, 0, 0), 0xffff);
    assert_int_equal(rail_partition(link | LINK_LIMITED, 0, 0), 0x7fff);
    assert_int_equal(rail_partition(link, 0, 127), 0);
    assert_int_equal(rail_partition_count(0), 1);
    assert_int_equal(rail_partition(0, 1, 0), 0xffff);
    for (int rail = 0; rail < RAIL_COUNT; rail++) {
        uint32_t index = rail_address_partition_index(link | LINK_LIMITED, rail);
        assert_int_equal(rail_partition(link, rail, index), 0x8011);
        assert_int_equal(index, 1 + rail);
    }
}

static void test_other_operations(void **state)
{
    (void)state;
    struct pair *p = pair_on(LINK_GRH(0) | LINK_GRH(1), TYPE_RC, 0, 1);
    rig_connect(p->a, p->b);
    uint16_t index = rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &p->near, 5000, &p->there);
    expect_sent(p->cq, p->a, index);
    assert_memory_equal(p->near.bytes, p->there.bytes, 5000);
    p->b->qp->attributes.partition = 0x8011;
    index = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 5000, &p->there);
    rig_pass(p->rig, 100000000000);
    expect_send_error(p->cq, p->a, index, TRANSPORT_RETRY_EXC_ERR);
    end(p);
}

/* ---- datagrams ---- */

static uint16_t send_datagram(struct pair *p, const struct rail_way *way, uint32_t bytes)
{
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
    rig_wqe_way(&wqe, p->b->qp->number, QUEUE_KEY, way);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, bytes, p->near.key);
    return rig_send(p->a, &wqe);
}

static struct pair *datagram_pair(uint32_t link)
{
    struct pair *p = pair_on(link, TYPE_UD, 0, 1);
    rig_connect(p->a, p->b);
    memset(p->there.bytes, 0xaa, 1000);
    return p;
}

static void test_datagram_without_grh(void **state)
{
    (void)state;
    struct pair *p = datagram_pair(0);
    struct rail_way way = {.lid = rails[1].lid + 1, .path_bits = 1, .service_level = SL};
    uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
    expect_sent(p->cq, p->a, send_datagram(p, &way, 101));
    struct mlx5_cqe64 cqe = expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, GRH + 101);
    assert_int_equal(be32toh(cqe.flags_rqpn), SL << 24 | p->a->qp->number);
    assert_int_equal(be16toh(cqe.slid), rails[0].lid + 1);
    assert_int_equal(cqe.ml_path & 0x7f, 1);
    assert_int_equal(be32toh(cqe.imm_inval_pkey), 0xffff);
    for (uint32_t i = 0; i < GRH; i++) { /* its place is left as it was */
        assert_int_equal(p->there.bytes[i], 0xaa);
    }
    assert_memory_equal(p->there.bytes + GRH, p->near.bytes, 101);
    assert_int_equal(p->there.bytes[GRH + 101], 0xaa);
    assert_int_equal(p->b->qp->statistics->bytes_received, 101);
    end(p);
}

static void check_grh(const struct pair *p, const struct rail_way *way, uint8_t hop_limit)
{
    const uint8_t *grh = p->there.bytes;
    struct rail_gid source = rail_gid(p->rig->fabric.link, 0, way->gid_index);
    assert_int_equal(grh[0] << 24 | grh[1] << 16 | grh[2] << 8 | grh[3],
                     6 << 28 | 0x2e << 20 | 0x54321);
    assert_int_equal(grh[4] << 8 | grh[5], 12 + 8 + 104 + 4); /* 101 bytes, padded */
    assert_int_equal(grh[6], 0x1b);
    assert_int_equal(grh[7], hop_limit);
    assert_memory_equal(grh + 8, source.raw, 16);
    assert_memory_equal(grh + 24, way->gid, 16);
    assert_memory_equal(grh + GRH, p->near.bytes, 101);
}

static void test_datagram_with_grh(void **state)
{
    (void)state;
    for (uint32_t subnets = 0; subnets <= LINK_SUBNETS; subnets += LINK_SUBNETS) {
        struct pair *p = datagram_pair(subnets);
        struct rail_way way = {.lid = subnets ? RAIL_ROUTER_LID : rails[1].lid,
                               .grh = true,
                               .hop_limit = 61,
                               .traffic_class = 0x2e,
                               .flow_label = 0x54321,
                               .gid_index = subnets ? 1 : 0};
        struct rail_gid gid = rail_gid(p->rig->fabric.link, 1, way.gid_index);
        memcpy(way.gid, gid.raw, sizeof(way.gid));
        uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
        expect_sent(p->cq, p->a, send_datagram(p, &way, 101));
        struct mlx5_cqe64 cqe = expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, GRH + 101);
        assert_int_equal(be32toh(cqe.flags_rqpn), 1u << 28 | p->a->qp->number);
        assert_int_equal(be16toh(cqe.slid), subnets ? RAIL_ROUTER_LID : rails[0].lid);
        check_grh(p, &way, subnets ? 60 : 61);
        end(p);
    }
}

static void test_datagram_to_nobody(void **state)
{
    (void)state;
    struct pair *p = datagram_pair(LINK_GRH(1));
    struct rail_way plain = {.lid = rails[1].lid}, wrong = {.lid = 9};
    rig_receive(p->b, &p->there, 0, 1000);
    expect_sent(p->cq, p->a, send_datagram(p, &plain, 101)); /* its port requires a GRH */
    expect_sent(p->cq, p->a, send_datagram(p, &wrong, 101));
    struct rail_way good;
    rail_find_way(p->rig->fabric.link, 0, 1, &good);
    p->b->qp->attributes.partition = 0x8011;
    expect_sent(p->cq, p->a, send_datagram(p, &good, 101));
    expect_none(p->far);
    p->a->qp->attributes.partition = 0x0011;
    expect_sent(p->cq, p->a, send_datagram(p, &good, 101));
    struct mlx5_cqe64 cqe = expect(p->far, MLX5_CQE_RESP_SEND);
    assert_int_equal(be32toh(cqe.imm_inval_pkey), 0x0011); /* as the sender has it */
    end(p);
}

/* A group is reached by a multicast LID and the GID together, and only by who has a matching P_Key. */
static void test_group(void **state)
{
    (void)state;
    static const uint8_t group[16] = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [15] = 7};
    struct pair *p = datagram_pair(0);
    struct rail_way way = {.lid = RAIL_MULTICAST_LID + 7, .grh = true};
    struct rig_wqe wqe;
    memcpy(way.gid, group, sizeof(group));
    assert_true(multicast_attach(&p->rig->nic, p->b->qp, group));
    rig_receive(p->b, &p->there, 0, 1000);
    for (int i = 0; i < 4; i++) {
        way.lid = i == 0 ? rails[1].lid : RAIL_MULTICAST_LID + 7;
        way.grh = i != 1;
        p->a->qp->attributes.partition = i == 2 ? 0x8011 : 0xffff;
        rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
        rig_wqe_way(&wqe, 0xffffff, QUEUE_KEY, &way);
        rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 10, p->near.key);
        expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
        if (i < 3) {
            expect_none(p->far);
        }
    }
    expect(p->far, MLX5_CQE_RESP_SEND);
    assert_memory_equal(p->there.bytes + 24, group, 16);
    end(p);
}

/* ---- what tests and people can see ---- */

static void test_path_is_shown(void **state)
{
    (void)state;
    struct pair *p = datagram_pair(0);
    struct rail_way way = {.lid = rails[1].lid, .service_level = SL, .traffic_class = 0x2e};
    expect_sent(p->cq, p->a, send_datagram(p, &way, 10));
    const struct fabric_queue_pair_statistics *s = p->a->qp->statistics;
    assert_int_equal(s->way.lid, rails[1].lid);
    assert_int_equal(s->way.service_level, SL);
    assert_int_equal(s->way.traffic_class, 0x2e);
    assert_int_equal(s->partition, 0xffff);
    end(p);
}

/* RoCE has a UDP port in the place of the LID, a priority of three bits in other bits, and always a GRH, of
 * which WQEs say nothing. */
static void test_path_on_ethernet_is_shown(void **state)
{
    (void)state;
    struct rig_qp_options options = {.type = TYPE_UD};
    struct pair *p = pair_new(&options);
    rig_connect(p->a, p->b);
    struct rail_way way = {.lid = 0xe6f5, .service_level = 3 << 1, .gid_index = 3};
    memcpy(way.gid, rails[0].gid[3].raw, sizeof(way.gid));
    expect_sent(p->cq, p->a, send_datagram(p, &way, 10));
    const struct fabric_queue_pair_statistics *s = p->a->qp->statistics;
    assert_int_equal(s->way.lid, 0);
    assert_int_equal(s->way.service_level, 3);
    assert_int_equal(s->way.grh, 1);
    assert_memory_equal(s->way.gid, rails[0].gid[3].raw, 16);
    end(p);
}

/* ---- the words of --link ---- */

static void test_words(void **state)
{
    (void)state;
    static const char *const good[] = {
        "ethernet",   "ib",         "ib,grh",        "ib,grh1",
        "ib,subnets", "ib,limited", "ib,grh0,sl=15", "ib,grh,subnets,limited,sl=3"};
    static const char *const bad[] = {"",         "roce",   "ib,", "ethernet,grh",
                                      "ib,sl=16", "ib,sl=", "ib,x"};
    char text[LINK_TEXT_BYTES], error[128];
    uint32_t link;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(link_parse(good[i], &link, error, sizeof(error)));
        link_describe(link, text);
        assert_string_equal(text, good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(link_parse(bad[i], &link, error, sizeof(error)));
    }
    assert_true(link_parse("ib,grh0,grh1", &link, error, sizeof(error)));
    link_describe(link, text);
    assert_string_equal(text, "ib,grh");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lids),
        cmocka_unit_test(test_wrong_lid),
        cmocka_unit_test(test_grh_within_a_subnet),
        cmocka_unit_test(test_grh_required),
        cmocka_unit_test(test_routers),
        cmocka_unit_test(test_partitions),
        cmocka_unit_test(test_violations),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_other_operations),
        cmocka_unit_test(test_datagram_without_grh),
        cmocka_unit_test(test_datagram_with_grh),
        cmocka_unit_test(test_datagram_to_nobody),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_path_is_shown),
        cmocka_unit_test(test_path_on_ethernet_is_shown),
        cmocka_unit_test(test_words),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
