/* queues.c: see loop.h. */
#include "loop.h"

#include <stddef.h>

static crpc_context *context;
static crpc_queue ends[2];
static crpc_region region;
static uint32_t remote_key;
static _Alignas(4096) uint8_t memory[2][QUEUE_BATCH * WRITE_BYTES];
static crpc_queue_op ops[QUEUE_BATCH];
static crpc_completion completions[QUEUE_BATCH];
static crpc_error error = {.struct_size = sizeof(error)};

static uint64_t address_of(const void *place)
{
    return (uint64_t)(uintptr_t)place;
}

static int32_t connect_ends(void)
{
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {sizeof(blobs[0]), sizeof(blobs[1])};
    int32_t status = CRPC_OK;
    for (int i = 0; i < 2 && status == CRPC_OK; i++) {
        status = crpc_queue_blob(context, NULL, &ends[i], blobs[i], &bytes[i], &error);
    }
    for (int i = 0; i < 2 && status == CRPC_OK; i++) {
        status = crpc_queue_join(context, ends[i], blobs[1 - i], bytes[1 - i], &error);
    }
    for (int connected = 0; connected < 2 && status == CRPC_OK;) {
        crpc_completion done;
        if (crpc_poll(context, &done, 1) == 1) {
            status = done.status;
            connected++;
        }
    }
    return status;
}

const char *c_queues_open(void)
{
    const crpc_context_options options = {.struct_size = sizeof(options),
                                          .flags = CRPC_CONTEXT_QUEUES};
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE;
    crpc_region_info info = {.struct_size = sizeof(info)};
    if (crpc_context_open(&options, &context, &error) < 0 ||
        crpc_region_register(context, memory, sizeof(memory), access, &region, &error) < 0) {
        return error.message;
    }
    crpc_region_get_info(context, region, &info);
    remote_key = info.remote_key;
    int32_t status = connect_ends();
    return status == CRPC_OK ? NULL : crpc_status_text(status);
}

void c_queues_close(void)
{
    crpc_context_close(context);
}

uint64_t c_queue_round(uint64_t *submit_ns, uint64_t *poll_ns)
{
    uint64_t begun_ns = now_ns();
    for (uint32_t i = 0; i < QUEUE_BATCH; i++) {
        ops[i] = (crpc_queue_op){.opcode = CRPC_QUEUE_WRITE,
                                 .user_data = i,
                                 .region = region,
                                 .address = address_of(&memory[0][i * WRITE_BYTES]),
                                 .bytes = WRITE_BYTES,
                                 .remote_key = remote_key,
                                 .remote_address = address_of(&memory[1][i * WRITE_BYTES])};
    }
    if (crpc_queue_submit(context, ends[0], ops, QUEUE_BATCH, NULL, 0, NULL) != QUEUE_BATCH) {
        return 0;
    }
    *submit_ns = now_ns() - begun_ns;
    *poll_ns = 0;
    for (uint32_t completed = 0; completed < QUEUE_BATCH;) {
        begun_ns = now_ns();
        int32_t count = crpc_poll(context, completions, QUEUE_BATCH);
        for (int32_t i = 0; i < count; i++) {
            const crpc_completion *done = &completions[i];
            if (done->kind != CRPC_COMPLETION_WORK || done->status != CRPC_OK ||
                done->user_data != completed + (uint32_t)i) {
                return 0;
            }
        }
        if (count > 0) {
            *poll_ns += now_ns() - begun_ns;
            completed += (uint32_t)count;
        }
    }
    return *submit_ns + *poll_ns;
}
