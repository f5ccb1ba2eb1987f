/* gpu.h: memory of a GPU, by the CUDA driver's library if there is one. */
#ifndef TOOLS_CHECK_GPU_H
#define TOOLS_CHECK_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu {
    void *library;
    void *functions;
    void *context;
    int device;
    uint64_t address; /* of `bytes`, as the GPU and its peers call it: no program may read it */
    size_t bytes;
    int fd; /* of the dma-buf that it is in */
};

/* Finds the first GPU, and takes memory of it. Returns false, and says why in `why`, if there is none or it exports no
 * dma-buf. The caller closes it even then. */
bool gpu_open(struct gpu *gpu, size_t bytes, char *why, size_t why_bytes);
void gpu_close(struct gpu *gpu);
bool gpu_write(struct gpu *gpu, size_t offset, const void *from, size_t bytes);
bool gpu_read(struct gpu *gpu, size_t offset, void *to, size_t bytes);

#endif
