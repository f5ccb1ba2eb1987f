/* verbs.h: the commands of ib_uverbs, by object, and those that are mlx5_ib's own. Each answers one
 * ioctl, with the process lock held, and returns 0 or an errno as the kernel would. */
#ifndef SIMNIC_SHIM_KERNEL_VERBS_H
#define SIMNIC_SHIM_KERNEL_VERBS_H

#include "simnic/shim/kernel/attributes.h"

/* memory.c: protection domains, regions, windows */
int verb_alloc_pd(const struct call *call);
int verb_reg_mr(const struct call *call);
int verb_reg_dmabuf_mr(const struct call *call);
int verb_rereg_mr(const struct call *call);
int verb_query_mr(const struct call *call);
int verb_alloc_mw(const struct call *call);
/* As ib_check_mr_access: remote write needs local write, and nothing is asked for that is not known. */
bool memory_access_makes_sense(uint32_t access);
/* Has memory of the program be there, as if it were pinned. Returns 0 or an errno: EFAULT if it is not the program's, or must not be
 * written to. */
int memory_pin(uint64_t start, uint64_t bytes, uint32_t access);

/* device_memory.c, paging.c */
int verb_alloc_device_memory(const struct call *call);
int verb_reg_device_memory_mr(const struct call *call);
int verb_advise_mr(const struct call *call);

/* queues.c: completion queues, shared receive queues */
int verb_create_channel(const struct call *call);
int verb_alloc_async(const struct call *call);
int verb_create_cq(const struct call *call);
int verb_resize_cq(const struct call *call);
int verb_create_srq(const struct call *call);
int verb_modify_srq(const struct call *call);
int verb_query_srq(const struct call *call);

/* xrc.c */
int verb_open_xrcd(const struct call *call);

/* queue_pairs.c: queue pairs, address handles, multicast groups */
int verb_create_qp(const struct call *call);
int verb_modify_qp(const struct call *call);
int verb_modify_qp_ex(const struct call *call);
int verb_query_qp(const struct call *call);
struct ib_uverbs_modify_qp;
/* Changes a queue pair as the command says, whose handle is not looked at. `ece`: options to set, or 0. */
int queue_pair_modify(const struct context *context, struct object *object,
                      const struct ib_uverbs_modify_qp *m, uint32_t ece);
int verb_create_ah(const struct call *call);
int verb_attach_multicast(const struct call *call);
int verb_detach_multicast(const struct call *call);

/* mlx5_ib's own: memory.c, device_memory.c, mlx5_pages.c, mlx5_devx.c */
int mlx5_query_pd(const struct call *call);
int mlx5_query_device_memory(const struct call *call);
int mlx5_map_device_memory_operation(const struct call *call);
int mlx5_alloc_page(const struct call *call);
int mlx5_devx_command(const struct call *call);
int mlx5_devx_create(const struct call *call);
int mlx5_devx_modify(const struct call *call);
int mlx5_devx_query(const struct call *call);

/* mlx5_devx_queues.c, mlx5_devx_events.c */
int mlx5_devx_register_memory(const struct call *call);
int mlx5_devx_query_event_queue(const struct call *call);
int mlx5_devx_create_channel(const struct call *call);
int mlx5_devx_subscribe(const struct call *call);

#endif
