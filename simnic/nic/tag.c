/* tag.c: tag matching (rdma-core, Documentation/tag_matching.md). A tag-matching SRQ has ordinary
 * receives, and a list of buffers with tags. A tagged message of an RC QP goes to the first buffer
 * that matches, without its header. Any other message goes whole to an ordinary receive, and
 * software matches it. WQEs on any RC QP of the SRQ change the list. libmlx5 makes a QP for them.
 *
 * Software learns of an unexpected message only after it has come. In between, it may add a buffer
 * that this message should have got. So both sides count unexpected messages. A buffer that is
 * added while the counts differ matches nothing until software has told an equal count. */
#include "simnic/nic/tag.h"

#include <stdlib.h>
#include <string.h>

#include "simnic/nic/internal.h"

#define CONTROL_BYTES 16u

enum list_operation { OPERATION_NONE, OPERATION_APPEND, OPERATION_REMOVE };

struct tag {
    bool used;    /* listed, or its message is coming in */
    bool enabled; /* may match */
    uint64_t value, mask;
    struct segment buffer; /* of no bytes, if only empty messages are wanted */
    struct ibv_tmh header; /* of its message */
    struct list listed;    /* in the order they were added */
};

struct tag_list {
    struct list listed;
    uint32_t places; /* a power of two */
    uint16_t next;   /* place of the next tag: each addition names the place of the one after it */
    uint16_t hardware_count, software_count; /* of unexpected messages */
    struct tag tags[];
};

bool tags_create(struct shared_receive_queue *srq, uint32_t places)
{
    struct tag_list *list = calloc(1, sizeof(*list) + places * sizeof(list->tags[0]));
    if (!list) {
        return false;
    }
    list->places = places;
    list_init(&list->listed);
    for (uint32_t i = 0; i < places; i++) {
        list_init(&list->tags[i].listed);
    }
    srq->tags = list;
    return true;
}

/* ---- completions ---- */

static struct cqe completion(const struct queue_pair *qp, uint8_t opcode, uint8_t what,
                             uint16_t index)
{
    struct cqe cqe = {.opcode = opcode};
    cqe.fields.srqn_uidx = htobe32(qp->shared_receive_queue->user_index & 0xffffff);
    cqe.fields.sop_drop_qpn = htobe32(qp->number);
    cqe.fields.app = TAG_APPLICATION;
    cqe.fields.app_op = what;
    cqe.fields.app_info = htobe16(index);
    return cqe;
}

static void tell(struct nic *nic, struct queue_pair *qp, struct cqe *cqe)
{
    qp->statistics->receive_cqes++;
    cq_write(nic, qp->shared_receive_queue->completion_queue, cqe);
}

/* ---- changing the list ---- */

static void synchronize(struct tag_list *list)
{
    if (list->hardware_count != list->software_count) {
        return;
    }
    for (struct list *l = list->listed.next; l != &list->listed; l = l->next) {
        container_of(l, struct tag, listed)->enabled = true;
    }
}

/* A tag that is still listed at the place gives way, as the last element of a linked list that is
 * written again: nobody checks places in the adapter (design.md, "What was inferred"). */
static void append(struct tag_list *list, struct tag *tag, const struct mlx5_wqe_tm_seg *segment,
                   const struct mlx5_wqe_data_seg *data)
{
    list_remove(&tag->listed);
    *tag = (struct tag){.used = true,
                        .enabled = list->hardware_count == list->software_count,
                        .value = be64toh(segment->append_tag),
                        .mask = be64toh(segment->append_mask),
                        .buffer = {.address = be64toh(data->addr), .key = be32toh(data->lkey)}};
    if (tag->buffer.key != TERMINATOR_KEY) {
        uint32_t bytes = be32toh(data->byte_count);
        tag->buffer.bytes = bytes ? bytes : 1u << 31;
    }
    list_append(&list->listed, &tag->listed);
    list->next = be16toh(segment->index);
}

/* Whether a message is coming in for a tag. */
static bool is_receiving(const struct tag *tag)
{
    return tag->used && !list_linked(&tag->listed);
}

/* Returns whether the tag was still there to be removed. */
static bool remove_tag(struct tag *tag)
{
    if (!list_linked(&tag->listed)) {
        return false;
    }
    list_remove(&tag->listed);
    tag->used = false;
    return true;
}

static bool is_good(const struct tag_list *list, uint8_t operation, uint16_t index, uint32_t bytes)
{
    switch (operation) {
    case OPERATION_NONE:
        return true;
    case OPERATION_APPEND:
        return index < list->places && !is_receiving(&list->tags[list->next]) &&
               bytes == CONTROL_BYTES + sizeof(struct mlx5_wqe_tm_seg) +
                            sizeof(struct mlx5_wqe_data_seg);
    case OPERATION_REMOVE:
        return index < list->places;
    default:
        return false;
    }
}

uint8_t tag_execute(struct nic *nic, struct queue_pair *qp, const struct send_request *request)
{
    static const uint8_t told[] = {
        [OPERATION_NONE] = TAG_CQE_SYNCHRONIZED,
        [OPERATION_APPEND] = TAG_CQE_APPENDED,
        [OPERATION_REMOVE] = TAG_CQE_REMOVED,
    };
    struct mlx5_wqe_ctrl_seg control;
    struct mlx5_wqe_tm_seg segment;
    struct mlx5_wqe_data_seg data;
    memcpy(&control, request->wqe, sizeof(control));
    memcpy(&segment, request->wqe + CONTROL_BYTES, sizeof(segment));
    memcpy(&data, request->wqe + CONTROL_BYTES + sizeof(segment), sizeof(data));
    struct shared_receive_queue *srq = qp->shared_receive_queue;
    struct tag_list *list = srq ? srq->tags : NULL;
    uint8_t operation = segment.opcode >> 4;
    uint16_t index = be16toh(segment.index);
    uint32_t bytes = (be32toh(control.qpn_ds) & 0x3f) * 16;
    if (!list || !is_good(list, operation, index, bytes)) {
        return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    }
    if (segment.flags & TAG_FLAG_COUNT) {
        list->software_count = be16toh(segment.sw_cnt);
    }
    synchronize(list);
    bool done = true;
    if (operation == OPERATION_APPEND) {
        uint16_t place = list->next;
        append(list, &list->tags[place], &segment, &data);
        index = place;
    } else if (operation == OPERATION_REMOVE) {
        done = remove_tag(&list->tags[index]);
    }
    if (!(segment.flags & TAG_FLAG_COMPLETION)) {
        return 0;
    }
    struct cqe cqe = completion(qp, MLX5_CQE_NO_PACKET, told[operation], index);
    cqe.fields.tm_cqe.success = htobe32(done ? MLX5_TMC_SUCCESS : 0);
    cqe.fields.tm_cqe.hw_phase_cnt = htobe16(list->hardware_count);
    cqe.fields.wqe_counter = htobe16(request->index);
    tell(nic, qp, &cqe);
    return 0;
}

/* ---- matching ---- */

static struct tag *find(const struct nic *nic, const struct tag_list *list, uint64_t value)
{
    const bool blind = nic_has_quirk(nic, QUIRK_TAGS);
    for (struct list *l = list->listed.next; l != &list->listed; l = l->next) {
        struct tag *tag = container_of(l, struct tag, listed);
        if (tag->enabled && (blind ? value : value & tag->mask) == tag->value) {
            return tag;
        }
    }
    return NULL;
}

/* Tells of a match before the data have come. */
static void tell_match(struct nic *nic, struct queue_pair *qp, const struct tag *tag,
                       uint16_t index)
{
    struct cqe cqe = completion(qp, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, index);
    cqe.fields.tmh = tag->header;
    tell(nic, qp, &cqe);
}

static void receive_into(struct queue_pair *qp, const struct tag *tag, uint16_t index)
{
    qp->receive = (struct receive_request){.taken = true,
                                           .index = index,
                                           .segments = tag->buffer.bytes ? 1 : 0,
                                           .capacity = tag->buffer.bytes,
                                           .segment = {tag->buffer}};
}

static enum tag_kind begin_rendezvous(struct nic *nic, struct queue_pair *qp, struct tag *tag,
                                      uint16_t index, const uint8_t *payload)
{
    struct ibv_rvh where;
    memcpy(&where, payload + sizeof(tag->header), sizeof(where));
    if (be32toh(where.len) > tag->buffer.bytes ||
        !rendezvous_start(nic, qp, index, &tag->buffer, payload)) {
        receive_into(qp, tag, index);
        return TAG_SOFTWARE;
    }
    tell_match(nic, qp, tag, index);
    return TAG_RENDEZVOUS;
}

enum tag_kind tag_begin(struct nic *nic, struct queue_pair *qp, bool whole, const uint8_t *payload,
                        uint32_t bytes)
{
    struct tag_list *list = qp->shared_receive_queue ? qp->shared_receive_queue->tags : NULL;
    struct ibv_tmh header;
    if (!list || qp->type != TYPE_RC) {
        return TAG_NONE;
    }
    if (bytes < sizeof(header)) {
        return TAG_WITHOUT;
    }
    memcpy(&header, payload, sizeof(header));
    bool rendezvous = header.opcode == IBV_TMH_RNDV;
    if (!rendezvous && header.opcode != IBV_TMH_EAGER) {
        return TAG_WITHOUT;
    }
    if (rendezvous &&
        (!whole || bytes < TAG_HEADERS_BYTES || bytes > NIC_MAX_RENDEZVOUS_HEADER_BYTES)) {
        return TAG_UNEXPECTED;
    }
    struct tag *tag = find(nic, list, be64toh(header.tag));
    if (!tag) {
        return TAG_UNEXPECTED;
    }
    if (rendezvous && !rendezvous_has_room(qp)) {
        return TAG_NOT_READY;
    }
    uint16_t index = (uint16_t)(tag - list->tags);
    list_remove(&tag->listed);
    tag->header = header;
    if (rendezvous) {
        return begin_rendezvous(nic, qp, tag, index, payload);
    }
    receive_into(qp, tag, index);
    if (!whole) {
        tell_match(nic, qp, tag, index);
    }
    return TAG_MATCHED;
}

void tag_count_unexpected(struct queue_pair *qp)
{
    if (qp->tag_kind == TAG_UNEXPECTED) {
        qp->shared_receive_queue->tags->hardware_count++;
    }
}

void tag_complete(struct queue_pair *qp, bool whole, struct cqe *cqe)
{
    static const uint8_t told[] = {
        [TAG_WITHOUT] = TAG_CQE_WITHOUT,
        [TAG_UNEXPECTED] = TAG_CQE_UNEXPECTED,
        [TAG_MATCHED] = TAG_CQE_EXPECTED,
        [TAG_SOFTWARE] = TAG_CQE_SOFTWARE,
    };
    if (qp->tag_kind == TAG_NONE) {
        return;
    }
    cqe->fields.app = TAG_APPLICATION;
    cqe->fields.app_op = told[qp->tag_kind];
    if (qp->tag_kind == TAG_MATCHED || qp->tag_kind == TAG_SOFTWARE) {
        struct tag *tag = &qp->shared_receive_queue->tags->tags[qp->receive.index];
        cqe->fields.app_info = htobe16(qp->receive.index);
        if (whole) {
            cqe->fields.tmh = tag->header;
        }
        if (whole && qp->tag_kind == TAG_MATCHED) {
            cqe->fields.app_op = TAG_CQE_CONSUMED_WHOLE;
        }
        tag->used = false;
    }
    qp->tag_kind = TAG_NONE;
}

void tag_transferred(struct nic *nic, struct queue_pair *qp, uint16_t index, uint32_t bytes)
{
    struct cqe cqe = completion(qp, MLX5_CQE_RESP_SEND, TAG_CQE_EXPECTED, index);
    cqe.fields.byte_cnt = htobe32(bytes);
    qp->shared_receive_queue->tags->tags[index].used = false;
    tell(nic, qp, &cqe);
}

void tag_cancel(struct nic *nic, struct queue_pair *qp, uint16_t index)
{
    struct tag *tag = &qp->shared_receive_queue->tags->tags[index];
    late_land_all(nic, qp);
    struct cqe cqe = completion(qp, MLX5_CQE_RESP_SEND, TAG_CQE_CANCELED, index);
    cqe.fields.tmh = tag->header;
    tag->used = false;
    tell(nic, qp, &cqe);
}

bool tag_abandon(struct nic *nic, struct queue_pair *qp)
{
    enum tag_kind kind = qp->tag_kind;
    qp->tag_kind = TAG_NONE;
    /* Software is told of an error, and not of an unexpected message, so it does not count one. */
    if (kind == TAG_UNEXPECTED) {
        qp->shared_receive_queue->tags->hardware_count--;
        synchronize(qp->shared_receive_queue->tags);
    }
    if (kind != TAG_MATCHED && kind != TAG_SOFTWARE) {
        return false;
    }
    qp->receive.taken = false;
    tag_cancel(nic, qp, qp->receive.index);
    return true;
}
