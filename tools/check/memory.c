/* memory.c: memory of a GPU, which the device reads and writes by a dma-buf. */
#include <string.h>

#include "gpu.h"
#include "station.h"

#define GPU_BYTES (2u << 20) /* a page of a GPU */
#define PART_BYTES 65536u

static struct nic_keys gpu_keys; /* of the far side */

static struct nic_transfer to_gpu(const struct station *station, const struct gpu *gpu,
                                  uint32_t offset, uint32_t bytes)
{
    struct nic_transfer transfer = station_transfer(station, 0, 0, bytes, bytes);
    transfer.remote_address = gpu->address + offset;
    transfer.remote_key = gpu_keys.remote_key;
    return transfer;
}

static bool same_there(struct station *station, struct gpu *gpu, uint32_t offset, uint32_t bytes,
                       struct outcome *outcome)
{
    static uint8_t copy[PART_BYTES];
    if (!gpu_read(gpu, offset, copy, bytes)) {
        return fails(outcome, "CUDA does not copy from the GPU's memory");
    }
    return memcmp(copy, station->source, bytes) == 0 ||
           fails(outcome, "a message of %u bytes to a GPU's memory came out wrong", bytes);
}

/* There and back. */
static bool use(struct station *station, struct gpu *gpu, struct outcome *outcome)
{
    const uint32_t bytes = 1 + station_pick(station, PART_BYTES);
    const uint32_t offset = station_pick(station, GPU_BYTES - PART_BYTES);
    const uint32_t arrived = station->arrived;
    const struct nic_transfer transfer = to_gpu(station, gpu, offset, bytes);
    station_fill(station, station->source, bytes);
    station->near->operations->post_write_immediate(station->sender, &transfer, NIC_POST_SIGNALED);
    station->near->operations->ring_doorbell(station->sender);
    if (!station_wait_arrived(station, arrived + 1, outcome) ||
        !station_wait_sent(station, outcome) || !same_there(station, gpu, offset, bytes, outcome)) {
        return false;
    }
    memcpy(station->sink, station->source, bytes);
    memset(station->source, 0, bytes);
    station->near->operations->post_read(station->sender, &transfer, NIC_POST_SIGNALED);
    station->near->operations->ring_doorbell(station->sender);
    return station_wait_sent(station, outcome) &&
           station_same(station, 0, 0, bytes, "a READ of a GPU's memory", outcome);
}

static bool enroll(struct station *station, struct gpu *gpu, struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = station->far->operations->memory_register_dmabuf(
        station->far, NULL, gpu->fd, 0, GPU_BYTES, gpu->address,
        CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ, &gpu_keys,
        &error);
    if (status == CRPC_E_UNSUPPORTED) {
        return not_here(outcome, "%s", error.message);
    }
    return status == CRPC_OK || refused(outcome, status, error.message);
}

/* device/memory.c: a dma-buf is registered at the GPU's own address, and peers reach it as any memory. */
void check_dma_buf(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 50 : 1000;
    struct gpu gpu;
    char why[128];
    bool good = gpu_open(&gpu, GPU_BYTES, why, sizeof(why)) || not_here(outcome, "%s", why);
    good = good && enroll(station, &gpu, outcome);
    for (uint32_t i = 0; good && i < rounds; i++) {
        good = use(station, &gpu, outcome);
    }
    if (good) {
        passes(outcome, "%u messages to memory of a GPU, and READs of them", rounds);
    }
    station->far->operations->memory_deregister(station->far, &gpu_keys);
    gpu_close(&gpu);
}
