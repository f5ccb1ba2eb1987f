/* change.c: the parts of changing a queue (nic/queue.h) that have to do with no device. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "nic/queue.h"

#define OF_RC                                                                                      \
    (NIC_CHANGE_NOT_READY_TIMER | NIC_CHANGE_ACCESS | NIC_CHANGE_RETRY_TIMEOUT |                   \
     NIC_CHANGE_RETRY_COUNT | NIC_CHANGE_RNR_TRIES)
#define REMOTE_RIGHTS                                                                              \
    (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)

/* Only assertions ask. */
static __attribute__((unused)) uint32_t changes_of(const struct nic_queue *queue)
{
    switch (queue->kind) {
    case NIC_QUEUE_RC:
        return OF_RC;
    case NIC_QUEUE_UD:
        return NIC_CHANGE_QUEUE_KEY;
    case NIC_QUEUE_SRQ:
    case NIC_QUEUE_TM_SRQ:
        return NIC_CHANGE_SRQ_LIMIT;
    default: /* a DCI or a DCT */
        return 0;
    }
}

void nic_queue_check_change(const struct nic_queue *queue, const struct nic_queue_change *change)
{
    uint32_t mask = change->mask;
    assert(!queue->stopped);
    assert(mask != 0 && (mask & ~changes_of(queue)) == 0);
    assert(!(mask & NIC_CHANGE_NOT_READY_TIMER) ||
           (change->not_ready_timer >= 1 && change->not_ready_timer <= 31));
    assert(!(mask & NIC_CHANGE_ACCESS) ||
           (change->access &
            ~(queue->nic->atomics ? REMOTE_RIGHTS : REMOTE_RIGHTS & ~CRPC_ACCESS_REMOTE_ATOMIC)) ==
               0);
    assert(!(mask & NIC_CHANGE_RETRY_TIMEOUT) ||
           (change->retry_timeout >= 1 && change->retry_timeout <= 31));
    assert(!(mask & NIC_CHANGE_RETRY_COUNT) ||
           (change->retry_count >= 1 && change->retry_count <= 7));
    assert(!(mask & NIC_CHANGE_RNR_TRIES) || change->rnr_tries <= 7);
    assert(!(mask & NIC_CHANGE_QUEUE_KEY) || change->queue_key < NIC_QUEUE_KEYS);
    assert(!(mask & NIC_CHANGE_SRQ_LIMIT) || change->srq_limit <= queue->receives_max);
    (void)queue;
    (void)mask;
}

int32_t nic_queue_refuse_change(const struct nic_queue *queue,
                                const struct nic_queue_change *change, int os_error,
                                crpc_error *error)
{
    /* In the order of the bits; as the application calls them. */
    static const char *const names[] = {
        "not_ready_wait_ns",     "access",    "retry_timeout", "retry_count",
        "not_ready_retry_count", "queue_key", "srq_limit"};
    char list[128] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (change->mask & 1u << i) {
            int bytes =
                snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", names[i]);
            used += (size_t)bytes;
        }
    }
    return error_set(error, CRPC_E_UNSUPPORTED, os_error,
                     "%s does not let %s of this queue change while it is in use%s%s",
                     queue->nic->device, list, os_error ? ": " : "",
                     os_error ? strerror(os_error) : "");
}
