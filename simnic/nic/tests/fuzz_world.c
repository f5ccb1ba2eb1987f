/* fuzz_world.c: see fuzz_world.h. */
#include "simnic/nic/tests/fuzz_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "simnic/nic/tests/fuzz.h"

struct fuzz fuzz;

/* ---- the input ---- */

void input_bytes(void *to, size_t count)
{
    size_t there = count < fuzz.input_left ? count : fuzz.input_left;
    memset(to, 0, count);
    memcpy(to, fuzz.input, there);
    fuzz.input += there;
    fuzz.input_left -= there;
}

uint8_t input_byte(void)
{
    uint8_t value;
    input_bytes(&value, 1);
    return value;
}

uint32_t input_word(void)
{
    uint32_t value;
    input_bytes(&value, sizeof(value));
    return value;
}

uint32_t input_below(uint32_t limit)
{
    return input_byte() % limit;
}

/* ---- choices ---- */

struct rig_qp *fuzz_some_qp(void)
{
    return fuzz.qp[input_below(QUEUE_PAIRS)];
}

/* Lengths that matter: few, around an MTU, many. */
uint32_t fuzz_some_length(void)
{
    static const uint32_t lengths[] = {0, 1, 8, 31, 32, 33, 64, 65, 1023, 1024, 1025, 4096, 4097};
    uint8_t choice = input_byte();
    if (choice < 13 * 16) {
        return lengths[choice / 16];
    }
    return choice < 240 ? input_word() % 20000 : input_word();
}

const struct rig_memory *fuzz_some_memory(void)
{
    return &fuzz.memory[input_below(KEYS)];
}

uint64_t fuzz_some_address(const struct rig_memory *memory)
{
    uint8_t choice = input_byte();
    if (choice < 128) {
        return (uintptr_t)memory->bytes + (choice & 0x78u);
    }
    if (choice < 240) {
        return (uintptr_t)memory->bytes + input_word() % (2 * MEMORY_BYTES);
    }
    return (uint64_t)input_word() << 32 | input_word();
}

uint32_t fuzz_some_key(const struct rig_memory *memory)
{
    return input_byte() < 240 ? memory->key : input_word();
}

struct mlx5_wqe_data_seg fuzz_some_segment(void)
{
    const struct rig_memory *memory = input_byte() & 1 ? &fuzz.memory[0] : fuzz_some_memory();
    return (struct mlx5_wqe_data_seg){htobe32(fuzz_some_length()), htobe32(fuzz_some_key(memory)),
                                      htobe64(fuzz_some_address(memory))};
}

void fuzz_write_header(uint8_t *at, uint32_t room)
{
    uint8_t choices[FUZZ_TAG_CHOICES];
    struct mlx5_wqe_data_seg from = fuzz_some_segment();
    input_bytes(choices, sizeof(choices));
    fuzz_tags_header(at, room, choices, &from);
}

/* ---- invariants ---- */

void fuzz_check(bool condition, const char *what)
{
    if (condition) {
        return;
    }
    fprintf(stderr, "fuzz_nic: %s\n", what);
    abort();
}

void fuzz_check_queue_pair(const struct queue_pair *qp)
{
    uint32_t held = qp->in_flight_tail - qp->in_flight_head;
    fuzz_check(held <= NIC_IN_FLIGHT, "more in flight than there are places");
    fuzz_check(qp->in_flight_next - qp->in_flight_head <= held,
               "what is sent next is not in flight");
    if (qp->state == STATE_RTS || qp->state == STATE_SQD) { /* a failed one may be counted still */
        fuzz_check(qp->reads_in_flight <= held, "more READs than messages in flight");
    }
    fuzz_check(qp->owed_head - qp->owed_tail <= 2 * NIC_MAX_READS, "more answers than places");
    fuzz_check(qp->group_count == 0 || qp->groups, "groups without a place");
}

static void count(struct counted *c, uint16_t counter)
{
    uint16_t ahead = (uint16_t)(counter - c->last);
    if (c->any && !c->wild) {
        fuzz_check(ahead != 0 && ahead < 0x8000, "a WQE completed twice, or out of order");
    }
    c->any = true;
    c->last = counter;
}

static void count_cqe(const struct mlx5_cqe64 *cqe)
{
    uint8_t opcode = cqe->op_own >> 4;
    uint32_t qpn = be32toh(cqe->sop_drop_qpn) & 0xffffff;
    bool sent = opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_REQ_ERR;
    fuzz_check(sent || (opcode >= MLX5_CQE_RESP_WR_IMM && opcode <= MLX5_CQE_RESP_SEND_INV) ||
                   opcode == MLX5_CQE_RESP_ERR || (opcode == MLX5_CQE_NO_PACKET && cqe->app),
               "a CQE of no kind");
    for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
        const struct queue_pair *qp = fuzz.qp[i]->qp;
        if (qp->number != qpn) {
            continue;
        }
        if (!sent && qp->shared_receive_queue == fuzz.tags->srq) {
            fuzz_check(fuzz_tags_count(fuzz.tags, cqe, &fuzz.tag_completions),
                       "a CQE of no tag, or more than WQEs");
        } else if (!sent && qp->shared_receive_queue) {
            fuzz.shared_completions++;
            fuzz_check(fuzz.shared_completions <= qp->shared_receive_queue->taken,
                       "more completions than WQEs of the SRQ");
        } else {
            count(sent ? &fuzz.sends[i] : &fuzz.receives[i], be16toh(cqe->wqe_counter));
        }
        return;
    }
    fuzz_check(false, "a CQE of no QP");
}

void fuzz_poll_all(void)
{
    struct mlx5_cqe64 cqe;
    for (uint32_t i = 0; i < 3; i++) {
        while (rig_poll(fuzz.cq[i], &cqe)) {
            count_cqe(&cqe);
        }
    }
    for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
        fuzz_check_queue_pair(fuzz.qp[i]->qp);
    }
}

/* ---- making and unmaking ---- */

void fuzz_run(uint64_t ns)
{
    fuzz.rig->now_ns += ns;
    for (uint32_t i = 0; i < 20; i++) {
        if (!nic_run(&fuzz.rig->nic, fuzz.rig->now_ns)) {
            break;
        }
    }
    for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
        fuzz_check_queue_pair(fuzz.qp[i]->qp);
    }
}

static void set_up_rig(void)
{
    fuzz.rig = rig_new();
    fuzz_check(fuzz.rig != NULL, "out of memory");
    fuzz.blocks = fuzz.rig->block_count;
    fuzz.nowhere = mmap(NULL, MEMORY_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fuzz_check(fuzz.nowhere != MAP_FAILED, "out of memory");
    rig_catch_faults();
}

void fuzz_create(void)
{
    if (!fuzz.rig) {
        set_up_rig();
    }
    struct rig *rig = fuzz.rig;
    uint8_t options = input_byte(), relaxed = input_byte();
    memset(fuzz.sends, 0, sizeof(fuzz.sends));
    memset(fuzz.receives, 0, sizeof(fuzz.receives));
    fuzz.shared_completions = fuzz.tag_completions = 0;
    fuzz.keys_end_first = relaxed >> 7;
    for (uint32_t i = 0; i < 3; i++) {
        fuzz.cq[i] = rig_cq_new(rig, 256, i == 1 ? 128 : 64);
    }
    fuzz.srq = rig_srq_new(rig, 64);
    fuzz.tags = fuzz_tags_srq(rig, fuzz.cq[2]);
    fuzz_check(fuzz.tags != NULL, "out of memory");
    for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
        static const uint32_t types[QUEUE_PAIRS] = {TYPE_RC, TYPE_RC, TYPE_RC, TYPE_RC, TYPE_UC,
                                                    TYPE_UD, TYPE_RC, TYPE_RC, TYPE_RC};
        struct rig_qp_options o = {.type = types[i],
                                   .send_blocks = 16u << (i & 1),
                                   .receive_entries = 16,
                                   .srq = i == 3  ? fuzz.srq
                                          : i > 6 ? fuzz.tags
                                                  : NULL,
                                   .receive_cq = fuzz.cq[2]};
        fuzz.qp[i] = rig_qp_new(rig, fuzz.cq[i & 1], &o);
        struct queue_pair *qp = fuzz.qp[i]->qp;
        qp->offloads_rendezvous = i & 1;
        qp->scatter_to_cqe = options >> (i & 3) & 1;
        qp->scatter_requests_to_cqe = options >> (4 + (i & 3)) & 1;
        qp->attributes.path_mtu = (uint8_t)(1 + i % 5);
    }
    rig_connect(fuzz.qp[0], fuzz.qp[1]);
    fuzz.qp[3]->qp->attributes.path_mtu = fuzz.qp[2]->qp->attributes.path_mtu;
    fuzz.qp[1]->qp->attributes.path_mtu = fuzz.qp[0]->qp->attributes.path_mtu;
    rig_connect(fuzz.qp[2], fuzz.qp[3]);
    rig_qp_point(fuzz.qp[4], fuzz.qp[4]);
    rig_qp_point(fuzz.qp[5], fuzz.qp[5]);
    fuzz.qp[7]->qp->attributes.path_mtu = fuzz.qp[6]->qp->attributes.path_mtu;
    rig_connect(fuzz.qp[6], fuzz.qp[7]);
    rig_qp_point(fuzz.qp[8], fuzz.qp[8]);
    multicast_attach(&fuzz.rig->nic, fuzz.qp[5]->qp, rails[0].gid[3].raw);
    /* Ordinary memory, read-only, of another domain, the send queue itself, none, and a window. */
    for (uint32_t i = 0; i < INDIRECT_KEY; i++) {
        const uint32_t order = relaxed >> i & 1 ? ACCESS_RELAXED_ORDERING : 0;
        fuzz.memory[i] =
            rig_memory_with(rig, MEMORY_BYTES, order | (i == 1 ? ACCESS_REMOTE_READ : 0x1f),
                            i == 2 ? RIG_DOMAIN + 1 : RIG_DOMAIN);
    }
    struct memory_key *key = key_find(&rig->nic, fuzz.memory[3].key);
    key->start = key->address = (uintptr_t)fuzz.qp[0]->qp->send_buffer;
    key->bytes = fuzz.qp[0]->qp->send_blocks * 64;
    fuzz.memory[3].bytes = fuzz.qp[0]->qp->send_buffer;
    key = key_find(&rig->nic, fuzz.memory[4].key);
    key->start = key->address = (uintptr_t)fuzz.nowhere;
    fuzz.memory[4].bytes = fuzz.nowhere;
    key_find(&rig->nic, fuzz.memory[5].key)->kind = KEY_WINDOW;
    key = key_create_indirect(&rig->nic, RIG_DOMAIN, 8, 0);
    fuzz_check(key, "out of memory");
    key->remote_invalidation = true;
    fuzz.memory[INDIRECT_KEY] = (struct rig_memory){.key = key->key, .size = MEMORY_BYTES};
}

static void destroy_keys(void)
{
    struct nic *nic = &fuzz.rig->nic;
    for (uint32_t i = 0; i < KEYS; i++) {
        key_destroy(nic, &nic->keys[fuzz.memory[i].key >> 8]);
    }
    fuzz_check(nic->late.count == 0, "data are to land in memory that is the program's again");
}

void fuzz_destroy(void)
{
    struct nic *nic = &fuzz.rig->nic;
    /* Everything that is left is flushed, once. */
    fuzz.rig->fabric.fault = (struct fabric_fault){0};
    fuzz.rig->fabric.faulty = false;
    fuzz_poll_all();
    if (fuzz.keys_end_first) { /* while data of QPs that work are on their way */
        destroy_keys();
    }
    for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
        qp_fail(nic, fuzz.qp[i]->qp);
    }
    for (uint32_t i = 0; i < 4; i++) {
        fuzz_run(1000000000);
        fuzz_poll_all();
    }
    if (!fuzz.keys_end_first) {
        destroy_keys();
    }
    rig_clear(fuzz.rig, fuzz.blocks);
}

void fuzz_end(void)
{
    if (fuzz.rig) {
        rig_delete(fuzz.rig);
    }
    fuzz.rig = NULL;
}
