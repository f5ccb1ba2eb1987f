/* fuzz_calls_lanes.c: the lanes of the fuzz target of calls: what the bad peer says of its own, bytes that it
 * says are grants, and what both applications do with theirs. See fuzz_calls.h.
 */
#include "fuzz_calls.h"

#define BYTES 512u

static struct memory {
    struct nic_keys keys;
    uint32_t users;
    _Alignas(64) uint8_t bytes[BYTES];
} memories[ENGINES];

/* The last grant that each end has given, and that it has opened: handles. */
static uint64_t given[2], taken[2];

/* ---- Memory ---------------------------------------------------------------------------------- */

void lanes_open(void)
{
    crpc_error error = {0};
    for (uint32_t i = 0; i < ENGINES; i++) {
        memories[i].users = 0;
        fuzz_check(world->nic[i]->operations->memory_register(
                       world->nic[i], NULL, memories[i].bytes, BYTES, 0,
                       CRPC_ACCESS_LOCAL_WRITE | NIC_ACCESS_WINDOWS, &memories[i].keys,
                       &error) == CRPC_OK,
                   "no memory for lanes: %s", error.message);
    }
}

void lanes_close(void)
{
    for (uint32_t i = 0; i < ENGINES; i++) {
        fuzz_check(memories[i].users == 0, "a grant still holds its memory");
        world->nic[i]->operations->memory_deregister(world->nic[i], &memories[i].keys);
    }
}

/* ---- Words ----------------------------------------------------------------------------------- */

static void choose_address(struct fuzz_input *input, struct wire_lane *word)
{
    const struct rpc_endpoint *bad = world->ends[1].endpoint;
    *word = (struct wire_lane){.life = 1};
    if (bad && bad->lane.lane && lane_queue_pair(bad->lane.lane)) {
        link_address_fill(&word->address, lane_queue_pair(bad->lane.lane));
    }
    switch (fuzz_byte(input) % 8) {
    case 0:
        word->address.queue_pair_number = fuzz_word(input);
        break;
    case 1:
        word->life = fuzz_byte(input);
        break;
    case 2:
        word->ece_vendor = fuzz_byte(input);
        break;
    case 3:
        fuzz_bytes(input, &word->address, sizeof(word->address));
        break;
    default:
        break;
    }
}

static uint64_t choose_serial(struct fuzz_input *input, const struct rpc_endpoint *target,
                              bool answer)
{
    const struct lane_grant *grant = handles_get(&world->handles[VICTIM], given[0], HANDLE_GRANT);
    uint8_t choice = fuzz_byte(input);
    if (answer && choice & 1) { /* what it may have been asked for */
        return UINT64_C(1) << 16 | (choice >> 1 & 3);
    }
    if (choice & 2) {
        return (uint64_t)(choice >> 4) << 16 | (choice >> 2 & 3);
    }
    (void)target;
    return fuzz_near(input, grant ? grant->serial : 0);
}

uint32_t lanes_word(struct fuzz_input *input, const struct rpc_endpoint *target,
                    struct wire_message *message, uint8_t body[LANE_GRANT_BYTES])
{
    union {
        struct wire_lane address;
        struct wire_lane_state state;
        struct wire_serial serial;
    } word = {0};
    uint8_t choice = fuzz_byte(input);
    uint32_t bytes = sizeof(word.serial);
    *message = (struct wire_message){.kind = (uint8_t)(WIRE_LANE + (choice & 3))};
    switch (message->kind) {
    case WIRE_LANE:
        choose_address(input, &word.address);
        bytes = sizeof(word.address);
        break;
    case WIRE_LANE_STATE:
        word.state.life = choice & 16 ? fuzz_byte(input) : 1;
        word.state.state = choice & 32 ? fuzz_byte(input) : 1 + (choice >> 3 & 1);
        break;
    default:
        word.serial.serial = choose_serial(input, target, message->kind == WIRE_REVOKED);
    }
    message->payload_bytes = bytes;
    if ((choice & 0xc0) == 0xc0) {
        switch (fuzz_byte(input) % 4) {
        case 0:
            message->payload_bytes = fuzz_byte(input);
            break;
        case 1:
            message->call_id = fuzz_byte(input);
            break;
        case 2:
            message->method = fuzz_byte(input);
            break;
        default:
            message->limit_or_status = fuzz_byte(input);
        }
    }
    memcpy(body, &word, sizeof(word));
    return sizeof(word);
}

/* Over the lane itself: what takes a receive, and what only the window can refuse. */
void lanes_write(struct fuzz_input *input)
{
    const struct rpc_endpoint *target = world->ends[0].endpoint;
    uint8_t choice = fuzz_byte(input), bytes[16] = {0};
    if (!target || target->lane.number == 0) {
        return;
    }
    if (choice % 8 == 0) {
        memory_fabric_write_immediate(world->fabric, target->lane.number, 0, 0, 0, bytes, choice);
    } else {
        const struct nic_keys *keys = &memories[VICTIM].keys;
        memset(memories[VICTIM].bytes, 0x11, BYTES);
        memset(bytes, 0x22, sizeof(bytes));
        memory_fabric_write(world->fabric, target->lane.number,
                            (uint64_t)(uintptr_t)memories[VICTIM].bytes + choice, keys->remote_key,
                            sizeof(bytes), bytes);
        fuzz_check(memories[VICTIM].bytes[choice] == 0x11, "the key of a region opens it");
    }
}

/* ---- What applications do -------------------------------------------------------------------- */

static void act_give(struct fuzz_input *input, struct end *end)
{
    struct memory *memory = &memories[end->who];
    uint8_t choice = fuzz_byte(input);
    const struct lane_memory all = {.keys = &memory->keys,
                                    .users = &memory->users,
                                    .address = (uint64_t)(uintptr_t)memory->bytes,
                                    .bytes = BYTES,
                                    .access = choice & 1 ? CRPC_ACCESS_REMOTE_READ
                                                         : CRPC_ACCESS_REMOTE_WRITE};
    const crpc_op none = {0};
    end_booked(end, rpc_lane_give(end->endpoint, &all, end->op_count), OP_LANE, &none);
}

static void act_revoke(struct fuzz_input *input, struct end *end)
{
    const crpc_op none = {0};
    uint64_t timeout_ns = (uint64_t)fuzz_byte(input) * 10000;
    struct lane_grant *grant =
        handles_get(&world->handles[end->who], given[end->who == BAD], HANDLE_GRANT);
    if (grant && rpc_lane_has(end->endpoint, grant)) {
        end_booked(end, rpc_lane_revoke(end->endpoint, grant, end->op_count, timeout_ns), OP_LANE,
                   &none);
    }
}

/* Bytes of the other end's grant, or nearly, or any. */
static void act_take(struct fuzz_input *input, struct end *end)
{
    const enum who peer = end->who == BAD ? VICTIM : BAD;
    const struct lane_grant *grant =
        handles_get(&world->handles[peer], given[peer == BAD], HANDLE_GRANT);
    uint8_t bytes[LANE_GRANT_BYTES], choice = fuzz_byte(input);
    struct lane_grant *opened;
    crpc_error error = {0};
    if (grant && choice & 1) {
        lane_grant_write(grant, bytes);
        if (choice & 2) { /* forged, with its checksum */
            uint32_t checksum = 2166136261u;
            bytes[fuzz_below(input, LANE_GRANT_BYTES - 4)] = fuzz_byte(input);
            for (uint32_t i = 0; i < LANE_GRANT_BYTES - 4; i++) {
                checksum = (checksum ^ bytes[i]) * 16777619u;
            }
            memcpy(bytes + LANE_GRANT_BYTES - 4, &checksum, 4);
        }
    } else {
        fuzz_bytes(input, bytes, sizeof(bytes));
    }
    uint32_t count = choice & 4 ? fuzz_below(input, LANE_GRANT_BYTES) : LANE_GRANT_BYTES;
    int32_t status = rpc_lane_take(end->endpoint, bytes, count, &opened, &error);
    end->room_due |= status == CRPC_E_AGAIN;
    fuzz_check(status == error.status, "status %d, and the error says %d", status, error.status);
    if (status == CRPC_OK) {
        taken[end->who == BAD] = opened->handle;
    }
}

static void act_transfer(struct fuzz_input *input, struct end *end)
{
    const struct memory *memory = &memories[end->who];
    const struct lane_grant *grant =
        handles_get(&world->handles[end->who], taken[end->who == BAD], HANDLE_GRANT);
    const crpc_op none = {0};
    uint8_t choice = fuzz_byte(input);
    struct lane_op op = {.opcode = (uint8_t)(LANE_WRITE + (choice & 3)),
                         .fence = choice & 4,
                         .local_key = memory->keys.local_key,
                         .local_address = (uint64_t)(uintptr_t)memory->bytes,
                         .user_data = end->op_count};
    int32_t status = CRPC_OK;
    if (!grant || !rpc_lane_has(end->endpoint, grant) || lane_grant_over(grant)) {
        return;
    }
    op.bytes = op.opcode <= LANE_READ ? choice : 0;
    op.remote_key = grant->key;
    op.remote_address = grant->address & ~UINT64_C(7);
    rpc_lane_post(end->endpoint, &op, 1, &status);
    end_booked(end, status, OP_LANE, &none);
}

static void act_after(struct end *end)
{
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .user_data = end->op_count,
                        .payload_bytes = 16,
                        .reply_bytes_max = 16};
    end_booked(end, rpc_after(end->endpoint, &op, payload), OP_CALL, &op);
}

void lanes_act(struct fuzz_input *input, struct end *end)
{
    if (!end->endpoint->lane.lane || end->endpoint->link.state == CRPC_STATE_CONNECTING) {
        return;
    }
    switch (fuzz_byte(input) % 8) {
    case 0:
    case 1:
        act_give(input, end);
        break;
    case 2:
        act_revoke(input, end);
        break;
    case 3:
    case 4:
        act_take(input, end);
        break;
    case 5:
        act_after(end);
        break;
    default:
        act_transfer(input, end);
    }
}

void lanes_done(const struct end *end, const crpc_completion *one)
{
    if (one->method == LANE_GRANT && one->status == CRPC_OK) {
        given[end->who == BAD] = one->token;
    }
    fuzz_check(one->method != LANE_REVOKE || one->status == CRPC_OK,
               "a REVOKE completed with status %d", one->status);
}
