/* driver.h: the portable driver as the table of drivers sees it. */
#ifndef CORE_NIC_VERBS_DRIVER_H
#define CORE_NIC_VERBS_DRIVER_H

#include "nic/nic.h"

extern const struct nic_operations verbs_operations;

#endif
