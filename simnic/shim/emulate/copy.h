/* copy.h: how far the emulation follows a copy, on any processor. */
#ifndef SIMNIC_SHIM_EMULATE_COPY_H
#define SIMNIC_SHIM_EMULATE_COPY_H

#include <stdbool.h>

#define MOST_INSTRUCTIONS 400u
#define MOST_BETWEEN_STORES 20u /* instructions after which a copy is taken to be over */

struct emulate_copy {
    unsigned stores; /* to the page; at least one once an instruction was executed */
    unsigned instructions, since_store;
};

/* One more instruction was executed. Returns whether the next may belong to the copy, too. A fence
 * ends a push. */
static inline bool emulate_copy_goes_on(struct emulate_copy *copy, bool stored, bool fenced)
{
    copy->stores += stored || copy->instructions == 0;
    copy->since_store = stored ? 0 : copy->since_store + 1;
    copy->instructions++;
    return !fenced && copy->instructions < MOST_INSTRUCTIONS &&
           copy->since_store <= MOST_BETWEEN_STORES;
}

#endif
