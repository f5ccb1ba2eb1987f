/* mlx5_pages.h: the NIC's pages that programs map, as mlx5_ib gives them out: doorbell pages (UARs)
 * and the pages of the clock. All are in one file, whose offsets are those that libmlx5 maps. */
#ifndef SIMNIC_SHIM_KERNEL_MLX5_PAGES_H
#define SIMNIC_SHIM_KERNEL_MLX5_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct context;

/* Makes the file and our own mapping of it. Returns 0 or an errno. */
int pages_open(void);

/* Returns whether the file's descriptor is what it was. Programs may close descriptors past the C
 * library. */
bool pages_have_file(void);
/* Makes another file, for new descriptors; the pages stay where they are. Returns 0 or an errno. */
int pages_open_file(void);

/* The program's mmap() of a device's descriptor. Returns MAP_FAILED with errno. Without the
 * lock. */
void *pages_map(const struct context *context, void *address, size_t bytes, int protection,
                int flags, off_t offset);
/* The program unmaps what is at an address. Without the lock. */
void pages_unmap(const void *address, size_t bytes);

/* In a forked child: nothing else comes to lie where the parent has pages. */
void pages_inherit(void);

/* A UAR is destroyed. With the lock. */
void pages_free(uint32_t page);

#endif
