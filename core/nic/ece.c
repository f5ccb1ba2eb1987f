/* ece.c: see ece.h. */
#include "nic/ece.h"

#include "base/compiler.h"

#define VERSION_SHIFT 28u

uint32_t nic_ece_common(struct nic_ece ours, struct nic_ece theirs)
{
    const uint32_t flags = (1u << VERSION_SHIFT) - 1;
    const uint32_t version =
        (uint32_t)minimum(ours.options >> VERSION_SHIFT, theirs.options >> VERSION_SHIFT);
    if (ours.vendor != NIC_ECE_VENDOR || theirs.vendor != NIC_ECE_VENDOR || version == 0) {
        return 0;
    }
    return version << VERSION_SHIFT | (ours.options & theirs.options & flags);
}
