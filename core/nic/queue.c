/* queue.c: the parts of a queue that have to do with no device: its tables, and what is left in them. */
#include "nic/tags.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/lines.h"
#include "base/page.h"

static bool make_table(struct tracking *tracking, uint32_t positions)
{
    if (positions == 0) {
        return true;
    }
    assert((positions & (positions - 1)) == 0 && positions <= TRACKING_ENTRIES_MAX);
    tracking->entries = lines_alloc(positions, sizeof(*tracking->entries));
    tracking->mask = positions - 1;
    return tracking->entries != NULL;
}

int32_t nic_queue_check_kind(const struct nic *nic, uint32_t kind, crpc_error *error)
{
    if (kind == NIC_QUEUE_TM_SRQ && nic->tags_max == 0) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0, "%s matches no tags (tm_caps.max_num_tags)",
                         nic->device);
    }
    if ((kind != NIC_QUEUE_DCI && kind != NIC_QUEUE_DCT) || nic->dc) {
        return CRPC_OK;
    }
    return error_set(error, CRPC_E_UNSUPPORTED, 0,
                     "%s has no dynamically connected transport (DC): it is a part of mlx5 devices",
                     nic->device);
}

void nic_queue_init(struct nic_queue *queue, struct nic *nic,
                    const struct nic_queue_options *options)
{
    assert(options->table < NIC_TABLE_RECEIVES && options->sends <= NIC_QUEUE_DEPTH_MAX &&
           options->receives <= NIC_QUEUE_DEPTH_MAX &&
           options->send_pieces <= NIC_QUEUE_PIECES_MAX &&
           options->inline_bytes <= NIC_QUEUE_INLINE_MAX &&
           options->receive_pieces <= NIC_QUEUE_PIECES_MAX);
    assert(options->kind == NIC_QUEUE_RC ||
           (options->kind == NIC_QUEUE_UD && options->queue_key < NIC_QUEUE_KEYS) ||
           (options->kind == NIC_QUEUE_DCI && options->sends > 0 && options->receives == 0 &&
            !options->receive_queue && options->streams <= nic->streams_max) ||
           (options->kind == NIC_QUEUE_DCT && options->sends == 0 && options->receive_queue) ||
           (nic_kind_is_shared(options->kind) && options->sends == 0 && options->receives > 0 &&
            !options->receive_queue));
    assert(options->streams == 0 ||
           (options->kind == NIC_QUEUE_DCI && options->table == NIC_TABLE_UNORDERED));
    assert(options->kind == NIC_QUEUE_TM_SRQ
               ? options->tags >= 1 && options->tags <= nic->tags_max &&
                     options->tags <= NIC_TAGS_MAX
               : options->tags == 0);
    assert((options->sends == 0 || options->send_pieces > 0) &&
           (options->receives == 0 || options->receive_pieces > 0));
    assert(!options->receive_queue || (nic_kind_is_shared(options->receive_queue->kind) &&
                                       options->receive_queue->nic == nic &&
                                       !options->receive_queue->stopped && options->receives == 0));
    /* The device makes rendezvous of its own on a queue pair that sends nothing. */
    assert(!options->receive_queue || options->receive_queue->kind != NIC_QUEUE_TM_SRQ ||
           (options->kind == NIC_QUEUE_RC && options->sends > 0));
    queue->nic = nic;
    queue->kind = options->kind;
    queue->table = options->table;
    queue->handle = options->handle;
    queue->user_data = options->user_data;
    queue->send_pieces = options->send_pieces;
    queue->inline_bytes = options->inline_bytes;
    queue->receive_pieces = options->receive_pieces;
    queue->queue_key = options->queue_key;
    queue->streams = options->streams;
    queue->stream_failures_max = options->stream_failures_max;
    queue->receiver = options->receive_queue ? options->receive_queue
                      : options->receives    ? queue
                                             : NULL;
    if (options->receive_queue) {
        options->receive_queue->users++;
    }
    queue->ended_first = queue->ended_last = NIC_QUEUE_NO_ENTRY;
    queue->quiet_state = options->table == NIC_TABLE_SPARSE ? TRACKING_POSTED : TRACKING_SIGNALED;
}

bool nic_queue_make_tables(struct nic_queue *queue, uint32_t send_positions,
                           uint32_t receive_entries)
{
    queue->interval = queue->table == NIC_TABLE_UNORDERED ? 0 : send_positions / 4;
    if (queue->table == NIC_TABLE_DENSE && queue->interval > NIC_QUEUE_INTERVAL) {
        queue->interval = NIC_QUEUE_INTERVAL;
    }
    if (queue->streams > 0) {
        queue->stream_ids = calloc(send_positions, sizeof(*queue->stream_ids));
        queue->failed_streams = calloc(queue->streams / 64 + 1, sizeof(*queue->failed_streams));
        if (!queue->stream_ids || !queue->failed_streams) {
            return false;
        }
    }
    return make_table(&queue->sends, send_positions) &&
           make_table(&queue->receives, receive_entries);
}

int32_t nic_queue_make_results(struct nic_queue *queue, struct nic_domain *domain,
                               crpc_error *error)
{
    if (!queue->sends.entries || !queue->nic->atomics || queue->tags) {
        return CRPC_OK;
    }
    size_t bytes = align_up((queue->sends.mask + 1) * sizeof(*queue->results), page_bytes());
    queue->results = aligned_alloc(page_bytes(), bytes);
    if (!queue->results) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue");
    }
    return queue->nic->operations->memory_register(queue->nic, domain, queue->results, bytes, 0,
                                                   CRPC_ACCESS_LOCAL_WRITE, &queue->results_keys,
                                                   error);
}

void nic_queue_end_results(struct nic_queue *queue)
{
    if (queue->results_keys.driver) {
        queue->nic->operations->memory_deregister(queue->nic, &queue->results_keys);
    }
    free(queue->results);
    queue->results = NULL;
}

void nic_queue_release(struct nic_queue *queue)
{
    free(queue->sends.entries);
    free(queue->receives.entries);
    free(queue->stream_ids);
    free(queue->failed_streams);
    nic_tags_release(queue);
    queue->sends.entries = queue->receives.entries = NULL;
    queue->stream_ids = NULL;
    queue->failed_streams = NULL;
}

void nic_queue_leave(struct nic_queue *queue)
{
    if (queue->receiver && queue->receiver != queue) {
        assert(queue->receiver->users > 0);
        queue->receiver->users--;
        queue->receiver = NULL;
    }
}

/* Receives, and behind them the places of tags. */
void nic_queue_append_ended(struct nic_queue *queue, uint32_t index)
{
    const uint32_t last = queue->ended_last;
    if (queue->ended_first == NIC_QUEUE_NO_ENTRY) {
        queue->ended_first = index;
    } else if (last <= queue->receives.mask) {
        queue->receives.entries[last].position = index;
    } else {
        queue->tags->places[last - queue->receives.mask - 1].next = index;
    }
    queue->ended_last = index;
}

void nic_queue_end_receive(struct nic_queue *queue, uint32_t index)
{
    if (index > queue->receives.mask || queue->receives.entries[index].state != TRACKING_SIGNALED) {
        queue->nic->unknown_completions++;
        return;
    }
    struct tracking_entry *entry = &queue->receives.entries[index];
    entry->state = TRACKING_ENDED;
    entry->position = NIC_QUEUE_NO_ENTRY; /* the next in the list */
    nic_queue_append_ended(queue, index);
}

/* Those of a stopped queue that the device had, in the order of their places. */
static void end_receives(struct nic_queue *queue)
{
    for (uint32_t i = 0; queue->receives.entries && i <= queue->receives.mask; i++) {
        if (queue->receives.entries[i].state == TRACKING_SIGNALED) {
            nic_queue_end_receive(queue, i);
        }
    }
}

static uint32_t take_sends(struct nic_queue *queue, crpc_completion *completions, uint32_t capacity)
{
    struct tracking *tracking = &queue->sends;
    uint32_t count = 0;
    while (count < capacity && tracking->consumer != tracking->producer) {
        struct tracking_entry *entry = tracking_at(tracking, tracking->consumer);
        if (entry->state == TRACKING_SIGNALED) {
            nic_queue_done(&completions[count++], queue, entry->opcode, entry->user_data,
                           -NIC_ERROR_FLUSHED);
        }
        entry->state = TRACKING_FREE;
        tracking->consumer += entry->blocks;
    }
    return count;
}

uint32_t nic_queue_take_ended(struct nic_queue *queue, crpc_completion *completions,
                              uint32_t capacity)
{
    uint32_t count = 0;
    if (queue->stopped) {
        count = queue->sends.entries ? take_sends(queue, completions, capacity) : 0;
        end_receives(queue);
        if (queue->tags) {
            nic_tags_end_all(queue);
        }
    }
    while (count < capacity && queue->ended_first != NIC_QUEUE_NO_ENTRY) {
        if (queue->tags && queue->ended_first > queue->receives.mask) {
            nic_tags_take_ended(queue, queue->ended_first - queue->receives.mask - 1,
                                &completions[count++]);
            continue;
        }
        struct tracking_entry *entry = &queue->receives.entries[queue->ended_first];
        nic_queue_done(&completions[count++], queue, NIC_RECEIVE, entry->user_data,
                       -NIC_ERROR_FLUSHED);
        uint32_t index = queue->ended_first;
        entry->state = TRACKING_FREE;
        queue->ended_first = entry->position;
        queue->receives_open--;
        if (!queue->stopped) {
            queue->nic->operations->queues->give_back(queue, index);
        }
    }
    return count;
}
