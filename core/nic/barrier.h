/* barrier.h: orders the processor's loads against what a device writes to memory.
 *
 * A device that writes is not one of the processors, among which C11's fences order: on arm64 these are `dmb ish`, of the
 * inner shareable domain, and a device need not be in it. `dmb oshld` orders loads against the outer shareable domain (Arm ARM,
 * B2.3), as the kernel's dma_rmb and rdma-core's udma_from_device_barrier do. x86-64 keeps loads in order, and only the compiler
 * has to be stopped.
 *
 * core/nic/mlx5/barrier.h has what drivers need besides, for their registers.
 */
#ifndef CORE_NIC_BARRIER_H
#define CORE_NIC_BARRIER_H

#include <stdbool.h>
#include <stdint.h>

/* Goes between a load of what the device writes last, and all loads of what it has written before. */
static inline void barrier_after_device_wrote(void)
{
#if defined(__x86_64__)
    __asm__ volatile("" ::: "memory");
#elif defined(__aarch64__)
    __asm__ volatile("dmb oshld" ::: "memory");
#else
    __sync_synchronize(); /* the strongest that there is everywhere */
#endif
}

/* Returns true if the device has written this value to the last 8 bytes of something: the rest of it may be loaded then. */
static inline bool barrier_device_wrote(const uint64_t *last, uint64_t value)
{
    if (*(const volatile uint64_t *)last != value) {
        return false;
    }
    barrier_after_device_wrote();
    return true;
}

#endif
