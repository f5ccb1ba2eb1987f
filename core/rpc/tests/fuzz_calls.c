/* fuzz_calls.c: a victim with two connections, of which one leads to a peer that writes anything
 * anywhere it may, at any time: batches, what is in them while they are read, its mailbox. Whatever
 * comes, each op of the victim completes once, its other connection sees nothing, nothing is left
 * behind, and nobody spins.
 *
 * It is for libFuzzer (./dev fuzz calls), or a test with fuzz_main.c.
 */
#include "base/page.h"
#include "fuzz_calls.h"

/* ---- What the bad peer writes ---------------------------------------------------------------- */

/* What the victim's ring has is reached as the peer's device would. */
static void write_ring(uint64_t position, const void *data, uint32_t bytes, bool immediate,
                       uint32_t units)
{
    const struct rpc_endpoint *target = world->ends[0].endpoint;
    if (!target || !target->link.queue_pair) {
        return;
    }
    const struct ring *ring = &target->in.ring;
    uint64_t address = (uint64_t)(uintptr_t)ring_at(ring, position);
    uint32_t number = target->link.queue_pair->number;
    if (!immediate) {
        memory_fabric_write(world->fabric, number, address, ring->memory.remote_key, bytes, data);
    } else if (memory_fabric_write_immediate(world->fabric, number, address,
                                             ring->memory.remote_key, bytes, data,
                                             units) == NIC_ERROR_NONE) {
        world->ahead_bytes += (uint64_t)units * WIRE_UNIT_BYTES;
        world->ahead_batches++;
    }
}

static struct wire_message choose_message(struct fuzz_input *input,
                                          const struct rpc_endpoint *target)
{
    uint8_t choice = fuzz_byte(input);
    struct wire_message message = {.payload_bytes = choice & 31};
    if (choice & 32) {
        message.payload_bytes = fuzz_half(input) % 4096;
    }
    uint32_t index = fuzz_byte(input);
    if (choice & 64) {
        message.kind = WIRE_RESPONSE;
        message.call_id = index < target->calls.made ? target->calls.slots[index].call_id : index;
        message.limit_or_status = choice & 128 ? (uint32_t)CRPC_E_DROPPED : 0;
    } else {
        message.kind = WIRE_REQUEST;
        message.call_id = index;
        message.limit_or_status = choice & 128 ? fuzz_half(input) : 8;
        message.method = index;
    }
    choice = fuzz_byte(input);
    if (choice >= 180 && choice < 200) {
        message = (struct wire_message){.call_id = index,
                                        .limit_or_status = choice & 1 ? (uint32_t)CRPC_E_TIMEOUT
                                                                      : (uint32_t)CRPC_E_CANCELED,
                                        .kind = WIRE_ABANDONED};
    } else if (choice >= 160 && choice < 180 && message.kind == WIRE_REQUEST) {
        message.zero = choice;
    }
    switch (choice < 200 ? 0 : choice % 7) {
    case 1:
        message.payload_bytes = (uint32_t)fuzz_near(input, message.payload_bytes);
        break;
    case 2:
        message.call_id = (uint32_t)fuzz_near(input, message.call_id);
        break;
    case 3:
        message.limit_or_status = fuzz_word(input);
        break;
    case 4:
        message.method = fuzz_half(input);
        break;
    case 5:
        message.kind = fuzz_byte(input);
        if (message.kind >= 128) { /* a word about rings and windows */
            const uint8_t kind = WIRE_WANT + message.kind % 4u;
            message = (struct wire_message){
                .payload_bytes = kind == WIRE_RING ? sizeof(struct wire_ring) : 0, .kind = kind};
        }
        break;
    case 6:
        message.zero = fuzz_byte(input);
        break;
    default:
        break;
    }
    return message;
}

/* A batch that is nearly right, where the next one belongs. */
static void write_batch(struct fuzz_input *input)
{
    const struct rpc_endpoint *target = world->ends[0].endpoint;
    static uint8_t batch[8192];
    if (!target || !target->link.queue_pair) {
        return;
    }
    uint8_t choice = fuzz_byte(input);
    uint32_t messages = choice & 7, bytes = WIRE_BATCH_HEADER_BYTES;
    for (uint32_t i = 0; i < messages; i++) {
        uint8_t word[LANE_GRANT_BYTES];
        bool says = choice & 128 && target->lane.lane;
        struct wire_message message;
        uint32_t body = says ? lanes_word(input, target, &message, word) : 0;
        if (!says) {
            message = choose_message(input, target);
        }
        uint64_t all = wire_message_bytes(message.payload_bytes);
        if (bytes + 2 * WIRE_UNIT_BYTES > sizeof(batch)) {
            break;
        }
        memcpy(batch + bytes, &message, sizeof(message));
        memcpy(batch + bytes + sizeof(message), word, body);
        bytes += (uint32_t)(all < sizeof(batch) - bytes ? all : WIRE_UNIT_BYTES);
    }
    uint32_t pending = target->in.arrivals_tail - target->in.arrivals_head;
    struct wire_batch header = {.request_limit = target->out.request_limit,
                                .batch_limit = target->out.batch_limit,
                                .sequence =
                                    target->in.sequence_expected + pending + world->ahead_batches,
                                .bytes = bytes,
                                .message_count = (uint16_t)messages};
    header.flags = choice & 8 ? WIRE_BATCH_FIN : 0;
    uint32_t units = bytes / WIRE_UNIT_BYTES;
    if (choice & 16) { /* what a peer grants that has read everything */
        header.request_limit = target->out.request_produced + target->peer.request_bytes;
        if (!(choice & 64)) { /* or its window stays shut */
            header.batch_limit = target->out.batches_sent + target->peer.batch_window;
        }
    }
    uint8_t spoiled = choice & 32 ? fuzz_byte(input) : 0;
    switch (spoiled % 10) {
    case 1:
        header.request_limit = fuzz_near(input, header.request_limit + fuzz_half(input));
        break;
    case 2:
        header.batch_limit = fuzz_near(input, header.batch_limit + fuzz_byte(input));
        break;
    case 3:
        header.sequence = (uint32_t)fuzz_near(input, header.sequence);
        break;
    case 4:
        header.bytes = (uint32_t)fuzz_near(input, header.bytes);
        break;
    case 5:
        header.message_count = fuzz_half(input);
        break;
    case 6:
        header.flags = fuzz_half(input);
        break;
    case 7:
        header.returned = fuzz_byte(input);
        break;
    case 8:
        units = (uint32_t)fuzz_near(input, units);
        break;
    case 9: { /* one long message; its batch may be longer than the ring */
        struct wire_message message = choose_message(input, target);
        units = 2 + fuzz_byte(input) * 2u;
        header.bytes = units * WIRE_UNIT_BYTES;
        header.message_count = 1;
        message.payload_bytes = header.bytes - WIRE_BATCH_HEADER_BYTES - WIRE_HEADER_BYTES;
        memcpy(batch + WIRE_BATCH_HEADER_BYTES, &message, sizeof(message));
        bytes = WIRE_BATCH_HEADER_BYTES + WIRE_UNIT_BYTES;
        break;
    }
    default:
        break;
    }
    memcpy(batch, &header, sizeof(header));
    uint32_t room = (uint32_t)target->in.ring.bytes;
    write_ring(target->in.arrived + world->ahead_bytes, batch, bytes < room ? bytes : room, true,
               units);
}

/* What has arrived is written again, while it is read or before. */
static void rewrite(struct fuzz_input *input)
{
    const struct rpc_endpoint *target = world->ends[0].endpoint;
    uint8_t bytes[64];
    uint32_t count = 1 + fuzz_below(input, sizeof(bytes));
    uint32_t offset = fuzz_half(input);
    fuzz_bytes(input, bytes, count);
    if (target) {
        write_ring(target->in.parsed + offset % 512, bytes, count, false, 0);
    }
}

/* Any bytes anywhere, in pieces of any length. */
static void write_anything(struct fuzz_input *input)
{
    const struct rpc_endpoint *target = world->ends[0].endpoint;
    uint8_t bytes[256];
    uint8_t choice = fuzz_byte(input);
    uint32_t count = fuzz_byte(input), position = fuzz_half(input);
    uint32_t units = choice & 1 ? fuzz_word(input) : fuzz_byte(input);
    fuzz_bytes(input, bytes, count);
    if (choice < 248) {
        write_ring(position, bytes, count, choice & 2, units);
    } else if (target && target->link.queue_pair) { /* where it may not: that is its own end */
        const struct ring *ring = &(choice & 1 ? target : world->honest[0])->in.ring;
        uint64_t address =
            (uint64_t)(uintptr_t)ring->address + (choice & 1 ? 2 * ring->bytes + page_bytes() : 0);
        enum nic_error status =
            memory_fabric_write(world->fabric, target->link.queue_pair->number, address,
                                ring->memory.remote_key, 1 + count % sizeof(bytes), bytes);
        fuzz_check(status != NIC_ERROR_NONE, "a key opens what it should not");
    }
}

static void write_mailbox(struct fuzz_input *input)
{
    const struct rpc_endpoint *bad = world->ends[1].endpoint, *target = world->ends[0].endpoint;
    uint8_t choice = fuzz_byte(input);
    if (!bad || !target || !bad->in.mailbox || !bad->in.ring.address) {
        return;
    }
    struct wire_mailbox *mailbox = bad->in.mailbox;
    switch (choice & 7) {
    case 0:
        mailbox->request_limit = fuzz_near(input, mailbox->request_limit + fuzz_half(input));
        break;
    case 1:
        mailbox->batch_limit = fuzz_near(input, mailbox->batch_limit + fuzz_byte(input));
        break;
    case 2:
        mailbox->nonce = fuzz_near(input, mailbox->nonce);
        break;
    case 3:
        mailbox->flags = fuzz_byte(input);
        break;
    case 4:
    case 5:
        mailbox->request_limit = target->out.request_produced + target->peer.request_bytes;
        if (choice & 8) { /* its window stays shut */
            break;
        }
        mailbox->batch_limit = target->out.batches_sent + target->peer.batch_window;
        break;
    default:
        fuzz_bytes(input, mailbox->zero, sizeof(mailbox->zero));
    }
}

/* ---- What applications do: the victim's, and that of the bad peer ---------------------------- */

static uint32_t choose_bytes(struct fuzz_input *input)
{
    uint8_t choice = fuzz_byte(input);
    return choice < 200 ? choice : fuzz_half(input) % PAYLOAD_BYTES;
}

static crpc_op choose_call(struct fuzz_input *input, const struct end *end)
{
    crpc_op op = {.opcode = CRPC_OP_CALL,
                  .user_data = end->op_count,
                  .payload_bytes = choose_bytes(input),
                  .reply_bytes_max = choose_bytes(input)};
    if (fuzz_byte(input) > 200) {
        op.timeout_ns = 1 + (uint64_t)fuzz_half(input) * 20;
    }
    return op;
}

static crpc_op choose_reply(struct fuzz_input *input, const struct end *end)
{
    uint8_t choice = fuzz_byte(input);
    uint64_t token = end->token_count > 0 ? end->tokens[choice % end->token_count] : choice;
    return (crpc_op){.opcode = choice & 64 ? CRPC_OP_DROP : CRPC_OP_REPLY,
                     .flags = choice & 128 ? CRPC_OP_QUIET : 0,
                     .user_data = end->op_count,
                     .token = token,
                     .payload_bytes = choice & 64 ? 0 : choose_bytes(input) % 16};
}

static void act_call(struct fuzz_input *input, struct end *end)
{
    crpc_op op = choose_call(input, end);
    end_booked(end, rpc_call(end->endpoint, &op, payload), OP_CALL, &op);
}

static void act_reply(struct fuzz_input *input, struct end *end)
{
    crpc_op op = choose_reply(input, end);
    int32_t status = op.opcode == CRPC_OP_DROP ? rpc_drop(end->endpoint, &op)
                                               : rpc_reply(end->endpoint, &op, payload);
    if (op.flags & CRPC_OP_QUIET) {
        end->room_due |= status == CRPC_E_AGAIN;
    } else {
        end_booked(end, status, OP_REPLY, &op);
    }
}

static void act_cancel(struct fuzz_input *input, struct end *end)
{
    crpc_op op = {
        .opcode = CRPC_OP_CANCEL, .user_data = end->op_count, .token = fuzz_byte(input) % 32};
    end_booked(end, rpc_cancel(end->endpoint, &op), OP_CANCEL, &op);
}

static void act_reserve(struct fuzz_input *input, struct end *end)
{
    bool reply = fuzz_byte(input) & 1;
    crpc_op op = reply ? choose_reply(input, end) : choose_call(input, end);
    void *place;
    op.opcode = reply ? CRPC_OP_REPLY : CRPC_OP_CALL;
    int32_t status = rpc_reserve(end->endpoint, &op, &place);
    end->room_due |= status == CRPC_E_AGAIN;
    if (status == CRPC_OK) {
        end->reserved = true;
        end->reservation = op;
        memset(place, 0x5a, op.payload_bytes);
    }
}

static void act_finish(struct fuzz_input *input, struct end *end)
{
    uint8_t choice = fuzz_byte(input);
    end->reserved = false;
    if (choice & 1) {
        rpc_abort(end->endpoint);
        return;
    }
    bool quiet = end->reservation.opcode == CRPC_OP_REPLY && end->reservation.flags & CRPC_OP_QUIET;
    int32_t status = rpc_commit(end->endpoint, end->reservation.payload_bytes / (1 + choice / 64));
    if (!quiet) {
        fuzz_check(end->reservation.user_data == end->op_count, "an op beside a reservation");
        end_booked(end, status, end->reservation.opcode == CRPC_OP_CALL ? OP_CALL : OP_REPLY,
                   &end->reservation);
    }
}

static void act_disconnect(struct fuzz_input *input, struct end *end)
{
    uint8_t choice = fuzz_byte(input);
    link_disconnect(&end->endpoint->link, choice & 1 ? CRPC_FOREVER : (uint64_t)choice * 10000);
}

static void act_close(struct end *end)
{
    link_close(&end->endpoint->link);
    end->endpoint = NULL;
    end->reserved = false;
}

static void act(struct fuzz_input *input, struct end *end, uint32_t choice)
{
    if (!end->endpoint || end->op_count >= OPS_MAX) {
        return;
    }
    if (end->reserved && choice != 15) {
        act_finish(input, end);
        rpc_submit_end(world->engine[end->who]);
        return;
    }
    switch (choice) {
    case 0 ... 5:
        act_call(input, end);
        break;
    case 6 ... 9:
        act_reply(input, end);
        break;
    case 10:
        act_cancel(input, end);
        break;
    case 11:
    case 12:
        act_reserve(input, end);
        break;
    case 13:
        act_disconnect(input, end);
        break;
    case 14:
        for (uint32_t i = 1 + fuzz_below(input, 8); i > 0 && end->op_count < OPS_MAX; i--) {
            act_call(input, end);
        }
        break;
    default: {
        uint8_t rare = fuzz_byte(input) % 8;
        if (rare == 0) {
            act_close(end);
            return;
        }
        if (rare > 2 && !end->reserved) {
            for (uint32_t i = rare; i > 2; i--) {
                lanes_act(input, end);
            }
        } else if (rare == 2 && end->who == BAD) {
            lanes_write(input);
        }
    }
    }
    rpc_submit_end(world->engine[end->who]);
}

/* ---- What else befalls them ------------------------------------------------------------------ */

static void befall(struct fuzz_input *input)
{
    uint8_t choice = fuzz_byte(input);
    struct end *end = &world->ends[choice & 1];
    struct nic_queue_pair *queue_pair = end->endpoint ? end->endpoint->link.queue_pair : NULL;
    if (!queue_pair) {
        return;
    }
    if (link_joining(&end->endpoint->link) && (choice & 6) == 0) {
        end->may_fail = true;
        memory_fabric_set_failures(world->fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_UNREACHABLE);
        world_late(false);
        memory_fabric_set_failures(world->fabric, MEMORY_FAIL_CONNECT, 0, 0);
        return;
    }
    switch (choice >> 1 & 3) {
    case 0:
        memory_fabric_kill(queue_pair);
        break;
    case 1:
        memory_fabric_cut(queue_pair);
        break;
    default:
        memory_fabric_stall(queue_pair, choice >> 3);
    }
}

static void step(struct fuzz_input *input)
{
    static const uint64_t waits[] = {1000, 10000, 100000, 1000000, 5000000};
    uint8_t choice = fuzz_byte(input);
    switch (choice & 15) {
    case 0 ... 2:
        world_poll(VICTIM, choice & 0xc0 ? POLL_MAX : (uint32_t)(choice >> 4) + 1);
        break;
    case 3:
        world_poll(BAD, POLL_MAX);
        break;
    case 4 ... 6:
        act(input, &world->ends[0], choice >> 4);
        break;
    case 7:
        act(input, &world->ends[1], choice >> 4);
        break;
    case 8:
    case 9:
        write_batch(input);
        break;
    case 10:
        rewrite(input);
        break;
    case 11:
        write_anything(input);
        break;
    case 12:
        write_mailbox(input);
        break;
    case 13:
        world->clock_ns += waits[(choice >> 4) % 5];
        break;
    case 14:
        if (choice & 0x80) {
            befall(input);
        } else if (choice & 0x20 && world->engine[VICTIM]->links.cm) {
            world_late(choice & 0x40);
        } else {
            world_progress(choice & 16 ? VICTIM : BAD);
        }
        break;
    default:
        if (choice >> 4 == 10) {
            world_honest_round(fuzz_byte(input) & 1);
        } else {
            world_poll_with(BAD);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return world_run(data, size, step);
}
