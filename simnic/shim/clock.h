/* clock.h: the device's clock: the register that a program reads (ibv_query_rt_values_ex), and the page
 * that tells what time of day that is (mlx5dv_get_clock_info). */
#ifndef SIMNIC_CLOCK_H
#define SIMNIC_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where they are mapped from: page numbers of the file of doorbell pages, which libmlx5 makes of its
 * mmap commands. */
#define CLOCK_CORE_PAGE 0x500u  /* MLX5_IB_MMAP_CORE_CLOCK << 8 */
#define CLOCK_INFO_PAGE 0x700u  /* MLX5_IB_MMAP_CLOCK_INFO << 8 | MLX5_IB_CLOCK_INFO_V1 */
#define CLOCK_CORE_OFFSET 0x20u /* of the register in its page */

static inline bool clock_is_page(size_t page)
{
    return page == CLOCK_CORE_PAGE || page == CLOCK_INFO_PAGE;
}

/* Writes the clock info page: what a context that is opened now finds there. */
void clock_refresh(void);

/* The program mapped the register's page, and nobody may access it, or it unmaps what is at an address.
 * Returns false if there is no room to note it. */
bool clock_map(const uint8_t *address);
void clock_unmap(const uint8_t *address, size_t bytes);

/* The program's thread stopped at a read of `address`; `ucontext` has its registers. Makes the read and
 * returns true, or returns false if it is none of the register. Called by the signal handler. */
bool clock_trap(uintptr_t address, void *ucontext);

/* In a forked child. */
void clock_forget(void);

#endif
