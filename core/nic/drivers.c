/* drivers.c: the drivers of the shipped library, the preferred first. Tests have a table of their
 * own. */
#include "nic.h"
#include "verbs/driver.h"

const struct nic_operations *const nic_drivers[] = {
    &verbs_operations,
    NULL,
};
