/* queue_change.c: queues that change while they are in use, for the caller. */
#include <inttypes.h>

#include "base/compiler.h"
#include "base/error.h"
#include "private/context.h"
#include "private/copyin.h"
#include "private/options.h"
#include "private/queue_batch.h"

#define RETRY_MAX 7u
#define NOT_READY_NS_DEFAULT UINT64_C(640000)
#define REMOTE_RIGHTS                                                                              \
    (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)

static_assert(CRPC_QUEUE_CHANGE_NOT_READY_WAIT == NIC_CHANGE_NOT_READY_TIMER &&
                  CRPC_QUEUE_CHANGE_ACCESS == NIC_CHANGE_ACCESS &&
                  CRPC_QUEUE_CHANGE_RETRY_TIMEOUT == NIC_CHANGE_RETRY_TIMEOUT &&
                  CRPC_QUEUE_CHANGE_RETRY_COUNT == NIC_CHANGE_RETRY_COUNT &&
                  CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT == NIC_CHANGE_RNR_TRIES &&
                  CRPC_QUEUE_CHANGE_QUEUE_KEY == NIC_CHANGE_QUEUE_KEY &&
                  CRPC_QUEUE_CHANGE_SRQ_LIMIT == NIC_CHANGE_SRQ_LIMIT,
              "core has the caller's changes");

#define CHANGES_RC                                                                                 \
    (CRPC_QUEUE_CHANGE_NOT_READY_WAIT | CRPC_QUEUE_CHANGE_ACCESS |                                 \
     CRPC_QUEUE_CHANGE_RETRY_TIMEOUT | CRPC_QUEUE_CHANGE_RETRY_COUNT |                             \
     CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT)
#define CHANGES_ALL (CHANGES_RC | CRPC_QUEUE_CHANGE_QUEUE_KEY | CRPC_QUEUE_CHANGE_SRQ_LIMIT)

/* ---- The RNR timer --------------------------------------------------------------------------- */

/* What its codes mean, in units of 10 us: InfiniBand specification, volume 1, 9.7.5.2.8, table 45. Code 0
 * is the longest, and is not used. */
static const uint16_t timers[32] = {0,    1,    2,    3,     4,     6,     8,     12,
                                    16,   24,   32,   48,    64,    96,    128,   192,
                                    256,  384,  512,  768,   1024,  1536,  2048,  3072,
                                    4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
#define TIMER_UNIT_NS UINT64_C(10000)
#define NOT_READY_NS_MAX (49152 * TIMER_UNIT_NS)

uint64_t queue_not_ready_ns(uint32_t timer)
{
    return timers[timer & 31] * TIMER_UNIT_NS;
}

/* At most NOT_READY_NS_MAX. */
static uint32_t timer_of(uint64_t wait_ns)
{
    uint32_t code = 1;
    while (queue_not_ready_ns(code) < wait_ns) {
        code++;
    }
    return code;
}

/* ---- Retries --------------------------------------------------------------------------------- */

/* Core counts how often it tries, the caller how often again. Verbs, too, have 7 for no limit. */
uint32_t queue_rnr_tries(uint32_t not_ready_retry_count)
{
    const bool limited = not_ready_retry_count != 0 && not_ready_retry_count != RETRY_MAX;
    return limited ? not_ready_retry_count + 1 : 0;
}

uint32_t queue_not_ready_retry_count(uint32_t rnr_tries)
{
    return rnr_tries ? rnr_tries - 1 : 0;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

/* A member without its bit would not change: the caller has forgotten the bit. */
static int32_t check_bits(const crpc_queue_change *change, crpc_error *error)
{
    const struct {
        uint32_t bit;
        bool set;
        const char *name;
    } members[] = {
        {CRPC_QUEUE_CHANGE_NOT_READY_WAIT, change->not_ready_wait_ns != 0, "not_ready_wait_ns"},
        {CRPC_QUEUE_CHANGE_ACCESS, change->access != 0, "access"},
        {CRPC_QUEUE_CHANGE_RETRY_TIMEOUT, change->retry_timeout != 0, "retry_timeout"},
        {CRPC_QUEUE_CHANGE_RETRY_COUNT, change->retry_count != 0, "retry_count"},
        {CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT, change->not_ready_retry_count != 0,
         "not_ready_retry_count"},
        {CRPC_QUEUE_CHANGE_QUEUE_KEY, change->queue_key != 0, "queue_key"},
        {CRPC_QUEUE_CHANGE_SRQ_LIMIT, change->srq_limit != 0, "srq_limit"},
    };
    if (change->changes & ~CHANGES_ALL) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0,
                         "changes has bits that this version does not know: 0x%x",
                         change->changes & ~CHANGES_ALL);
    }
    if (change->changes == 0) {
        return error_set(error, CRPC_E_INVALID, 0, "changes is 0: nothing is to change");
    }
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        if (members[i].set && !(change->changes & members[i].bit)) {
            return error_set(error, CRPC_E_INVALID, 0, "%s is set, and changes lacks its bit, 0x%x",
                             members[i].name, members[i].bit);
        }
    }
    return CRPC_OK;
}

/* A queue that waits to be accepted will be one of kind RC. */
static int32_t check_kind(const struct queue_options *limits, uint32_t changes, crpc_error *error)
{
    if (nic_kind_is_shared(limits->kind) && changes & ~CRPC_QUEUE_CHANGE_SRQ_LIMIT) {
        return error_set(error, CRPC_E_INVALID, 0, "of an SRQ, only srq_limit can change");
    }
    if (limits->kind == NIC_QUEUE_DCI || limits->kind == NIC_QUEUE_DCT) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "of a %s, nothing can change: open another one with other options",
                         limits->kind == NIC_QUEUE_DCI ? "DCI" : "DCT");
    }
    if (limits->kind == NIC_QUEUE_UD && changes & ~CRPC_QUEUE_CHANGE_QUEUE_KEY) {
        return error_set(error, CRPC_E_INVALID, 0, "of a UD queue, only queue_key can change");
    }
    if ((limits->kind == NIC_QUEUE_RC || limits->kind == 0) && changes & ~CHANGES_RC) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "an RC queue has no queue_key, and only an SRQ has an srq_limit");
    }
    return CRPC_OK;
}

static int32_t check_access(const crpc_context *context, uint32_t access, crpc_error *error)
{
    if (access & ~REMOTE_RIGHTS) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "access is 0x%x; a queue has CRPC_ACCESS_REMOTE_* alone", access);
    }
    if (access & CRPC_ACCESS_REMOTE_ATOMIC && !context->nic->atomics) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0, "%s has no atomics", context->nic->device);
    }
    return CRPC_OK;
}

static int32_t check_values(const crpc_context *context, const struct queue_options *limits,
                            const crpc_queue_change *change, crpc_error *error)
{
    if (change->not_ready_wait_ns > NOT_READY_NS_MAX) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "not_ready_wait_ns may be at most %" PRIu64 ", or 491.52 ms",
                         NOT_READY_NS_MAX);
    }
    if (change->not_ready_retry_count > RETRY_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "not_ready_retry_count may be at most %u",
                         RETRY_MAX);
    }
    if (change->queue_key >= NIC_QUEUE_KEYS) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "queue_key is 0x%x, and may be at most 0x7fffffff: those above need rights",
            change->queue_key);
    }
    if (change->srq_limit > limits->receives) {
        return error_set(error, CRPC_E_INVALID, 0, "srq_limit is %u, and the SRQ has %u receives",
                         change->srq_limit, limits->receives);
    }
    int32_t status = check_access(context, change->access, error);
    return status != CRPC_OK
               ? status
               : options_check_connection(change->retry_timeout, change->retry_count, 0, 0, error);
}

/* ---- Changing -------------------------------------------------------------------------------- */

static struct nic_queue_change take(const crpc_context *context, const crpc_queue_change *theirs)
{
    struct nic_queue_change ours = {.mask = theirs->changes,
                                    .access = theirs->access,
                                    .retry_timeout = theirs->retry_timeout,
                                    .retry_count = theirs->retry_count,
                                    .rnr_tries = queue_rnr_tries(theirs->not_ready_retry_count),
                                    .queue_key = theirs->queue_key,
                                    .srq_limit = theirs->srq_limit};
    uint64_t wait_ns = theirs->not_ready_wait_ns;
    default64(&wait_ns, NOT_READY_NS_DEFAULT);
    ours.not_ready_timer = timer_of(wait_ns);
    default_retry(&ours.retry_timeout, &ours.retry_count, context, RETRY_TIMEOUT_DEFAULT);
    default32(&ours.queue_key, CRPC_QUEUE_KEY_DEFAULT);
    return ours;
}

static int32_t modify(const crpc_context *context, struct queue *queue,
                      const crpc_queue_change *theirs, crpc_error *error)
{
    const struct queue_options *limits = queue_limits(queue);
    crpc_queue_change change;
    int32_t status = COPYIN(&change, theirs, queue_change, error);
    if (status == CRPC_OK) {
        status = check_bits(&change, error);
    }
    if (status == CRPC_OK) {
        status = check_kind(limits, change.changes, error);
    }
    if (status == CRPC_OK) {
        status = check_values(context, limits, &change, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    const struct nic_queue_change ours = take(context, &change);
    return queue_modify(queue, &ours, error);
}

int32_t crpc_queue_modify(crpc_context *context, crpc_queue queue, const crpc_queue_change *change,
                          crpc_error *error)
{
    crpc_error failure = {0};
    int32_t status = CRPC_E_INVALID;
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    if (context && change) {
        struct queue *object = queue_of(context, queue);
        status = object ? modify(context, object, change, &failure) : CRPC_E_STALE;
    }
    return give_error(error, &failure, status);
}
