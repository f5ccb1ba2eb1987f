/* fuzz_nic.c: bytes that drive a NIC: send queues, receive queues and doorbells that hold anything,
 * packets from a peer that keeps no rule, and changes of state at any time. Whatever comes, the NIC
 * does not crash and no WQE completes twice.
 *
 * It is for libFuzzer (./dev fuzz), or with fuzz_main.c a program of its own. */
#include <stdlib.h>
#include <string.h>

#include "simnic/nic/tests/fuzz.h"
#include "simnic/nic/tests/fuzz_world.h"

#define MOST_STEPS 2000

/* Bytes as they come, into a queue; and its doorbell record goes on. */
static void scribble(void)
{
    struct rig_qp *qp = fuzz_some_qp();
    uint8_t raw[64];
    uint32_t block = input_byte() & (qp->qp->send_blocks - 1);
    input_bytes(raw, sizeof(raw));
    memcpy(qp->qp->send_buffer + block * 64, raw, sizeof(raw));
    qp->sent = (uint16_t)(qp->sent + input_below(4));
    qp->record[1] = htobe32(qp->sent);
}

static void receive(void)
{
    struct rig_qp *qp = fuzz_some_qp();
    struct mlx5_wqe_data_seg list[4];
    uint32_t segments = input_below(5);
    if (qp->qp->shared_receive_queue) {
        const struct rig_memory *memory = fuzz_some_memory();
        struct rig_srq *srq = qp->qp->shared_receive_queue == fuzz.srq->srq ? fuzz.srq : fuzz.tags;
        uint16_t index = rig_srq_receive(srq, memory, input_below(200), fuzz_some_length());
        if (index != UINT16_MAX) {
            rig_srq_give_back(srq, index);
        }
        return;
    }
    for (uint32_t i = 0; i < segments; i++) {
        list[i] = fuzz_some_segment();
    }
    rig_receive_list(qp, list, segments);
}

static void push(void)
{
    const struct rig_qp *qp = fuzz_some_qp();
    uint32_t place = input_byte() & (qp->qp->send_blocks - 1);
    struct rig_wqe wqe = {.size = 64};
    memcpy(wqe.bytes, qp->qp->send_buffer + (size_t)place * 64, 64);
    for (uint32_t changes = input_below(4); changes; changes--) {
        wqe.bytes[input_byte() % 64] = input_byte();
    }
    static const uint32_t sizes[] = {8, 16, 32, 64};
    rig_push(fuzz.qp[input_below(QUEUE_PAIRS)], &wqe, input_below(NIC_REGISTERS),
             sizes[input_below(4)]);
}

static struct packet some_packet(const struct queue_pair *to)
{
    const struct rig_memory *memory = fuzz_some_memory();
    bool forward = input_byte() & 1;
    uint32_t psn =
        forward ? to->expected_psn : to->in_flight[to->in_flight_head % NIC_IN_FLIGHT].first_psn;
    uint8_t delta = input_byte();
    return (struct packet){
        .operation = input_byte() % 26,
        .transport = input_byte() < 230 ? (uint8_t)(to->type == TYPE_UD   ? TRANSPORT_UD
                                                    : to->type == TYPE_UC ? TRANSPORT_UC
                                                                          : TRANSPORT_RC)
                                        : input_byte(),
        .flags = input_byte() | (to->type == TYPE_UD ? PACKET_GRH : 0),
        .rail = input_byte() < 230 ? 0 : input_byte(),
        .payload_bytes = fuzz_some_length() % 8192,
        .destination_qpn = to->number,
        .source_qpn = input_byte() < 230 ? to->attributes.destination_qpn : input_word(),
        .psn = (delta < 240 ? psn + (uint32_t)(int8_t)(delta < 120 ? 0 : delta % 8 - 2)
                            : input_word()) &
               PSN_MASK,
        .immediate = fuzz_some_key(memory),
        .address = fuzz_some_address(memory),
        .key = to->type == TYPE_UD ? 0x11111111 : fuzz_some_key(memory),
        .length = fuzz_some_length(),
        .syndrome = input_byte() & 1 ? 0x1f : input_byte(),
        .msn = input_byte(),
        .swap_or_add = input_word(),
        .compare = input_word(),
    };
}

/* Straight to the functions that packets end at: they rely on nothing but the payload's size. */
static void hostile_packet(void)
{
    struct nic *nic = &fuzz.rig->nic;
    struct queue_pair *qp = fuzz_some_qp()->qp;
    struct packet packet = some_packet(qp);
    uint8_t *payload = malloc(packet.payload_bytes + 1);
    fuzz_check(payload != NULL, "out of memory");
    rig_fill(payload, packet.payload_bytes, packet.psn);
    if (qp->shared_receive_queue == fuzz.tags->srq) {
        fuzz_write_header(payload, packet.payload_bytes);
    }
    if (qp->type == TYPE_UD) {
        datagram_receive(nic, qp, &packet, payload);
    } else if (packet.operation >= PACKET_READ_RESPONSE_FIRST &&
               packet.operation <= PACKET_ATOMIC_ACKNOWLEDGE) {
        completer_receive(nic, qp, &packet, payload);
    } else {
        responder_receive(nic, qp, &packet, payload);
    }
    free(payload);
    fuzz_check_queue_pair(qp);
}

/* The same through the fabric. */
static void packet_on_fabric(void)
{
    struct packet packet = some_packet(fuzz_some_qp()->qp);
    packet.payload_bytes %= FABRIC_PAYLOAD_MAX_BYTES + 1;
    uint8_t *to = fabric_reserve(&fuzz.rig->fabric, fuzz.rig->fabric.slot, &packet);
    if (!to) {
        return;
    }
    rig_fill(to, packet.payload_bytes, packet.psn);
    fabric_commit(&fuzz.rig->fabric, fuzz.rig->fabric.slot, &packet);
}

static void up(struct rig_qp *qp)
{
    struct nic *nic = &fuzz.rig->nic;
    if (qp->qp->state == STATE_RESET) {
        qp_set_state(nic, qp->qp, STATE_INIT);
    }
    if (qp->qp->state == STATE_INIT) {
        qp_set_state(nic, qp->qp, STATE_RTR);
    }
    qp_set_state(nic, qp->qp, STATE_RTS);
}

static void change_state(void)
{
    uint32_t which = input_below(QUEUE_PAIRS);
    struct rig_qp *qp = fuzz.qp[which];
    struct nic *nic = &fuzz.rig->nic;
    uint8_t choice = input_byte() % 8, state = qp->qp->state;
    if (choice == 0) {
        fuzz_poll_all();
        qp_set_state(nic, qp->qp, STATE_RESET);
        qp->sent = qp->received = 0;
        qp->record[0] = qp->record[1] = 0;
        fuzz.sends[which] = fuzz.receives[which] = (struct counted){0};
        if (qp->qp->shared_receive_queue) {
            return;
        }
    } else if (choice == 1) {
        qp_fail(nic, qp->qp);
    } else if (choice == 2 && state == STATE_RTS) {
        qp_set_state(nic, qp->qp, STATE_SQD);
    } else if (choice < 7 && state != STATE_ERR) {
        up(qp);
    } else if (choice == 7) {
        qp->qp->attributes.access = input_byte();
        qp->qp->attributes.timeout = input_byte() & 31;
        qp->qp->attributes.retry_count = input_byte() & 7;
        qp->qp->attributes.rnr_retry_count = input_byte() & 7;
        qp->qp->attributes.min_rnr_timer = input_byte() & 31;
        qp->qp->attributes.max_reads = input_byte() & 31;
    }
}

/* A doorbell record that says anything: completions of this QP are not counted from here on. */
static void move_record(void)
{
    uint32_t which = input_below(QUEUE_PAIRS);
    struct rig_qp *qp = fuzz.qp[which];
    if (input_byte() & 1) {
        qp->record[1] = input_word();
        fuzz.sends[which].wild = true;
    } else {
        qp->record[0] = input_word();
        fuzz.receives[which].wild = true;
    }
    nic_ring_page(&fuzz.rig->nic, 0);
}

static void change_key(void)
{
    const struct rig_memory *memory = fuzz_some_memory();
    struct memory_key *key = key_find(&fuzz.rig->nic, memory->key);
    if (key) {
        const uint8_t access = input_byte();
        key->access = (access & 0x1f) | (access & 0x20 ? ACCESS_RELAXED_ORDERING : 0);
    }
}

static void faults(void)
{
    struct fabric *fabric = &fuzz.rig->fabric;
    fabric->fault.lose_per_million = input_below(4) * 100000;
    fabric->fault.duplicate_per_million = input_below(4) * 100000;
    fabric->fault.delay_per_million = input_below(4) * 100000;
    fabric->fault.delay_us = input_byte();
    fabric->fault.placement_per_million = input_below(4) * 300000;
    fabric->fault.placement_us = input_byte() * 100u;
    fabric->dice.state = fabric->late_dice.state = input_byte();
    fabric->faulty = fabric->fault.lose_per_million || fabric->fault.duplicate_per_million ||
                     fabric->fault.delay_per_million;
}

static void step(void)
{
    static const uint64_t waits[] = {0, 1000, 100000, 5000000, 100000000, 5000000000};
    switch (input_byte() % 24) {
    case 0 ... 5:
        fuzz_post();
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
        if (input_byte() > 200) {
            move_record();
        }
        break;
    case 16:
        change_key();
        break;
    case 17:
        rig_arm(fuzz.cq[input_below(3)], input_byte() & 1);
        break;
    case 18:
        faults();
        break;
    case 19 ... 20:
        fuzz_poll_all();
        break;
    default:
        fuzz_run(waits[input_below(6)]);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz.input = data;
    fuzz.input_left = size;
    fuzz_create();
    for (uint32_t steps = 0; fuzz.input_left && steps < MOST_STEPS; steps++) {
        step();
    }
    fuzz_destroy();
    return 0;
}
