/* fuzz_device.c: bytes that drive a device: send queues, receive queues and doorbells that hold
 * anything, packets from a peer that keeps to nothing, and changes of state at any time. Whatever
 * comes, the device does not crash and no WQE completes twice.
 *
 * For libFuzzer (./dev fuzz), or with fuzz_main.c a program of its own. */
#include "fuzz.h"
#include "fuzz_input.h"
#include "fuzz_tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define QUEUE_PAIRS 9
#define KEYS 6
#define MEMORY_BYTES 65536u
#define MOST_STEPS 2000

/* One direction of a QP: the counters of its CQEs only go up. */
struct counted {
    bool any, wild; /* wild: the input moved the doorbell record by more than the queue holds */
    uint16_t last;
};

struct world {
    struct rig *rig;
    uint32_t blocks; /* of the rig itself */
    struct rig_cq *cq[3];
    struct rig_srq *srq, *tags;
    struct rig_qp *qp[QUEUE_PAIRS];
    struct counted sends[QUEUE_PAIRS], receives[QUEUE_PAIRS];
    uint32_t shared_completions, tag_completions;
    struct rig_memory memory[KEYS];
    uint8_t *nowhere; /* address space without memory */
};

static struct world world;

static void check(bool condition, const char *what)
{
    if (condition) {
        return;
    }
    fprintf(stderr, "fuzz_device: %s\n", what);
    abort();
}

/* ---- choices ---- */

static struct rig_qp *some_qp(void)
{
    return world.qp[below(QUEUE_PAIRS)];
}

/* Lengths that matter: few, around an MTU, many. */
static uint32_t some_length(void)
{
    static const uint32_t lengths[] = {0, 1, 8, 31, 32, 33, 64, 65, 1023, 1024, 1025, 4096, 4097};
    uint8_t choice = byte();
    if (choice < 13 * 16) {
        return lengths[choice / 16];
    }
    return choice < 240 ? word() % 20000 : word();
}

static const struct rig_memory *some_memory(void)
{
    return &world.memory[below(KEYS)];
}

static uint64_t some_address(const struct rig_memory *memory)
{
    uint8_t choice = byte();
    if (choice < 128) {
        return (uintptr_t)memory->bytes + (choice & 0x78u);
    }
    if (choice < 240) {
        return (uintptr_t)memory->bytes + word() % (2 * MEMORY_BYTES);
    }
    return (uint64_t)word() << 32 | word();
}

static uint32_t some_key(const struct rig_memory *memory)
{
    return byte() < 240 ? memory->key : word();
}

/* ---- invariants ---- */

static void check_queue_pair(const struct queue_pair *qp)
{
    uint32_t held = qp->in_flight_tail - qp->in_flight_head;
    check(held <= DEVICE_IN_FLIGHT, "more in flight than there are places");
    check(qp->in_flight_next - qp->in_flight_head <= held, "what is sent next is not in flight");
    if (qp->state == STATE_RTS || qp->state == STATE_SQD) { /* a failed one may be counted still */
        check(qp->reads_in_flight <= held, "more READs than messages in flight");
    }
    check(qp->owed_head - qp->owed_tail <= 2 * DEVICE_MAX_READS, "more answers than places");
    check(qp->group_count == 0 || qp->groups, "groups without a place");
}

static void count(struct counted *c, uint16_t counter)
{
    uint16_t ahead = (uint16_t)(counter - c->last);
    if (c->any && !c->wild) {
        check(ahead != 0 && ahead < 0x8000, "a WQE completed twice, or out of order");
    }
    c->any = true;
    c->last = counter;
}

static void count_cqe(const struct mlx5_cqe64 *cqe)
{
    uint8_t opcode = cqe->op_own >> 4;
    uint32_t qpn = be32toh(cqe->sop_drop_qpn) & 0xffffff;
    bool sent = opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_REQ_ERR;
    check(sent || (opcode >= MLX5_CQE_RESP_WR_IMM && opcode <= MLX5_CQE_RESP_SEND_INV) ||
              opcode == MLX5_CQE_RESP_ERR || (opcode == MLX5_CQE_NO_PACKET && cqe->app),
          "a CQE of no kind");
    for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
        const struct queue_pair *qp = world.qp[i]->qp;
        if (qp->number != qpn) {
            continue;
        }
        if (!sent && qp->shared_receive_queue == world.tags->srq) {
            check(fuzz_tags_count(world.tags, cqe, &world.tag_completions),
                  "a CQE of no tag, or more than WQEs");
        } else if (!sent && qp->shared_receive_queue) {
            world.shared_completions++;
            check(world.shared_completions <= qp->shared_receive_queue->taken,
                  "more completions than WQEs of the SRQ");
        } else {
            count(sent ? &world.sends[i] : &world.receives[i], be16toh(cqe->wqe_counter));
        }
        return;
    }
    check(false, "a CQE of no QP");
}

static void poll_all(void)
{
    struct mlx5_cqe64 cqe;
    for (uint32_t i = 0; i < 3; i++) {
        while (rig_poll(world.cq[i], &cqe)) {
            count_cqe(&cqe);
        }
    }
    for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
        check_queue_pair(world.qp[i]->qp);
    }
}

/* ---- what can happen ---- */

static void run(uint64_t ns)
{
    world.rig->now_ns += ns;
    for (uint32_t i = 0; i < 20; i++) {
        if (!device_run(&world.rig->device, world.rig->now_ns)) {
            break;
        }
    }
    for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
        check_queue_pair(world.qp[i]->qp);
    }
}

static void post_data(struct rig_wqe *wqe)
{
    uint32_t segments = below(5);
    if (segments == 4) {
        uint8_t data[256];
        uint32_t length = byte();
        bytes(data, length < 32 ? length : 32);
        rig_wqe_inline(wqe, data, length);
        return;
    }
    for (uint32_t i = 0; i < segments; i++) {
        const struct rig_memory *memory = some_memory();
        rig_wqe_data(wqe, some_address(memory), some_length(), some_key(memory));
    }
}

static struct mlx5_wqe_data_seg some_segment(void)
{
    const struct rig_memory *memory = byte() & 1 ? &world.memory[0] : some_memory();
    return (struct mlx5_wqe_data_seg){htobe32(some_length()), htobe32(some_key(memory)),
                                      htobe64(some_address(memory))};
}

static void write_header(uint8_t *at, uint32_t room)
{
    uint8_t choices[FUZZ_TAG_CHOICES];
    struct mlx5_wqe_data_seg from = some_segment();
    bytes(choices, sizeof(choices));
    fuzz_tags_header(at, room, choices, &from);
}

/* The start of a message for the tag-matching SRQ. */
static void post_header(struct rig_wqe *wqe)
{
    uint8_t header[TAG_HEADERS_BYTES];
    write_header(header, sizeof(header));
    rig_wqe_inline(wqe, header, byte() & 1 ? sizeof(header) : 16);
}

static void post_tag(struct rig_wqe *wqe)
{
    uint8_t choices[FUZZ_TAG_CHOICES];
    struct mlx5_wqe_data_seg buffer = some_segment();
    bytes(choices, sizeof(choices));
    fuzz_tags_wqe(wqe, choices, &buffer);
}

/* What binds or invalidates a window (window.c). */
static void post_window(struct rig_wqe *wqe)
{
    const struct rig_memory *region = some_memory();
    struct mlx5_wqe_umr_ctrl_seg control = {.flags = byte() & 3 ? 1 << 7 : byte()};
    struct mlx5_wqe_mkey_context_seg context = {
        .free = byte() & 3 ? 0 : 1 << 6,
        .access_flags = byte(),
        .qpn_mkey = htobe32(some_qp()->qp->number << 8 | (world.memory[5].key & 0xff)),
        .start_addr = htobe64(some_address(region)),
        .len = htobe64(some_length()),
    };
    struct mlx5_wqe_umr_klm_seg klm = {htobe32(some_length()), htobe32(some_key(region)),
                                       htobe64(some_address(region))};
    memcpy(wqe->bytes + wqe->size, &control, sizeof(control));
    memcpy(wqe->bytes + wqe->size + sizeof(control), &context, sizeof(context));
    memcpy(wqe->bytes + wqe->size + sizeof(control) + sizeof(context), &klm, sizeof(klm));
    wqe->size += sizeof(control) + sizeof(context) + sizeof(klm);
    wqe->immediate = htobe32(some_key(&world.memory[5]));
}

/* A WQE that is nearly right. */
static void post(void)
{
    static const uint8_t opcodes[] = {MLX5_OPCODE_SEND,        MLX5_OPCODE_SEND_IMM,
                                      MLX5_OPCODE_RDMA_WRITE,  MLX5_OPCODE_RDMA_WRITE_IMM,
                                      MLX5_OPCODE_RDMA_READ,   MLX5_OPCODE_ATOMIC_CS,
                                      MLX5_OPCODE_ATOMIC_FA,   MLX5_OPCODE_NOP,
                                      MLX5_OPCODE_SEND_INVAL,  MLX5_OPCODE_UMR,
                                      MLX5_OPCODE_TAG_MATCHING};
    struct rig_qp *qp = some_qp();
    const struct rig_memory *remote = some_memory();
    struct rig_wqe wqe;
    uint8_t choice = byte(), opcode = choice < 250 ? opcodes[choice % 11] : byte();
    if (qp == world.qp[8] && byte() < 230) {
        opcode = MLX5_OPCODE_TAG_MATCHING;
    }
    rig_wqe_start(&wqe, opcode, byte());
    wqe.immediate = htobe32(some_key(remote));
    if (qp->qp->type == TYPE_UD) {
        rig_wqe_address(&wqe, byte() < 200 ? some_qp()->qp->number : 0xffffff,
                        byte() ? 0x11111111 : word(), rails[byte() & 1].gid[3].raw, byte() & 15);
    }
    if (opcode >= MLX5_OPCODE_RDMA_WRITE && opcode != MLX5_OPCODE_SEND &&
        opcode != MLX5_OPCODE_SEND_IMM && opcode != MLX5_OPCODE_TAG_MATCHING) {
        rig_wqe_remote(&wqe, some_address(remote), some_key(remote));
    }
    if (opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA) {
        rig_wqe_atomic(&wqe, word(), word());
    }
    if (opcode == MLX5_OPCODE_UMR) {
        post_window(&wqe);
    } else if (opcode == MLX5_OPCODE_TAG_MATCHING) {
        post_tag(&wqe);
    } else if (qp != world.qp[6] || byte() < 50) {
        post_data(&wqe);
    } else {
        post_header(&wqe);
    }
    rig_wqe_finish(&wqe, qp);
    if (byte() > 240) {
        wqe.bytes[byte() % wqe.size] = byte();
    }
    rig_put(qp, &wqe);
    if (byte() < 200) {
        rig_ring(qp, &wqe);
    }
}

/* Bytes as they come, into a queue; and its doorbell record goes on. */
static void scribble(void)
{
    struct rig_qp *qp = some_qp();
    uint8_t raw[64];
    uint32_t block = byte() & (qp->qp->send_blocks - 1);
    bytes(raw, sizeof(raw));
    memcpy(qp->qp->send_buffer + block * 64, raw, sizeof(raw));
    qp->sent = (uint16_t)(qp->sent + below(4));
    qp->record[1] = htobe32(qp->sent);
}

static void receive(void)
{
    struct rig_qp *qp = some_qp();
    struct mlx5_wqe_data_seg list[4];
    uint32_t segments = below(5);
    if (qp->qp->shared_receive_queue) {
        const struct rig_memory *memory = some_memory();
        struct rig_srq *srq =
            qp->qp->shared_receive_queue == world.srq->srq ? world.srq : world.tags;
        uint16_t index = rig_srq_receive(srq, memory, below(200), some_length());
        if (index != UINT16_MAX) {
            rig_srq_give_back(srq, index);
        }
        return;
    }
    for (uint32_t i = 0; i < segments; i++) {
        list[i] = some_segment();
    }
    rig_receive_list(qp, list, segments);
}

static void push(void)
{
    const struct rig_qp *qp = some_qp();
    uint32_t place = byte() & (qp->qp->send_blocks - 1);
    struct rig_wqe wqe = {.size = 64};
    memcpy(wqe.bytes, qp->qp->send_buffer + (size_t)place * 64, 64);
    for (uint32_t changes = below(4); changes; changes--) {
        wqe.bytes[byte() % 64] = byte();
    }
    static const uint32_t sizes[] = {8, 16, 32, 64};
    rig_push(world.qp[below(QUEUE_PAIRS)], &wqe, below(DEVICE_REGISTERS), sizes[below(4)]);
}

static struct packet some_packet(const struct queue_pair *to)
{
    const struct rig_memory *memory = some_memory();
    bool forward = byte() & 1;
    uint32_t psn =
        forward ? to->expected_psn : to->in_flight[to->in_flight_head % DEVICE_IN_FLIGHT].first_psn;
    uint8_t delta = byte();
    return (struct packet){
        .operation = byte() % 26,
        .transport = byte() < 230 ? (uint8_t)(to->type == TYPE_UD   ? TRANSPORT_UD
                                              : to->type == TYPE_UC ? TRANSPORT_UC
                                                                    : TRANSPORT_RC)
                                  : byte(),
        .flags = byte(),
        .rail = byte() < 230 ? 0 : byte(),
        .payload_bytes = some_length() % 8192,
        .destination_qpn = to->number,
        .source_qpn = byte() < 230 ? to->attributes.destination_qpn : word(),
        .psn = (delta < 240 ? psn + (uint32_t)(int8_t)(delta < 120 ? 0 : delta % 8 - 2) : word()) &
               PSN_MASK,
        .immediate = some_key(memory),
        .address = some_address(memory),
        .key = to->type == TYPE_UD ? 0x11111111 : some_key(memory),
        .length = some_length(),
        .syndrome = byte() & 1 ? 0x1f : byte(),
        .msn = byte(),
        .swap_or_add = word(),
        .compare = word(),
    };
}

/* Straight to the functions that packets end at: they rely on nothing but the payload's size. */
static void hostile_packet(void)
{
    struct device *device = &world.rig->device;
    struct queue_pair *qp = some_qp()->qp;
    struct packet packet = some_packet(qp);
    uint8_t *payload = malloc(packet.payload_bytes + 1);
    check(payload != NULL, "out of memory");
    rig_fill(payload, packet.payload_bytes, packet.psn);
    if (qp->shared_receive_queue == world.tags->srq) {
        write_header(payload, packet.payload_bytes);
    }
    if (qp->type == TYPE_UD) {
        datagram_receive(device, qp, &packet, payload);
    } else if (packet.operation >= PACKET_READ_RESPONSE_FIRST &&
               packet.operation <= PACKET_ATOMIC_ACKNOWLEDGE) {
        completer_receive(device, qp, &packet, payload);
    } else {
        responder_receive(device, qp, &packet, payload);
    }
    free(payload);
    check_queue_pair(qp);
}

/* The same through the fabric. */
static void packet_on_fabric(void)
{
    struct packet packet = some_packet(some_qp()->qp);
    packet.payload_bytes %= FABRIC_PAYLOAD_MAX_BYTES + 1;
    uint8_t *to = fabric_reserve(&world.rig->fabric, world.rig->fabric.slot, &packet);
    if (!to) {
        return;
    }
    rig_fill(to, packet.payload_bytes, packet.psn);
    fabric_commit(&world.rig->fabric, world.rig->fabric.slot, &packet);
}

static void up(struct rig_qp *qp)
{
    struct device *device = &world.rig->device;
    if (qp->qp->state == STATE_RESET) {
        qp_set_state(device, qp->qp, STATE_INIT);
    }
    if (qp->qp->state == STATE_INIT) {
        qp_set_state(device, qp->qp, STATE_RTR);
    }
    qp_set_state(device, qp->qp, STATE_RTS);
}

static void change_state(void)
{
    uint32_t which = below(QUEUE_PAIRS);
    struct rig_qp *qp = world.qp[which];
    struct device *device = &world.rig->device;
    uint8_t choice = byte() % 8, state = qp->qp->state;
    if (choice == 0) {
        poll_all();
        qp_set_state(device, qp->qp, STATE_RESET);
        qp->sent = qp->received = 0;
        qp->record[0] = qp->record[1] = 0;
        world.sends[which] = world.receives[which] = (struct counted){0};
        if (qp->qp->shared_receive_queue) {
            return;
        }
    } else if (choice == 1) {
        qp_fail(device, qp->qp);
    } else if (choice == 2 && state == STATE_RTS) {
        qp_set_state(device, qp->qp, STATE_SQD);
    } else if (choice < 7 && state != STATE_ERR) {
        up(qp);
    } else if (choice == 7) {
        qp->qp->attributes.access = byte();
        qp->qp->attributes.timeout = byte() & 31;
        qp->qp->attributes.retry_count = byte() & 7;
        qp->qp->attributes.rnr_retry_count = byte() & 7;
        qp->qp->attributes.min_rnr_timer = byte() & 31;
        qp->qp->attributes.max_reads = byte() & 31;
    }
}

/* A doorbell record that says anything: completions of this QP are not counted from here on. */
static void move_record(void)
{
    uint32_t which = below(QUEUE_PAIRS);
    struct rig_qp *qp = world.qp[which];
    if (byte() & 1) {
        qp->record[1] = word();
        world.sends[which].wild = true;
    } else {
        qp->record[0] = word();
        world.receives[which].wild = true;
    }
    device_ring_page(&world.rig->device, 0);
}

static void change_key(void)
{
    const struct rig_memory *memory = some_memory();
    struct memory_key *key = key_find(&world.rig->device, memory->key);
    if (key) {
        key->access = byte() & 0x1f;
    }
}

static void faults(void)
{
    struct fabric *fabric = &world.rig->fabric;
    fabric->fault.lose_per_million = below(4) * 100000;
    fabric->fault.duplicate_per_million = below(4) * 100000;
    fabric->fault.delay_per_million = below(4) * 100000;
    fabric->fault.delay_us = byte();
    fabric->dice.state = byte();
    fabric->faulty = fabric->fault.lose_per_million || fabric->fault.duplicate_per_million ||
                     fabric->fault.delay_per_million;
}

static void step(void)
{
    static const uint64_t waits[] = {0, 1000, 100000, 5000000, 100000000, 5000000000};
    switch (byte() % 24) {
    case 0 ... 5:
        post();
        break;
    case 6:
        scribble();
        break;
    case 7 ... 9:
        receive();
        break;
    case 10:
        push();
        break;
    case 11 ... 12:
        hostile_packet();
        break;
    case 13:
        packet_on_fabric();
        break;
    case 14:
        change_state();
        break;
    case 15:
        if (byte() > 200) {
            move_record();
        }
        break;
    case 16:
        change_key();
        break;
    case 17:
        rig_arm(world.cq[below(3)], byte() & 1);
        break;
    case 18:
        faults();
        break;
    case 19 ... 20:
        poll_all();
        break;
    default:
        run(waits[below(6)]);
        break;
    }
}

/* ---- the world of one input ---- */

static void create(void)
{
    struct rig *rig = world.rig;
    uint8_t options = byte();
    for (uint32_t i = 0; i < 3; i++) {
        world.cq[i] = rig_cq_new(rig, 256, i == 1 ? 128 : 64);
    }
    world.srq = rig_srq_new(rig, 64);
    world.tags = fuzz_tags_srq(rig, world.cq[2]);
    check(world.tags != NULL, "out of memory");
    for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
        static const uint32_t types[QUEUE_PAIRS] = {TYPE_RC, TYPE_RC, TYPE_RC, TYPE_RC, TYPE_UC,
                                                    TYPE_UD, TYPE_RC, TYPE_RC, TYPE_RC};
        struct rig_qp_options o = {.type = types[i],
                                   .send_blocks = 16u << (i & 1),
                                   .receive_entries = 16,
                                   .srq = i == 3  ? world.srq
                                          : i > 6 ? world.tags
                                                  : NULL,
                                   .receive_cq = world.cq[2]};
        world.qp[i] = rig_qp_new(rig, world.cq[i & 1], &o);
        struct queue_pair *qp = world.qp[i]->qp;
        qp->scatter_to_cqe = options >> (i & 3) & 1;
        qp->scatter_requests_to_cqe = options >> (4 + (i & 3)) & 1;
        qp->attributes.path_mtu = (uint8_t)(1 + i % 5);
    }
    rig_connect(world.qp[0], world.qp[1]);
    world.qp[3]->qp->attributes.path_mtu = world.qp[2]->qp->attributes.path_mtu;
    world.qp[1]->qp->attributes.path_mtu = world.qp[0]->qp->attributes.path_mtu;
    rig_connect(world.qp[2], world.qp[3]);
    rig_qp_point(world.qp[4], world.qp[4]);
    rig_qp_point(world.qp[5], world.qp[5]);
    world.qp[7]->qp->attributes.path_mtu = world.qp[6]->qp->attributes.path_mtu;
    rig_connect(world.qp[6], world.qp[7]);
    rig_qp_point(world.qp[8], world.qp[8]);
    multicast_attach(world.qp[5]->qp, rails[0].gid[3].raw);
    /* Ordinary memory, read-only, of another domain, the send queue itself, none, and a window. */
    for (uint32_t i = 0; i < KEYS; i++) {
        world.memory[i] = rig_memory_with(rig, MEMORY_BYTES, i == 1 ? ACCESS_REMOTE_READ : 0x1f,
                                          i == 2 ? RIG_DOMAIN + 1 : RIG_DOMAIN);
    }
    struct memory_key *key = key_find(&rig->device, world.memory[3].key);
    key->start = key->address = (uintptr_t)world.qp[0]->qp->send_buffer;
    key->bytes = world.qp[0]->qp->send_blocks * 64;
    world.memory[3].bytes = world.qp[0]->qp->send_buffer;
    key = key_find(&rig->device, world.memory[4].key);
    key->start = key->address = (uintptr_t)world.nowhere;
    world.memory[4].bytes = world.nowhere;
    key_find(&rig->device, world.memory[5].key)->kind = KEY_WINDOW;
}

static void destroy(void)
{
    struct device *device = &world.rig->device;
    /* Everything that is left is flushed, once. */
    world.rig->fabric.fault = (struct fabric_fault){0};
    world.rig->fabric.faulty = false;
    poll_all();
    for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
        qp_fail(device, world.qp[i]->qp);
    }
    for (uint32_t i = 0; i < 4; i++) {
        run(1000000000);
        poll_all();
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        struct memory_key *key = &device->keys[world.memory[i].key >> 8];
        key_destroy(device, key);
    }
    rig_clear(world.rig, world.blocks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!world.rig) {
        world.rig = rig_new();
        check(world.rig != NULL, "out of memory");
        world.blocks = world.rig->block_count;
        world.nowhere = mmap(NULL, MEMORY_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(world.nowhere != MAP_FAILED, "out of memory");
        rig_catch_faults();
    }
    input = (struct input){data, size};
    memset(world.sends, 0, sizeof(world.sends));
    memset(world.receives, 0, sizeof(world.receives));
    world.shared_completions = world.tag_completions = 0;
    create();
    for (uint32_t steps = 0; input.left && steps < MOST_STEPS; steps++) {
        step();
    }
    destroy();
    return 0;
}

void fuzz_end(void)
{
    if (world.rig) {
        rig_delete(world.rig);
    }
    world.rig = NULL;
}
