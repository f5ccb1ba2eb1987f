/* tags.c: see tags.h. */
#include "base/lines.h"
#include "nic/tags.h"

#include <stdlib.h>

/* ---- Places ---------------------------------------------------------------------------------- */

static void append_free(struct nic_tags *tags, uint32_t place)
{
    tags->places[place] = (struct nic_tag){.next = NIC_TAG_NO_PLACE};
    tags->places[tags->free_last].next = place;
    tags->free_last = place;
}

bool nic_tags_make(struct nic_queue *queue, uint32_t tags)
{
    struct nic_tags *made = lines_alloc(1, sizeof(*made));
    assert(tags >= 1 && tags <= NIC_TAGS_MAX && queue->sends.entries);
    queue->tags = made;
    if (!made) {
        return false;
    }
    made->count = tags + 1;
    made->places = lines_alloc(made->count, sizeof(*made->places));
    made->commands = lines_alloc(queue->sends.mask + 1, sizeof(*made->commands));
    if (!made->places || !made->commands) {
        return false;
    }
    made->places[0].next = NIC_TAG_NO_PLACE;
    for (uint32_t i = 1; i < made->count; i++) {
        append_free(made, i);
    }
    return true;
}

void nic_tags_release(struct nic_queue *queue)
{
    if (queue->tags) {
        free(queue->tags->places);
        free(queue->tags->commands);
        free(queue->tags);
        queue->tags = NULL;
    }
}

static void free_if_done(struct nic_tags *tags, struct nic_tag *tag)
{
    if (!tag->open && !tag->adding && !tag->removing) {
        append_free(tags, (uint32_t)(tag - tags->places));
    }
}

/* The oldest buffer that was added with this user data, and is neither used nor being removed. */
static uint32_t find(const struct nic_tags *tags, uint64_t user_data)
{
    uint32_t found = NIC_TAG_NO_PLACE;
    for (uint32_t i = 0; i < tags->count; i++) {
        const struct nic_tag *tag = &tags->places[i];
        if (tag->open && !tag->ended && !tag->removing && tag->from == 0 &&
            tag->user_data == user_data &&
            (found == NIC_TAG_NO_PLACE || (int32_t)(tag->added - tags->places[found].added) < 0)) {
            found = i;
        }
    }
    return found;
}

/* ---- Commands -------------------------------------------------------------------------------- */

bool nic_tags_room(const struct nic_queue *queue, uint8_t opcode)
{
    const struct nic_tags *tags = queue->tags;
    return nic_queue_send_room(queue) > 0 &&
           (opcode != NIC_TAG_ADD || tags->free_first != tags->free_last);
}

static void add(struct nic_tags *tags, const struct nic_work *work, struct nic_tag_command *command)
{
    struct nic_tag *tag = &tags->places[tags->free_first];
    command->place = tags->free_first;
    command->next = tag->next;
    tags->free_first = tag->next;
    *tag = (struct nic_tag){
        .user_data = work->user_data, .added = command->position, .open = true, .adding = true};
    tags->open++;
}

/* The program has looked at all messages but the last ones. It never takes back what it has said. */
static void synchronize(struct nic_tags *tags, uint32_t without)
{
    uint32_t count = tags->seen - without;
    if ((int32_t)(count - tags->told) > 0) {
        tags->told = count;
    }
}

bool nic_tags_post(struct nic_queue *queue, const struct nic_work *work,
                   struct nic_tag_command *command)
{
    struct nic_tags *tags = queue->tags;
    assert(work->opcode >= NIC_TAG_ADD && work->opcode <= NIC_TAG_SYNC);
    if (unlikely(!nic_tags_room(queue, work->opcode))) {
        return false;
    }
    *command = (struct nic_tag_command){
        .opcode = work->opcode, .position = queue->sends.producer, .place = NIC_TAG_NO_PLACE};
    if (work->opcode == NIC_TAG_ADD) {
        add(tags, work, command);
    } else if (work->opcode == NIC_TAG_SYNC) {
        synchronize(tags, work->immediate);
    } else {
        command->place = find(tags, work->operand);
        if (command->place == NIC_TAG_NO_PLACE) {
            command->opcode = NIC_TAG_SYNC; /* so that its completion, too, comes in order */
        } else {
            tags->places[command->place].removing = true;
        }
    }
    command->count = (uint16_t)tags->told;
    tags->commands[command->position & queue->sends.mask] = command->place;
    tracking_post_op(&queue->sends, command->position, command->position + 1, work->user_data,
                     work->opcode == NIC_TAG_ADD ? TRACKING_POSTED : TRACKING_SIGNALED,
                     work->opcode);
    queue->stats.sends++;
    queue->stats.signaled++;
    return true;
}

void nic_tags_unpost(struct nic_queue *queue, const struct nic_tag_command *command)
{
    struct nic_tags *tags = queue->tags;
    struct tracking_entry *entry = tracking_at(&queue->sends, command->position);
    if (entry->opcode == NIC_TAG_ADD) {
        tags->places[command->place] = (struct nic_tag){.next = tags->free_first};
        tags->free_first = command->place;
        tags->open--;
    } else if (command->place != NIC_TAG_NO_PLACE) {
        tags->places[command->place].removing = false;
    }
    entry->state = TRACKING_FREE;
    queue->sends.producer = command->position;
    queue->stats.sends--;
    queue->stats.signaled--;
}

/* ---- Completions ----------------------------------------------------------------------------- */

static bool is_full(const struct nic_tag_output *output)
{
    return output->count == output->capacity;
}

static crpc_completion *give(struct nic_tag_output *output, const struct nic_queue *queue,
                             uint8_t opcode, uint64_t user_data, int32_t status)
{
    crpc_completion *completion = &output->completions[output->count++];
    nic_queue_done(completion, queue, opcode, user_data, status);
    completion->flags |= NIC_DONE_DETAIL;
    output->errors += status != CRPC_OK;
    return completion;
}

/* Its TAG_ADD has completed. */
static void completed(struct nic_tags *tags, struct nic_tag *tag)
{
    tag->open = false;
    tags->open--;
}

/* The TAG_ADD of a buffer that is in the list no longer, or never was. */
static bool give_back(struct nic_queue *queue, struct nic_tag *tag, enum nic_error error,
                      uint32_t syndrome, struct nic_tag_output *output)
{
    if (!tag->open || tag->ended) {
        return true;
    }
    if (is_full(output)) {
        return false;
    }
    give(output, queue, NIC_TAG_ADD, tag->user_data, -(int32_t)error)->reply_bytes_max = syndrome;
    completed(queue->tags, tag);
    return true;
}

/* Each command names what it concerns by its position: that of a device gone mad is that of ours. */
bool nic_tags_done(struct nic_queue *queue, uint8_t opcode, enum nic_tag_result result,
                   uint32_t syndrome, struct nic_tag_output *output)
{
    struct nic_tags *tags = queue->tags;
    struct tracking *commands = &queue->sends;
    struct tracking_entry *entry = tracking_at(commands, commands->consumer);
    if (commands->consumer == commands->producer) {
        queue->nic->unknown_completions++;
        return true;
    }
    const uint32_t place = tags->commands[commands->consumer & commands->mask];
    struct nic_tag *tag = place == NIC_TAG_NO_PLACE ? NULL : &tags->places[place];
    const bool looked_for = entry->opcode == NIC_TAG_REMOVE && !tag;
    if (result != NIC_TAG_FAILED && opcode != (looked_for ? NIC_TAG_SYNC : entry->opcode)) {
        queue->nic->unknown_completions++;
        return true;
    }
    int32_t status = result == NIC_TAG_FAILED                 ? -NIC_ERROR_FLUSHED
                     : looked_for || result == NIC_TAG_MISSED ? -NIC_ERROR_NOT_FOUND
                                                              : CRPC_OK;
    if (entry->opcode == NIC_TAG_ADD) {
        assert(tag); /* only a removal may concern none */
        if (result == NIC_TAG_FAILED &&
            !give_back(queue, tag, NIC_ERROR_FLUSHED, syndrome, output)) {
            return false;
        }
        tag->adding = false;
    } else {
        if (tag && status == CRPC_OK && !give_back(queue, tag, NIC_ERROR_REMOVED, 0, output)) {
            return false;
        }
        if (is_full(output)) {
            return false;
        }
        give(output, queue, entry->opcode, entry->user_data, status)->reply_bytes_max = syndrome;
        if (tag) {
            tag->removing = false;
        }
    }
    entry->state = TRACKING_FREE;
    commands->consumer++;
    if (tag) {
        free_if_done(tags, tag);
    }
    return true;
}

/* Returns the buffer at a place, if a message can come in there. */
static struct nic_tag *listed(const struct nic_queue *queue, uint32_t place)
{
    struct nic_tag *tag = place < queue->tags->count ? &queue->tags->places[place] : NULL;
    if (!tag || !tag->open || tag->ended) {
        queue->nic->unknown_completions++;
        return NULL;
    }
    return tag;
}

void nic_tags_begin(struct nic_queue *queue, const struct nic_queue *from, uint32_t place,
                    uint64_t tag, uint32_t context, bool rendezvous)
{
    struct nic_tag *found = listed(queue, place);
    if (found) {
        found->from = from->pair ? from->pair->number : 0;
        found->tag = tag;
        found->context = context;
        found->rendezvous = rendezvous;
    }
}

crpc_completion *nic_tags_message(struct nic_queue *queue, const struct nic_queue *from,
                                  uint32_t place, uint32_t bytes, struct nic_tag_output *output)
{
    struct nic_tag *tag = listed(queue, place);
    if (!tag) {
        return NULL;
    }
    crpc_completion *completion = give(output, from, NIC_TAG_ADD, tag->user_data, CRPC_OK);
    completion->flags |=
        tag->rendezvous ? NIC_DONE_MATCHED | NIC_DONE_RENDEZVOUS : NIC_DONE_MATCHED;
    completion->token = tag->tag;
    completion->view = tag->context;
    completion->payload_bytes = bytes;
    completed(queue->tags, tag);
    free_if_done(queue->tags, tag);
    return completion;
}

void nic_tags_cancel(struct nic_queue *queue, const struct nic_queue *from, uint32_t place,
                     struct nic_tag_output *output)
{
    struct nic_tag *tag = listed(queue, place);
    if (tag) {
        give(output, from, NIC_TAG_ADD, tag->user_data, -NIC_ERROR_FLUSHED);
        completed(queue->tags, tag);
        free_if_done(queue->tags, tag);
    }
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* They follow the receives in the list of those that end without the device. */
void nic_tags_end(struct nic_queue *queue, uint32_t place)
{
    struct nic_tag *tag = listed(queue, place);
    if (tag) {
        tag->ended = true;
        tag->next = NIC_QUEUE_NO_ENTRY;
        nic_queue_append_ended(queue, queue->receives.mask + 1 + place);
    }
}

void nic_tags_leave(struct nic_queue *queue, uint32_t number)
{
    for (uint32_t i = 0; i < queue->tags->count; i++) {
        const struct nic_tag *tag = &queue->tags->places[i];
        if (tag->open && !tag->ended && tag->from == number) {
            nic_tags_end(queue, i);
        }
    }
}

void nic_tags_end_all(struct nic_queue *queue)
{
    for (uint32_t i = 0; i < queue->tags->count; i++) {
        if (queue->tags->places[i].open && !queue->tags->places[i].ended) {
            nic_tags_end(queue, i);
        }
    }
}

void nic_tags_take_ended(struct nic_queue *queue, uint32_t place, crpc_completion *completion)
{
    struct nic_tag *tag = &queue->tags->places[place];
    nic_queue_done(completion, queue, NIC_TAG_ADD, tag->user_data, -NIC_ERROR_FLUSHED);
    queue->ended_first = tag->next;
    tag->ended = false;
    completed(queue->tags, tag);
    free_if_done(queue->tags, tag);
}
