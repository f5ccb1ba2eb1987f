/* drivers_memory.c: the table of drivers for tests of the public API: the in-memory NIC alone. */
#include "nic/memory/memory.h"

const struct nic_operations *const nic_drivers[] = {
    &nic_memory_operations,
    NULL,
};
