/* copy.h: copies WQEs into a BlueFlame register, 64 bytes at a time.
 *
 * The register is write-combining memory: the processor collects stores in a 64-byte buffer, and
 * the device gets the buffer as one write. The widest stores fill the buffer with the fewest
 * instructions, and non-temporal stores use no cache line. The copy that suits this machine is
 * chosen once, when a nic is opened.
 */
#ifndef CORE_NIC_MLX5_COPY_H
#define CORE_NIC_MLX5_COPY_H

#include <stdint.h>

#define COPY_BLOCK_BYTES 64u

enum copy_kind {
    COPY_WORDS = 0, /* 8-byte stores, which every processor has */
    COPY_SSE2,      /* four of 16 bytes */
    COPY_AVX,       /* two of 32 bytes */
    COPY_AVX512,    /* one of 64 bytes */
    COPY_NEON,      /* two of 32 bytes */
};

/* Returns the best copy for this machine. */
enum copy_kind copy_choose(void);

/* Returns true if this machine supports it. */
int copy_possible(enum copy_kind kind);

/* Copies `bytes`, a multiple of 64 and not 0, between addresses that are multiples of 64. */
typedef void copy_function(void *to, const void *from, uint32_t bytes);

/* Returns the function of a kind that is possible. */
copy_function *copy_function_of(enum copy_kind kind);

#endif
