/* queue_tags.c: TM-SRQs.
 *
 * Commands that change the list of tags are WQEs of an RC queue pair that names the TM-SRQ and is connected to
 * itself. libmlx5 has one in each TM-SRQ, hidden; any other does as well, so this is one of our own. Everything
 * that concerns a TM-SRQ has its completion in one completion queue: of commands with the number of that
 * queue pair, of messages with that of the queue pair over which they came. The device completes commands in their
 * order, and does not say which: libmlx5 counts them, and so do we (nic/tags.h).
 *
 * Segments and entries: rdma-core, providers/mlx5/qp.c (mlx5_post_srq_ops) and cq.c (handle_tag_matching);
 * <infiniband/mlx5dv.h>, struct mlx5_wqe_tm_seg and struct mlx5_tm_cqe. */
#include "base/lines.h"
#include "nic/tags.h"

#include <errno.h>
#include <stdlib.h>

#include "nic/mlx5/mlx5.h"

/* ---- Making ---------------------------------------------------------------------------------- */

#define COUNTED_FOR_ONE                                                                            \
    4u /* blocks that libmlx5 counts for each WQE with one piece: as in queue.c */

/* libmlx5 wants an extended one, which it would need to poll it. */
struct device_source *mlx5_tags_make_source(struct device_nic *nic, uint32_t entries)
{
    struct ibv_cq_init_attr_ex attributes = {.cqe = entries - 1,
                                             .cq_context = nic,
                                             .channel = nic->channel,
                                             .comp_vector = nic->base.completion_vector};
    struct mlx5_source *source = lines_alloc(1, sizeof(*source));
    if (!source) {
        return NULL;
    }
    struct ibv_cq_ex *made = ibv_create_cq_ex(nic->context, &attributes);
    source->cq = made ? ibv_cq_ex_to_cq(made) : NULL;
    int os_error =
        source->cq ? mlx5_find_completion_queue(source->cq, false, &source->completions) : errno;
    if (os_error) {
        if (source->cq) {
            ibv_destroy_cq(source->cq);
        }
        free(source);
        errno = os_error;
        return NULL;
    }
    source->device.places_left = source->completions.mask + 1;
    return &source->device;
}

uint32_t mlx5_tags_places(const struct nic_queue_options *options)
{
    return nic_tags_completions(options->tags, nic_tags_commands(options->tags));
}

struct ibv_srq *mlx5_tags_create_srq(struct mlx5_nic *nic, struct nic_domain *domain,
                                     const struct nic_queue_options *options,
                                     const struct mlx5_queue *queue)
{
    struct ibv_srq_init_attr_ex attributes = {
        .attr = {.max_wr = options->receives, .max_sge = options->receive_pieces},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
                     IBV_SRQ_INIT_ATTR_TM,
        .srq_type = IBV_SRQT_TM,
        .pd = device_pd(&nic->device, domain),
        .cq = to_mlx5_source(queue->device.receive_source)->cq,
        .tm_cap = {.max_num_tags = options->tags, .max_ops = 1}, /* libmlx5's own takes none */
    };
    return ibv_create_srq_ex(nic->device.context, &attributes);
}

static int find_commands(struct mlx5_nic *nic, struct mlx5_queue *queue, uint32_t commands)
{
    struct ibv_qp *qp = queue->command.qp;
    struct mlx5dv_qp found = {0};
    struct mlx5dv_obj object = {.qp = {.in = qp, .out = &found}};
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_QP);
    if (os_error) {
        return os_error;
    }
    if (found.sq.stride != WQE_BLOCK_BYTES || found.sq.wqe_cnt != commands) {
        return EOPNOTSUPP;
    }
    queue->sends = (struct send_queue){.buffer = found.sq.buf,
                                       .mask = found.sq.wqe_cnt - 1,
                                       .number = qp->qp_num,
                                       .record = &found.dbrec[MLX5_SND_DBR],
                                       .doorbell = mlx5_doorbell_take(nic, &found)};
    return queue->sends.doorbell ? 0 : ENOMEM;
}

/* Its peer is itself. It sends no packet. */
static int connect_to_itself(struct nic_queue_pair *pair)
{
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct nic_address itself;
    crpc_error error = {.struct_size = sizeof(error)};
    device_queue_pair_address(pair, &itself);
    itself.ece = (struct nic_ece){0};
    return device_queue_pair_connect(pair, &itself, &transport, &error) == CRPC_OK ? 0
           : error.os_error                                                        ? error.os_error
                                                                                   : EOPNOTSUPP;
}

int mlx5_tags_make(struct mlx5_nic *nic, struct nic_domain *domain,
                   const struct nic_queue_options *options, struct mlx5_queue *queue)
{
    const uint32_t commands = nic_tags_commands(options->tags);
    struct ibv_cq *cq = to_mlx5_source(queue->device.receive_source)->cq;
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq,
        .recv_cq = cq,
        .srq = queue->device.srq,
        .cap = {.max_send_wr = commands / COUNTED_FOR_ONE, .max_send_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(device_pd(&nic->device, domain), &attributes);
    if (!qp) {
        return errno;
    }
    int os_error = device_queue_init(&nic->device, &queue->command, &queue->device.base, qp);
    if (os_error) {
        mlx5_qp_destroy(nic, qp);
        queue->command.qp = NULL;
        return os_error;
    }
    os_error = find_commands(nic, queue, commands);
    return os_error ? os_error : connect_to_itself(&queue->command.base);
}

void mlx5_tags_dismantle(struct mlx5_nic *nic, struct mlx5_queue *queue)
{
    if (queue->command.qp) {
        device_queue_forget(&nic->device, &queue->command.base);
        mlx5_qp_destroy(nic, queue->command.qp);
        queue->command.qp = NULL;
    }
}

/* ---- Commands -------------------------------------------------------------------------------- */

enum { OPERATION_NONE = 0, OPERATION_APPEND = 1, OPERATION_REMOVE = 2 };
#define FLAG_COUNT 0x40u      /* the segment tells a count */
#define FLAG_COMPLETION 0x80u /* and has a completion */

/* Of NIC_TAG_SYNC it has a count alone. */
static uint8_t *put_tag(uint8_t *place, const struct nic_work *work,
                        const struct nic_tag_command *command)
{
    struct mlx5_wqe_tm_seg *segment = (void *)place;
    *segment = (struct mlx5_wqe_tm_seg){.flags = FLAG_COMPLETION | FLAG_COUNT,
                                        .sw_cnt = htobe16(command->count)};
    if (command->opcode == NIC_TAG_ADD) {
        segment->opcode = OPERATION_APPEND << 4;
        segment->index = htobe16((uint16_t)command->next);
        segment->append_tag = htobe64(work->remote_address);
        segment->append_mask = htobe64(work->operand);
    } else if (command->opcode == NIC_TAG_REMOVE) {
        segment->opcode = OPERATION_REMOVE << 4;
        segment->index = htobe16((uint16_t)command->place);
    }
    return (uint8_t *)(segment + 1);
}

static uint8_t *put_buffer(uint8_t *place, const struct nic_piece *piece)
{
    struct mlx5_wqe_data_seg *segment = (void *)place;
    if (piece && piece->bytes > 0) {
        return wqe_data(place, piece->address, piece->local_key, piece->bytes);
    }
    *segment = (struct mlx5_wqe_data_seg){.lkey = htobe32(MLX5_INVALID_LKEY)};
    return (uint8_t *)(segment + 1);
}

/* A command is one block. */
bool mlx5_queue_tag(struct nic_queue *base, const struct nic_work *work,
                    const struct nic_piece *piece)
{
    struct mlx5_queue *queue = to_mlx5_queue(base);
    struct nic_tag_command command;
    assert(!base->failed && !base->stopped && base->tags);
    if (!nic_tags_post(base, work, &command)) {
        return false;
    }
    uint8_t *wqe = send_queue_at(&queue->sends, command.position);
    uint8_t *end = put_tag(wqe + sizeof(struct mlx5_wqe_ctrl_seg), work, &command);
    if (command.opcode == NIC_TAG_ADD) {
        end = put_buffer(end, piece);
    }
    send_queue_end(&queue->sends, wqe, end, MLX5_OPCODE_TAG_MATCHING, 0, 0);
    return true;
}

/* ---- Completions ----------------------------------------------------------------------------- */

#define APPLICATION_TAGS 1u /* app of an entry */

enum { /* its app_op */
       ENTRY_CONSUMED = 0x1,
       ENTRY_EXPECTED = 0x2,
       ENTRY_UNEXPECTED = 0x3,
       ENTRY_APPENDED = 0x5,
       ENTRY_REMOVED = 0x6,
       ENTRY_SYNCHRONIZED = 0x7,
       ENTRY_CONSUMED_RENDEZVOUS = 0x9,
       ENTRY_CONSUMED_WHOLE = 0xa,
       ENTRY_CONSUMED_WHOLE_RENDEZVOUS = 0xb,
       ENTRY_CANCELED = 0xc,
};

static bool of_tags(const struct mlx5_cqe64 *entry)
{
    const uint8_t opcode = completion_opcode(entry);
    return entry->app == APPLICATION_TAGS &&
           (opcode == MLX5_CQE_NO_PACKET ||
            (opcode >= MLX5_CQE_RESP_SEND && opcode <= MLX5_CQE_RESP_SEND_INV));
}

static bool is_receive(const struct mlx5_cqe64 *entry)
{
    const uint8_t opcode = completion_opcode(entry);
    return (opcode >= MLX5_CQE_RESP_WR_IMM && opcode <= MLX5_CQE_RESP_SEND_INV) ||
           opcode == MLX5_CQE_RESP_ERR;
}

static void begin(struct nic_queue *receiver, const struct nic_queue *owner,
                  const struct mlx5_cqe64 *entry)
{
    nic_tags_begin(receiver, owner, be16toh(entry->app_info), be64toh(entry->tmh.tag),
                   be32toh(entry->tmh.app_ctx),
                   entry->app_op == ENTRY_CONSUMED_RENDEZVOUS ||
                       entry->app_op == ENTRY_CONSUMED_WHOLE_RENDEZVOUS);
}

static void message(struct nic_queue *receiver, const struct nic_queue *owner,
                    const struct mlx5_cqe64 *entry, struct nic_tag_output *output)
{
    const uint8_t opcode = completion_opcode(entry);
    crpc_completion *completion = nic_tags_message(receiver, owner, be16toh(entry->app_info),
                                                   be32toh(entry->byte_cnt), output);
    if (completion && opcode != MLX5_CQE_RESP_SEND) {
        completion->reply_bytes_max = be32toh(entry->imm_inval_pkey);
        completion->flags |=
            opcode == MLX5_CQE_RESP_SEND_INV ? NIC_DONE_INVALIDATED : NIC_DONE_IMMEDIATE;
    }
}

static void receive(struct nic_queue *receiver, struct nic_queue *owner,
                    const struct mlx5_cqe64 *entry, struct nic_tag_output *output)
{
    const uint32_t index = be16toh(entry->wqe_counter);
    uint64_t user_data;
    if (!is_receive(entry) || !tracking_receive_take(&receiver->receives, index, &user_data)) {
        receiver->nic->unknown_completions++;
        return;
    }
    crpc_completion *completion = &output->completions[output->count++];
    receiver->receives_open--;
    receive_queue_free(&to_mlx5_queue(receiver)->list, index);
    mlx5_receive_done(entry, owner, user_data, completion, &output->errors);
    if (of_tags(entry) && entry->app_op == ENTRY_UNEXPECTED) {
        nic_tags_unexpected(receiver, completion);
    }
}

/* A message that came over `owner`. */
static void take_message(struct nic_queue *receiver, struct nic_queue *owner,
                         const struct mlx5_cqe64 *entry, struct nic_tag_output *output)
{
    if (!of_tags(entry)) {
        receive(receiver, owner, entry, output);
        return;
    }
    switch (entry->app_op) {
    case ENTRY_CONSUMED:
    case ENTRY_CONSUMED_RENDEZVOUS:
        begin(receiver, owner, entry);
        break;
    case ENTRY_CONSUMED_WHOLE:
    case ENTRY_CONSUMED_WHOLE_RENDEZVOUS:
        begin(receiver, owner, entry);
        message(receiver, owner, entry, output);
        break;
    case ENTRY_EXPECTED:
        message(receiver, owner, entry, output);
        break;
    case ENTRY_CANCELED:
        owner->failed = true;
        nic_tags_cancel(receiver, owner, be16toh(entry->app_info), output);
        break;
    default: /* unexpected, or without a tag */
        receive(receiver, owner, entry, output);
        break;
    }
}

/* A command of `owner`. Returns false if there was no room for all that it completes. */
static bool take_command(struct nic_queue *owner, const struct mlx5_cqe64 *entry,
                         struct nic_tag_output *output)
{
    static const uint8_t opcodes[] = {[ENTRY_APPENDED] = NIC_TAG_ADD,
                                      [ENTRY_REMOVED] = NIC_TAG_REMOVE,
                                      [ENTRY_SYNCHRONIZED] = NIC_TAG_SYNC};
    const uint8_t opcode = completion_opcode(entry);
    bool all = true;
    if (opcode == MLX5_CQE_REQ_ERR) {
        const struct mlx5_err_cqe *error = (const struct mlx5_err_cqe *)(const void *)entry;
        owner->failed = true;
        all = nic_tags_done(owner, 0, NIC_TAG_FAILED, error->vendor_err_synd, output);
    } else if (opcode == MLX5_CQE_NO_PACKET && of_tags(entry) && entry->app_op >= ENTRY_APPENDED &&
               entry->app_op <= ENTRY_SYNCHRONIZED) {
        const bool missed =
            entry->app_op == ENTRY_REMOVED && !(be32toh(entry->tm_cqe.success) & MLX5_TMC_SUCCESS);
        all = nic_tags_done(owner, opcodes[entry->app_op], missed ? NIC_TAG_MISSED : NIC_TAG_DONE,
                            0, output);
    } else {
        owner->nic->unknown_completions++;
    }
    to_mlx5_queue(owner)->sends.consumer = owner->sends.consumer;
    return all;
}

uint32_t mlx5_poll_tags(struct device_nic *nic, struct mlx5_source *source,
                        crpc_completion *completions, uint32_t capacity, uint32_t *errors)
{
    struct completion_queue *queue = &source->completions;
    struct nic_tag_output output = {.completions = completions, .capacity = capacity};
    const struct mlx5_cqe64 *entry;
    while (output.count < capacity &&
           (entry = completion_queue_next(queue, COMPLETION_PLAIN)) != NULL) {
        struct nic_queue *owner = device_queue_of(nic, completion_number(entry));
        if (owner && owner->tags) {
            if (!take_command(owner, entry, &output)) {
                break;
            }
        } else if (owner && owner->receiver && owner->receiver->tags) {
            take_message(owner->receiver, owner, entry, &output);
        } else {
            nic->base.unknown_completions++;
        }
        completion_queue_advance(queue, COMPLETION_PLAIN);
    }
    completion_queue_release(queue);
    *errors += output.errors;
    return output.count;
}

/* What it says of the list is true, but nobody gets the message. */
void mlx5_tags_removed(struct nic_queue *receiver, const struct nic_queue *from,
                       const struct mlx5_cqe64 *entry)
{
    if (!of_tags(entry)) {
        if (is_receive(entry)) {
            nic_queue_end_receive(receiver, be16toh(entry->wqe_counter));
        }
        return;
    }
    switch (entry->app_op) {
    case ENTRY_CONSUMED:
    case ENTRY_CONSUMED_RENDEZVOUS:
        begin(receiver, from, entry);
        break;
    case ENTRY_CONSUMED_WHOLE:
    case ENTRY_CONSUMED_WHOLE_RENDEZVOUS:
    case ENTRY_EXPECTED:
    case ENTRY_CANCELED:
        nic_tags_end(receiver, be16toh(entry->app_info));
        break;
    case ENTRY_UNEXPECTED:
        nic_tags_lost(receiver);
        nic_queue_end_receive(receiver, be16toh(entry->wqe_counter));
        break;
    default:
        nic_queue_end_receive(receiver, be16toh(entry->wqe_counter));
        break;
    }
}
