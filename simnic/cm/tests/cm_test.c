/* cm_test.c: the connection manager as programs see it: what commands return, which events come. */
#include "simnic/cm/tests/cm_world.h"

static void check_request(const struct rdma_ucm_event_resp *request)
{
    assert_int_equal(request->uid, 100);
    assert_int_equal(request->param.conn.private_data_len, 56);
    assert_memory_equal(request->param.conn.private_data, "hello\0\0", 7);
    assert_int_equal(request->param.conn.qp_num, 0x111);
    assert_int_equal(request->param.conn.responder_resources, 5);
    assert_int_equal(request->param.conn.initiator_depth, 3);
    assert_int_equal(request->param.conn.retry_count, 6);
    assert_int_equal(request->param.conn.flow_control, 1);
    assert_int_equal(request->ece.vendor_id, 0x15b3);
}

static void check_reply(const struct rdma_ucm_event_resp *reply)
{
    assert_int_equal(reply->uid, 200);
    assert_int_equal(reply->param.conn.qp_num, 0x222);
    assert_int_equal(reply->param.conn.private_data_len, 196);
    assert_memory_equal(reply->param.conn.private_data, "welcome\0", 8);
    assert_int_equal(reply->param.conn.responder_resources, 2);
    assert_int_equal(reply->param.conn.initiator_depth, 4);
}

static void check_rtr(struct process *process, uint32_t id, struct ib_uverbs_qp_attr *attr)
{
    assert_int_equal(attributes(process, id, 2, attr), 0);
    assert_int_equal(attr->qp_state, 2);
    assert_int_equal(attr->qp_attr_mask, 1 | 128 | 256 | 4096 | 32768 | 131072 | 1048576);
    assert_int_equal(attr->path_mtu, 5);
    assert_int_equal(attr->ah_attr.is_global, 1);
    assert_int_equal(attr->ah_attr.dlid, 0);
    assert_int_equal(attr->ah_attr.grh.sgid_index, 3);
    assert_int_equal(attr->ah_attr.grh.hop_limit, 64);
    assert_int_equal(attr->ah_attr.port_num, 1);
    assert_memory_equal(attr->ah_attr.grh.dgid, rails[0].gid[3].raw, 16);
}

static void check_rts(struct process *process, uint32_t id, struct ib_uverbs_qp_attr *attr)
{
    assert_int_equal(attributes(process, id, 3, attr), 0);
    assert_int_equal(attr->qp_attr_mask, 1 | 65536 | 512 | 1024 | 2048 | 8192);
    assert_int_equal(attr->timeout, 18);
    assert_int_equal(attr->retry_cnt, 6);
}

static void test_connection(void **state)
{
    struct world *world = *state;
    struct process *server = &world->process[0], *client = &world->process[1];
    uint32_t id = create(client, 200);
    serve(server, "127.0.0.1", 7000);
    resolve(client, id, "127.0.0.1", 7000);
    assert_int_equal(connect_to(client, id, "hello"), 0);
    assert_int_equal(connect_to(client, id, "hello"), -EINVAL);
    deliver(world);
    struct rdma_ucm_event_resp request = event_of(server, CONNECT_REQUEST);
    check_request(&request);
    assert_int_equal(accept_id(server, request.id, 101, "welcome"), 0);
    deliver(world);
    struct rdma_ucm_event_resp reply = event_of(client, CONNECT_RESPONSE);
    check_reply(&reply);
    assert_int_equal(accept_id(client, id, 0, NULL), 0);
    deliver(world);
    assert_int_equal(event_of(server, ESTABLISHED).uid, 101);
    no_event(client);
}

static void test_attributes(void **state)
{
    struct world *world = *state;
    struct process *server = &world->process[0], *client = &world->process[1];
    struct ib_uverbs_qp_attr attr, served;
    uint32_t id = create(client, 200);
    serve(server, "127.0.0.1", 7000);
    resolve(client, id, "127.0.0.1", 7000);
    assert_int_equal(attributes(client, id, 1, &attr), 0);
    assert_int_equal(attr.qp_attr_mask, 1 | 8 | 16 | 32);
    assert_int_equal(connect_to(client, id, "hello"), 0);
    assert_int_equal(attributes(client, id, 2, &attr), -EINVAL);
    deliver(world);
    uint32_t accepted = event_of(server, CONNECT_REQUEST).id;
    check_rtr(server, accepted, &served);
    assert_int_equal(served.dest_qp_num, 0x111);
    assert_int_equal(served.max_dest_rd_atomic, 5);
    assert_int_equal(accept_id(server, accepted, 101, "welcome"), 0);
    deliver(world);
    event_of(client, CONNECT_RESPONSE);
    check_rts(client, id, &attr);
    assert_int_equal(attr.sq_psn, served.rq_psn);
    assert_int_equal(attr.rnr_retry, 5);
    assert_int_equal(attr.max_rd_atomic, 4);
    check_rts(server, accepted, &served);
    assert_int_equal(served.rnr_retry, 7);
    assert_int_equal(served.max_rd_atomic, 2);
    check_rtr(client, id, &attr);
    assert_int_equal(attr.rq_psn, served.sq_psn);
    assert_int_equal(attr.max_dest_rd_atomic, 2);
    assert_int_equal(attributes(client, id, 1, &attr), 0);
    assert_int_equal(attr.qp_access_flags, 2 | 4 | 8);
    assert_int_equal(attributes(client, id, 6, &attr), -EINVAL);
}

static void test_disconnect(void **state)
{
    struct world *world = *state;
    struct connection made = establish(world, "127.0.0.1", 7000);
    assert_int_equal(disconnect(made.client, made.client_id), 0);
    deliver(world);
    no_event(made.client);
    assert_int_equal(event_of(made.server, DISCONNECTED).uid, 101);
    assert_int_equal(disconnect(made.server, made.served), 0);
    deliver(world);
    assert_int_equal(event_of(made.client, DISCONNECTED).status, 0);
    pass(world, 2000);
    event_of(made.client, TIMEWAIT_EXIT);
    event_of(made.server, TIMEWAIT_EXIT);
    assert_int_equal(destroy(made.client, made.client_id), 5);
    assert_int_equal(destroy(made.server, made.served), 3);
    assert_int_equal(destroy(made.server, made.listener), 1);
}

static void test_reject(void **state)
{
    struct world *world = *state;
    struct process *server = &world->process[0], *client = &world->process[1];
    serve(server, "127.0.0.2", 7000);
    create_asking(client, 200, "127.0.0.2", 7000);
    deliver(world);
    struct rdma_ucm_reject command = {.id = event_of(server, CONNECT_REQUEST).id};
    command.private_data_len = 3;
    memcpy(command.private_data, "no!", 3);
    assert_int_equal(issue(server, REJECT, command, 0), 0);
    deliver(world);
    struct rdma_ucm_event_resp event = event_of(client, REJECTED);
    assert_int_equal(event.status, 28);
    assert_int_equal(event.param.conn.private_data_len, 148);
    assert_memory_equal(event.param.conn.private_data, "no!", 4);
    assert_int_equal(accept_id(server, command.id, 101, ""), -EINVAL);
    command.reason = 7;
    assert_int_equal(issue(server, REJECT, command, 0), -EINVAL);
}

static void test_no_listener(void **state)
{
    struct world *world = *state;
    struct process *client = &world->process[1];
    create_asking(client, 200, "127.0.0.1", 7001);
    assert_int_equal(event_of(client, REJECTED).status, 8);
    uint32_t bound = create(&world->process[0], 100);
    assert_int_equal(bind_to(&world->process[0], bound, "127.0.0.1", 7002), 0);
    create_asking(client, 201, "127.0.0.1", 7002);
    assert_int_equal(event_of(client, REJECTED).status, 8);
}

static void test_unread_request_of_destroyed_listener(void **state)
{
    struct world *world = *state;
    struct process *server = &world->process[0], *client = &world->process[1];
    uint32_t listener = serve(server, "0.0.0.0", 7000);
    create_asking(client, 200, "127.0.0.2", 7000);
    deliver(world);
    assert_int_equal(destroy(server, listener), 0);
    no_event(server);
    deliver(world);
    assert_int_equal(event_of(client, REJECTED).status, 28);
}

static void test_events_reported_and_drop(void **state)
{
    struct world *world = *state;
    struct process *client = &world->process[1];
    uint32_t first = create(client, 200), second = create(client, 201);
    assert_int_equal(resolve_addr(client, first, "127.0.0.1", 1), 0);
    assert_int_equal(resolve_addr(client, second, "::1", 1), 0);
    assert_int_equal(destroy(client, first), 0);
    assert_int_equal(event_of(client, ADDR_RESOLVED).uid, 201);
    no_event(client);
    assert_int_equal(destroy(client, second), 1);
    struct rdma_ucm_resolve_route command = {.id = second};
    assert_int_equal(issue(client, RESOLVE_ROUTE, command, 0), -ENOENT);
}

static void test_migrate(void **state)
{
    struct world *world = *state;
    struct process *client = &world->process[1];
    uint32_t first = create(client, 200), second = create(client, 201);
    assert_int_equal(resolve_addr(client, first, "127.0.0.1", 1), 0);
    event_of(client, ADDR_RESOLVED);
    struct rdma_ucm_resolve_route route = {.id = first, .timeout_ms = 1};
    assert_int_equal(issue(client, RESOLVE_ROUTE, route, 0), 0);
    assert_int_equal(resolve_addr(client, second, "127.0.0.1", 1), 0);
    struct process other = {.event_fd = eventfd(0, EFD_NONBLOCK)};
    other.file = cm_file_open(client->cm, other.event_fd);
    struct rdma_ucm_migrate_resp response;
    struct rdma_ucm_migrate_id command = {.response = (uintptr_t)&response, .id = first, .fd = 3};
    assert_int_equal(issue(&other, MIGRATE_ID, command, sizeof(response)), 0);
    assert_int_equal(response.events_reported, 1);
    assert_int_equal(event_of(&other, ROUTE_RESOLVED).uid, 200);
    no_event(&other);
    assert_int_equal(event_of(client, ADDR_RESOLVED).uid, 201);
    no_event(client);
    struct rdma_ucm_disconnect wrong = {.id = first};
    assert_int_equal(issue(client, DISCONNECT, wrong, 0), -EINVAL);
    assert_int_equal(destroy(&other, first), 2);
    cm_file_close(other.file);
    close(other.event_fd);
}

static void test_ports(void **state)
{
    struct world *world = *state;
    struct process *a = &world->process[0], *b = &world->process[1];
    serve(a, "127.0.0.1", 7000);
    uint32_t id = create(b, 1);
    assert_int_equal(bind_to(b, id, "127.0.0.1", 7000), -EADDRINUSE);
    assert_int_equal(bind_to(b, id, "0.0.0.0", 7000), -EADDRNOTAVAIL);
    assert_int_equal(bind_to(b, id, "10.1.2.3", 7000), -EADDRNOTAVAIL);
    assert_int_equal(bind_to(b, id, "fe80::73:69ff:fe6d:1", 7000), -EINVAL);
    assert_int_equal(bind_to(b, id, "127.0.0.2", 7000), 0);
    assert_int_equal(bind_to(b, id, "127.0.0.2", 7001), -EINVAL);
    uint32_t udp = create_typed(b, 2, RDMA_PS_UDP, 4);
    assert_int_equal(bind_to(b, udp, "127.0.0.1", 7000), 0);
    uint32_t any = create(b, 3);
    assert_int_equal(listen_on(b, any, 0), 0);
    struct rdma_ucm_query_addr_resp response;
    struct rdma_ucm_query query = {.response = (uintptr_t)&response, .id = any};
    assert_int_equal(issue(b, QUERY, query, sizeof(response)), 0);
    assert_int_equal(response.node_guid, 0);
    assert_in_range(ntohs(((struct sockaddr_in *)&response.src_addr)->sin_port), 32768, 60999);
    destroy(b, id);
    id = create(b, 4);
    assert_int_equal(bind_to(b, id, "127.0.0.2", 7000), 0);
}

static void test_reuse(void **state)
{
    struct world *world = *state;
    uint32_t id[2];
    for (int i = 0; i < 2; i++) {
        struct process *process = &world->process[i];
        int on = 1;
        id[i] = create(process, 1);
        struct rdma_ucm_set_option command = {.optval = (uintptr_t)&on,
                                              .id = id[i],
                                              .optname = RDMA_OPTION_ID_REUSEADDR,
                                              .optlen = sizeof(on)};
        assert_int_equal(issue(process, SET_OPTION, command, 0), 0);
        command.optlen = 1;
        assert_int_equal(issue(process, SET_OPTION, command, 0), -EINVAL);
        command.level = 9;
        assert_int_equal(issue(process, SET_OPTION, command, 0), -ENOSYS);
        assert_int_equal(bind_to(process, id[i], "127.0.0.1", 7000), 0);
    }
    assert_int_equal(listen_on(&world->process[0], id[0], 1), -EADDRINUSE);
    destroy(&world->process[1], id[1]);
    assert_int_equal(listen_on(&world->process[0], id[0], 1), 0);
}

static void test_datagram(void **state)
{
    struct world *world = *state;
    struct process *server = &world->process[0], *client = &world->process[1];
    uint32_t listener = create_typed(server, 100, RDMA_PS_UDP, 4);
    assert_int_equal(bind_to(server, listener, "fd73:696d::2", 7000), 0);
    assert_int_equal(listen_on(server, listener, 4), 0);
    uint32_t id = create_typed(client, 200, RDMA_PS_UDP, 4);
    struct ib_uverbs_qp_attr attr;
    resolve(client, id, "fd73:696d::2", 7000);
    assert_int_equal(attributes(client, id, 1, &attr), 0);
    assert_int_equal(attr.qp_attr_mask, 1 | 16 | 32 | 64);
    assert_int_equal(attr.qkey, 0x01234567);
    assert_int_equal(connect_to(client, id, "who"), 0);
    deliver(world);
    struct rdma_ucm_event_resp request = event_of(server, CONNECT_REQUEST);
    assert_int_equal(request.param.ud.private_data_len, 180);
    assert_memory_equal(request.param.ud.private_data, "who", 4);
    assert_int_equal(accept_id(server, request.id, 101, "me"), 0);
    deliver(world);
    no_event(server);
    struct rdma_ucm_event_resp event = event_of(client, ESTABLISHED);
    assert_int_equal(event.param.ud.qp_num, 0x222);
    assert_int_equal(event.param.ud.qkey, 0x01234567);
    assert_int_equal(event.param.ud.private_data_len, 136);
    assert_memory_equal(event.param.ud.private_data, "me", 3);
    assert_int_equal(event.param.ud.ah_attr.grh.sgid_index, 5);
    assert_memory_equal(event.param.ud.ah_attr.grh.dgid, rails[1].ipv6, 16);

    id = create_typed(client, 201, RDMA_PS_UDP, 4);
    resolve(client, id, "fd73:696d::2", 7000);
    assert_int_equal(connect_to(client, id, ""), 0);
    deliver(world);
    struct rdma_ucm_reject reject = {.id = event_of(server, CONNECT_REQUEST).id};
    assert_int_equal(issue(server, REJECT, reject, 0), 0);
    deliver(world);
    assert_int_equal(event_of(client, UNREACHABLE).status, 2);
    id = create_typed(client, 202, RDMA_PS_UDP, 4);
    resolve(client, id, "fd73:696d::2", 7001);
    assert_int_equal(connect_to(client, id, ""), 0);
    assert_int_equal(event_of(client, UNREACHABLE).status, 1);
}

static void test_multicast(void **state)
{
    struct world *world = *state;
    struct process *a = &world->process[0];
    uint32_t id = create_typed(a, 100, RDMA_PS_UDP, 4);
    static const uint8_t wanted[16] = {[10] = 0xff, [11] = 0xff, 239, 1, 2, 3};
    assert_int_equal(bind_to(a, id, "127.0.0.1", 0), 0);
    struct rdma_ucm_create_id_resp response;
    struct rdma_ucm_join_mcast command = {
        .response = (uintptr_t)&response, .uid = 77, .id = id, .addr = at("239.1.2.3", 0)};
    command.addr_size = sizeof(struct sockaddr_in);
    assert_int_equal(issue(a, JOIN_MCAST, command, sizeof(response)), 0);
    struct rdma_ucm_event_resp event = event_of(a, MULTICAST_JOIN);
    assert_int_equal(event.uid, 77);
    assert_int_equal(event.id, response.id);
    assert_int_equal(event.param.ud.qp_num, 0xffffff);
    assert_memory_equal(event.param.ud.ah_attr.grh.dgid, wanted, 16);
    struct rdma_ucm_destroy_id_resp left;
    struct rdma_ucm_destroy_id leave = {.response = (uintptr_t)&left, .id = response.id};
    assert_int_equal(issue(a, LEAVE_MCAST, leave, sizeof(left)), 0);
    assert_int_equal(left.events_reported, 1);
    assert_int_equal(issue(a, LEAVE_MCAST, leave, sizeof(left)), -ENOENT);
    assert_int_equal(issue(a, JOIN_MCAST, command, sizeof(response)), 0);
    assert_int_equal(destroy(a, id), 1);
    no_event(a);
}

static void test_addresses(void **state)
{
    struct world *world = *state;
    struct process *a = &world->process[0];
    uint32_t id = create(a, 100);
    assert_int_equal(resolve_addr(a, id, "10.0.0.1", 1), 0);
    assert_int_equal((int)event_of(a, ADDR_ERROR).status, -ENODEV);
    assert_int_equal(resolve_addr(a, id, "127.0.0.2", 1), 0);
    event_of(a, ADDR_RESOLVED);
    struct rdma_ucm_query_route_resp route;
    struct rdma_ucm_query query = {.response = (uintptr_t)&route, .id = id};
    assert_int_equal(issue(a, QUERY_ROUTE, query, sizeof(route)), 0);
    assert_int_equal(route.node_guid, htobe64(rails[1].node_guid));
    assert_memory_equal(route.ib_route[0].sgid, rails[1].gid[3].raw, 16);
    assert_int_equal(((struct sockaddr_in *)&route.src_addr)->sin_addr.s_addr, htonl(0x7f000002));

    id = create(a, 101);
    assert_int_equal(bind_to(a, id, "127.0.0.1", 0), 0);
    resolve(a, id, "127.0.0.2", 1);
    uint8_t room[8 + 6 * 72];
    query = (struct rdma_ucm_query){(uintptr_t)room, id, RDMA_USER_CM_QUERY_PATH};
    assert_int_equal(issue(a, QUERY, query, sizeof(room)), 0);
    assert_int_equal(room[0], 1);
    assert_memory_equal(room + 8 + 8 + 8, rails[1].gid[3].raw, 16);
    assert_memory_equal(room + 8 + 8 + 24, rails[0].gid[3].raw, 16);
    query.option = RDMA_USER_CM_QUERY_GID;
    struct rdma_ucm_query_addr_resp gids;
    query.response = (uintptr_t)&gids;
    assert_int_equal(issue(a, QUERY, query, sizeof(gids)), 0);
    assert_memory_equal((uint8_t *)&gids.src_addr + 8, rails[0].gid[3].raw, 16);
    assert_memory_equal((uint8_t *)&gids.dst_addr + 8, rails[1].gid[3].raw, 16);
    query.option = 9;
    assert_int_equal(issue(a, QUERY, query, sizeof(gids)), -ENOSYS);
}

/* What librdmacm does first, to learn whether the kernel knows InfiniBand addresses. */
static void test_ib_address(void **state)
{
    struct world *world = *state;
    struct process *a = &world->process[0];
    uint32_t id = create_typed(a, 100, RDMA_PS_IB, 2);
    struct rdma_ucm_bind command = {.id = id, .addr_size = 48};
    uint64_t service = htobe64(0x01060000), mask = htobe64(0xffffffffffff0000);
    uint16_t family = 27;
    memcpy(&command.addr, &family, 2);
    memcpy((uint8_t *)&command.addr + 24, &service, 8);
    memcpy((uint8_t *)&command.addr + 32, &mask, 8);
    assert_int_equal(issue(a, BIND, command, 0), 0);
    destroy(a, id);
    id = create_typed(a, 100, RDMA_PS_UDP, 2);
    command.id = id;
    assert_int_equal(issue(a, BIND, command, 0), -EPROTONOSUPPORT);
}

static void test_private_data_limit(void **state)
{
    struct world *world = *state;
    struct process *client = &world->process[1];
    char data[58];
    memset(data, 'x', 57);
    data[57] = 0;
    serve(&world->process[0], "127.0.0.1", 7000);
    uint32_t id = create_resolved(client, 200, "127.0.0.1", 7000);
    assert_int_equal(connect_to(client, id, data), -EINVAL);
    assert_int_equal(connect_to(client, id, data + 1), 0);
}

static void test_destroy_disconnects(void **state)
{
    struct world *world = *state;
    struct connection made = establish(world, "::1", 7000);
    destroy(made.client, made.client_id);
    deliver(world);
    event_of(made.server, DISCONNECTED);
    assert_int_equal(disconnect(made.server, made.served), 0);
    deliver(world);
    made = establish(world, "127.0.0.2", 7000);
    cm_file_close(made.server->file);
    made.server->file = cm_file_open(made.server->cm, -1);
    deliver(world);
    event_of(made.client, DISCONNECTED);
}

static void test_one_process(void **state)
{
    struct world *world = *state;
    struct process *a = &world->process[0];
    serve(a, "0.0.0.0", 7000);
    uint32_t id = create_asking(a, 200, "127.0.0.1", 7000);
    deliver(world);
    uint32_t served = event_of(a, CONNECT_REQUEST).id;
    assert_int_equal(accept_id(a, served, 101, ""), 0);
    deliver(world);
    event_of(a, CONNECT_RESPONSE);
    assert_int_equal(accept_id(a, id, 0, NULL), 0);
    deliver(world);
    assert_int_equal(event_of(a, ESTABLISHED).uid, 101);
}

static void test_notify(void **state)
{
    struct world *world = *state;
    struct process *server = &world->process[0], *client = &world->process[1];
    serve(server, "127.0.0.1", 7000);
    uint32_t id = create_asking(client, 200, "127.0.0.1", 7000);
    deliver(world);
    struct rdma_ucm_notify command = {.id = event_of(server, CONNECT_REQUEST).id, .event = 4};
    assert_int_equal(issue(server, NOTIFY, command, 0), -EINVAL);
    assert_int_equal(accept_id(server, command.id, 101, ""), 0);
    assert_int_equal(issue(server, NOTIFY, command, 0), 0);
    event_of(server, ESTABLISHED);
    assert_int_equal(issue(server, NOTIFY, command, 0), -EISCONN);
    deliver(world);
    event_of(client, CONNECT_RESPONSE);
    assert_int_equal(accept_id(client, id, 0, NULL), 0);
    deliver(world);
    no_event(server);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_connection),
        TEST(test_attributes),
        TEST(test_disconnect),
        TEST(test_reject),
        TEST(test_no_listener),
        TEST(test_unread_request_of_destroyed_listener),
        TEST(test_events_reported_and_drop),
        TEST(test_migrate),
        TEST(test_ports),
        TEST(test_reuse),
        TEST(test_datagram),
        TEST(test_multicast),
        TEST(test_addresses),
        TEST(test_ib_address),
        TEST(test_private_data_limit),
        TEST(test_destroy_disconnects),
        TEST(test_one_process),
        TEST(test_notify),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
