/* output.h: the part of the caller's array of completions that a poll has not filled yet. */
#ifndef CORE_BASE_OUTPUT_H
#define CORE_BASE_OUTPUT_H

#include <stdbool.h>

#include "base/abi.h"

struct output {
    crpc_completion *next;
    crpc_completion *end;
};

static inline bool output_full(const struct output *output)
{
    return output->next == output->end;
}

#endif
