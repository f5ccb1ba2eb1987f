/* fuzz_queue_tags.c: TM-SRQs, in fuzz_queues.c: the victim adds and removes tags, and its peer sends headers of any
 * kind, with any tag, and requests of rendezvous from anywhere, also cut short. */
#include <endian.h>

#include "queue/tests/fuzz_queues.h"

#define TAGS 4u

struct queue *fuzz_tags_of(const struct side *side)
{
    struct queue *srq = handles_get(&side->handles, side->tags, HANDLE_QUEUE);
    return srq && !srq->link.closed ? srq : NULL;
}

static void open_srq(enum who who)
{
    struct side *side = &world.sides[who];
    const struct queue_options options = {
        .kind = NIC_QUEUE_TM_SRQ, .receives = 8, .receive_pieces = 1, .tags = TAGS};
    struct queue *srq;
    crpc_error error = {0};
    if (fuzz_tags_of(side) || queue_open(side->engine, &options, &srq, &error) != CRPC_OK ||
        !fuzz_note_queue(side, srq->link.handle)) {
        return;
    }
    side->tags = srq->link.handle;
    for (uint32_t i = 0; i < 4; i++) {
        fuzz_receive(who, srq, BYTES / 2);
    }
}

static void command(struct fuzz_input *input, enum who who)
{
    struct side *side = &world.sides[who];
    struct queue *srq = fuzz_tags_of(side);
    struct nic_work work = {.opcode = (uint8_t)(NIC_TAG_ADD + fuzz_below(input, 3)),
                            .user_data = world.op_count};
    int32_t reason = CRPC_OK;
    if (!srq || (who == VICTIM && world.op_count == OPS_MAX)) {
        return;
    }
    if (work.opcode == NIC_TAG_ADD) {
        work.operand = fuzz_byte(input) & 1 ? UINT64_MAX : 1;
        work.remote_address = fuzz_below(input, TAGS) & work.operand;
        work.bytes = fuzz_byte(input) * 4u;
        work.address = work.bytes > 0 ? (uint64_t)(uintptr_t)side->memory : 0;
    } else if (work.opcode == NIC_TAG_REMOVE) {
        work.operand = fuzz_half(input) % (world.op_count + 1);
    }
    if (who == VICTIM) {
        world.tag_bytes[world.op_count] = (uint16_t)work.bytes;
    }
    uint32_t taken = queue_tag(srq, &work, &side->keys.local_key, 1, &reason);
    queue_submit_end(srq);
    world.op_count += who == VICTIM && taken == 1;
}

/* Kinds are 0 to 3, 1 and 3 of which have tags (rdma-core, Documentation/tag_matching.md); behind that is what a request
 * says of memory. */
static void write_header(struct fuzz_input *input, enum who who)
{
    uint8_t *memory = world.sides[who].memory;
    const uint8_t kind = fuzz_byte(input);
    const struct side *other = &world.sides[!who];
    const uint64_t address = htobe64(fuzz_near(input, (uint64_t)(uintptr_t)other->hidden));
    const uint32_t key = htobe32(other->secret.remote_key);
    memset(memory, 0, NIC_TAG_HEADER_BYTES);
    memory[0] = kind < 192 ? (uint8_t)(kind & 3) : kind;
    memory[15] = (uint8_t)fuzz_below(input, TAGS + 1);
    memcpy(memory + 16, &address, sizeof(address));
    memcpy(memory + 24, &key, sizeof(key));
    fuzz_bytes(input, memory + 28, 4);
}

void fuzz_tags_use(struct fuzz_input *input, enum who who, uint8_t choice)
{
    switch (choice % 4) {
    case 0:
        open_srq(who);
        break;
    case 1:
        write_header(input, who);
        break;
    default:
        command(input, who);
    }
}

void fuzz_tags_check(const crpc_completion *completion)
{
    if (completion->method == NIC_TAG_ADD && completion->flags & NIC_DONE_MATCHED) {
        fuzz_check(completion->status == CRPC_OK &&
                       completion->payload_bytes <= world.tag_bytes[completion->user_data],
                   "a match with status %d, of %u bytes", completion->status,
                   completion->payload_bytes);
    }
}
