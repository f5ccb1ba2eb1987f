/* devx.c: what the device can do, and completion queues by CREATE_CQ (PRM; UCX, uct/ib/mlx5/dv/ib_mlx5_dv.c; Linux, mlx5_ifc.h). */
#include "nic/mlx5/devx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/page.h"

#define RECORD_BYTES 64u /* a cache line, though the device uses 8 of them */

int devx_error(int result)
{
    const int os_error = result > 0 ? result : errno;
    return os_error == EREMOTEIO ? EIO : os_error;
}

/* ---- Capabilities ---------------------------------------------------------------------------- */

#define QUERY_HCA_CAP 0x100u
#define GENERAL_NOW 1u /* general capabilities, as they are set */
#define CAPABILITY_WORDS 1024u

#define CAPABILITY_ENHANCED 0x5b0u       /* 1: enhanced_cqe_compression */
#define CAPABILITY_COMPRESSED_128 0x5beu /* 1: cqe_compression_128b */
#define CAPABILITY_COMPRESSED_64 0x5bfu  /* 1: cqe_compression */

int devx_find_layout(struct ibv_context *context, uint32_t bytes, struct mlx5_devx *devx)
{
    uint32_t in[4] = {0}, out[4 + CAPABILITY_WORDS] = {0};
    devx_set(in, 0x00, 16, QUERY_HCA_CAP);
    devx_set(in, 0x30, 16, GENERAL_NOW);
    int result = mlx5dv_devx_general_cmd(context, in, sizeof(in), out, sizeof(out));
    if (result) {
        return devx_error(result);
    }
    const uint32_t *capabilities = out + 4;
    const bool small = devx_get(capabilities, CAPABILITY_COMPRESSED_64, 1);
    const bool large = devx_get(capabilities, CAPABILITY_COMPRESSED_128, 1);
    devx->entry_bytes = (large && bytes == 128) || !small ? 128 : 64;
    return devx_get(capabilities, CAPABILITY_ENHANCED, 1) && (small || large) ? 0 : EOPNOTSUPP;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Whole pages: where fork() is told to leave them out, nobody else's are. */
int devx_memory_make(struct ibv_context *context, size_t bytes, struct devx_memory *memory)
{
    const size_t page = page_bytes(), all = (bytes + RECORD_BYTES + page - 1) / page * page;
    *memory = (struct devx_memory){.bytes = aligned_alloc(page, all), .record_at = bytes};
    if (!memory->bytes) {
        return ENOMEM;
    }
    memset(memory->bytes, 0, all);
    memory->registered = mlx5dv_devx_umem_reg(context, memory->bytes, all, IBV_ACCESS_LOCAL_WRITE);
    if (!memory->registered) {
        int os_error = devx_error(0);
        devx_memory_free(memory);
        return os_error;
    }
    return 0;
}

void devx_memory_free(struct devx_memory *memory)
{
    if (memory->registered) {
        mlx5dv_devx_umem_dereg(memory->registered);
    }
    free(memory->bytes);
    *memory = (struct devx_memory){0};
}

void devx_set_record(uint32_t *words, uint32_t at, const struct devx_memory *memory)
{
    words[at / 32] = htobe32((uint32_t)((uint64_t)memory->record_at >> 32));
    words[at / 32 + 1] = htobe32((uint32_t)memory->record_at);
}

/* ---- Completion queues ----------------------------------------------------------------------- */

#define CREATE_CQ 0x400u

struct creation {
    uint32_t head[4];
    uint32_t context[16];
    uint32_t memory_offset[2];
    uint32_t memory;
    uint32_t memory_valid; /* the kernel's */
    uint32_t reserved[44];
};

/* Fields of the context, by their first bit. */
#define CONTEXT_SIZE 0x008u          /* 3: 1 = of 128 bytes */
#define CONTEXT_COMPRESSED 0x011u    /* 1: cqe_comp_en */
#define CONTEXT_LAYOUT 0x019u        /* 7: cqe_comp_layout */
#define CONTEXT_RECORD_MEMORY 0x020u /* 32: dbr_umem_id */
#define CONTEXT_LOG_ENTRIES 0x063u   /* 5 */
#define CONTEXT_PAGE 0x068u          /* 24: uar_page */
#define CONTEXT_EVENT_QUEUE 0x0b8u   /* 8: c_eqn */
#define CONTEXT_RECORD 0x1c0u        /* 64: dbr_addr */
#define LAYOUT_ENHANCED 1u

static int create(struct mlx5_nic *nic, struct devx_completion_queue *made, uint32_t log_entries,
                  bool compressed, uint32_t *number)
{
    struct mlx5_devx *devx = nic->devx;
    struct creation in = {0};
    uint32_t out[4] = {0}, event_queue;
    int os_error = devx_memory_make(nic->device.context, (size_t)devx->entry_bytes << log_entries,
                                    &made->memory);
    if (os_error) {
        return os_error;
    }
    int result = mlx5dv_devx_query_eqn(nic->device.context, nic->device.base.completion_vector,
                                       &event_queue);
    if (result) {
        return devx_error(result);
    }
    const uint32_t memory = made->memory.registered->umem_id;
    devx_set(in.head, 0x00, 16, CREATE_CQ);
    devx_set(in.context, CONTEXT_SIZE, 3, devx->entry_bytes == 128);
    devx_set(in.context, CONTEXT_COMPRESSED, 1, compressed);
    devx_set(in.context, CONTEXT_LAYOUT, 7, compressed ? LAYOUT_ENHANCED : 0);
    devx_set(in.context, CONTEXT_RECORD_MEMORY, 32, memory);
    devx_set(in.context, CONTEXT_LOG_ENTRIES, 5, log_entries);
    devx_set(in.context, CONTEXT_PAGE, 24, devx->page->page_id);
    devx_set(in.context, CONTEXT_EVENT_QUEUE, 8, event_queue);
    devx_set_record(in.context, CONTEXT_RECORD, &made->memory);
    in.memory = htobe32(memory);
    made->object = mlx5dv_devx_obj_create(nic->device.context, &in, sizeof(in), out, sizeof(out));
    *number = devx_get(out, 0x48, 24);
    return made->object ? 0 : devx_error(0);
}

static void destroy(struct devx_completion_queue *made)
{
    if (made->object) {
        mlx5dv_devx_obj_destroy(made->object);
        made->object = NULL;
    }
    devx_memory_free(&made->memory);
}

/* A queue that is not compressed is read as a compressed one of the basic layout, which has no compressed CQE. */
static int make(struct mlx5_nic *nic, struct devx_completion_queue *made, uint32_t depth,
                bool compressed, struct completion_queue *queue)
{
    const struct mlx5_devx *devx = nic->devx;
    const uint32_t entries = power_of_two_at_least(depth + 1);
    const uint8_t log_entries = (uint8_t)__builtin_ctz(entries);
    uint32_t number;
    int os_error = create(nic, made, log_entries, compressed, &number);
    if (os_error == 0) {
        os_error = devx_events_of_completions(nic, made);
    }
    if (os_error) {
        return os_error;
    }
    *queue = (struct completion_queue){
        .entries = made->memory.bytes + devx->entry_bytes - sizeof(struct mlx5_cqe64),
        .mask = entries - 1,
        .shift = devx->entry_bytes == 64 ? 6 : 7,
        .laps = log_entries,
        .mini = COMPLETION_MINI_HASH,
        .layout = compressed ? COMPLETION_ENHANCED : COMPLETION_COMPRESSED,
        .record = (uint32_t *)(void *)(made->memory.bytes + made->memory.record_at),
        .doorbell = devx->page->base_addr,
        .number = number,
    };
    completion_queue_init(queue);
    return 0;
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* Only some machines have pages whose writes are combined. */
static int open_page(struct mlx5_nic *nic, uint32_t push_bytes)
{
    struct mlx5_devx *devx = nic->devx;
    devx->page = mlx5dv_devx_alloc_uar(nic->device.context, MLX5DV_UAR_ALLOC_TYPE_BF);
    devx->push_bytes = devx->page ? push_bytes : 0;
    if (!devx->page) {
        devx->page = mlx5dv_devx_alloc_uar(nic->device.context, MLX5DV_UAR_ALLOC_TYPE_NC);
    }
    return devx->page ? 0 : devx_error(0);
}

#define QUERY_QP 0x50bu
#define CONTEXT_COUNTERS 0x060u /* 8: counter_set_id */

/* The port counts what its queue pairs do in a set of counters, whose number the kernel gives those of the verbs with INIT. */
static int find_counters(struct mlx5_nic *nic, struct ibv_qp *probe)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .pkey_index = nic->device.partition_index,
                                     .port_num = (uint8_t)nic->device.base.port};
    uint32_t in[4] = {0}, out[6 + DEVX_CONTEXT_WORDS + 4] = {0};
    int os_error = ibv_modify_qp(
        probe, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (os_error) {
        return os_error;
    }
    devx_set(in, 0x00, 16, QUERY_QP);
    devx_set(in, 0x48, 24, probe->qp_num);
    int result = mlx5dv_devx_qp_query(probe, in, sizeof(in), out, sizeof(out));
    if (result) {
        return devx_error(result);
    }
    nic->devx->counter_set = (uint8_t)devx_get(out + 6, CONTEXT_COUNTERS, 8);
    return 0;
}

/* Whatever a device or its kernel may refuse is found here, and not when the first peer comes. */
static int try_queue_pair(struct mlx5_nic *nic)
{
    struct mlx5_queue_pair tried = {.device.base.nic = &nic->device.base};
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .pkey_index = nic->device.partition_index,
                                     .port_num = (uint8_t)nic->device.base.port,
                                     .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int os_error = mlx5_devx_queue_pair_make(nic, &tried, NULL, 64);
    if (os_error == 0) {
        os_error =
            devx_modify(&tried.device, &attributes,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    }
    mlx5_devx_queue_pair_unmake(nic, &tried);
    return os_error;
}

static int open_parts(struct mlx5_nic *nic, const struct nic_options *options, struct ibv_qp *probe,
                      uint32_t push_bytes, const char **what)
{
    struct mlx5_devx *devx = nic->devx;
    const struct nic *base = &nic->device.base;
    *what = "a page for doorbells";
    int os_error = open_page(nic, push_bytes);
    if (os_error == 0) {
        *what = "event channels";
        os_error = devx_events_open(nic);
    }
    if (os_error == 0) {
        *what = "a completion queue of receives";
        os_error = make(nic, &devx->receives, base->receive_depth, options->compressed_receives,
                        &nic->receives);
    }
    if (os_error == 0) {
        *what = "a completion queue of sends";
        os_error = make(nic, &devx->sends, base->send_completion_depth, true, &nic->sends);
    }
    if (os_error == 0) {
        *what = "the port's counters";
        os_error = find_counters(nic, probe);
    }
    if (os_error == 0) {
        *what = "a queue pair";
        os_error = try_queue_pair(nic);
    }
    return os_error;
}

bool mlx5_devx_open(struct mlx5_nic *nic, const struct nic_options *options, struct ibv_qp *probe,
                    uint32_t push_bytes, const char **what)
{
    struct mlx5dv_cq chosen = {0};
    struct mlx5dv_obj object = {.cq = {.in = nic->spare_cq, .out = &chosen}};
    struct mlx5_devx *devx = calloc(1, sizeof(*devx));
    *what = "memory";
    if (!devx) {
        return false;
    }
    devx->wait_fd = -1;
    pthread_mutex_init(&devx->mutex, NULL);
    table_init(&devx->queue_pairs);
    nic->devx = devx;
    nic->device.modify = devx_modify;
    mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ);
    *what = "DevX and that layout";
    int os_error = devx_find_layout(nic->device.context, chosen.cqe_size, devx);
    if (os_error == 0) {
        os_error = open_parts(nic, options, probe, push_bytes, what);
    }
    if (os_error) {
        mlx5_devx_close(nic);
        errno = os_error;
    }
    return os_error == 0;
}

void mlx5_devx_close(struct mlx5_nic *nic)
{
    struct mlx5_devx *devx = nic->devx;
    if (!devx) {
        return;
    }
    destroy(&devx->sends);
    destroy(&devx->receives);
    devx_events_close(nic);
    if (devx->page) {
        mlx5dv_devx_free_uar(devx->page);
    }
    table_free(&devx->queue_pairs);
    pthread_mutex_destroy(&devx->mutex);
    free(devx);
    nic->devx = NULL;
}
