/* driver.h: the portable driver, for the table of drivers. */
#ifndef CORE_NIC_VERBS_DRIVER_H
#define CORE_NIC_VERBS_DRIVER_H

#include "nic/nic.h"

extern const struct nic_operations verbs_operations;

#endif
