/* tags.c: see tags.h. */
#include "nic/memory/tags.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of messages (rdma-core, Documentation/tag_matching.md). */
#define HEADER_RENDEZVOUS 1
#define HEADER_EAGER 3

struct memory_tag {
    bool listed;
    bool enabled; /* may match */
    uint64_t tag;
    uint64_t mask;
    uint64_t order; /* in which they were added */
    struct nic_piece piece;
};

struct memory_tags {
    struct memory_queue_pair *command;
    uint64_t added;
    uint32_t next; /* place of the next tag, as the addition before has told */
    uint16_t hardware_count;
    uint16_t software_count;
    struct memory_tag list[];
};

/* ---- Making and ending ----------------------------------------------------------------------- */

int32_t memory_tags_make(struct memory_queue *queue, struct nic_domain *domain, uint32_t tags,
                         crpc_error *error)
{
    struct nic_queue_pair *pair;
    int32_t status;

    memory_require(nic_tags_make(&queue->base, tags), "no memory for tags");
    queue->tags = memory_allocate(1, sizeof(*queue->tags) +
                                         queue->base.tags->count * sizeof(queue->tags->list[0]));
    status = memory_queue_pair_of_queue(queue->base.nic, domain, &queue->base,
                                        queue->base.sends.mask + 1, 0, &pair, error);
    if (status != CRPC_OK) {
        return status;
    }
    queue->tags->command = memory_queue_pair(pair);
    queue->tags->command->queue = queue;
    queue->tags->command->peer_identity = queue->tags->command->identity;
    queue->tags->command->connected = true;
    memory_queue_pair_update(queue->tags->command);
    return CRPC_OK;
}

void memory_tags_unmake(struct memory_queue *queue)
{
    if (queue->tags && queue->tags->command) {
        memory_queue_pair_destroy(&queue->tags->command->base);
        queue->tags->command = NULL;
    }
}

void memory_tags_free(struct memory_queue *queue)
{
    free(queue->tags);
    queue->tags = NULL;
}

/* ---- Commands -------------------------------------------------------------------------------- */

bool memory_queue_tag(struct nic_queue *base, const struct nic_work *work,
                      const struct nic_piece *piece)
{
    struct memory_queue *queue = memory_queue(base);
    struct nic_tag_command command;
    struct memory_wqe *wqe;

    memory_require(queue->tags && !base->stopped && !base->failed, "a command for no TM-SRQ");
    if (!nic_tags_post(base, work, &command)) {
        return false;
    }
    wqe = memory_wqe(queue->tags->command, command.position);
    *wqe = (struct memory_wqe){.opcode = MEMORY_TAG,
                               .flags = command.opcode,
                               .signaled = true,
                               .compare = work->remote_address,
                               .operand = work->operand,
                               .transfer = {.immediate = command.count,
                                            .remote_key = command.place,
                                            .remote_address = command.next}};
    if (command.opcode == NIC_TAG_ADD && piece) {
        wqe->transfer.local_address = piece->address;
        wqe->transfer.local_key = piece->local_key;
        wqe->transfer.bytes = piece->bytes;
    }
    queue->tags->command->base.posted = base->sends.producer;
    return true;
}

void memory_tags_ring(struct memory_queue *queue)
{
    if (queue->tags && queue->tags->command->rung != queue->tags->command->base.posted) {
        memory_ring_doorbell(&queue->tags->command->base);
        queue->base.stats.doorbells++;
    }
}

static void synchronize(struct memory_queue *queue)
{
    struct memory_tags *tags = queue->tags;

    for (uint32_t i = 0;
         i < queue->base.tags->count && tags->hardware_count == tags->software_count; i++) {
        tags->list[i].enabled = tags->list[i].listed;
    }
}

void memory_tags_execute(struct memory_queue_pair *queue_pair)
{
    struct memory_queue *queue = queue_pair->queue;
    struct memory_tags *tags = queue->tags;
    struct memory_wqe *wqe = memory_wqe(queue_pair, queue_pair->executed);
    const uint32_t place = wqe->transfer.remote_key;

    tags->software_count = (uint16_t)wqe->transfer.immediate;
    synchronize(queue);
    if (wqe->flags == NIC_TAG_ADD) {
        memory_require(place == tags->next && !tags->list[place].listed,
                       "a tag at place %u, where %u is next, or one that is used", place,
                       tags->next);
        tags->next = (uint32_t)wqe->transfer.remote_address;
        tags->list[place] = (struct memory_tag){
            .listed = true,
            .enabled = tags->hardware_count == tags->software_count,
            .tag = wqe->compare,
            .mask = wqe->operand,
            .order = tags->added++,
            .piece = {wqe->transfer.local_address, wqe->transfer.bytes, wqe->transfer.local_key}};
    } else if (wqe->flags == NIC_TAG_REMOVE) {
        wqe->missed = !tags->list[place].listed;
        tags->list[place].listed = false;
    }
}

/* ---- Messages -------------------------------------------------------------------------------- */

static bool has_tag(const uint8_t *payload, uint32_t bytes)
{
    return bytes >= NIC_TAG_HEADER_BYTES &&
           (payload[0] == HEADER_EAGER || payload[0] == HEADER_RENDEZVOUS);
}

static struct memory_tag *find(struct memory_queue *receiver, uint64_t tag)
{
    struct memory_tag *found = NULL;

    for (uint32_t i = 0; i < receiver->base.tags->count; i++) {
        struct memory_tag *one = &receiver->tags->list[i];
        if (one->listed && one->enabled && (tag & one->mask) == one->tag &&
            (!found || one->order < found->order)) {
            found = one;
        }
    }
    return found;
}

bool memory_tags_match(struct memory_queue_pair *target, const uint8_t *payload, uint32_t bytes,
                       enum memory_taking *taking)
{
    struct memory_queue *receiver = memory_queue(target->queue->base.receiver);
    const struct nic_piece *piece;
    struct memory_tag *found;
    uint64_t tag;
    uint32_t context;

    if (!has_tag(payload, bytes)) {
        return false;
    }
    memcpy(&context, payload + 4, sizeof(context));
    memcpy(&tag, payload + 8, sizeof(tag));
    found = find(receiver, be64toh(tag));
    if (!found) {
        return false;
    }
    found->listed = false;
    target->receive = (uint32_t)(found - receiver->tags->list);
    target->receive_taken = true;
    target->tagged = payload[0] == HEADER_EAGER ? MEMORY_TAG_MATCHED : MEMORY_TAG_RENDEZVOUS;
    target->tag = be64toh(tag);
    target->tag_context = be32toh(context);
    bytes -= memory_tags_skipped(target);
    piece = &found->piece;
    *taking = !memory_allows_in(receiver->nic, receiver->domain, piece->local_key, piece->address,
                                piece->bytes, CRPC_ACCESS_LOCAL_WRITE)
                  ? TAKING_REFUSED
              : piece->bytes < bytes ? TAKING_TOO_LONG
                                     : TAKING_READY;
    return true;
}

void memory_tags_count(struct memory_queue_pair *target, const uint8_t *payload, uint32_t bytes)
{
    if (has_tag(payload, bytes)) {
        target->tagged = MEMORY_TAG_UNEXPECTED;
        memory_queue(target->queue->base.receiver)->tags->hardware_count++;
    }
}

void memory_tags_land(const struct memory_queue_pair *target, const uint8_t *data, uint32_t low,
                      uint32_t high)
{
    const struct memory_queue *receiver = memory_queue(target->queue->base.receiver);
    const struct memory_wqe view = {.pieces = &receiver->tags->list[target->receive].piece,
                                    .piece_count = 1};
    const uint32_t skip = memory_tags_skipped(target);

    if (high > skip) {
        memory_wqe_scatter(&view, data + skip, low > skip ? low - skip : 0, high - skip);
    }
}

void memory_tags_abandon(struct memory_queue_pair *target)
{
    if (target->tagged == MEMORY_TAG_UNEXPECTED) {
        struct memory_queue *receiver = memory_queue(target->queue->base.receiver);
        receiver->tags->hardware_count--;
        synchronize(receiver);
        target->tagged = MEMORY_UNTAGGED;
    }
}

/* ---- Completions ----------------------------------------------------------------------------- */

bool memory_tags_done(const struct memory_queue_completion *entry, crpc_completion *completions,
                      uint32_t capacity, uint32_t *count, uint32_t *errors)
{
    struct nic_queue *queue = &entry->queue->base;
    struct nic_tag_output output = {
        .completions = completions, .capacity = capacity, .count = *count};
    bool all;

    queue->failed |= entry->status != NIC_ERROR_NONE;
    all = nic_tags_done(queue, entry->kind,
                        entry->status != NIC_ERROR_NONE ? NIC_TAG_FAILED
                        : entry->missed                 ? NIC_TAG_MISSED
                                                        : NIC_TAG_DONE,
                        0, &output);
    *count = output.count;
    *errors += output.errors;
    if (all) {
        entry->queue->tags->command->base.completed = queue->sends.consumer;
    }
    return all;
}

void memory_tags_message(const struct memory_queue_completion *entry, crpc_completion *completions,
                         uint32_t capacity, uint32_t *count, uint32_t *errors)
{
    struct nic_queue *from = &entry->queue->base;
    struct nic_tag_output output = {
        .completions = completions, .capacity = capacity, .count = *count};

    if (entry->status != NIC_ERROR_NONE) {
        from->failed = true;
        nic_tags_cancel(from->receiver, from, entry->place, &output);
    } else {
        crpc_completion *completion;
        nic_tags_begin(from->receiver, from, entry->place, entry->tag, entry->context,
                       entry->kind == MEMORY_TAG_RENDEZVOUS);
        completion = nic_tags_message(from->receiver, from, entry->place, entry->bytes, &output);
        memory_require(completion, "a message at place %u, which is not open", entry->place);
        completion->flags |= entry->flags;
        completion->reply_bytes_max = entry->immediate;
    }
    *count = output.count;
    *errors += output.errors;
}

void memory_tags_forget(struct nic_queue *receiver, uint8_t tagged, uint32_t place)
{
    if (memory_tags_is_match(tagged)) {
        nic_tags_end(receiver, place);
        return;
    }
    if (tagged == MEMORY_TAG_UNEXPECTED) {
        nic_tags_lost(receiver);
    }
    nic_queue_end_receive(receiver, place);
}

/* No more of the message that is coming in can come. */
static bool is_cut(const struct memory_queue_pair *target)
{
    return target->receive_taken && !(target->open && memory_reach(target));
}

struct memory_tag_counts memory_fabric_tags(const struct nic_queue *base)
{
    const struct memory_queue *queue = container_of(base, const struct memory_queue, base);
    const struct memory_queue_pair *pair;
    struct memory_tag_counts counts = {.unexpected = queue->tags->hardware_count};

    for (uint32_t i = 0; i < base->tags->count; i++) {
        counts.listed += queue->tags->list[i].listed;
    }
    for (pair = queue->nic->queue_pairs; pair; pair = pair->next) {
        if (pair->queue && pair->queue->base.receiver == base && is_cut(pair)) {
            counts.cut_matched += memory_tags_is_match(pair->tagged);
            counts.cut_unexpected += pair->tagged == MEMORY_TAG_UNEXPECTED;
        }
    }
    return counts;
}
