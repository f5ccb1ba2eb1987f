/* queue.c: making and ending queues with user data (nic/queue.h), and their completion queues. */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "nic/verbs/verbs.h"

#define SOURCE_ENTRIES 16384u /* of a completion queue, unless one queue alone needs more */

/* ---- Completion queues ----------------------------------------------------------------------- */

/* Returns NULL and sets errno if it fails. */
static struct verbs_queue_source *make_source(struct verbs_nic *nic, uint32_t places)
{
    struct verbs_queue_source *one = calloc(1, sizeof(*one));
    uint32_t entries = places > SOURCE_ENTRIES ? places : SOURCE_ENTRIES;
    if (!one) {
        return NULL;
    }
    if (!verbs_source_open(&one->source, nic, entries - 1)) {
        int os_error = errno;
        verbs_source_close(&one->source);
        free(one);
        errno = os_error;
        return NULL;
    }
    one->places_left = one->source.depth;
    return one;
}

/* Takes so many places in a completion queue of this table. */
static int take_places(struct verbs_nic *nic, enum nic_queue_table table, uint32_t places,
                       struct verbs_queue_source **taken)
{
    struct verbs_queue_source *one = nic->sources[table];
    while (one && one->places_left < places) {
        one = one->next;
    }
    if (!one) {
        one = make_source(nic, places);
        if (!one) {
            return errno ? errno : ENOMEM;
        }
        one->next = nic->sources[table];
        nic->sources[table] = one;
    }
    one->places_left -= places;
    one->queues++;
    *taken = one;
    return 0;
}

static void give_places(struct verbs_nic *nic, enum nic_queue_table table,
                        struct verbs_queue_source *source, uint32_t places)
{
    if (!source) {
        return;
    }
    source->places_left += places;
    if (--source->queues > 0) {
        return;
    }
    struct verbs_queue_source **link = &nic->sources[table];
    while (*link != source) {
        link = &(*link)->next;
    }
    *link = source->next;
    verbs_source_close(&source->source);
    free(source);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static uint32_t power_of_two(uint32_t value)
{
    uint32_t power = 1;
    while (power < value) {
        power *= 2;
    }
    return power;
}

static bool make_chains(struct verbs_queue *queue)
{
    uint32_t pieces = queue->base.send_pieces > 0 ? queue->base.send_pieces : 1;
    uint32_t receive_pieces = queue->base.receive_pieces > 0 ? queue->base.receive_pieces : 1;
    queue->chain = calloc(VERBS_QUEUE_CHAIN, sizeof(*queue->chain));
    queue->pieces = calloc((size_t)VERBS_QUEUE_CHAIN * pieces, sizeof(*queue->pieces));
    queue->receive_chain = calloc(VERBS_QUEUE_CHAIN, sizeof(*queue->receive_chain));
    queue->receive_pieces =
        calloc((size_t)VERBS_QUEUE_CHAIN * receive_pieces, sizeof(*queue->receive_pieces));
    if (!queue->chain || !queue->pieces || !queue->receive_chain || !queue->receive_pieces) {
        return false;
    }
    for (uint32_t i = 0; i < VERBS_QUEUE_CHAIN; i++) {
        bool last = i + 1 == VERBS_QUEUE_CHAIN;
        queue->chain[i].sg_list = &queue->pieces[i * pieces];
        queue->chain[i].next = last ? NULL : &queue->chain[i + 1];
        queue->receive_chain[i].sg_list = &queue->receive_pieces[i * receive_pieces];
        queue->receive_chain[i].next = last ? NULL : &queue->receive_chain[i + 1];
    }
    return true;
}

/* All receives of an SRQ are free, in a list. */
static void link_receives(struct nic_queue *base)
{
    for (uint32_t i = 0; i <= base->receives.mask; i++) {
        base->receives.entries[i].position = i < base->receives.mask ? i + 1 : NIC_QUEUE_NO_ENTRY;
    }
}

static int create_srq(struct verbs_nic *nic, struct nic_domain *domain,
                      const struct nic_queue_options *options, struct verbs_queue *queue)
{
    struct ibv_srq_init_attr attributes = {
        .attr = {.max_wr = queue->base.receives.mask + 1, .max_sge = options->receive_pieces}};
    queue->srq = ibv_create_srq(device_pd(&nic->device, domain), &attributes);
    if (!queue->srq) {
        return errno;
    }
    link_receives(&queue->base);
    return 0;
}

static int create_qp(struct verbs_nic *nic, struct nic_domain *domain,
                     const struct nic_queue_options *options, struct verbs_queue *queue)
{
    struct nic_queue *base = &queue->base;
    struct ibv_qp_init_attr attributes = {
        /* Both are demanded, also of a queue pair that has only one of them. */
        .send_cq = queue->send_source ? queue->send_source->source.cq : nic->send.cq,
        .recv_cq = queue->receive_source ? queue->receive_source->source.cq : nic->receive.cq,
        .srq = options->receive_queue ? to_verbs_queue(options->receive_queue)->srq : NULL,
        .cap = {.max_send_wr = options->sends ? base->sends.mask + 1 : 0,
                .max_send_sge = options->sends ? options->send_pieces : 0,
                .max_inline_data = options->sends ? options->inline_bytes : 0,
                .max_recv_wr = options->receives ? base->receives.mask + 1 : 0,
                .max_recv_sge = options->receives ? options->receive_pieces : 0},
        .qp_type = IBV_QPT_RC,
    };
    queue->device.qp = ibv_create_qp(device_pd(&nic->device, domain), &attributes);
    return queue->device.qp ? 0 : errno;
}

static int make_rings(struct verbs_nic *nic, struct nic_domain *domain,
                      const struct nic_queue_options *options, struct verbs_queue *queue)
{
    struct nic_queue *base = &queue->base;
    bool srq = options->kind == NIC_QUEUE_SRQ;
    uint32_t sends = options->sends ? power_of_two(options->sends) : 0;
    uint32_t receives = options->receives ? power_of_two(options->receives) : 0;
    int os_error = nic_queue_make_tables(base, sends, receives) && make_chains(queue) ? 0 : ENOMEM;
    base->receives_max = receives;
    if (os_error == 0 && sends > 0) {
        os_error =
            take_places(nic, (enum nic_queue_table)options->table, sends, &queue->send_source);
    }
    if (os_error == 0 && receives > 0) {
        os_error = take_places(nic, srq ? NIC_TABLE_SHARED : NIC_TABLE_RECEIVES, receives,
                               &queue->receive_source);
    } else if (os_error == 0 && base->receiver) {
        queue->receive_source = to_verbs_queue(base->receiver)->receive_source;
    }
    if (os_error == 0) {
        os_error =
            srq ? create_srq(nic, domain, options, queue) : create_qp(nic, domain, options, queue);
    }
    return os_error;
}

/* What the device has of a queue, and its places in completion queues. */
static void dismantle(struct verbs_nic *nic, struct verbs_queue *queue)
{
    struct nic_queue *base = &queue->base;
    if (queue->device.qp) {
        ibv_destroy_qp(queue->device.qp);
    }
    if (queue->srq) {
        ibv_destroy_srq(queue->srq);
    }
    nic_queue_end_results(base);
    give_places(nic, (enum nic_queue_table)base->table, queue->send_source, base->sends.mask + 1);
    if (base->receives.entries) {
        give_places(nic, base->kind == NIC_QUEUE_SRQ ? NIC_TABLE_SHARED : NIC_TABLE_RECEIVES,
                    queue->receive_source, base->receives.mask + 1);
    }
    free(queue->chain);
    free(queue->pieces);
    free(queue->receive_chain);
    free(queue->receive_pieces);
}

static int32_t make(struct verbs_nic *nic, struct nic_domain *domain,
                    const struct nic_queue_options *options, struct verbs_queue *queue,
                    crpc_error *error)
{
    int os_error = make_rings(nic, domain, options, queue);
    if (os_error) {
        return device_blame(error, os_error, 0, nic->device.base.device, "create a queue");
    }
    int32_t status = nic_queue_make_results(&queue->base, domain, error);
    if (status != CRPC_OK || options->kind == NIC_QUEUE_SRQ) {
        return status;
    }
    os_error = device_queue_init(&nic->device, &queue->device, &queue->base, queue->device.qp);
    if (os_error) {
        return device_blame(error, os_error, 0, nic->device.base.device, "create a queue");
    }
    queue->base.pair = &queue->device.base;
    return CRPC_OK;
}

static int32_t queue_create(struct nic *nic, struct nic_domain *domain,
                            const struct nic_queue_options *options, struct nic_queue **result,
                            crpc_error *error)
{
    struct verbs_queue *queue = calloc(1, sizeof(*queue));
    if (!queue) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue");
    }
    nic_queue_init(&queue->base, nic, options);
    int32_t status = make(to_verbs_nic(nic), domain, options, queue, error);
    if (status != CRPC_OK) {
        dismantle(to_verbs_nic(nic), queue);
        nic_queue_leave(&queue->base);
        nic_queue_release(&queue->base);
        free(queue);
        return status;
    }
    *result = &queue->base;
    return CRPC_OK;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void queue_flush(struct nic_queue *base)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    assert(base->pair && !base->stopped);
    base->failed = true;
    ibv_modify_qp(device_qp(base->pair), &attributes, IBV_QP_STATE);
    verbs_queue_ring(
        base); /* what was posted but not rung is promised a flush like everything else */
}

static void receive_dropped(void *argument, const struct ibv_wc *entry)
{
    nic_queue_end_receive(argument, (uint32_t)entry->wr_id);
}

/* Receives of an SRQ complete all the same. */
static void drop_completions(struct verbs_queue *queue)
{
    struct nic_queue *receiver = queue->base.receiver;
    uint32_t number = queue->device.base.number;
    if (queue->send_source) {
        verbs_source_drop(&queue->send_source->source, number, NULL, NULL);
    }
    if (receiver) {
        bool shared = receiver != &queue->base;
        verbs_source_drop(&queue->receive_source->source, number, shared ? receive_dropped : NULL,
                          receiver);
    }
}

/* As verbs_queue_pair_destroy: libraries may take the entries of a queue pair out of the CQ. */
static void queue_stop(struct nic_queue *base)
{
    struct verbs_queue *queue = to_verbs_queue(base);
    struct verbs_nic *nic = to_verbs_nic(base->nic);
    assert(!base->stopped && base->users == 0);
    queue->chained = 0;
    if (base->pair) {
        queue->receives_chained = 0;
        queue_flush(base);
        drop_completions(queue);
        device_queue_forget(&nic->device, base->pair);
        ibv_destroy_qp(queue->device.qp);
        queue->device.qp = NULL;
        drop_completions(queue);
    }
    base->stopped = true;
    nic_queue_leave(base);
    dismantle(nic, queue);
    base->pair = NULL;
    queue->srq = NULL;
}

static void queue_give_back(struct nic_queue *base, uint32_t index)
{
    struct verbs_queue *queue = to_verbs_queue(base);
    base->receives.entries[index].position = queue->receive_next;
    queue->receive_next = index;
}

static void queue_destroy(struct nic_queue *base)
{
    assert(base->stopped);
    nic_queue_release(base);
    free(to_verbs_queue(base));
}

const struct nic_queue_operations verbs_queue_operations = {
    .create = queue_create,
    .flush = queue_flush,
    .stop = queue_stop,
    .destroy = queue_destroy,
    .post = verbs_queue_post,
    .receive = verbs_queue_receive,
    .ring = verbs_queue_ring,
    .poll = verbs_queue_poll,
    .give_back = queue_give_back,
};
