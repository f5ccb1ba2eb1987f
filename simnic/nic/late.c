/* late.c: data that lands after what says that it has: quirks. One piece at a time waits; the next one has it land. */
#include "simnic/nic/internal.h"

#include <string.h>

#include "simnic/nic/dma.h"

#define LATE_NS 300000u /* long enough for a program to look */

static void land(struct nic *nic)
{
    struct late_data *late = &nic->late;
    dma_copy(late->to, late->bytes_held, late->bytes);
    late->bytes = 0;
}

void late_write(struct nic *nic, uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    struct late_data *late = &nic->late;
    if (late->bytes) {
        land(nic);
    }
    late->to = to;
    late->bytes = bytes;
    late->due_ns = nic->now_ns + LATE_NS;
    memcpy(late->bytes_held, from, bytes);
}

void late_run(struct nic *nic)
{
    if (nic->late.bytes && nic->now_ns >= nic->late.due_ns) {
        land(nic);
    }
}

uint64_t late_due_ns(const struct nic *nic)
{
    return nic->late.bytes ? nic->late.due_ns : UINT64_MAX;
}
