/* driver.c: the portable driver's table of operations. */
#include "nic/verbs/verbs.h"

const struct nic_operations verbs_operations = {
    .driver = CRPC_DRIVER_VERBS,
    .bit = 1u << CRPC_DRIVER_VERBS,
    .name = "verbs",
    .query = verbs_query,
    .open = verbs_open,
    .close = verbs_close,
    .domain_create = device_domain_create,
    .domain_destroy = device_domain_destroy,
    .memory_register = device_memory_register,
    .memory_register_dmabuf = device_memory_register_dmabuf,
    .memory_deregister = device_memory_deregister,
    .queue_pair_create = verbs_queue_pair_create,
    .queue_pair_destroy = verbs_queue_pair_destroy,
    .queue_pair_address = device_queue_pair_address,
    .queue_pair_connect = device_queue_pair_connect,
    .queue_pair_fail = verbs_queue_pair_fail,
    .post_write_immediate = verbs_post_write_immediate,
    .post_write = verbs_post_write,
    .post_read = verbs_post_read,
    .ring_doorbell = verbs_ring_doorbell,
    .poll = verbs_poll,
    .refill = verbs_refill,
    .arm = verbs_arm,
    .disarm = verbs_disarm,
};
