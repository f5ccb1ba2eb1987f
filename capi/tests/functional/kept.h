/* kept.h: completions that a test has polled, and has not awaited yet. */
#ifndef FUNCTIONAL_KEPT_H
#define FUNCTIONAL_KEPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "copyrpc.h"

#define KEPT_MAX 256u

struct kept {
    crpc_completion completions[KEPT_MAX];
    uint32_t count;
};

/* Polls once. */
static inline void kept_poll(struct kept *kept, crpc_context *context)
{
    int32_t count = crpc_poll(context, kept->completions + kept->count, KEPT_MAX - kept->count);
    assert_true(count >= 0);
    kept->count += (uint32_t)count;
    assert_true(kept->count < KEPT_MAX);
}

/* Takes the oldest of this kind. Returns false if there is none. */
static inline bool kept_take(struct kept *kept, uint8_t kind, crpc_completion *found)
{
    for (uint32_t i = 0; i < kept->count; i++) {
        crpc_completion *one = &kept->completions[i];
        if (one->kind == kind) {
            *found = *one;
            memmove(one, one + 1, (--kept->count - i) * sizeof(*one));
            return true;
        }
    }
    return false;
}

#endif
