/* cm_ib_test.c: rdma_cm on InfiniBand: the path records that IP addresses resolve to, and what queue pairs
 * and address handles get of them. */
#include "simnic/cm/tests/cm_world.h"

#define STATE_INIT 1
#define STATE_RTR 2
#define PORT 7000

/* The part of a path record that the kernel packs as the subnet administrator does. */
struct packed_path {
    uint64_t service_id;
    uint8_t destination_gid[16], source_gid[16];
    uint16_t destination_lid, source_lid;
    uint32_t flow_label_hop_limit;
    uint8_t traffic_class, reversible_path_count;
    uint16_t partition_key, service_level;
} __attribute__((packed));

static struct ib_user_path_rec route_of(struct process *process, uint32_t id)
{
    struct rdma_ucm_query_route_resp route;
    struct rdma_ucm_query query = {.response = (uintptr_t)&route, .id = id};
    assert_int_equal(issue(process, QUERY_ROUTE, query, sizeof(route)), 0);
    assert_int_equal(route.num_paths, 1);
    return route.ib_route[0];
}

static void expect_gid(const uint8_t gid[16], uint32_t link, int rail)
{
    struct rail_gid expected = rail_gid(link, rail, 0);
    assert_memory_equal(gid, expected.raw, 16);
}

static void check_packed(struct process *process, uint32_t id, uint32_t link,
                         const struct ib_user_path_rec *path)
{
    uint8_t room[128];
    struct packed_path packed;
    struct rdma_ucm_query query = {(uintptr_t)room, id, RDMA_USER_CM_QUERY_PATH};
    assert_int_equal(issue(process, QUERY, query, sizeof(room)), 0);
    memcpy(&packed, room + 8 + 8, sizeof(packed));
    expect_gid(packed.source_gid, link, 0);
    expect_gid(packed.destination_gid, link, 1);
    assert_int_equal(packed.destination_lid, path->dlid);
    assert_int_equal(packed.source_lid, path->slid);
    assert_int_equal(packed.partition_key, path->pkey);
    assert_int_equal(ntohs(packed.service_level), path->sl);
    assert_int_equal(ntohl(packed.flow_label_hop_limit) & 0xff, path->hop_limit);
}

/* Connects from rail 0 to rail 1. Returns what the client's queue pair gets. */
static struct ib_uverbs_qp_attr connect_across(struct world *world, struct ib_uverbs_qp_attr *init,
                                               struct ib_user_path_rec *path)
{
    struct process *server = &world->process[0], *client = &world->process[1];
    struct ib_uverbs_qp_attr ready;
    serve(server, "127.0.0.2", PORT);
    uint32_t id = create(client, 200);
    assert_int_equal(bind_to(client, id, "127.0.0.1", 0), 0);
    resolve(client, id, "127.0.0.2", PORT);
    *path = route_of(client, id);
    expect_gid(path->sgid, world->link, 0);
    expect_gid(path->dgid, world->link, 1);
    check_packed(client, id, world->link, path);
    assert_int_equal(connect_to(client, id, "hello"), 0);
    deliver(world);
    uint32_t served = event_of(server, CONNECT_REQUEST).id;
    assert_int_equal(accept_id(server, served, 101, "welcome"), 0);
    deliver(world);
    event_of(client, CONNECT_RESPONSE);
    assert_int_equal(attributes(client, id, STATE_INIT, init), 0);
    assert_int_equal(attributes(client, id, STATE_RTR, &ready), 0);
    /* The other way, from the request. */
    struct ib_uverbs_qp_attr back;
    assert_int_equal(attributes(server, served, STATE_RTR, &back), 0);
    assert_int_equal(back.ah_attr.is_global, ready.ah_attr.is_global);
    if (!(world->link & LINK_SUBNETS)) {
        assert_int_equal(back.ah_attr.dlid, rails[0].lid);
    }
    return ready;
}

static int setup_plain(void **state)
{
    return setup_linked(state, LINK_INFINIBAND | 5u << LINK_SERVICE_LEVEL_SHIFT);
}

static void test_plain(void **state)
{
    struct ib_uverbs_qp_attr init;
    struct ib_user_path_rec path;
    struct ib_uverbs_qp_attr ready = connect_across(*state, &init, &path);
    assert_int_equal(ntohs(path.dlid), rails[1].lid);
    assert_int_equal(ntohs(path.slid), rails[0].lid);
    assert_int_equal(ntohs(path.pkey), 0xffff);
    assert_int_equal(path.sl, 5);
    assert_int_equal(path.hop_limit, 0); /* no GRH */
    assert_int_equal(init.pkey_index, 0);
    assert_int_equal(ready.ah_attr.is_global, 0);
    assert_int_equal(ready.ah_attr.dlid, rails[1].lid);
    assert_int_equal(ready.ah_attr.sl, 5);
    assert_int_equal(ready.ah_attr.port_num, 1);
}

static int setup_required(void **state)
{
    return setup_linked(state, LINK_INFINIBAND | LINK_GRH(1));
}

static void test_grh_required(void **state)
{
    struct world *world = *state;
    struct ib_uverbs_qp_attr init;
    struct ib_user_path_rec path;
    struct ib_uverbs_qp_attr ready = connect_across(world, &init, &path);
    assert_true(path.hop_limit > 0);
    assert_int_equal(ready.ah_attr.is_global, 1);
    assert_int_equal(ready.ah_attr.dlid, rails[1].lid);
    expect_gid(ready.ah_attr.grh.dgid, world->link, 1);
}

static int setup_subnets(void **state)
{
    return setup_linked(state, LINK_INFINIBAND | LINK_SUBNETS);
}

static void test_subnets(void **state)
{
    struct world *world = *state;
    struct ib_uverbs_qp_attr init;
    struct ib_user_path_rec path;
    struct ib_uverbs_qp_attr ready = connect_across(world, &init, &path);
    assert_int_equal(ntohs(path.dlid), RAIL_ROUTER_LID);
    assert_true(path.hop_limit > 1);
    assert_int_equal(ready.ah_attr.is_global, 1);
    assert_int_equal(ready.ah_attr.dlid, RAIL_ROUTER_LID);
    expect_gid(ready.ah_attr.grh.dgid, world->link, 1);
}

static int setup_limited(void **state)
{
    return setup_linked(state, LINK_INFINIBAND | LINK_LIMITED);
}

/* The interfaces are in a partition whose P_Key has another index on each port. */
static void test_partition(void **state)
{
    struct world *world = *state;
    struct ib_uverbs_qp_attr init;
    struct ib_user_path_rec path;
    connect_across(world, &init, &path);
    assert_int_equal(ntohs(path.pkey), 0x8011);
    assert_int_equal(init.pkey_index, 1);
    struct process *client = &world->process[1];
    uint32_t id = create(client, 300);
    assert_int_equal(bind_to(client, id, "127.0.0.2", 0), 0);
    assert_int_equal(attributes(client, id, STATE_INIT, &init), 0);
    assert_int_equal(init.pkey_index, 2);
}

static struct ib_uverbs_ah_attr join(struct process *process, uint32_t id, const char *group)
{
    struct rdma_ucm_create_id_resp response;
    struct rdma_ucm_join_mcast command = {
        .response = (uintptr_t)&response, .uid = 77, .id = id, .addr = at(group, 0)};
    command.addr_size = size_of(&command.addr);
    assert_int_equal(issue(process, JOIN_MCAST, command, sizeof(response)), 0);
    struct rdma_ucm_event_resp event = event_of(process, MULTICAST_JOIN);
    assert_int_equal(event.param.ud.qp_num, 0xffffff);
    return event.param.ud.ah_attr;
}

static void test_groups(void **state)
{
    static const uint8_t ipv4[16] = {0xff, 0x12, 0x40, 0x01, 0xff, 0xff, [12] = 15, 1, 2, 3};
    static const uint8_t ipv6[16] = {0xff, 0x12, 0x60, 0x01, 0xff, 0xff, [14] = 0x12, 0x34};
    static const uint8_t own[16] = {0xff, 0x12, 0xa0, 0x1b, [15] = 9};
    struct world *world = *state;
    struct process *a = &world->process[0];
    uint32_t id = create_typed(a, 100, RDMA_PS_UDP, 4);
    assert_int_equal(bind_to(a, id, "127.0.0.1", 0), 0);
    struct ib_uverbs_ah_attr to = join(a, id, "239.1.2.3");
    assert_memory_equal(to.grh.dgid, ipv4, 16);
    assert_true(rail_is_multicast_lid(to.dlid));
    assert_int_equal(to.is_global, 1);
    assert_int_equal(to.sl, 5);
    to = join(a, id, "ff0e::1234");
    assert_memory_equal(to.grh.dgid, ipv6, 16);
    to = join(a, id, "ff12:a01b::9");
    assert_memory_equal(to.grh.dgid, own, 16);
}

#define TEST(name, link) cmocka_unit_test_setup_teardown(name, setup_##link, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_plain, plain),     TEST(test_grh_required, required),
        TEST(test_subnets, subnets), TEST(test_partition, limited),
        TEST(test_groups, plain),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
