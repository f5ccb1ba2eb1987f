/* ece.h: enhanced connection establishment (ECE): options that the vendor of a device has beyond the standard, and that both ends of a
 * connection must set alike. docs/design.md, "What both devices add", says who sets what, and why.
 *
 * Of all that libibverbs drives, mlx5 alone has it. What is known of its options: bits 31 to 28 are a version, and each other bit is
 * something that an end can do. Other vendors' are not negotiated.
 */
#ifndef CORE_NIC_ECE_H
#define CORE_NIC_ECE_H

#include <stdint.h>

#define NIC_ECE_VENDOR 0x15b3u /* of mlx5: the number that PCI has for it */

struct nic_ece {
    uint32_t vendor;
    uint32_t options; /* 0 = none */
};

/* Returns what an end that offers `ours` asks its device for, of a peer that has said `theirs`: all that both have, in the lower of
 * the two versions; 0 = nothing. The same for both ends. `theirs` may be anything. */
uint32_t nic_ece_common(struct nic_ece ours, struct nic_ece theirs);

#endif
