/* ece.h: enhanced connection establishment (ECE): options of the vendor that the two ends of a connection agree on. libmlx5 and the
 * kernel hand mlx5's on as numbers. What is in them is known from UCX: bits 31..28 are a version,
 * bit 0 is selective repeat, and bits 8..1 are algorithms of congestion control, of which one is used. The NIC knows the agreement,
 * and does nothing else with it: it repeats as ever. */
#ifndef SIMNIC_NIC_ECE_H
#define SIMNIC_NIC_ECE_H

#include <stdint.h>

#include "simnic/fabric/fabric.h"

#define ECE_VENDOR 0x15b3u
#define ECE_SELECTIVE_REPEAT 0x1u
#define ECE_CONGESTION_CONTROL 0x1feu
#define ECE_VERSION_SHIFT 28
#define ECE_OFFERED FAULT_ECE_CARD /* selective repeat, and two algorithms */

/* Returns what the QPs of a rail offer; 0 = its device has no ECE. */
uint32_t ece_offered(const struct fabric *fabric, uint32_t rail);

/* Returns what comes into force if a program asks a device that offers `offered` for `asked`; 0 = nothing. */
uint32_t ece_agree(uint32_t offered, uint32_t asked);

#endif
