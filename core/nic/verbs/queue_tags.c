/* queue_tags.c: TM-SRQs, by ibv_create_srq_ex and ibv_post_srq_ops. Commands go to the device one by one, as
 * they are posted: libibverbs tells where a buffer is (its handle) only then.
 *
 * Each TM-SRQ has a completion queue of its own, because a command's completion does not say to which it belongs.
 * Their order does say to which command: libraries report commands in order. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "nic/tags.h"
#include "nic/verbs/verbs.h"

/* ---- Making ---------------------------------------------------------------------------------- */

struct device_source *verbs_tags_make_source(struct device_nic *nic, uint32_t entries)
{
    struct ibv_cq_init_attr_ex attributes = {.cqe = entries - 1,
                                             .cq_context = to_verbs_nic(&nic->base),
                                             .channel = nic->channel,
                                             .comp_vector = nic->base.completion_vector,
                                             .wc_flags =
                                                 IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM |
                                                 IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_TM_INFO};
    struct verbs_tag_source *source = lines_alloc(1, sizeof(*source));
    if (!source) {
        return NULL;
    }
    source->cq = ibv_create_cq_ex(nic->context, &attributes);
    if (!source->cq) {
        int os_error = errno;
        free(source);
        errno = os_error;
        return NULL;
    }
    source->plain.source.cq = ibv_cq_ex_to_cq(source->cq);
    source->plain.source.depth = (uint32_t)source->plain.source.cq->cqe;
    source->stash = lines_alloc(source->plain.source.depth, sizeof(*source->stash));
    if (!source->stash) {
        verbs_tags_end_source(&source->plain.device);
        errno = ENOMEM;
        return NULL;
    }
    source->plain.device.places_left = source->plain.source.depth;
    return &source->plain.device;
}

void verbs_tags_end_source(struct device_source *base)
{
    struct verbs_tag_source *source = to_verbs_tag_source(base);
    verbs_source_close(&source->plain.source);
    free(source->stash);
    free(source);
}

int verbs_tags_create_srq(struct device_queue *queue, struct nic_domain *domain,
                          const struct nic_queue_options *options)
{
    struct device_nic *nic = to_device_nic(queue->base.nic);
    struct verbs_tag_source *source = to_verbs_tag_source(queue->receive_source);
    struct ibv_srq_init_attr_ex attributes = {
        .attr = {.max_wr = queue->base.receives.mask + 1, .max_sge = options->receive_pieces},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
                     IBV_SRQ_INIT_ATTR_TM,
        .srq_type = IBV_SRQT_TM,
        .pd = device_pd(nic, domain),
        .cq = source->plain.source.cq,
        .tm_cap = {.max_num_tags = options->tags, .max_ops = queue->base.sends.mask + 1},
    };
    int os_error = device_queue_keep_srq(queue, ibv_create_srq_ex(nic->context, &attributes));
    if (os_error) {
        return os_error;
    }
    source->queue = &queue->base;
    source->plain.device.places_left = 0; /* for nobody else */
    return 0;
}

/* ---- Entries --------------------------------------------------------------------------------- */

/* What else than these fails has the members of an error alone. */
static bool tells_all(const struct verbs_tag_entry *entry)
{
    return entry->status == IBV_WC_SUCCESS || entry->status == IBV_WC_TM_ERR ||
           entry->status == IBV_WC_TM_RNDV_INCOMPLETE;
}

static void read_entry(struct ibv_cq_ex *cq, struct verbs_tag_entry *entry)
{
    *entry = (struct verbs_tag_entry){
        .wr_id = cq->wr_id, .status = cq->status, .number = ibv_wc_read_qp_num(cq)};
    if (!tells_all(entry)) {
        entry->vendor_error = ibv_wc_read_vendor_err(cq);
        return;
    }
    struct ibv_wc_tm_info info = {0};
    ibv_wc_read_tm_info(cq, &info);
    entry->opcode = ibv_wc_read_opcode(cq);
    entry->flags = ibv_wc_read_wc_flags(cq);
    entry->bytes = ibv_wc_read_byte_len(cq);
    entry->tag = info.tag;
    entry->context = info.priv;
    if (entry->flags & IBV_WC_WITH_IMM) {
        entry->immediate = ntohl(ibv_wc_read_imm_data(cq));
    } else if (entry->flags & IBV_WC_WITH_INV) {
        entry->immediate = ibv_wc_read_invalidated_rkey(cq);
    }
}

/* Reads entries behind those of the stash, and returns how many. */
static uint32_t fill(struct verbs_tag_source *source, uint32_t most)
{
    struct verbs_source *stash = &source->plain.source;
    struct ibv_poll_cq_attr nothing = {0};
    uint32_t count = 0;
    if (most == 0 || ibv_start_poll(source->cq, &nothing) != 0) {
        return 0;
    }
    do {
        read_entry(source->cq, &source->stash[stash->stash_first + stash->stash_count++]);
        count++;
    } while (count < most && ibv_next_poll(source->cq) == 0);
    ibv_end_poll(source->cq);
    return count;
}

/* The oldest that is not reported yet. NULL = none. */
static const struct verbs_tag_entry *oldest(struct verbs_tag_source *source)
{
    struct verbs_source *stash = &source->plain.source;
    if (stash->stash_count == 0) {
        stash->stash_first = 0;
        if (fill(source, (uint32_t)minimum(VERBS_POLL_CHUNK, stash->depth)) == 0) {
            return NULL;
        }
    }
    return &source->stash[stash->stash_first];
}

/* ---- Completions ----------------------------------------------------------------------------- */

static bool is_match(const struct verbs_tag_entry *entry)
{
    return tells_all(entry) && entry->flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
}

static bool is_unexpected(const struct verbs_tag_entry *entry)
{
    return entry->status == IBV_WC_SUCCESS && entry->opcode == IBV_WC_TM_RECV && !is_match(entry);
}

/* What has the status of a rendezvous that software must do, and is no receive of tags, was canceled:
 * libmlx5 reports both so. */
static bool is_canceled(const struct verbs_tag_entry *entry)
{
    return entry->status == IBV_WC_TM_RNDV_INCOMPLETE && entry->opcode == IBV_WC_RECV;
}

static void add_immediate(const struct verbs_tag_entry *entry, crpc_completion *completion)
{
    completion->reply_bytes_max = entry->immediate;
    completion->flags |= entry->flags & IBV_WC_WITH_IMM   ? NIC_DONE_IMMEDIATE
                         : entry->flags & IBV_WC_WITH_INV ? NIC_DONE_INVALIDATED
                                                          : 0;
}

static void begin(struct nic_queue *receiver, const struct nic_queue *owner,
                  const struct verbs_tag_entry *entry)
{
    if (entry->flags & IBV_WC_TM_MATCH) {
        nic_tags_begin(receiver, owner, (uint32_t)entry->wr_id, entry->tag, entry->context,
                       entry->status == IBV_WC_TM_RNDV_INCOMPLETE);
    }
}

static void match(struct nic_queue *receiver, struct nic_queue *owner,
                  const struct verbs_tag_entry *entry, struct nic_tag_output *output)
{
    if (is_canceled(entry)) {
        owner->failed = true;
        nic_tags_cancel(receiver, owner, (uint32_t)entry->wr_id, output);
        return;
    }
    begin(receiver, owner, entry);
    if (entry->flags & IBV_WC_TM_DATA_VALID) {
        crpc_completion *completion =
            nic_tags_message(receiver, owner, (uint32_t)entry->wr_id, entry->bytes, output);
        if (completion) {
            add_immediate(entry, completion);
        }
    }
}

static void receive(struct nic_queue *receiver, struct nic_queue *owner,
                    const struct verbs_tag_entry *entry, struct nic_tag_output *output)
{
    uint64_t user_data;
    if (!tracking_receive_take(&receiver->receives, (uint32_t)entry->wr_id, &user_data)) {
        receiver->nic->unknown_completions++;
        return;
    }
    crpc_completion *completion = &output->completions[output->count++];
    receiver->receives_open--;
    verbs_queue_operations.give_back(receiver, (uint32_t)entry->wr_id);
    nic_queue_done(completion, owner, NIC_RECEIVE, user_data, CRPC_OK);
    completion->flags |= NIC_DONE_DETAIL;
    if (entry->status == IBV_WC_SUCCESS) {
        nic_queue_received(completion, entry->bytes, entry->opcode == IBV_WC_RECV_RDMA_WITH_IMM);
        add_immediate(entry, completion);
        if (is_unexpected(entry)) {
            nic_tags_unexpected(receiver, completion);
        }
    } else {
        const struct ibv_wc failed = {.status = (enum ibv_wc_status)entry->status};
        completion->status = -(int32_t)verbs_receive_error(&failed, false);
        completion->reply_bytes_max = entry->vendor_error;
        owner->failed = true;
        output->errors++;
    }
}

static bool is_command(const struct verbs_tag_entry *entry)
{
    return tells_all(entry) && (entry->opcode == IBV_WC_TM_ADD || entry->opcode == IBV_WC_TM_DEL ||
                                entry->opcode == IBV_WC_TM_SYNC);
}

static bool take_command(struct nic_queue *queue, const struct verbs_tag_entry *entry,
                         struct nic_tag_output *output)
{
    const uint8_t opcode = entry->opcode == IBV_WC_TM_ADD   ? NIC_TAG_ADD
                           : entry->opcode == IBV_WC_TM_DEL ? NIC_TAG_REMOVE
                                                            : NIC_TAG_SYNC;
    return nic_tags_done(queue, opcode,
                         entry->status == IBV_WC_TM_ERR ? NIC_TAG_MISSED : NIC_TAG_DONE, 0, output);
}

/* Returns false if there was no room for all that it completes. */
static bool take(struct nic_queue *queue, const struct verbs_tag_entry *entry,
                 struct nic_tag_output *output)
{
    struct nic_queue *owner = device_queue_of(to_device_nic(queue->nic), entry->number);
    if (is_command(entry)) {
        return take_command(queue, entry, output);
    }
    if (!owner && !tells_all(entry)) { /* the library's queue pair for commands has failed */
        queue->failed = true;
        return nic_tags_done(queue, 0, NIC_TAG_FAILED, entry->vendor_error, output);
    }
    if (!owner || owner->receiver != queue) {
        queue->nic->unknown_completions++;
    } else if (is_match(entry)) {
        match(queue, owner, entry, output);
    } else {
        receive(queue, owner, entry, output);
    }
    return true;
}

uint32_t verbs_poll_tags(struct device_nic *nic, struct verbs_tag_source *source,
                         crpc_completion *completions, uint32_t capacity, uint32_t *errors)
{
    struct nic_tag_output output = {.completions = completions, .capacity = capacity};
    const struct verbs_tag_entry *entry;
    (void)nic;
    while (output.count < capacity && (entry = oldest(source)) != NULL &&
           take(source->queue, entry, &output)) {
        source->plain.source.stash_first++;
        source->plain.source.stash_count--;
    }
    *errors += output.errors;
    return output.count;
}

/* ---- Commands -------------------------------------------------------------------------------- */

/* Matches that the library has told of, and no poll yet: what they concern is not to be removed. To the library,
 * its handle is free: it would take it for free a second time when the device has answered the removal. */
static void begin_matches(struct nic_queue *queue)
{
    const struct verbs_tag_source *source =
        to_verbs_tag_source(to_device_queue(queue)->receive_source);
    const struct verbs_source *stash = &source->plain.source;
    for (uint32_t i = 0; i < stash->stash_count; i++) {
        const struct verbs_tag_entry *entry = &source->stash[stash->stash_first + i];
        const struct nic_queue *owner = device_queue_of(to_device_nic(queue->nic), entry->number);
        if (owner && owner->receiver == queue && !is_command(entry) && is_match(entry)) {
            begin(queue, owner, entry);
        }
    }
}

bool verbs_queue_tag(struct nic_queue *base, const struct nic_work *work,
                     const struct nic_piece *piece)
{
    struct nic_tag_command command;
    assert(!base->failed && !base->stopped && base->tags);
    if (work->opcode == NIC_TAG_REMOVE) {
        begin_matches(base);
    }
    if (!nic_tags_post(base, work, &command)) {
        return false;
    }
    struct ibv_sge memory = {0};
    struct ibv_ops_wr wqe = {.wr_id = command.position,
                             .opcode = IBV_WR_TAG_SYNC,
                             .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
                             .tm = {.unexpected_cnt = command.count}};
    struct ibv_ops_wr *refused;
    if (command.opcode == NIC_TAG_ADD) {
        wqe.opcode = IBV_WR_TAG_ADD;
        wqe.tm.add.recv_wr_id = command.place;
        wqe.tm.add.tag = work->remote_address;
        wqe.tm.add.mask = work->operand;
        wqe.tm.add.sg_list = &memory;
        if (piece && piece->bytes > 0) {
            memory = (struct ibv_sge){
                .addr = piece->address, .length = piece->bytes, .lkey = piece->local_key};
            wqe.tm.add.num_sge = 1;
        }
    } else if (command.opcode == NIC_TAG_REMOVE) {
        wqe.opcode = IBV_WR_TAG_DEL;
        wqe.tm.handle = base->tags->places[command.place].handle;
    }
    if (unlikely(ibv_post_srq_ops(to_device_queue(base)->srq, &wqe, &refused))) {
        nic_tags_unpost(base, &command);
        return false;
    }
    if (command.opcode == NIC_TAG_ADD) {
        base->tags->places[command.place].handle = wqe.tm.handle;
    }
    base->stats.doorbells++;
    return true;
}

/* ---- A queue pair ends ----------------------------------------------------------------------- */

/* What it says of the list is true, but nobody gets the message. */
static void drop(struct nic_queue *queue, const struct nic_queue *from,
                 const struct verbs_tag_entry *entry)
{
    if (!is_match(entry)) {
        if (is_unexpected(entry)) {
            nic_tags_lost(queue);
        }
        nic_queue_end_receive(queue, (uint32_t)entry->wr_id);
        return;
    }
    begin(queue, from, entry);
    if (entry->flags & IBV_WC_TM_DATA_VALID) {
        nic_tags_end(queue, (uint32_t)entry->wr_id);
    }
}

void verbs_tags_drop(struct verbs_tag_source *source, const struct nic_queue *from, uint32_t number)
{
    struct verbs_source *stash = &source->plain.source;
    memmove(source->stash, source->stash + stash->stash_first,
            stash->stash_count * sizeof(*source->stash));
    stash->stash_first = 0;
    fill(source, stash->depth - stash->stash_count);
    const uint32_t count = stash->stash_count;
    stash->stash_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct verbs_tag_entry *entry = &source->stash[i];
        if (entry->number != number || is_command(entry)) {
            source->stash[stash->stash_count++] = *entry;
        } else {
            drop(source->queue, from, entry);
        }
    }
}
