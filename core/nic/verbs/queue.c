/* queue.c: making and ending queues with user data (nic/queue.h), and their completion queues. */
#include <errno.h>
#include <stdlib.h>

#include "base/lines.h"
#include "nic/tags.h"
#include "nic/verbs/verbs.h"

/* ---- Completion queues ----------------------------------------------------------------------- */

static struct device_source *make_source(struct device_nic *nic, uint32_t entries)
{
    struct verbs_queue_source *one = lines_alloc(1, sizeof(*one));
    if (!one) {
        return NULL;
    }
    if (!verbs_source_open(&one->source, to_verbs_nic(&nic->base), entries - 1)) {
        int os_error = errno;
        verbs_source_close(&one->source);
        free(one);
        errno = os_error;
        return NULL;
    }
    one->device.places_left = one->source.depth;
    return &one->device;
}

static void end_source(struct device_source *source)
{
    if (source->tags) {
        verbs_tags_end_source(source);
        return;
    }
    verbs_source_close(to_verbs_source(source));
    free(container_of(source, struct verbs_queue_source, device));
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* The rings are as long as the tables: powers of two. */
static uint32_t sends_max(const struct device_nic *nic, const struct nic_queue_options *options)
{
    uint32_t most = NIC_QUEUE_DEPTH_MAX;
    const uint32_t each = options->streams > 0 ? 2 : 1; /* verbs_dc_wqes */
    /* A library that has less room for long ops says so itself. */
    while (most * each > nic->send_wqes_max) {
        most /= 2;
    }
    return most;
}

static bool make_chains(struct verbs_queue *queue)
{
    uint32_t pieces = queue->device.base.send_pieces > 0 ? queue->device.base.send_pieces : 1;
    uint32_t receive_pieces =
        queue->device.base.receive_pieces > 0 ? queue->device.base.receive_pieces : 1;
    queue->chain = lines_alloc(VERBS_QUEUE_CHAIN, sizeof(*queue->chain));
    queue->pieces = lines_alloc((size_t)VERBS_QUEUE_CHAIN * pieces, sizeof(*queue->pieces));
    queue->receive_chain = lines_alloc(VERBS_QUEUE_CHAIN, sizeof(*queue->receive_chain));
    queue->receive_pieces =
        lines_alloc((size_t)VERBS_QUEUE_CHAIN * receive_pieces, sizeof(*queue->receive_pieces));
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

static int create_srq(struct device_queue *queue, struct nic_domain *domain,
                      const struct nic_queue_options *options)
{
    struct device_nic *nic = to_device_nic(queue->base.nic);
    struct ibv_srq_init_attr attributes = {
        .attr = {.max_wr = queue->base.receives.mask + 1, .max_sge = options->receive_pieces}};
    int os_error =
        device_queue_keep_srq(queue, ibv_create_srq(device_pd(nic, domain), &attributes));
    if (os_error) {
        return os_error;
    }
    link_receives(&queue->base);
    return 0;
}

static int create_qp(struct device_queue *queue, struct nic_domain *domain,
                     const struct nic_queue_options *options)
{
    struct nic_queue *base = &queue->base;
    struct verbs_nic *nic = to_verbs_nic(base->nic);
    struct ibv_qp_init_attr_ex attributes = {
        /* Both are demanded, also of a queue pair that has only one of them. */
        .send_cq = queue->send_source ? to_verbs_source(queue->send_source)->cq : nic->send.cq,
        .recv_cq =
            queue->receive_source ? to_verbs_source(queue->receive_source)->cq : nic->receive.cq,
        .srq = options->receive_queue ? to_device_queue(options->receive_queue)->srq : NULL,
        .cap = {.max_send_wr = options->sends ? base->sends.mask + 1 : 0,
                .max_send_sge = options->sends ? options->send_pieces : 0,
                .max_inline_data = options->sends ? options->inline_bytes : 0,
                .max_recv_wr = options->receives ? base->receives.mask + 1 : 0,
                .max_recv_sge = options->receives ? options->receive_pieces : 0},
        .qp_type = options->kind == NIC_QUEUE_UD ? IBV_QPT_UD : IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD,
        .pd = device_pd(&nic->device, domain),
    };
    if (base->kind == NIC_QUEUE_DCI || base->kind == NIC_QUEUE_DCT) {
        attributes.cap.max_send_wr = options->sends ? verbs_dc_wqes(base) : 0;
        return verbs_dc_create(queue, &attributes, options);
    }
    queue->pair.qp = device_queue_qp_create(&nic->device, &attributes);
    return queue->pair.qp ? 0 : errno;
}

static int make_rings(struct device_queue *queue, struct nic_domain *domain,
                      const struct nic_queue_options *options)
{
    struct nic_queue *base = &queue->base;
    const bool tags = options->kind == NIC_QUEUE_TM_SRQ;
    uint32_t sends = options->sends ? power_of_two_at_least(options->sends) : 0;
    uint32_t commands = tags ? nic_tags_commands(options->tags) : 0;
    uint32_t receives = options->receives ? power_of_two_at_least(options->receives) : 0;
    base->receives_max = receives;
    if (!nic_queue_make_tables(base, sends + commands, receives) ||
        !make_chains(to_verbs_queue(base)) || (tags && !nic_tags_make(base, options->tags))) {
        return ENOMEM;
    }
    int os_error = device_queue_take_places(
        queue, sends, tags ? receives + nic_tags_completions(options->tags, commands) : receives);
    if (os_error) {
        return os_error;
    }
    if (tags) {
        link_receives(base);
        return verbs_tags_create_srq(queue, domain, options);
    }
    if ((options->kind == NIC_QUEUE_UD || options->kind == NIC_QUEUE_DCI) &&
        options->table == NIC_TABLE_SPARSE) {
        base->interval = 1; /* there is no NOP that would say so of the last ones */
    }
    return options->kind == NIC_QUEUE_SRQ ? create_srq(queue, domain, options)
                                          : create_qp(queue, domain, options);
}

static void dismantle(struct device_queue *base)
{
    struct verbs_queue *queue = to_verbs_queue(&base->base);
    if (base->pair.qp) {
        ibv_destroy_qp(base->pair.qp);
    }
    free(queue->ways);
    free(queue->chain);
    free(queue->pieces);
    free(queue->receive_chain);
    free(queue->receive_pieces);
}

static int32_t queue_create(struct nic *nic, struct nic_domain *domain,
                            const struct nic_queue_options *options, struct nic_queue **result,
                            crpc_error *error)
{
    static const struct device_queue_driver driver = {.queue_bytes = sizeof(struct verbs_queue),
                                                      .sends_max = sends_max,
                                                      .make_rings = make_rings,
                                                      .dismantle = dismantle,
                                                      .make_source = make_source,
                                                      .make_tag_source = verbs_tags_make_source,
                                                      .end_source = end_source};
    return device_queue_create(&driver, nic, domain, options, result, error);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void receive_dropped(void *argument, const struct ibv_wc *entry)
{
    nic_queue_end_receive(argument, (uint32_t)entry->wr_id);
}

/* Receives of an SRQ complete all the same. */
static void drop_completions(struct device_queue *queue)
{
    struct nic_queue *receiver = queue->base.receiver;
    uint32_t number = queue->pair.base.number;
    if (queue->send_source) {
        verbs_source_drop(to_verbs_source(queue->send_source), number, NULL, NULL);
    }
    if (receiver && receiver->tags) {
        verbs_tags_drop(to_verbs_tag_source(queue->receive_source), &queue->base, number);
    } else if (receiver) {
        bool shared = receiver != &queue->base;
        verbs_source_drop(to_verbs_source(queue->receive_source), number,
                          shared ? receive_dropped : NULL, receiver);
    }
}

/* As verbs_queue_pair_destroy: libraries may take the entries of a queue pair out of the CQ. */
static void queue_stop(struct nic_queue *base)
{
    struct device_queue *queue = to_device_queue(base);
    assert(!base->stopped && base->users == 0);
    to_verbs_queue(base)->chained = 0;
    if (base->pair) {
        to_verbs_queue(base)->receives_chained = 0;
        if (base->kind != NIC_QUEUE_DCT) { /* which has no such state */
            device_queue_flush(base);
            device_await_last_wqe(to_device_nic(base->nic), &queue->pair);
            device_note_last_wqe(&queue->pair);
        }
        drop_completions(queue);
        device_queue_forget(to_device_nic(base->nic), base->pair);
        ibv_destroy_qp(queue->pair.qp);
        queue->pair.qp = NULL;
        drop_completions(queue);
        if (base->receiver && base->receiver->tags) {
            nic_tags_leave(base->receiver, queue->pair.base.number);
        }
    }
    device_queue_end(queue);
}

static void queue_give_back(struct nic_queue *base, uint32_t index)
{
    struct verbs_queue *queue = to_verbs_queue(base);
    base->receives.entries[index].position = queue->receive_next;
    queue->receive_next = index;
}

/* ---- Targets --------------------------------------------------------------------------------- */

static int32_t target_create(struct nic *nic, struct nic_domain *domain,
                             const struct nic_target_options *options, struct nic_target **result,
                             crpc_error *error)
{
    return device_target_create(sizeof(struct device_target), nic, domain, options, result, error);
}

const struct nic_queue_operations verbs_queue_operations = {
    .create = queue_create,
    .reset_stream = device_queue_reset_stream,
    .modify = device_queue_modify,
    .flush = device_queue_flush,
    .stop = queue_stop,
    .destroy = device_queue_destroy,
    .target_create = target_create,
    .target_destroy = device_target_destroy,
    .post = verbs_queue_post,
    .post_to = verbs_queue_post_to,
    .receive = verbs_queue_receive,
    .tag = verbs_queue_tag,
    .ring = verbs_queue_ring,
    .poll = verbs_queue_poll,
    .give_back = queue_give_back,
};
