/* core_clock.h: the NIC's clock: the register that a program reads (ibv_query_rt_values_ex), and
 * the page that tells what time of day that is (mlx5dv_get_clock_info). */
#ifndef SIMNIC_SHIM_MMIO_CORE_CLOCK_H
#define SIMNIC_SHIM_MMIO_CORE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Their numbers among the NIC's pages, as libmlx5 makes them of its mmap commands. */
#define CORE_CLOCK_PAGE 0x500u  /* MLX5_IB_MMAP_CORE_CLOCK << 8 */
#define CLOCK_INFO_PAGE 0x700u  /* MLX5_IB_MMAP_CLOCK_INFO << 8 | MLX5_IB_CLOCK_INFO_V1 */
#define CORE_CLOCK_OFFSET 0x20u /* of the register in its page */

static inline bool core_clock_is_page(size_t page)
{
    return page == CORE_CLOCK_PAGE || page == CLOCK_INFO_PAGE;
}

/* Writes the clock info page, for a context that maps it now. */
void core_clock_refresh(void);

/* The program mapped the register's page, without access to it. Returns false if there is no room
 * to note it. core_clock_unmap: the program unmaps what is at an address. */
bool core_clock_map(const uint8_t *address);
void core_clock_unmap(const uint8_t *address, size_t bytes);

/* The program's thread stopped at a read of `address`; `ucontext` has its registers. Makes the read
 * and returns true. Returns false if it is not of the register. Called by the signal handler. */
bool core_clock_trap(uintptr_t address, void *ucontext);

/* In a forked child. */
void core_clock_forget(void);

#endif
