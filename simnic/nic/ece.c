/* ece.c: see ece.h. */
#include "simnic/nic/ece.h"

uint32_t ece_offered(const struct fabric *fabric, uint32_t rail)
{
    const struct fabric_fault *fault = &fabric->fault;
    return fault->rails_ece_said >> rail & 1 ? fault->rail_ece[rail] : ECE_OFFERED;
}

uint32_t ece_agree(uint32_t offered, uint32_t asked)
{
    const uint32_t both = offered & asked, algorithms = both & ECE_CONGESTION_CONTROL;
    uint32_t version = offered >> ECE_VERSION_SHIFT;
    if (asked >> ECE_VERSION_SHIFT < version) {
        version = asked >> ECE_VERSION_SHIFT;
    }
    return version == 0 ? 0
                        : version << ECE_VERSION_SHIFT | (algorithms & -algorithms) |
                              (both & ECE_SELECTIVE_REPEAT);
}
