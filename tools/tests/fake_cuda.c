/* fake_cuda.c: a libcuda.so.1 for tests: its GPU's memory is a file that nothing maps but simnic's device, which takes it for a
 * dma-buf. So the check of a GPU's memory runs where there is none. */
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2

static int file = -1;
static uint64_t base;
static int context;

EXPORTED int cuInit(unsigned int flags);
EXPORTED int cuDeviceGet(int *device, int ordinal);
EXPORTED int cuDevicePrimaryCtxRetain(void **result, int device);
EXPORTED int cuCtxSetCurrent(void *current);
EXPORTED int cuDevicePrimaryCtxRelease_v2(int device);
EXPORTED int cuMemAlloc_v2(uint64_t *address, size_t bytes);
EXPORTED int cuMemFree_v2(uint64_t address);
EXPORTED int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
EXPORTED int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
EXPORTED int cuMemGetHandleForAddressRange(void *handle, uint64_t address, size_t bytes, int type,
                                           unsigned long long flags);
EXPORTED int cuPointerSetAttribute(const void *value, int attribute, uint64_t address);

int cuInit(unsigned int flags)
{
    return flags ? INVALID_VALUE : 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal ? INVALID_VALUE : 0;
}

int cuDevicePrimaryCtxRetain(void **result, int device)
{
    *result = &context;
    return device ? INVALID_VALUE : 0;
}

int cuCtxSetCurrent(void *current)
{
    return current != &context;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    return device ? INVALID_VALUE : 0;
}

/* The address is one that no program can read. */
int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    void *nothing = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    file = memfd_create("gpu", MFD_CLOEXEC);
    if (nothing == MAP_FAILED || file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        return OUT_OF_MEMORY;
    }
    *address = base = (uint64_t)(uintptr_t)nothing;
    return 0;
}

int cuMemFree_v2(uint64_t address)
{
    return address == base ? close(file) : INVALID_VALUE;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    return pwrite(file, from, bytes, (off_t)(to - base)) != (ssize_t)bytes;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    return pread(file, to, bytes, (off_t)(from - base)) != (ssize_t)bytes;
}

int cuMemGetHandleForAddressRange(void *handle, uint64_t address, size_t bytes, int type,
                                  unsigned long long flags)
{
    if (address != base || bytes == 0 || type != 1 || flags) {
        return INVALID_VALUE;
    }
    *(int *)handle = dup(file);
    return *(int *)handle < 0;
}

int cuPointerSetAttribute(const void *value, int attribute, uint64_t address)
{
    return *(const unsigned int *)value != 1 || attribute != 6 || address != base;
}
