/* drivers.c: the drivers of the shipped library, the preferred first. Tests have a table of their
 * own. */
#include "nic/mlx5/driver.h"
#include "nic/nic.h"
#include "nic/verbs/driver.h"

const struct nic_operations *const nic_drivers[] = {
    &mlx5_operations,
    &verbs_operations,
    NULL,
};
