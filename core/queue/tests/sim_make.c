/* sim_make.c: see sim.h. */
#include "sim.h"

#include <string.h>

struct sim_engine *sim_any_engine(struct sim *sim)
{
    return &sim->engines[below(sim, sim->engine_count)];
}

struct sim_queue *sim_any_queue(struct sim *sim)
{
    for (uint32_t tries = 0; tries < 12 && sim->queue_count > 0; tries++) {
        struct sim_queue *one = &sim->queues[below(sim, sim->queue_count)];
        if (one->queue) {
            return one;
        }
    }
    return NULL;
}

/* ---- Making and connecting ------------------------------------------------------------------- */

struct sim_queue *sim_new_queue(struct sim *sim, struct sim_engine *engine)
{
    if (sim->queue_count == SIM_QUEUES_MAX) {
        return NULL;
    }
    struct sim_queue *one = &sim->queues[sim->queue_count++];
    *one = (struct sim_queue){.engine = engine};
    return one;
}

struct sim_queue *sim_any_srq(struct sim *sim, const struct sim_engine *engine)
{
    for (uint32_t tries = 0; tries < 8; tries++) {
        struct sim_queue *one = sim_any_queue(sim);
        if (one && one->is_srq && one->engine == engine && !one->disconnected) {
            return one;
        }
    }
    return NULL;
}

static struct queue_options choose_options(struct sim *sim, struct sim_queue *one)
{
    const uint32_t number = index_of(sim, one);
    struct queue_options options = {
        .kind = NIC_QUEUE_RC,
        .user_data = number,
        .sends = chance(sim, 5) ? 0 : 1u + below(sim, 32),
        .send_pieces = 3,
        .inline_bytes = sizeof(struct sim_message),
        .receives = chance(sim, 5) ? 0 : 1u + below(sim, 24),
        .receive_pieces = 2,
        .connect_timeout_ns = chance(sim, 80) ? 50000000 : 2000000,
        .retry_timeout = 14,
        .retry_count = 7,
        .private_bytes = 4 + below(sim, 50),
    };
    memcpy(options.private_data, &number, sizeof(number));
    one->sparse = chance(sim, 40);
    options.flags = one->sparse ? QUEUE_SPARSE : 0;
    if (chance(sim, sim->much_tags ? 85 : 40)) {
        one->srq = sim_any_srq(sim, one->engine);
    }
    if (one->srq) {
        options.receive_queue = one->srq->queue;
        options.receives = 0;
    }
    if (one->srq && one->srq->is_tags && options.sends == 0) {
        options.sends = 1; /* what names a TM-SRQ sends */
    }
    return options;
}

void sim_expect_made(struct sim *sim, struct sim_queue *one, int32_t status)
{
    bool full = queue_engine_queues(one->engine->engine) == one->engine->engine->queues_max;
    if (status == CRPC_OK) {
        one->made = true;
        return;
    }
    if (status != CRPC_E_NO_DEVICE ? !(full && status == CRPC_E_NO_RESOURCE) : !one->engine->lost) {
        simulation_fail(&sim->base, "queue %u is not made: %d", index_of(sim, one), status);
    }
    one->closed = true;
    one->srq = NULL;
}

static void take_link(struct sim_queue *one, struct link *link)
{
    one->queue = queue_of_link(link);
    one->handle = link->handle;
}

static void open_srq(struct sim *sim)
{
    struct sim_queue *one = sim_new_queue(sim, sim_any_engine(sim));
    if (!one) {
        return;
    }
    one->is_tags = !sim->much_dc && chance(sim, sim->much_tags ? 90 : 40);
    const struct queue_options options = {.kind = one->is_tags ? NIC_QUEUE_TM_SRQ : NIC_QUEUE_SRQ,
                                          .user_data = index_of(sim, one),
                                          .receives = 1u + below(sim, 32),
                                          .receive_pieces = 2,
                                          .tags = one->is_tags ? 1u + below(sim, 12) : 0};
    crpc_error error = {0};
    sim_expect_made(sim, one, queue_open(one->engine->engine, &options, &one->queue, &error));
    one->is_srq = true;
    if (one->made) {
        one->handle = one->queue->link.handle;
    }
}

static void open_datagrams(struct sim *sim)
{
    struct sim_queue *one = sim_new_queue(sim, sim_any_engine(sim));
    if (one) {
        struct queue_options options = choose_options(sim, one);
        if (one->srq && one->srq->is_tags) {
            options.receive_queue = NULL;
            one->srq = NULL;
        }
        sim_open_datagrams(sim, one, &options);
    }
}

static void open_dc(struct sim *sim)
{
    struct sim_engine *engine = sim_any_engine(sim);
    struct sim_queue *srq = chance(sim, 60) ? sim_any_srq(sim, engine) : NULL;
    struct sim_queue *one = sim_new_queue(sim, engine);
    if (!one) {
        return;
    }
    if (srq && !srq->is_tags) {
        one->srq = srq;
        sim_open_dct(sim, one);
    } else {
        const struct queue_options options = choose_options(sim, one);
        sim_open_dci(sim, one, &options);
    }
}

static void make_blob(struct sim *sim, struct sim_queue *one, uint8_t *blob)
{
    struct link *link;
    crpc_error error = {0};
    const struct queue_options options = choose_options(sim, one);
    sim_expect_made(sim, one,
                    link_blob(queue_links(one->engine->engine), &options, &link, blob, &error));
    if (one->made) {
        take_link(one, link);
    }
}

static void join(struct sim *sim, struct sim_queue *one, const uint8_t *blob)
{
    crpc_error error = {0};
    struct queue_info info;
    int32_t status;
    if (chance(sim, 30)) {
        queue_get_info(one->peer->queue, &info);
        status = queue_join_address(one->queue, &info.address, &error);
    } else {
        status = link_join(&one->queue->link, blob, LINK_BLOB_BYTES, &error);
    }
    if (status != CRPC_OK && !one->engine->lost) {
        simulation_fail(&sim->base, "queue %u does not join: %s", index_of(sim, one),
                        error.message);
    }
}

static void join_pair(struct sim *sim)
{
    uint8_t blobs[2][LINK_BLOB_BYTES];
    struct sim_queue *pair[2];
    if (sim->queue_count + 2 > SIM_QUEUES_MAX) {
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        pair[i] = sim_new_queue(sim, sim_any_engine(sim));
        make_blob(sim, pair[i], blobs[i]);
    }
    pair[0]->peer = pair[1];
    pair[1]->peer = pair[0];
    for (uint32_t i = 0; i < 2; i++) {
        if (pair[0]->made && pair[1]->made && !chance(sim, 3)) { /* or it stays new */
            join(sim, pair[i], blobs[!i]);
        }
    }
}

static void connect(struct sim *sim)
{
    struct link *link;
    crpc_error error = {0};
    struct sim_queue *one = sim_new_queue(sim, sim_any_engine(sim));
    if (!one) {
        return;
    }
    const char *address = chance(sim, 95) ? sim_any_engine(sim)->address : "nobody";
    const struct queue_options options = choose_options(sim, one);
    one->by_rdma_cm = true;
    sim_expect_made(
        sim, one, link_connect(queue_links(one->engine->engine), address, &options, &link, &error));
    if (one->made) {
        take_link(one, link);
    }
}

/* A request whose asker has given up can only be rejected or closed. */
void sim_answer(struct sim *sim, struct sim_queue *one)
{
    crpc_error error = {0};
    if (chance(sim, 10)) {
        int32_t status = queue_reject(one->queue, "no", 2);
        if (status != CRPC_OK && one->queue->link.state != CRPC_STATE_DISCONNECTED) {
            simulation_fail(&sim->base, "a request is not rejected: %d", status);
        }
        if (status == CRPC_OK) {
            one->queue = NULL;
            one->closed = true;
        }
        return;
    }
    const struct queue_options options = choose_options(sim, one);
    if (link_accept(&one->queue->link, &options, &error) == CRPC_OK) {
        one->asked = false;
        one->made = true;
    } else {
        one->srq = NULL;
    }
}

void sim_make_something(struct sim *sim)
{
    static const uint8_t of_dc[] = {0, 0, 4, 4, 4, 4, 4, 6}; /* the usual: each once */
    uint32_t what = below(sim, 8);
    static const uint8_t of_tags[] = {0, 0, 1, 1, 2, 2, 6, 7};
    switch (sim->much_dc ? of_dc[what] : sim->much_tags ? of_tags[what] : what) {
    case 0:
        open_srq(sim);
        break;
    case 1:
    case 2:
        join_pair(sim);
        break;
    case 3:
        open_datagrams(sim);
        break;
    case 4:
    case 5:
        open_dc(sim);
        break;
    default:
        connect(sim);
    }
}
