/* way_test.c: what the options of a nic change in the way that rdma_cm has found, and which ways are refused. Runs without RDMA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cm/internal.h"
#include "nic/initiators.h"

#define CHANGES_MAX 8

static struct {
    struct ibv_qp_attr found; /* rdma_cm's, for RTR */
    uint16_t partition_index; /* likewise, for INIT */
    struct ibv_qp_attr changes[CHANGES_MAX];
    uint32_t change_count;
    uint32_t requests, accepted;
    int traffic_class; /* that was asked for; -1 = none was */
    uint32_t resolved;
    struct sockaddr_in source; /* of the last; zeros = any */
    struct ifaddrs *interfaces;
    int refuse_option;
    struct nic_address peer; /* of a dynamic queue pair */
} fake;

static const uint16_t keys[] = {0xffff, 0x8001, 0x0002};

int __wrap_rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attributes, int *mask);
int __wrap_rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attributes, int *mask)
{
    const enum ibv_qp_state state = attributes->qp_state;
    (void)id;
    if (state == IBV_QPS_RTR) {
        *attributes = fake.found;
    }
    attributes->qp_state = state;
    attributes->pkey_index = fake.partition_index;
    *mask = IBV_QP_STATE;
    return 0;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    (void)qp;
    (void)mask;
    assert_true(fake.change_count < CHANGES_MAX);
    fake.changes[fake.change_count++] = *attributes;
    return 0;
}

int __wrap_ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *key);
int __wrap_ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *key)
{
    (void)context;
    assert_int_equal(port, 1);
    assert_in_range(index, 0, 2);
    *key = htobe16(keys[index]);
    return 0;
}

int __wrap_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *parameters);
int __wrap_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *parameters)
{
    (void)id;
    (void)parameters;
    fake.requests++;
    return 0;
}

int __wrap_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *parameters);
int __wrap_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *parameters)
{
    (void)id;
    (void)parameters;
    fake.accepted++;
    return 0;
}

int __wrap_rdma_establish(struct rdma_cm_id *id);
int __wrap_rdma_establish(struct rdma_cm_id *id)
{
    (void)id;
    return 0;
}

int __wrap_rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                          enum rdma_port_space space);
int __wrap_rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                          enum rdma_port_space space)
{
    static struct rdma_cm_id made;
    (void)channel;
    (void)context;
    (void)space;
    *id = &made;
    return 0;
}

int __wrap_rdma_destroy_id(struct rdma_cm_id *id);
int __wrap_rdma_destroy_id(struct rdma_cm_id *id)
{
    (void)id;
    return 0;
}

int __wrap_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes);
int __wrap_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes)
{
    (void)id;
    assert_int_equal(level, RDMA_OPTION_ID);
    assert_int_equal(name, RDMA_OPTION_ID_TOS);
    assert_int_equal(bytes, 1); /* anything else is EINVAL to the kernel */
    assert_int_equal(fake.resolved, 0);
    fake.traffic_class = *(const uint8_t *)value;
    errno = fake.refuse_option;
    return fake.refuse_option ? -1 : 0;
}

int __wrap_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source,
                             struct sockaddr *destination, int timeout_ms);
int __wrap_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source,
                             struct sockaddr *destination, int timeout_ms)
{
    (void)id;
    memset(&fake.source, 0, sizeof(fake.source));
    if (source) {
        memcpy(&fake.source, source, sizeof(fake.source));
    }
    (void)destination;
    (void)timeout_ms;
    fake.resolved++;
    return 0;
}

int __wrap_getifaddrs(struct ifaddrs **interfaces);
int __wrap_getifaddrs(struct ifaddrs **interfaces)
{
    *interfaces = fake.interfaces;
    return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *interfaces);
void __wrap_freeifaddrs(struct ifaddrs *interfaces)
{
    (void)interfaces;
}

/* ---- A connection ------------------------------------------------------------------------------ */

struct fixture {
    struct cm cm;
    struct cm_identifier identifier;
    struct cm_search search;
    struct rdma_cm_id id;
    struct device_nic nic;
    struct ibv_qp qp;
    struct device_queue_pair queue_pair;
    struct nic_operations operations;
};

static const struct nic_transport transport = {.retry_timeout = 17, .retry_count = 6};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct nic *nic = &fixture->nic.base;
    memset(&fake, 0, sizeof(fake));
    fake.traffic_class = -1;
    fake.found = (struct ibv_qp_attr){
        .dest_qp_num = 88,
        .path_mtu = IBV_MTU_4096,
        .ah_attr = {.sl = 2, .dlid = 20, .is_global = 1, .grh = {.traffic_class = 3}}};
    *nic =
        (struct nic){.link = CRPC_LINK_INFINIBAND, .port = 1, .network = {.partition_key = 0xffff}};
    fixture->queue_pair.base.nic = nic;
    fixture->queue_pair.base.operations = &fixture->operations;
    fixture->queue_pair.base.number = 77;
    fixture->queue_pair.qp = &fixture->qp;
    fixture->cm.nic = nic;
    fixture->cm.event_fd = eventfd(0, EFD_NONBLOCK);
    list_init(&fixture->cm.queue);
    pthread_mutex_init(&fixture->cm.mutex, NULL);
    fixture->identifier.cm = &fixture->cm;
    fixture->identifier.id = &fixture->id;
    fixture->identifier.search = &fixture->search;
    strcpy(fixture->identifier.target, "rail0:7471");
    strcpy(fixture->identifier.peer, "192.0.2.1:1000");
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->search.addresses) {
        freeaddrinfo(fixture->search.addresses);
    }
    close(fixture->cm.event_fd);
    pthread_mutex_destroy(&fixture->cm.mutex);
    free(fixture);
    return 0;
}

static int32_t request(struct fixture *fixture, crpc_error *error)
{
    return cm_request(&fixture->identifier, &fixture->queue_pair.base, &transport, "", 0, error);
}

static int32_t accept_it(struct fixture *fixture, crpc_error *error)
{
    fixture->identifier.passive = true;
    return cm_accept(&fixture->identifier, &fixture->queue_pair.base, &transport, "", 0, error);
}

/* Both sides. Returns the address vector that the device has got. */
static struct ibv_ah_attr connected(struct fixture *fixture, bool passive)
{
    crpc_error error = {.struct_size = sizeof(error)};
    fake.change_count = 0;
    int32_t status =
        passive ? accept_it(fixture, &error)
                : cm_establish(&fixture->identifier, &fixture->queue_pair.base, &transport, &error);
    if (status != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(fake.change_count, 3);
    assert_int_equal(fake.changes[0].pkey_index, fake.partition_index);
    assert_int_equal(fake.changes[2].timeout, 17);
    /* For what the same two sides connect without rdma_cm. */
    assert_int_equal(fixture->queue_pair.base.service_level, 2);
    assert_int_equal(fixture->queue_pair.base.traffic_class, 3);
    fixture->queue_pair.base.service_level = fixture->queue_pair.base.traffic_class = 0;
    return fake.changes[1].ah_attr;
}

static void the_way_of_the_route_is_the_default(void **state)
{
    for (int passive = 0; passive < 2; passive++) {
        const struct ibv_ah_attr way = connected(*state, passive);
        assert_int_equal(way.sl, 2);
        assert_int_equal(way.grh.traffic_class, 3);
        assert_int_equal(way.dlid, 20);
    }
}

static void options_come_before_the_route(void **state)
{
    struct fixture *fixture = *state;
    fixture->nic.base.network.service_level = 5;
    fixture->nic.base.network.traffic_class = 106;
    for (int passive = 0; passive < 2; passive++) {
        const struct ibv_ah_attr way = connected(fixture, passive);
        assert_int_equal(way.sl, 5);
        assert_int_equal(way.grh.traffic_class, 106);
        assert_int_equal(way.dlid, 20);
        assert_int_equal(way.is_global, 1);
    }
}

/* ---- Partitions ------------------------------------------------------------------------------- */

static bool no_room(struct nic_queue_pair *queue_pair)
{
    (void)queue_pair;
    return false;
}

static void expect_partition(struct fixture *fixture, bool good, const char *words)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const uint32_t requests = fake.requests, accepted = fake.accepted;
    fake.change_count = 0;
    assert_int_equal(request(fixture, &error), good ? CRPC_OK : CRPC_E_UNREACHABLE);
    if (!good) {
        assert_non_null(strstr(error.message, "rail0:7471"));
        assert_non_null(strstr(error.message, words));
        assert_int_equal(accept_it(fixture, &error), CRPC_E_UNREACHABLE);
        assert_non_null(strstr(error.message, "192.0.2.1:1000"));
        assert_non_null(strstr(error.message, words));
        assert_int_equal(fake.change_count, 0);
    }
    assert_int_equal(fake.requests, requests + good);
    assert_int_equal(fake.accepted, accepted);
}

static void a_partition_that_was_asked_for_is_required_of_the_route(void **state)
{
    struct fixture *fixture = *state;
    fake.partition_index = 1;
    expect_partition(fixture, true, NULL); /* nobody has asked */
    fixture->nic.base.partition_given = true;
    expect_partition(fixture, false, "partition 0x8001, and this context in 0xffff");
    fixture->nic.base.network.partition_key = 0x8001;
    expect_partition(fixture, true, NULL);
    fixture->nic.base.network.partition_key = 0x8002; /* the interface is a limited member */
    fake.partition_index = 2;
    expect_partition(fixture, true, NULL);
    fixture->nic.base.network.partition_key = 0xffff;
    fixture->nic.base.link = CRPC_LINK_ETHERNET;
    expect_partition(fixture, true, NULL);
}

/* A DCT is in its partition before anybody connects. */
static void a_dynamic_queue_pair_is_in_the_partition_of_its_nic(void **state)
{
    struct fixture *fixture = *state;
    struct nic_initiators initiators;
    fixture->nic.base.initiators = &initiators;
    fixture->operations.take_room = no_room;
    expect_partition(fixture, true, NULL);
    fake.partition_index = 1;
    expect_partition(fixture, false, "partition 0x8001, and this context in 0xffff");
}

/* ---- Dynamic queue pairs ----------------------------------------------------------------------- */

static int32_t keep_address(struct nic_queue_pair *queue_pair, const struct nic_address *peer,
                            const struct nic_transport *options, crpc_error *error)
{
    (void)queue_pair;
    (void)options;
    (void)error;
    fake.peer = *peer;
    return CRPC_OK;
}

static void a_dynamic_queue_pair_gets_the_way_of_the_route(void **state)
{
    struct fixture *fixture = *state;
    crpc_error error = {.struct_size = sizeof(error)};
    fixture->operations.take_room = no_room;
    fixture->operations.queue_pair_connect = keep_address;
    assert_int_equal(
        cm_establish(&fixture->identifier, &fixture->queue_pair.base, &transport, &error), CRPC_OK);
    assert_int_equal(fake.peer.queue_pair_number, 88);
    assert_int_equal(fake.peer.lid, 20);
    assert_int_equal(fake.peer.service_level, 2);
    assert_int_equal(fake.peer.traffic_class, 3);
    assert_true(fake.peer.grh_required);
    fake.found.ah_attr.is_global = 0;
    assert_int_equal(
        cm_establish(&fixture->identifier, &fixture->queue_pair.base, &transport, &error), CRPC_OK);
    assert_false(fake.peer.grh_required);
}

/* ---- Routes ------------------------------------------------------------------------------------ */

static void resolve(struct fixture *fixture)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    assert_int_equal(getaddrinfo("192.0.2.1", "7471", &hints, &fixture->search.addresses), 0);
    fixture->search.next_address = fixture->search.addresses;
    fixture->cm.spare = calloc(1, sizeof(*fixture->cm.spare));
    cm_route_next(&fixture->identifier);
    freeaddrinfo(fixture->search.addresses);
    fixture->search.addresses = NULL;
    free(fixture->cm.spare);
}

static void a_route_is_asked_for_with_the_traffic_class(void **state)
{
    struct fixture *fixture = *state;
    resolve(fixture);
    assert_int_equal(fake.traffic_class, -1);
    assert_int_equal(fake.resolved, 1);
    fake.resolved = 0;
    fixture->nic.base.network.traffic_class = 106;
    resolve(fixture);
    assert_int_equal(fake.traffic_class, 106);
    assert_int_equal(fake.resolved, 1);
}

static void a_traffic_class_that_rdma_cm_refuses_is_told(void **state)
{
    struct fixture *fixture = *state;
    struct cm_event event;
    fixture->nic.base.network.traffic_class = 106;
    fake.refuse_option = ENOSYS;
    resolve(fixture);
    assert_int_equal(fake.resolved, 0);
    assert_true(cm_event_take(&fixture->cm, &event));
    assert_int_equal(event.kind, CM_EVENT_FAILED);
    assert_int_equal(event.error.status, CRPC_E_SYSTEM);
    assert_non_null(strstr(event.error.message, "traffic class"));
}

/* ---- NICs in one subnet ------------------------------------------------------------------------ */

static struct sockaddr_in address_of(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    assert_int_equal(inet_pton(AF_INET, text, &address.sin_addr), 1);
    return address;
}

/* Two NICs in 192.0.2.0/24, of which the route takes the first; another subnet on the second; and loopback. */
static void make_interfaces(void)
{
    static struct ifaddrs all[4];
    static struct sockaddr_in addresses[4], masks[4];
    static const char *const names[] = {"lo", "eth0", "eth1", "eth1"};
    static const char *const texts[] = {"127.0.0.1", "192.0.2.8", "192.0.2.9", "198.51.100.9"};
    for (int i = 0; i < 4; i++) {
        addresses[i] = address_of(texts[i]);
        masks[i] = address_of("255.255.255.0");
        all[i] = (struct ifaddrs){.ifa_next = i < 3 ? &all[i + 1] : NULL,
                                  .ifa_name = (char *)names[i],
                                  .ifa_flags = i == 0 ? IFF_LOOPBACK : 0,
                                  .ifa_addr = (struct sockaddr *)&addresses[i],
                                  .ifa_netmask = (struct sockaddr *)&masks[i]};
    }
    fake.interfaces = all;
}

static void set_gid(struct fixture *fixture, const char *text)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_in address = address_of(text);
    fixture->nic.base.link = CRPC_LINK_ETHERNET;
    memcpy(fixture->nic.base.gid, mapped, sizeof(mapped));
    memcpy(fixture->nic.base.gid + 12, &address.sin_addr, sizeof(address.sin_addr));
}

/* The route has been found, and leads through another device. */
static void start_and_lead_elsewhere(struct fixture *fixture)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM};
    assert_int_equal(getaddrinfo("192.0.2.1", "7471", &hints, &fixture->search.addresses), 0);
    fixture->search.next_address = fixture->search.addresses;
    fixture->cm.spare = calloc(1, sizeof(*fixture->cm.spare));
    cm_route_next(&fixture->identifier);
    assert_int_equal(fake.resolved, 1);
    assert_int_equal(fake.source.sin_family, 0); /* the system chooses */
    cm_route_event(&fixture->identifier, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
}

static void expect_other_device(struct fixture *fixture)
{
    struct cm_event event;
    assert_true(cm_event_take(&fixture->cm, &event));
    assert_int_equal(event.kind, CM_EVENT_FAILED);
    assert_int_equal(event.error.status, CRPC_E_NO_DEVICE);
}

static void another_nic_in_the_subnet_is_passed_by(void **state)
{
    struct fixture *fixture = *state;
    make_interfaces();
    set_gid(fixture, "192.0.2.9");
    start_and_lead_elsewhere(fixture);
    assert_int_equal(fake.resolved, 2);
    struct sockaddr_in ours = address_of("192.0.2.9");
    assert_memory_equal(&fake.source.sin_addr, &ours.sin_addr, sizeof(ours.sin_addr));
    /* Only once; and the first error says most. */
    cm_route_event(&fixture->identifier, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    assert_int_equal(fake.resolved, 2);
    expect_other_device(fixture);
    free(fixture->cm.spare);
}

static void an_address_of_the_same_interface_will_do(void **state)
{
    struct fixture *fixture = *state;
    make_interfaces();
    set_gid(fixture,
            "198.51.100.9"); /* the GID is in another subnet, and the interface is in both */
    start_and_lead_elsewhere(fixture);
    assert_int_equal(fake.resolved, 2);
    struct sockaddr_in ours = address_of("192.0.2.9");
    assert_memory_equal(&fake.source.sin_addr, &ours.sin_addr, sizeof(ours.sin_addr));
    cm_route_event(&fixture->identifier, RDMA_CM_EVENT_ADDR_RESOLVED, 0); /* elsewhere again */
    assert_int_equal(fake.resolved, 2);
    expect_other_device(fixture);
    free(fixture->cm.spare);
}

static void another_subnet_is_none_of_ours(void **state)
{
    struct fixture *fixture = *state;
    make_interfaces();
    set_gid(fixture, "203.0.113.9");
    start_and_lead_elsewhere(fixture);
    assert_int_equal(fake.resolved, 1);
    expect_other_device(fixture);
    free(fixture->cm.spare);
}

/* IP over InfiniBand has the GID in its hardware address. */
static void an_interface_over_infiniband_is_known_by_its_hardware(void **state)
{
    struct fixture *fixture = *state;
    static const uint8_t gid[16] = {0xfe, 0x80, [8] = 0x0c, 0x42, 0xa1, 3, 0, 4, 5, 6};
    static struct {
        struct sockaddr_ll address;
        uint8_t more[12];
    } hardware = {.address = {.sll_family = AF_PACKET, .sll_halen = 20}};
    static struct ifaddrs packet = {.ifa_name = (char *)"eth1"};
    make_interfaces();
    memcpy((uint8_t *)&hardware + offsetof(struct sockaddr_ll, sll_addr) + 4, gid, sizeof(gid));
    packet.ifa_addr = (struct sockaddr *)&hardware;
    packet.ifa_next = fake.interfaces;
    fake.interfaces = &packet;
    memcpy(fixture->nic.base.gid, gid, sizeof(gid));
    start_and_lead_elsewhere(fixture);
    assert_int_equal(fake.resolved, 2);
    struct sockaddr_in ours = address_of("192.0.2.9");
    assert_memory_equal(&fake.source.sin_addr, &ours.sin_addr, sizeof(ours.sin_addr));
    cm_route_event(&fixture->identifier, RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH);
    expect_other_device(fixture);
    free(fixture->cm.spare);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_way_of_the_route_is_the_default),
        TEST(options_come_before_the_route),
        TEST(a_partition_that_was_asked_for_is_required_of_the_route),
        TEST(a_dynamic_queue_pair_is_in_the_partition_of_its_nic),
        TEST(a_dynamic_queue_pair_gets_the_way_of_the_route),
        TEST(a_route_is_asked_for_with_the_traffic_class),
        TEST(a_traffic_class_that_rdma_cm_refuses_is_told),
        TEST(another_nic_in_the_subnet_is_passed_by),
        TEST(an_address_of_the_same_interface_will_do),
        TEST(another_subnet_is_none_of_ours),
        TEST(an_interface_over_infiniband_is_known_by_its_hardware),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
