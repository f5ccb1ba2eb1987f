/* queue_scenarios.c: what is done with queues while calls fail: see faults_test.c. */
#include "place.h"
#include "scenarios.h"
#include "world.h"

static crpc_region regions[2];
static uint32_t remote_key; /* of the server's */

static void register_both(void)
{
    crpc_region_info info = {.struct_size = sizeof(info)};
    for (uint32_t side = 0; side < 2; side++) {
        TRY("register",
            crpc_region_register(contexts[side], memory + side * 4096, 4096,
                                 CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                                     CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC,
                                 &regions[side], &error));
    }
    crpc_region_get_info(contexts[SERVER], regions[SERVER], &info);
    remote_key = info.remote_key;
}

/* One op of each kind, and a receive for the one that needs it. */
static void work(void)
{
    const uint64_t here = (uint64_t)(uintptr_t)memory + CLIENT * 4096;
    const uint64_t there = (uint64_t)(uintptr_t)memory + SERVER * 4096;
    const crpc_queue queue = {links[1].bits[CLIENT]}, peer = {links[1].bits[SERVER]};
    const crpc_queue_op receive = {
        .opcode = CRPC_QUEUE_RECEIVE, .region = regions[SERVER], .address = there, .bytes = 64};
    crpc_queue_op op = {.region = regions[CLIENT], .address = here, .bytes = 64};
    if (!link_is_up(1)) {
        if (must_succeed) {
            problem("it is not connected");
        }
        return;
    }
    queue_submit(SERVER, links[1].shared.bits != 0 ? links[1].shared : peer, receive);
    op.opcode = CRPC_QUEUE_SEND;
    queue_submit(CLIENT, queue, op);
    op.remote_key = remote_key;
    op.remote_address = there + 64;
    op.opcode = CRPC_QUEUE_READ;
    queue_submit(CLIENT, queue, op);
    op.opcode = CRPC_QUEUE_WRITE;
    queue_submit(CLIENT, queue, op);
    op.flags = CRPC_QUEUE_INLINE;
    op.region.bits = 0;
    op.bytes = 32;
    queue_submit(CLIENT, queue, op);
    queue_submit(CLIENT, queue,
                 (crpc_queue_op){.opcode = CRPC_QUEUE_FETCH_ADD,
                                 .remote_key = remote_key,
                                 .remote_address = there + 64,
                                 .operand = 1});
    queue_submit(CLIENT, queue, (crpc_queue_op){.opcode = CRPC_QUEUE_NOP});
    ops_end();
}

void listen_for_queues(void)
{
    listen_at(place_at(0, "0"), CRPC_LISTENER_QUEUES);
}

void connect_queue(void)
{
    register_both();
    link_connect(1, OF_QUEUES, NULL);
    work();
}

void join_queue(void)
{
    register_both();
    link_join(1, OF_QUEUES);
    work();
}

void queue_be_refused(void)
{
    refuse(OF_QUEUES);
}

void use_srq(void)
{
    const crpc_queue_options options = {
        .struct_size = sizeof(options), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 8};
    const crpc_queue_change limit = {
        .struct_size = sizeof(limit), .changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT, .srq_limit = 8};
    TRY("open an SRQ", crpc_queue_open(contexts[SERVER], &options, &links[1].shared, &error));
    TRY("set its limit", crpc_queue_modify(contexts[SERVER], links[1].shared, &limit, &error));
    connect_queue();
}

/* A tag that a message matches, a message that nothing matches, and two tags without a message: one is taken back, and the
 * other ends with the TM-SRQ. */
static void use_tag_list(crpc_queue srq)
{
    const uint64_t there = (uint64_t)(uintptr_t)memory + SERVER * 4096;
    crpc_queue_op add = {.opcode = CRPC_QUEUE_TAG_ADD,
                         .region = regions[SERVER],
                         .address = there,
                         .bytes = 64,
                         .remote_address = 5,
                         .operand = UINT64_MAX};
    const crpc_queue_op receive = {.opcode = CRPC_QUEUE_RECEIVE,
                                   .region = regions[SERVER],
                                   .address = there + 64,
                                   .bytes = 64};
    const crpc_queue_op send = {.opcode = CRPC_QUEUE_SEND,
                                .region = regions[CLIENT],
                                .address = (uint64_t)(uintptr_t)memory + CLIENT * 4096,
                                .bytes = CRPC_TAG_HEADER_BYTES + 8};
    queue_submit(SERVER, srq, receive);
    queue_submit(SERVER, srq, add);
    const uint64_t last = op_next(); /* when it is done, the device has the tag */
    queue_submit(SERVER, srq, (crpc_queue_op){.opcode = CRPC_QUEUE_TAG_SYNC});
    op_end(last);
    for (uint64_t tag = 5; tag < 7; tag++) {
        const uint64_t sent = op_next();
        crpc_tag_header_write(memory + CLIENT * 4096, tag, 0);
        queue_submit(CLIENT, (crpc_queue){links[1].bits[CLIENT]}, send);
        op_end(sent);
    }
    ops_end();
    must_succeed = false; /* they end with CRPC_E_CANCELED and CRPC_E_CLOSED */
    const crpc_queue_op remove = {.opcode = CRPC_QUEUE_TAG_REMOVE, .operand = op_next()};
    queue_submit(SERVER, srq, add);
    queue_submit(SERVER, srq, remove);
    queue_submit(SERVER, srq, add);
    for (uint32_t i = 0; i < 5; i++) {
        pump();
    }
}

void use_tags(void)
{
    const crpc_queue_options options = {
        .struct_size = sizeof(options), .kind = CRPC_QUEUE_KIND_TM_SRQ, .receives = 8, .tags = 4};
    const crpc_queue_change limit = {
        .struct_size = sizeof(limit), .changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT, .srq_limit = 1};
    register_both();
    TRY("open a TM-SRQ", crpc_queue_open(contexts[SERVER], &options, &links[1].shared, &error));
    TRY("set its limit", crpc_queue_modify(contexts[SERVER], links[1].shared, &limit, &error));
    if (link_connect(1, OF_QUEUES, NULL)) {
        use_tag_list(links[1].shared);
    } else if (must_succeed) {
        problem("it is not connected");
    }
}

static void fail_and_reset_stream(crpc_queue dci, crpc_queue_op op)
{
    must_succeed = false;
    op.stream = 1;
    op.remote_key ^= 0x5500;
    queue_submit(CLIENT, dci, op);
    ops_end();
    int32_t status = crpc_queue_reset_stream(contexts[CLIENT], dci, 1);
    if (status == CRPC_E_SYSTEM) {
        status = crpc_queue_reset_stream(contexts[CLIENT], dci, 1);
    }
    if (status != CRPC_OK && status != CRPC_E_BUSY && status != CRPC_E_STATE) {
        problem("reset a stream: %s", crpc_status_name(status));
    }
}

/* Both without links: so they are closed here. */
void use_dc(void)
{
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 8};
    const crpc_queue_options of_dci = {
        .struct_size = sizeof(of_dci), .kind = CRPC_QUEUE_KIND_DCI, .sends = 8, .streams = 3};
    crpc_queue_options of_dct = {.struct_size = sizeof(of_dct), .kind = CRPC_QUEUE_KIND_DCT};
    const crpc_target_options to = {.struct_size = sizeof(to), .kind = CRPC_QUEUE_KIND_DCI};
    crpc_queue_address address = {.struct_size = sizeof(address)};
    crpc_queue dci, dct;
    crpc_target target;
    register_both();
    TRY("open an SRQ", crpc_queue_open(contexts[SERVER], &shared, &of_dct.receive_queue, &error));
    TRY("open a DCT", crpc_queue_open(contexts[SERVER], &of_dct, &dct, &error));
    TRY("open a DCI", crpc_queue_open(contexts[CLIENT], &of_dci, &dci, &error));
    crpc_queue_get_address(contexts[SERVER], dct, &address);
    TRY("make a target", crpc_target_open(contexts[CLIENT], &address, &to, &target, &error));
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_WRITE,
                              .region = regions[CLIENT],
                              .address = (uint64_t)(uintptr_t)memory + CLIENT * 4096,
                              .bytes = 64,
                              .remote_key = remote_key,
                              .remote_address = (uint64_t)(uintptr_t)memory + SERVER * 4096,
                              .target = target};
    queue_submit(CLIENT, dci, op);
    ops_end();
    fail_and_reset_stream(dci, op);
    crpc_target_close(contexts[CLIENT], target);
    if (crpc_queue_close(contexts[CLIENT], dci) != CRPC_OK ||
        crpc_queue_close(contexts[SERVER], dct) != CRPC_OK ||
        crpc_queue_close(contexts[SERVER], of_dct.receive_queue) != CRPC_OK) {
        problem("a queue that does not close");
    }
}

void change_queue(void)
{
    const crpc_queue_change change = {
        .struct_size = sizeof(change),
        .changes = CRPC_QUEUE_CHANGE_ACCESS | CRPC_QUEUE_CHANGE_NOT_READY_WAIT,
        .access = CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC};
    const crpc_queue peer = {links[1].bits[SERVER]};
    if (link_is_up(1)) {
        TRY("change a queue", crpc_queue_modify(contexts[SERVER], peer, &change, &error));
    }
    work();
}

void connect_one_queue(void)
{
    register_both();
    if (!link_connect(1, OF_QUEUES, NULL)) {
        problem("it cannot connect");
    }
}

void work_often(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        work();
    }
}

void sleep_on_queue(void)
{
    arm_often();
    work();
}

void drain_queue(void)
{
    work();
    if (link_is_up(1)) {
        link_leave(1);
    }
}

/* With receives open, of which world_close sees that they end. */
void close_queue(void)
{
    const crpc_queue_op receive = {.opcode = CRPC_QUEUE_RECEIVE};
    work();
    must_succeed = false; /* they end with CRPC_E_CLOSED */
    for (uint32_t i = 0; i < 4; i++) {
        queue_submit(CLIENT, (crpc_queue){links[1].bits[CLIENT]}, receive);
    }
    if (crpc_queue_close(contexts[CLIENT], (crpc_queue){links[1].bits[CLIENT]}) != CRPC_OK) {
        problem("a queue that does not close");
    }
    links[1].made[CLIENT] = false;
    for (uint32_t i = 0; i < 5; i++) {
        pump();
    }
}
