/* fuzz_channels.c: a victim with two channels, of which one leads to a peer that writes anything
 * anywhere it may, at any time. Whatever comes, each op of the victim completes once, its other
 * channel sees nothing, nothing is left behind, and nobody spins.
 *
 * It is for libFuzzer (./dev fuzz channels), or a test with fuzz_main.c.
 */
#include "fuzz_channels.h"

/* ---- What applications do: the victim's, and that of the bad peer ---------------------------- */

static crpc_channel_op choose_op(struct fuzz_input *input, struct end *end, uint8_t opcode)
{
    uint8_t choice = fuzz_byte(input);
    uint32_t bytes = choice < 128 ? choice : (choice - 128u) * 24;
    uint64_t offset = (uint64_t)fuzz_byte(input) * 64 % (BUFFERS_BYTES - BUFFER_BYTES_MAX - 128);
    return (crpc_channel_op){.opcode = opcode,
                             .tag = fuzz_byte(input) % TAGS,
                             .user_data = end->op_count,
                             .address = (uint64_t)(uintptr_t)world.memory[end->who] + offset,
                             .bytes = bytes};
}

static void book(struct end *end, const crpc_channel_op *op, enum op_state state)
{
    end->ops[end->op_count++] =
        (struct op){.state = (uint8_t)state, .bytes = (uint32_t)op->bytes, .address = op->address};
    end->open++;
}

static void act_send(struct fuzz_input *input, struct end *end)
{
    crpc_channel_op op = choose_op(input, end, CRPC_CHANNEL_SEND);
    if (fuzz_byte(input) > 220) {
        op.timeout_ns = 1 + (uint64_t)fuzz_half(input) * 20;
    }
    int32_t status = channel_send(end->channel, &op, op.bytes > 0 ? &world.region[end->who] : NULL);
    end->room_due |= status == CRPC_E_AGAIN;
    if (status == CRPC_OK) {
        book(end, &op, OP_SEND);
    }
}

static void act_receive(struct fuzz_input *input, struct end *end, uint32_t count)
{
    crpc_channel_op ops[CHANNEL_GROUP_MAX] = {0};
    struct registration *regions[CHANNEL_GROUP_MAX] = {0};
    for (uint32_t i = 0; i < count; i++) {
        ops[i] = choose_op(input, end, CRPC_CHANNEL_RECEIVE);
        ops[i].user_data = end->op_count + i;
        regions[i] = ops[i].bytes > 0 ? &world.region[end->who] : NULL;
    }
    int32_t status = channel_receive(end->channel, ops, regions, count);
    end->room_due |= status == CRPC_E_AGAIN;
    for (uint32_t i = 0; i < count && status == CRPC_OK; i++) {
        book(end, &ops[i], OP_RECEIVE);
    }
}

static void act_cancel(struct fuzz_input *input, struct end *end)
{
    crpc_channel_op op = {
        .opcode = CRPC_CHANNEL_CANCEL, .user_data = end->op_count, .token = fuzz_byte(input) % 32};
    int32_t status = channel_cancel(end->channel, &op);
    end->room_due |= status == CRPC_E_AGAIN;
    if (status == CRPC_OK) {
        book(end, &op, OP_CANCEL);
    }
}

static void act(struct fuzz_input *input, struct end *end, uint32_t choice)
{
    if (!end->channel || end->op_count + CHANNEL_GROUP_MAX >= OPS_MAX) {
        return;
    }
    uint8_t detail;
    switch (choice) {
    case 0 ... 4:
        act_send(input, end);
        break;
    case 5 ... 8:
        act_receive(input, end, 1);
        break;
    case 9 ... 10:
        act_receive(input, end, 1 + fuzz_below(input, CHANNEL_GROUP_MAX));
        break;
    case 11:
        act_cancel(input, end);
        break;
    case 12:
        channel_set_share(end->channel, fuzz_half(input) % 1025);
        break;
    case 13:
        detail = fuzz_byte(input);
        if (detail & 3) {
            act_send(input, end);
        } else {
            link_disconnect(&end->channel->link,
                            detail & 4 ? CRPC_FOREVER : (uint64_t)detail * 10000);
        }
        break;
    case 14:
        for (uint32_t i = 1 + fuzz_below(input, 4); i > 0; i--) {
            act_receive(input, end, 1);
        }
        break;
    default:
        if (fuzz_byte(input) % 16 == 0) {
            link_close(&end->channel->link);
            end->channel = NULL;
            return;
        }
    }
    channel_submit_end(world.engine[end->who]);
}

/* ---- What else befalls them ------------------------------------------------------------------ */

static void befall(struct fuzz_input *input)
{
    uint8_t choice = fuzz_byte(input);
    const struct end *end = &world.ends[choice & 1];
    uint32_t rail = choice >> 1 & 1;
    const struct channel_queue *queue = end->channel ? end->channel->rails[rail].queues[0] : NULL;
    switch (choice >> 2 & 7) {
    case 0:
        memory_fabric_set_link(world.nic[BAD][rail], false);
        break;
    case 1:
        memory_fabric_set_link(world.nic[BAD][rail], true);
        break;
    case 2:
        memory_fabric_set_failures(world.fabric,
                                   choice & 64 ? MEMORY_FAIL_CREATE : MEMORY_FAIL_CONNECT,
                                   1 + (choice >> 7), CRPC_E_NO_RESOURCE);
        break;
    case 3:
    case 4:
        if (queue && queue->connected && !link_joining(&end->channel->link)) {
            memory_fabric_kill(queue->queue_pair);
        }
        break;
    case 5:
        if (queue) {
            memory_fabric_cut(queue->queue_pair);
        }
        break;
    default:
        if (queue) {
            memory_fabric_stall(queue->queue_pair, (choice >> 5) * 8u);
        }
    }
}

static void step(struct fuzz_input *input)
{
    static const uint64_t waits[] = {1000, 100000, 1000000, 20000000, 400000000};
    uint8_t choice = fuzz_byte(input);
    switch (choice & 15) {
    case 0 ... 2:
        world_poll(VICTIM, choice & 0xc0 ? POLL_MAX : (uint32_t)(choice >> 4) + 1);
        break;
    case 3:
        world_poll(BAD, POLL_MAX);
        break;
    case 4 ... 6:
        act(input, &world.ends[0], choice >> 4);
        break;
    case 7:
        act(input, &world.ends[1], choice >> 4);
        break;
    case 8 ... 11:
        bad_writes(input);
        break;
    case 12:
        world.clock_ns += waits[(choice >> 4) % 5];
        break;
    case 13:
        if (choice & 0x80) {
            befall(input);
        } else if (choice & 0x20 && world.engine[VICTIM]->links.cm) {
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
