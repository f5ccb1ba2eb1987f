/* gpu.c: see gpu.h. What is called of libcuda is in its stable ABI (CUDA Driver API, "Memory Management": cuMemAlloc,
 * cuMemcpyHtoD, cuMemGetHandleForAddressRange, since CUDA 11.7). No header of CUDA is needed. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANDLE_IS_DMABUF 1 /* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */
#define SYNC_MEMOPS 6      /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */

struct cuda {
    int (*init)(unsigned int flags);
    int (*device_get)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*release)(int device);
    int (*alloc)(uint64_t *address, size_t bytes);
    int (*free)(uint64_t address);
    int (*write)(uint64_t to, const void *from, size_t bytes);
    int (*read)(void *to, uint64_t from, size_t bytes);
    int (*export_range)(void *handle, uint64_t address, size_t bytes, int type,
                        unsigned long long flags);
    int (*set_attribute)(const void *value, int attribute, uint64_t address);
};

static const char *const names[] = {"cuInit",
                                    "cuDeviceGet",
                                    "cuDevicePrimaryCtxRetain",
                                    "cuCtxSetCurrent",
                                    "cuDevicePrimaryCtxRelease_v2",
                                    "cuMemAlloc_v2",
                                    "cuMemFree_v2",
                                    "cuMemcpyHtoD_v2",
                                    "cuMemcpyDtoH_v2",
                                    "cuMemGetHandleForAddressRange",
                                    "cuPointerSetAttribute"};
#define NAMES (sizeof(names) / sizeof(names[0]))
_Static_assert(sizeof(struct cuda) == NAMES * sizeof(void *), "a function for each name");

static bool load(struct gpu *gpu, char *why, size_t why_bytes)
{
    gpu->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!gpu->library) {
        snprintf(why, why_bytes, "no GPU: there is no libcuda.so.1");
        return false;
    }
    gpu->functions = calloc(NAMES, sizeof(void *));
    for (size_t i = 0; gpu->functions && i < NAMES; i++) {
        void *found = dlsym(gpu->library, names[i]);
        if (!found) {
            snprintf(why, why_bytes, "libcuda.so.1 has no %s: CUDA 11.7 or later is needed",
                     names[i]);
            return false;
        }
        memcpy((char *)gpu->functions + i * sizeof(void *), &found, sizeof(found));
    }
    return gpu->functions != NULL;
}

bool gpu_open(struct gpu *gpu, size_t bytes, char *why, size_t why_bytes)
{
    *gpu = (struct gpu){.fd = -1, .bytes = bytes};
    if (!load(gpu, why, why_bytes)) {
        return false;
    }
    const struct cuda *cuda = gpu->functions;
    const unsigned int yes = 1;
    int status = cuda->init(0);
    status = status ? status : cuda->device_get(&gpu->device, 0);
    if (status) {
        snprintf(why, why_bytes, "no GPU: CUDA says %d", status);
        return false;
    }
    status = cuda->retain(&gpu->context, gpu->device);
    status = status ? status : cuda->set_current(gpu->context);
    status = status ? status : cuda->alloc(&gpu->address, bytes);
    /* Copies are done when they return. */
    status = status ? status : cuda->set_attribute(&yes, SYNC_MEMOPS, gpu->address);
    if (status) {
        snprintf(why, why_bytes, "the GPU gives no memory: CUDA says %d", status);
        return false;
    }
    status = cuda->export_range(&gpu->fd, gpu->address, bytes, HANDLE_IS_DMABUF, 0);
    if (status) {
        gpu->fd = -1;
        snprintf(why, why_bytes, "the GPU exports no dma-buf: CUDA says %d", status);
        return false;
    }
    return true;
}

void gpu_close(struct gpu *gpu)
{
    const struct cuda *cuda = gpu->functions;
    if (gpu->fd >= 0) {
        close(gpu->fd);
    }
    if (gpu->address) {
        cuda->free(gpu->address);
    }
    if (gpu->context) {
        cuda->release(gpu->device);
    }
    free(gpu->functions);
    if (gpu->library) {
        dlclose(gpu->library);
    }
}

bool gpu_write(struct gpu *gpu, size_t offset, const void *from, size_t bytes)
{
    return ((const struct cuda *)gpu->functions)->write(gpu->address + offset, from, bytes) == 0;
}

bool gpu_read(struct gpu *gpu, size_t offset, void *to, size_t bytes)
{
    return ((const struct cuda *)gpu->functions)->read(to, gpu->address + offset, bytes) == 0;
}
