/* mlx5_devx_queues.c: completion queues and queue pairs by device commands (PRM, "CREATE_CQ", "CREATE_QP"), which lie in memory that the
 * program has registered for that (a "umem"). The adapter demands that all that such a command names is of the same user context; so each
 * is looked for among the objects of the context. */
#include <endian.h>
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stddef.h>

#include "simnic/nic/dma.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/mlx5_devx.h"
#include "simnic/shim/kernel/verbs.h"
#include "simnic/shim/mmio/doorbells.h"
#include "simnic/shim/process/process.h"

#define RECORD_BYTES 8u /* of a doorbell record */

/* ---- memory ---- */

/* The number of a umem, which only this context's commands can name. */
static uint32_t number_of(const struct object *memory)
{
    return memory->handle + 1;
}

int mlx5_devx_register_memory(const struct call *call)
{
    const uint64_t address = attribute_number(call, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, 0);
    const uint64_t bytes = attribute_number(call, MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, 0);
    const uint64_t access = attribute_number(call, MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, 0);
    if (bytes == 0 || address + bytes < address || access > UINT32_MAX ||
        !memory_access_makes_sense((uint32_t)access)) {
        return EINVAL;
    }
    int result = memory_pin(address, bytes, (uint32_t)access);
    if (result) {
        return result;
    }
    struct object *object = object_create(call->context, MLX5_IB_OBJECT_DEVX_UMEM);
    if (!object) {
        return ENOMEM;
    }
    object->number = address;
    object->bytes = bytes;
    attribute_out_handle(call, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, object->handle);
    return attribute_out32(call, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, number_of(object));
}

static struct object *memory_find(struct context *context, uint32_t number)
{
    return number ? object_find(context, MLX5_IB_OBJECT_DEVX_UMEM, number - 1) : NULL;
}

/* Bytes of registered memory, at an offset; NULL: they are not all in it. */
static uint8_t *place(const struct object *memory, uint64_t offset, uint64_t bytes)
{
    const bool within = memory && offset <= memory->bytes && bytes <= memory->bytes - offset;
    return within ? (uint8_t *)(uintptr_t)(memory->number + offset) : NULL;
}

static uint64_t number64(const uint32_t *words)
{
    return (uint64_t)be32toh(words[0]) << 32 | be32toh(words[1]);
}

/* Doorbells at a page that is not the program's would come to nothing. */
static bool page_is_used(uint32_t page)
{
    return page < NIC_MAX_PAGES && process.nic.pages[page];
}

struct answer {
    uint32_t status, syndrome;
    uint32_t number;
    uint32_t reserved;
};

/* What is made answers with its number, and has its object. */
static int answer_with(const struct devx_command *command, const struct object *object,
                       uint32_t number)
{
    struct answer answer = {.number = htobe32(number)};
    attribute_out_handle(command->call, command->handle, object->handle);
    return devx_answer(command, &answer, sizeof(answer));
}

/* ---- completion queues ---- */

struct completion_queue_creation {
    uint16_t opcode, uid, reserved, modifier;
    uint32_t reserved2[2];
    uint32_t context[16];
    uint32_t memory_offset[2];
    uint32_t memory;
    uint32_t memory_valid; /* the kernel's */
};

/* Fields of the context of a completion queue, by their first bit. */
#define CQ_SIZE 0x008u            /* 3: of a CQE */
#define CQ_COLLAPSED 0x00bu       /* 1 */
#define CQ_OVERRUN_IGNORED 0x00eu /* 1 */
#define CQ_COMPRESSED 0x011u      /* 1: cqe_comp_en */
#define CQ_MINI_FORMAT 0x012u     /* 2 */
#define CQ_LAYOUT 0x019u          /* 7: cqe_comp_layout */
#define CQ_RECORD_MEMORY 0x020u   /* 32 */
#define CQ_LOG_ENTRIES 0x063u     /* 5 */
#define CQ_PAGE 0x068u            /* 24 */
#define CQ_EVENT_QUEUE 0x0a0u     /* 32 */
#define CQ_RECORD_WORD 14u
#define CQ_MOST_LOG_ENTRIES 22u

#define SIZE_64 0u
#define SIZE_128 1u
#define SIZE_128_PADDED 2u

/* As the kernel's mini_cqe_res_format_to_hw, the other way. */
static uint8_t mini_format(uint32_t field)
{
    static const uint8_t formats[] = {MLX5DV_CQE_RES_FORMAT_HASH, MLX5DV_CQE_RES_FORMAT_CSUM, 0,
                                      MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX};
    return formats[field];
}

struct completion_queue_parts {
    struct object *buffer, *record;
    uint8_t *entries, *doorbell_record;
    uint32_t vector;
};

/* Returns 0 or the status with which it is refused. */
static uint32_t find_completion_queue_parts(const struct devx_command *command,
                                            const struct completion_queue_creation *creation,
                                            struct completion_queue_parts *parts)
{
    const uint32_t *c = creation->context;
    struct context *context = command->call->context;
    const uint32_t size = devx_field(c, CQ_SIZE, 3), layout = devx_field(c, CQ_LAYOUT, 7);
    const bool compressed = devx_field(c, CQ_COMPRESSED, 1);
    if (size > SIZE_128_PADDED || devx_field(c, CQ_COLLAPSED, 1) ||
        devx_field(c, CQ_OVERRUN_IGNORED, 1) || layout > 1 || (layout && !compressed) ||
        !mini_format(devx_field(c, CQ_MINI_FORMAT, 2))) {
        return DEVX_BAD_PARAMETER;
    }
    if (devx_field(c, CQ_LOG_ENTRIES, 5) > CQ_MOST_LOG_ENTRIES) {
        return DEVX_BAD_SIZE;
    }
    if (!page_is_used(devx_field(c, CQ_PAGE, 24))) {
        return DEVX_BAD_RESOURCE;
    }
    parts->vector = devx_vector_of(devx_field(c, CQ_EVENT_QUEUE, 32));
    parts->buffer = memory_find(context, be32toh(creation->memory));
    parts->record = memory_find(context, devx_field(c, CQ_RECORD_MEMORY, 32));
    const uint64_t bytes = (size == SIZE_64 ? 64ull : 128ull) << devx_field(c, CQ_LOG_ENTRIES, 5);
    parts->entries = place(parts->buffer, number64(creation->memory_offset), bytes);
    parts->doorbell_record = place(parts->record, number64(&c[CQ_RECORD_WORD]), RECORD_BYTES);
    return parts->vector != UINT32_MAX && parts->entries && parts->doorbell_record
               ? 0
               : DEVX_BAD_RESOURCE;
}

int devx_create_completion_queue(const struct devx_command *command)
{
    struct completion_queue_creation creation;
    struct completion_queue_parts parts;
    const uint32_t *c = creation.context;
    int result = devx_read(command, &creation, sizeof(creation), sizeof(creation));
    if (result) {
        return result;
    }
    uint32_t status = find_completion_queue_parts(command, &creation, &parts);
    if (status) {
        return devx_refuse(command, status);
    }
    doorbells_find();
    struct completion_queue *cq = cq_create(&process.nic);
    if (cq && devx_field(c, CQ_COMPRESSED, 1) &&
        !compression_create(cq, mini_format(devx_field(c, CQ_MINI_FORMAT, 2)))) {
        cq_destroy(&process.nic, cq);
        cq = NULL;
    }
    struct object *object =
        cq ? object_create_devx(command->call->context, UVERBS_OBJECT_CQ, cq) : NULL;
    if (!object) {
        return ENOMEM;
    }
    const uint32_t size = devx_field(c, CQ_SIZE, 3);
    cq->buffer = parts.entries;
    cq->record = parts.doorbell_record;
    cq->entries = 1u << devx_field(c, CQ_LOG_ENTRIES, 5);
    cq->entry_bytes = size == SIZE_64 ? 64 : 128;
    cq->pads = size == SIZE_128_PADDED;
    cq->vector = (uint8_t)parts.vector;
    cq->enhanced = devx_field(c, CQ_LAYOUT, 7) == 1;
    cq->blind = fabric_has_quirk(process.nic.fabric, QUIRK_BLIND_MINIS);
    cq->owner = object;
    /* As verb_create_cq has it. */
    cq->arm_value = UINT32_MAX;
    dma_store32(cq->record + 4, UINT32_MAX);
    object_use(object, parts.buffer);
    object_use(object, parts.record);
    return answer_with(command, object, cq->number);
}

/* ---- queue pairs ---- */

struct queue_pair_creation {
    uint16_t opcode, uid, reserved, modifier;
    uint32_t reserved2[2];
    uint32_t optional;
    uint32_t ece;
    uint32_t context[DEVX_CONTEXT_WORDS];
    uint32_t memory_offset[2];
    uint32_t memory;
    uint32_t memory_valid; /* the kernel's */
};

/* Fields of the context of a queue pair, by their first bit. */
#define QP_SERVICE 0x008u             /* 8 */
#define QP_DOMAIN 0x028u              /* 24 */
#define QP_NO_SENDS 0x050u            /* 1 */
#define QP_LOG_BLOCKS 0x051u          /* 4 */
#define QP_PAGE 0x068u                /* 24 */
#define QP_RECORD_MODE 0x080u         /* 2 */
#define QP_USER_INDEX 0x088u          /* 24 */
#define QP_SEND_COMPLETIONS 0x3e8u    /* 24 */
#define QP_RECEIVE_COMPLETIONS 0x4e8u /* 24 */
#define QP_RECORD_WORD 40u
#define QP_RECEIVE_KIND 0x565u  /* 3 */
#define QP_SHARED 0x568u        /* 24 */
#define QP_SCATTER_SENDS 0x630u /* 8 */
#define QP_SCATTER 0x638u       /* 8 */
#define QP_RECORD_MEMORY 0x720u /* 32 */

#define SERVICE_RC 0u
#define RECEIVES_SHARED 1u
#define RECEIVES_NONE 3u
#define MOST_LOG_BLOCKS 15u
#define BLOCK_BYTES 64u

struct queue_pair_parts {
    struct object *buffer, *record, *domain, *shared, *sends, *receives;
    uint8_t *blocks, *doorbell_record;
};

/* What a completion queue or an SRQ is of, if it is of this context. */
static struct object *owner_of(const struct context *context, void *owner)
{
    struct object *object = owner;
    return object && object->context == context ? object : NULL;
}

static struct object *find_completions(const struct context *context, uint32_t number)
{
    const struct completion_queue *cq =
        number < NIC_MAX_COMPLETION_QUEUES ? process.nic.completion_queues[number] : NULL;
    return cq ? owner_of(context, cq->owner) : NULL;
}

static struct object *find_shared(const struct context *context, uint32_t number)
{
    const struct shared_receive_queue *srq =
        number < NIC_MAX_SHARED_RECEIVE_QUEUES ? process.nic.shared_receive_queues[number] : NULL;
    return srq && !srq->tags && !srq->xrc_domain ? owner_of(context, srq->owner) : NULL;
}

/* Returns 0 or the status with which it is refused. */
static uint32_t find_queue_pair_parts(const struct devx_command *command,
                                      const struct queue_pair_creation *creation,
                                      struct queue_pair_parts *parts)
{
    const uint32_t *c = creation->context;
    struct context *context = command->call->context;
    const uint32_t receives = devx_field(c, QP_RECEIVE_KIND, 3);
    if (devx_field(c, QP_SERVICE, 8) != SERVICE_RC || devx_field(c, QP_NO_SENDS, 1) ||
        devx_field(c, QP_RECORD_MODE, 2) || creation->optional || creation->ece ||
        (receives != RECEIVES_SHARED && receives != RECEIVES_NONE)) {
        return DEVX_BAD_PARAMETER;
    }
    if (devx_field(c, QP_LOG_BLOCKS, 4) > MOST_LOG_BLOCKS) {
        return DEVX_BAD_SIZE;
    }
    parts->buffer = memory_find(context, be32toh(creation->memory));
    parts->record = memory_find(context, devx_field(c, QP_RECORD_MEMORY, 32));
    parts->domain = object_find_number(context, UVERBS_OBJECT_PD, devx_field(c, QP_DOMAIN, 24));
    parts->sends = find_completions(context, devx_field(c, QP_SEND_COMPLETIONS, 24));
    parts->receives = find_completions(context, devx_field(c, QP_RECEIVE_COMPLETIONS, 24));
    parts->shared =
        receives == RECEIVES_SHARED ? find_shared(context, devx_field(c, QP_SHARED, 24)) : NULL;
    parts->blocks = place(parts->buffer, number64(creation->memory_offset),
                          (uint64_t)BLOCK_BYTES << devx_field(c, QP_LOG_BLOCKS, 4));
    parts->doorbell_record = place(parts->record, number64(&c[QP_RECORD_WORD]), RECORD_BYTES);
    return page_is_used(devx_field(c, QP_PAGE, 24)) && parts->domain && parts->sends &&
                   parts->receives && (parts->shared || receives == RECEIVES_NONE) &&
                   parts->blocks && parts->doorbell_record
               ? 0
               : DEVX_BAD_RESOURCE;
}

static void set_up(struct queue_pair *qp, const uint32_t *c, const struct queue_pair_parts *parts,
                   int rail)
{
    qp->type = TYPE_RC;
    qp->rail = (uint8_t)rail;
    qp->user_index = devx_field(c, QP_USER_INDEX, 24);
    qp->domain = devx_field(c, QP_DOMAIN, 24);
    qp->page = devx_field(c, QP_PAGE, 24);
    qp->record = parts->doorbell_record;
    qp->receive_buffer = qp->send_buffer = parts->blocks;
    qp->send_blocks = 1u << devx_field(c, QP_LOG_BLOCKS, 4);
    qp->scatter_to_cqe = devx_field(c, QP_SCATTER, 8) != 0;
    qp->scatter_requests_to_cqe = devx_field(c, QP_SCATTER_SENDS, 8) != 0;
    qp->send_queue_completions = parts->sends->thing;
    qp->receive_queue_completions = parts->receives->thing;
    qp->shared_receive_queue = parts->shared ? parts->shared->thing : NULL;
    qp->destination_rail = PACKET_NO_RAIL;
}

int devx_create_queue_pair(const struct devx_command *command)
{
    struct queue_pair_creation creation;
    struct queue_pair_parts parts;
    struct context *context = command->call->context;
    int result = devx_read(command, &creation, sizeof(creation), sizeof(creation));
    if (result) {
        return result;
    }
    uint32_t status = find_queue_pair_parts(command, &creation, &parts);
    if (status) {
        return devx_refuse(command, status);
    }
    doorbells_find();
    struct queue_pair *qp = qp_create(&process.nic);
    struct object *object = qp ? object_create_devx(context, UVERBS_OBJECT_QP, qp) : NULL;
    if (!object) {
        return ENOMEM;
    }
    set_up(qp, creation.context, &parts, context->rail);
    qp_attach_page(&process.nic, qp);
    qp->owner = object;
    object_use(object, parts.buffer);
    object_use(object, parts.record);
    object_use(object, parts.domain);
    object_use(object, parts.sends);
    object_use(object, parts.receives);
    object_use(object, parts.shared);
    return answer_with(command, object, qp->number);
}
