/* ece_test.c: enhanced connection establishment, as programs of plain verbs and of rdma_cm see it; to be run under simnic, with what the
 * queue pairs of each device offer: ece_test OFFERED0 OFFERED1, as in the faults rail0=ece:OFFERED0,rail1=ece:OFFERED1. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "simnic/nic/ece.h"
#include "simnic/tests/verbs_world.h"

static uint32_t offered[2]; /* by the devices */

static struct ibv_ece query(struct ibv_qp *qp)
{
    struct ibv_ece ece = {.comp_mask = 1};
    assert_int_equal(ibv_query_ece(qp, &ece), 0);
    assert_int_equal(ece.vendor_id, ECE_VENDOR);
    assert_int_equal(ece.comp_mask, 0);
    return ece;
}

/* Connects a queue pair to itself, with these options set when it is initialised. Returns what is in force. */
static uint32_t in_force(struct world *w, uint32_t options)
{
    struct ibv_qp *qp = world_queue_pair(w, IBV_QPT_RC);
    struct ibv_ece ece = {.vendor_id = ECE_VENDOR, .options = options};
    assert_int_equal(query(qp).options, offered[0]);
    assert_int_equal(ibv_set_ece(qp, &ece), offered[0] ? 0 : EOPNOTSUPP);
    world_point(w, qp, qp->qp_num);
    ece = query(qp);
    assert_int_equal(ibv_destroy_qp(qp), 0);
    return ece.options;
}

static void test_agreement(void **state)
{
    static const struct {
        uint32_t offered, asked, agreed;
    } cases[] = {
        {0x30000007, 0x30000007, 0x30000003}, /* of the algorithms, one */
        {0x30000007, 0x30000005, 0x30000005},
        {0x30000007, 0x30000004, 0x30000004},
        {0x30000007, 0x20000001, 0x20000001}, /* the lower version */
        {0x20000001, 0x30000007, 0x20000001},
        {0x20000001, 0xffffffff, 0x20000001},
        {0x30000007, 0x0fffffff, 0}, /* no version: nothing */
        {0x30000007, 0x10000000, 0x10000000},
        {0, 0xffffffff, 0},
        {0x30000007, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(ece_agree(cases[i].offered, cases[i].asked), cases[i].agreed);
    }
}

static void test_verbs(void **state)
{
    static const uint32_t asked[] = {0x10000000, 0x20000001, 0x30000007, 0xffffffff, 0x0fffffff};
    struct world *w = *state;
    struct ibv_ece ece = {.vendor_id = 0x1234, .options = 1};
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        assert_int_equal(in_force(w, asked[i]), ece_agree(offered[0], asked[i]));
    }
    struct ibv_qp *qp = world_queue_pair(w, IBV_QPT_RC);
    assert_int_equal(ibv_set_ece(qp, &ece), EINVAL);
    ece = (struct ibv_ece){.vendor_id = ECE_VENDOR, .options = 1, .comp_mask = 1};
    assert_int_equal(ibv_set_ece(qp, &ece), EINVAL);
    assert_int_equal(ibv_destroy_qp(qp), 0);
    qp = world_queue_pair(w, IBV_QPT_UD);
    assert_int_equal(query(qp).options, 0);
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* ---- rdma_cm, with queue pairs that librdmacm makes: it sets, queries and tells by itself. */

static struct rdma_cm_event *take(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    assert_int_equal(event->event, type);
    return event;
}

static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event = take(channel, type);
    struct rdma_cm_id *id = event->id;
    assert_int_equal(event->status, 0);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    return id;
}

static struct sockaddr_in address_of(int rail, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = port};
    inet_pton(AF_INET, rail ? "127.0.0.2" : "127.0.0.1", &address.sin_addr);
    return address;
}

static void make_queue_pair(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
    assert_int_equal(rdma_create_qp(id, NULL, &a), 0);
}

struct meeting {
    struct rdma_event_channel *here, *there;
    struct rdma_cm_id *listener, *active, *passive;
};

/* From rail 0 to rail 1, up to the request. */
static struct meeting meet(bool with_queue_pair, struct rdma_conn_param *parameters,
                           const struct ibv_ece *local)
{
    struct meeting m = {.here = rdma_create_event_channel(), .there = rdma_create_event_channel()};
    struct sockaddr_in source = address_of(0, 0), to = address_of(1, 0);
    assert_int_equal(rdma_create_id(m.there, &m.listener, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(m.listener, (struct sockaddr *)&to), 0);
    assert_int_equal(rdma_listen(m.listener, 1), 0);
    to.sin_port = rdma_get_src_port(m.listener);
    assert_int_equal(rdma_create_id(m.here, &m.active, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(
        rdma_resolve_addr(m.active, (struct sockaddr *)&source, (struct sockaddr *)&to, 2000), 0);
    expect(m.here, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(m.active, 2000), 0);
    expect(m.here, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (with_queue_pair) {
        make_queue_pair(m.active);
    }
    if (local) {
        struct ibv_ece ece = *local;
        assert_int_equal(rdma_set_local_ece(m.active, &ece), 0);
    }
    assert_int_equal(rdma_connect(m.active, parameters), 0);
    m.passive = expect(m.there, RDMA_CM_EVENT_CONNECT_REQUEST);
    return m;
}

static void part(struct meeting *m)
{
    if (m->active->qp) {
        rdma_destroy_qp(m->active);
    }
    if (m->passive->qp) {
        rdma_destroy_qp(m->passive);
    }
    assert_int_equal(rdma_destroy_id(m->active), 0);
    assert_int_equal(rdma_destroy_id(m->passive), 0);
    assert_int_equal(rdma_destroy_id(m->listener), 0);
    rdma_destroy_event_channel(m->here);
    rdma_destroy_event_channel(m->there);
}

static void test_librdmacm(void **state)
{
    struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
    const uint32_t agreed = ece_agree(offered[1], offered[0]);
    (void)state;
    struct meeting m = meet(true, &parameters, NULL);
    make_queue_pair(m.passive);
    assert_int_equal(rdma_accept(m.passive, &parameters), 0);
    expect(m.here, RDMA_CM_EVENT_ESTABLISHED);
    expect(m.there, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(query(m.active->qp).options, agreed);
    assert_int_equal(query(m.passive->qp).options, agreed);
    part(&m);
}

/* A program with queue pairs of its own hands the options over, of whatever vendor, and gets those of the peer. The answer has the
 * vendor of the request. */
static void test_carried(void **state)
{
    struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7, .qp_num = 0x123};
    const struct ibv_ece asked = {.vendor_id = 0xabcdef, .options = 0x87654321},
                         answer = {.vendor_id = 0x1234, .options = 5};
    (void)state;
    for (int told = 0; told < 2; told++) {
        struct ibv_ece seen = {0}, ours = answer;
        struct meeting m = meet(false, &parameters, told ? &asked : NULL);
        assert_int_equal(rdma_get_remote_ece(m.passive, &seen), 0);
        assert_int_equal(seen.vendor_id, told ? asked.vendor_id : 0);
        assert_int_equal(seen.options, told ? asked.options : 0);
        assert_int_equal(rdma_set_local_ece(m.passive, &ours), 0);
        assert_int_equal(rdma_accept(m.passive, &parameters), 0);
        expect(m.here, RDMA_CM_EVENT_CONNECT_RESPONSE);
        assert_int_equal(rdma_get_remote_ece(m.active, &seen), 0);
        assert_int_equal(seen.vendor_id, told ? asked.vendor_id : 0);
        assert_int_equal(seen.options, answer.options);
        part(&m);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agreement),
        cmocka_unit_test_setup_teardown(test_verbs, world_set_up, world_tear_down),
        cmocka_unit_test(test_librdmacm),
        cmocka_unit_test(test_carried),
    };
    for (int i = 0; i < 2; i++) {
        offered[i] = argc == 3 ? (uint32_t)strtoul(argv[1 + i], NULL, 0) : ECE_OFFERED;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
