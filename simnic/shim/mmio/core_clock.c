/* core_clock.c: the NIC's clock. Its register counts nanoseconds of CLOCK_MONOTONIC, as the stamps
 * in CQEs do. Memory does not count by itself, so the program cannot access its mapping of the
 * register, and the handler of the trap makes the read (shim/emulate). */
#include "simnic/shim/mmio/core_clock.h"

#include <errno.h>
#include <rdma/mlx5-abi.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "simnic/shim/emulate/emulate.h"
#include "simnic/shim/process/process.h"

#define MOST_MAPPINGS 1024 /* contexts */

_Static_assert(CORE_CLOCK_PAGE == MLX5_IB_MMAP_CORE_CLOCK << 8, "libmlx5 maps another page");
_Static_assert(CLOCK_INFO_PAGE == (MLX5_IB_MMAP_CLOCK_INFO << 8 | MLX5_IB_CLOCK_INFO_V1),
               "libmlx5 maps another page");

static _Atomic(const uint8_t *) mapped[MOST_MAPPINGS];
static _Atomic uint32_t mapped_end; /* none from here on */

/* Both at the same time, as far as the scheduler allows. */
static void read_both_clocks(__u64 *cycles, struct timespec *day)
{
    uint64_t taken_ns = UINT64_MAX;
    for (int tries = 0; tries < 10 && taken_ns > 1000; tries++) {
        struct timespec now;
        uint64_t before = clock_now_ns();
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t ns = clock_now_ns() - before;
        if (ns >= taken_ns) {
            continue;
        }
        taken_ns = ns;
        *cycles = before + ns / 2;
        *day = now;
    }
}

void core_clock_refresh(void)
{
    uint8_t *page = process.page_memory + (size_t)CLOCK_INFO_PAGE * NIC_UAR_BYTES;
    struct mlx5_ib_clock_info *info = (struct mlx5_ib_clock_info *)(void *)page;
    _Atomic uint32_t *sign = (_Atomic uint32_t *)&info->sign;
    struct timespec day = {0};
    process_lock();
    atomic_fetch_or(sign, MLX5_IB_CLOCK_INFO_KERNEL_UPDATING);
    read_both_clocks(&info->cycles, &day);
    info->nsec = (uint64_t)day.tv_sec * 1000000000u + (uint64_t)day.tv_nsec;
    info->frac = 0;
    info->mult = 1;
    info->shift = 0;
    info->mask = UINT64_MAX;
    info->overflow_period = INT64_MAX; /* it is right until somebody sets the time of day */
    atomic_fetch_add(sign, MLX5_IB_CLOCK_INFO_KERNEL_UPDATING);
    process_unlock();
}

bool core_clock_map(const uint8_t *address)
{
    bool noted = false;
    process_lock();
    for (uint32_t i = 0; i < MOST_MAPPINGS && !noted; i++) {
        if (atomic_load(&mapped[i])) {
            continue;
        }
        atomic_store(&mapped[i], address);
        if (i >= atomic_load(&mapped_end)) {
            atomic_store(&mapped_end, i + 1);
        }
        noted = true;
    }
    process_unlock();
    return noted;
}

void core_clock_unmap(const uint8_t *address, size_t bytes)
{
    uint32_t end = atomic_load_explicit(&mapped_end, memory_order_relaxed);
    for (uint32_t i = 0; i < end; i++) {
        const uint8_t *place = atomic_load_explicit(&mapped[i], memory_order_relaxed);
        if (place && place >= address && place < address + bytes) {
            atomic_store(&mapped[i], NULL);
        }
    }
}

bool core_clock_trap(uintptr_t address, void *ucontext)
{
    const uint8_t *page = (const uint8_t *)(address & ~(uintptr_t)(NIC_UAR_BYTES - 1));
    uint32_t end = atomic_load_explicit(&mapped_end, memory_order_relaxed);
    bool ours = false;
    for (uint32_t i = 0; i < end && !ours; i++) {
        ours = atomic_load_explicit(&mapped[i], memory_order_relaxed) == page;
    }
    if (!ours) {
        return false;
    }
    int error = errno;
    uint64_t now = htobe64(clock_now_ns());
    struct emulate_page target = {(uintptr_t)page + CORE_CLOCK_OFFSET, (uint8_t *)&now,
                                  sizeof(now)};
    bool made = emulate_load(ucontext, &target);
    errno = error;
    return made;
}

void core_clock_forget(void)
{
    memset(mapped, 0, sizeof(mapped));
    atomic_store(&mapped_end, 0);
}
