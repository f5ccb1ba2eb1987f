/* answers.h: what the virtual devices say of themselves. */
#ifndef SIMNIC_SHIM_KERNEL_ANSWERS_H
#define SIMNIC_SHIM_KERNEL_ANSWERS_H

#include "simnic/shim/kernel/attributes.h"

#define COMPLETION_VECTORS 2u /* of each device */

/* Each answers one query of a context; returns 0 or an errno. */
int answer_query_device(const struct call *call);
int answer_query_device_ex(const struct call *call);
int mlx5_query_port(const struct call *call);
int answer_query_port(const struct call *call);
int answer_get_context(const struct call *call);
int answer_query_context(const struct call *call);
int answer_gid_table(const struct call *call);
int answer_gid_entry(const struct call *call);

#endif
