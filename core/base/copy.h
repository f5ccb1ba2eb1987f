/* copy.h: copies the short payloads of small messages. It saves memcpy's call and its dispatch by
 * length, which cost more than the copy itself. */
#ifndef CORE_BASE_COPY_H
#define CORE_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

/* Copies 16 to 64 bytes from both ends, so that two or four moves of 16 bytes cover every length.
 * The compiler turns each memcpy of constant length into moves. */
static inline void copy_short(void *to, const void *from, size_t bytes)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    if (likely(bytes - 16 <= 16)) {
        uint8_t first[16], last[16];
        memcpy(first, in, 16);
        memcpy(last, in + bytes - 16, 16);
        memcpy(out, first, 16);
        memcpy(out + bytes - 16, last, 16);
    } else if (bytes - 33 <= 31) {
        uint8_t first[32], last[32];
        memcpy(first, in, 32);
        memcpy(last, in + bytes - 32, 32);
        memcpy(out, first, 32);
        memcpy(out + bytes - 32, last, 32);
    } else if (bytes != 0) { /* with no bytes, a pointer may be NULL */
        memcpy(out, in, bytes);
    }
}

#endif
