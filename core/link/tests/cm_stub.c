/* cm_stub.c: rdma_cm for engines without one: engine->cm is NULL, so nothing here is ever
 * called. */
#include <stdlib.h>

#include "cm/cm.h"

#define NEVER(result, name, arguments)                                                             \
    result name arguments                                                                          \
    {                                                                                              \
        abort();                                                                                   \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
#ifndef CM_STUB_WITH_TASKS /* late_cm.c has these */
NEVER(bool, cm_pending, (const struct cm *cm))
NEVER(bool, cm_event_take, (struct cm * cm, struct cm_event *event))
NEVER(void, cm_forget_queue_pair, (struct cm * cm, uint32_t nic, uint32_t queue_pair_number))
NEVER(int32_t, cm_task_start,
      (struct cm * cm, cm_work *work, void *argument, struct cm_task **task, crpc_error *error))
NEVER(int32_t, cm_task_wait, (struct cm_task * task, crpc_error *error))
NEVER(bool, cm_task_forget, (struct cm_task * task))
#endif
NEVER(const char *, cm_lacks, (const struct cm *cm))
NEVER(int32_t, cm_listen,
      (struct cm * cm, const char *address, uint32_t backlog, void *owner,
       struct cm_identifier **identifier, crpc_error *error))
NEVER(int32_t, cm_connect,
      (struct cm * cm, const char *address, void *owner, struct cm_identifier **identifier,
       crpc_error *error))
NEVER(int32_t, cm_request,
      (struct cm_identifier * identifier, const struct nic_queue_pair *queue_pair,
       const struct nic_transport *transport, const void *private_data, uint32_t private_bytes,
       crpc_error *error))
NEVER(int32_t, cm_establish,
      (struct cm_identifier * identifier, struct nic_queue_pair *queue_pair,
       const struct nic_transport *transport, crpc_error *error))
NEVER(int32_t, cm_accept,
      (struct cm_identifier * identifier, struct nic_queue_pair *queue_pair,
       const struct nic_transport *transport, const void *private_data, uint32_t private_bytes,
       crpc_error *error))
NEVER(void, cm_run, (struct cm_identifier * identifier, cm_work *work, void *argument))
NEVER(int32_t, cm_run_wait, (struct cm_identifier * identifier, crpc_error *error))
NEVER(void, cm_reject,
      (struct cm_identifier * identifier, const void *private_data, uint32_t private_bytes))
NEVER(void, cm_disconnect, (struct cm_identifier * identifier))
NEVER(int32_t, cm_hand_over,
      (struct cm_identifier * identifier, struct cm *to, void *owner, uint64_t user_data,
       const void *private_data, uint32_t private_bytes, crpc_error *error))
NEVER(void, cm_own, (struct cm_identifier * identifier, void *owner))
NEVER(void, cm_local_address, (const struct cm_identifier *identifier, char *text, size_t bytes))
NEVER(void, cm_peer_address, (const struct cm_identifier *identifier, char *text, size_t bytes))
NEVER(uint64_t, cm_turned_away, (const struct cm_identifier *listener))
NEVER(uint16_t, cm_local_port, (const struct cm_identifier *identifier))

/* Nothing was. */
void cm_hand_over_reject(struct cm *cm, const void *owner)
{
}

/* Except this: NULL is allowed. */
void cm_destroy(struct cm_identifier *identifier)
{
    if (identifier) {
        abort();
    }
}
