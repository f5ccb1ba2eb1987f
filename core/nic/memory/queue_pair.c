/* queue_pair.c: making, connecting, ending and posting to queue pairs. */
#include "nic/memory/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PACKET_SEQUENCE_MASK 0xffffffu
#define MTU_CODE_4096 5u

/* ---- Making ---------------------------------------------------------------------------------- */

static void wqes_create(struct memory_queue_pair *queue_pair, uint32_t inline_bytes_max)
{
    uint32_t slots = 1;

    while (slots < queue_pair->base.depth) {
        slots *= 2;
    }
    queue_pair->wqe_mask = slots - 1;
    queue_pair->wqes = memory_allocate(slots, sizeof(*queue_pair->wqes));
    queue_pair->inline_stride = (uint32_t)align_up(inline_bytes_max, 16);
    if (inline_bytes_max > 0) {
        queue_pair->inline_bytes = memory_allocate(slots, queue_pair->inline_stride);
    }
}

static struct memory_queue_pair *begin(struct nic *base, void *owner, uint32_t depth)
{
    struct memory_nic *nic = memory_nic(base);
    struct memory_queue_pair *queue_pair = memory_allocate(1, sizeof(*queue_pair));

    queue_pair->nic = nic;
    queue_pair->fabric = nic->fabric;
    queue_pair->base.operations = base->operations;
    queue_pair->base.nic = base;
    queue_pair->base.owner = owner;
    queue_pair->base.depth = depth;
    queue_pair->arrivals_end = &queue_pair->arrivals;
    queue_pair->active_index = NOT_ACTIVE;
    return queue_pair;
}

/* From now on packets find it. */
static int32_t make(struct memory_queue_pair *queue_pair, struct nic_domain *domain,
                    uint32_t inline_bytes, crpc_error *error)
{
    struct memory_nic *nic = queue_pair->nic;
    struct memory_fabric *fabric = nic->fabric;
    uint32_t number;
    int32_t status;

    memory_require(!queue_pair->made, "queue pair %u is made twice", queue_pair->base.number);
    fabric->counters.made++;
    if (memory_planned_failure(fabric, MEMORY_FAIL_CREATE, &status, error)) {
        return status;
    }
    number = memory_number_take(fabric);
    if (number == 0) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0, "%s has no more than %u queue pairs",
                         nic->base.device, fabric->options.queue_pairs_max);
    }
    queue_pair->made = true;
    queue_pair->domain = memory_domain_use(&nic->base, domain);
    queue_pair->own = queue_pair->domain;
    queue_pair->base.number = number;
    queue_pair->identity =
        memory_identity(number, (uint32_t)random_next(&fabric->random) & PACKET_SEQUENCE_MASK);
    queue_pair->cut = nic->cut;
    if (nic->base.ece) {
        queue_pair->ece = (struct nic_ece){.vendor = NIC_ECE_VENDOR, .options = nic->ece};
    }
    memory_queue_pair_update(queue_pair);
    wqes_create(queue_pair, inline_bytes);
    queue_pair->next = nic->queue_pairs;
    nic->queue_pairs = queue_pair;
    fabric->by_number[number % NUMBER_SLOTS] = queue_pair;
    fabric->counters.queue_pairs++;
    return CRPC_OK;
}

int32_t memory_queue_pair_begin(struct nic *base, void *owner, uint32_t depth, uint32_t receives,
                                struct nic_queue_pair **begun, crpc_error *error)
{
    struct memory_nic *nic = memory_nic(base);
    const uint32_t own = base->receive_queue_max ? nic_receive_queue_depth(receives) : 0;
    struct memory_queue_pair *queue_pair;

    memory_require(depth >= base->send_depth && depth <= NIC_SEND_DEPTH_MAX,
                   "a send queue of %u, %s has %u", depth, base->device, base->send_depth);
    if (own > base->receive_depth - nic->receives_given || own > base->receive_queue_max) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "%s has no SRQ, and no room for a receive queue of %u", base->device, own);
    }
    queue_pair = begin(base, owner, depth);
    queue_pair->receive_depth = own;
    nic->receives_given += own;
    *begun = &queue_pair->base;
    return CRPC_OK;
}

int32_t memory_queue_pair_make(struct nic_queue_pair *base, struct nic_domain *domain,
                               crpc_error *error)
{
    return make(memory_queue_pair(base), domain, base->nic->inline_bytes_max, error);
}

int32_t memory_queue_pair_adopt(struct nic_queue_pair *base, crpc_error *error)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);
    struct memory_queue_pair *each;

    (void)error;
    memory_require(queue_pair->made && !queue_pair->adopted, "a queue pair is adopted that was %s",
                   queue_pair->made ? "before" : "not made");
    for (each = queue_pair->nic->unmade; each; each = each->next) {
        if (each->base.number == base->number) { /* nothing of it is taken for this one's */
            memory_completions_forget(each);
        }
    }
    queue_pair->adopted = true;
    queue_pair->receives = queue_pair->receives_posted = queue_pair->receive_depth;
    base->nic->receive_wqes += queue_pair->receive_depth;
    return CRPC_OK;
}

int32_t memory_queue_pair_of_queue(struct nic *base, struct nic_domain *domain, void *owner,
                                   uint32_t depth, uint32_t inline_bytes,
                                   struct nic_queue_pair **created, crpc_error *error)
{
    struct memory_queue_pair *queue_pair = begin(base, owner, depth);
    const int32_t status = make(queue_pair, domain, inline_bytes, error);

    if (status != CRPC_OK) {
        memory_queue_pair_destroy(&queue_pair->base);
        return status;
    }
    queue_pair->adopted = true;
    *created = &queue_pair->base;
    return CRPC_OK;
}

/* A queue pair like any other, which may only send while an initiator is lent to it. A peer is known by its access key, where
 * others have a sequence number. */
int32_t memory_queue_pair_create_dynamic(struct nic *base, struct nic_domain *domain, void *owner,
                                         uint64_t access_key, struct nic_queue_pair **created,
                                         crpc_error *error)
{
    const int32_t status = nic_queue_pair_create(base, domain, owner, 0, created, error);

    memory_require(base->initiators, "%s has no initiators", base->device);
    if (status == CRPC_OK) {
        struct memory_queue_pair *queue_pair = memory_queue_pair(*created);
        queue_pair->own = NULL;
        queue_pair->identity =
            memory_identity((*created)->number, (uint32_t)access_key & PACKET_SEQUENCE_MASK);
        (*created)->operations = &nic_memory_dynamic_operations;
        nic_dynamic_init(&queue_pair->dynamic, *created);
        memory_queue_pair_update(queue_pair);
    }
    return status;
}

bool memory_take_room(struct nic_queue_pair *base)
{
    return !base->failed &&
           nic_initiators_take(base->nic->initiators, &memory_queue_pair(base)->dynamic);
}

/* What it has posted is flushed, if at all, without an initiator. */
static void leave_initiators(struct memory_queue_pair *queue_pair)
{
    struct nic_initiators *initiators = queue_pair->base.nic->initiators;
    struct nic_initiator *left;

    if (queue_pair->dynamic.pair &&
        (left = nic_initiators_leave(initiators, &queue_pair->dynamic)) != NULL) {
        left->failed = false;
        nic_initiators_rest(initiators, left);
    }
}

static void list_out(struct memory_queue_pair **link, struct memory_queue_pair *queue_pair)
{
    while (*link != queue_pair) {
        link = &(*link)->next;
    }
    *link = queue_pair->next;
}

static void require_failed(const struct memory_queue_pair *queue_pair, const char *what)
{
    memory_require(!queue_pair->adopted || queue_pair->base.failed,
                   "queue pair %u is to %s, and has not failed", queue_pair->base.number, what);
}

void memory_queue_pair_settle(struct nic_queue_pair *base)
{
    require_failed(memory_queue_pair(base), "settle");
}

void memory_queue_pair_drop(struct nic_queue_pair *base)
{
    require_failed(memory_queue_pair(base), "drop its completions");
    if (memory_queue_pair(base)->adopted) {
        memory_completions_forget(memory_queue_pair(base));
    }
}

/* What has completed stays. */
static void unmake(struct memory_queue_pair *queue_pair)
{
    const uint32_t number = queue_pair->base.number;
    struct memory_fabric *fabric = queue_pair->fabric;

    memory_require(memory_windows_bound(queue_pair) == 0,
                   "queue pair %u is destroyed, and %u windows are bound to it", number,
                   memory_windows_bound(queue_pair));
    fabric->counters.unmade++;
    leave_initiators(queue_pair);
    memory_active_remove(queue_pair);
    for (uint32_t i = 0; i <= queue_pair->wqe_mask; i++) {
        memory_payload_free(&queue_pair->wqes[i]);
    }
    list_out(&queue_pair->nic->queue_pairs, queue_pair);
    queue_pair->next = queue_pair->nic->unmade;
    queue_pair->nic->unmade = queue_pair;
    queue_pair->unmade = true;
    fabric->by_number[number % NUMBER_SLOTS] = NULL;
    memory_number_give_back(fabric, number);
    fabric->counters.queue_pairs--;
    memory_domain_leave(queue_pair->domain);
}

void memory_queue_pair_unmake(struct nic_queue_pair *base)
{
    require_failed(memory_queue_pair(base), "be unmade");
    if (memory_queue_pair(base)->made) {
        unmake(memory_queue_pair(base));
    }
}

void memory_queue_pair_destroy(struct nic_queue_pair *base)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);
    struct memory_nic *nic = queue_pair->nic;

    nic->receives_given -= queue_pair->receive_depth;
    if (queue_pair->made) {
        memory_completions_forget(queue_pair);
    }
    if (queue_pair->made && !queue_pair->unmade) {
        unmake(queue_pair);
    }
    if (queue_pair->made) {
        list_out(&nic->unmade, queue_pair);
    }
    free(queue_pair->wqes);
    free(queue_pair->inline_bytes);
    free(queue_pair->pieces);
    free(queue_pair);
}

void memory_queue_pair_address(const struct nic_queue_pair *queue_pair, struct nic_address *address)
{
    const struct memory_queue_pair *this =
        container_of(queue_pair, const struct memory_queue_pair, base);

    *address = (struct nic_address){
        .queue_pair_number = queue_pair->number,
        .packet_sequence_number = (uint32_t)this->identity,
        .link = (uint8_t)queue_pair->nic->link,
        .mtu_code = MTU_CODE_4096,
        .grh_required = queue_pair->nic->grh_required,
        .ece = this->ece,
    };
    memcpy(address->gid, queue_pair->nic->gid, sizeof(address->gid));
}

/* ---- Connecting and ending ------------------------------------------------------------------- */

void memory_queue_pair_update(struct memory_queue_pair *queue_pair)
{
    queue_pair->severed = queue_pair->cut || queue_pair->nic->link_down;
    queue_pair->open = (queue_pair->connected || queue_pair->dynamic.pair) && !queue_pair->dead &&
                       !queue_pair->severed;
}

/* Where the next WQE has its payload. */
static void find_place(struct memory_queue_pair *queue_pair)
{
    const uint32_t slot = queue_pair->base.posted & queue_pair->wqe_mask;
    const bool has = queue_pair->inline_bytes && queue_pair->inline_stride >= NIC_PLACE_BYTES &&
                     !queue_pair->dynamic.pair;

    queue_pair->base.place =
        has ? queue_pair->inline_bytes + (size_t)slot * queue_pair->inline_stride : NULL;
}

/* The last two bytes of a GID are the device's number and 1. */
static uint32_t device_of(const uint8_t gid[16])
{
    return ((uint32_t)gid[14] << 8 | gid[15]) - 1;
}

int32_t memory_queue_pair_connect(struct nic_queue_pair *base, const struct nic_address *peer,
                                  const struct nic_transport *transport, crpc_error *error)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);
    int32_t status;

    memory_require(queue_pair->adopted, "queue pair %u is connected before it is adopted",
                   base->number);
    memory_require(transport->retry_timeout >= 1 && transport->retry_timeout <= 31 &&
                       transport->retry_count >= 1 && transport->retry_count <= 7,
                   "retry_timeout %u or retry_count %u is out of range", transport->retry_timeout,
                   transport->retry_count);
    if (memory_planned_failure(queue_pair->fabric, MEMORY_FAIL_CONNECT, &status, error)) {
        return status;
    }
    if (queue_pair->connected || queue_pair->dead) {
        return error_set(error, CRPC_E_STATE, 0, "queue pair %u is connected or failed already",
                         base->number);
    }
    memory_require(nic_address_valid(peer) && peer->link == base->nic->link,
                   "queue pair %u on link %u cannot be a peer", peer->queue_pair_number,
                   peer->link);
    memory_require(peer->grh_required || base->nic->grh_required ||
                       !memory_grh_required(queue_pair->fabric, device_of(peer->gid)),
                   "queue pair %u is at a port that requires a GRH, which nobody has told here",
                   peer->queue_pair_number);
    queue_pair->peer_identity = memory_identity(
        peer->queue_pair_number, queue_pair->dynamic.pair
                                     ? (uint32_t)transport->access_key & PACKET_SEQUENCE_MASK
                                     : peer->packet_sequence_number);
    base->peer_number = peer->queue_pair_number;
    queue_pair->ece.options = nic_ece_common(queue_pair->ece, peer->ece);
    queue_pair->connected = true;
    find_place(queue_pair);
    memory_queue_pair_update(queue_pair);
    return CRPC_OK;
}

void memory_queue_pair_fail(struct nic_queue_pair *base)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);

    base->failed = true;
    base->place = NULL;
    queue_pair->rung = base->posted; /* all that was posted is flushed, rung or not */
    memory_held_land(queue_pair, UINT64_MAX);
    leave_initiators(queue_pair);
    memory_die(queue_pair);
    memory_settle(queue_pair);
}

/* ---- Posting --------------------------------------------------------------------------------- */

/* The next WQE, all but its payload filled; NULL if the queue pair is dead and its owner knows. */
static struct memory_wqe *post(struct nic_queue_pair *base, enum memory_opcode opcode,
                               const struct nic_transfer *transfer, uint32_t flags)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);
    struct memory_wqe *wqe;

    if (unlikely(base->failed)) {
        return NULL;
    }
    memory_require(queue_pair->connected, "queue pair %u is not connected", base->number);
    memory_require(nic_send_room(base) > 0,
                   "send queue overrun: queue pair %u, depth %u, posted %u, completed %u",
                   base->number, base->depth, base->posted, base->completed);
    memory_require(opcode == MEMORY_BIND || transfer->bytes <= base->nic->message_bytes_max,
                   "a transfer of %u bytes, %s has messages of up to %u", transfer->bytes,
                   base->nic->device, base->nic->message_bytes_max);
    wqe = memory_wqe(queue_pair, base->posted);
    wqe->transfer = *transfer;
    wqe->payload = NULL;
    wqe->opcode = (uint8_t)opcode;
    wqe->status = NIC_ERROR_NONE;
    wqe->inlined = false;
    wqe->receiver_not_ready = false;
    wqe->pieces = NULL;
    wqe->fence = false;
    wqe->flags = opcode == MEMORY_WRITE_IMMEDIATE ? NIC_DONE_IMMEDIATE : 0;
    if (queue_pair->dynamic.pair) {
        nic_initiators_post(base->nic->initiators, &queue_pair->dynamic);
        flags |= NIC_POST_SIGNALED;
    }
    wqe->signaled = nic_post_count(base, flags);
    find_place(queue_pair);
    return wqe;
}

static inline void post_any_write(struct nic_queue_pair *base, enum memory_opcode opcode,
                                  const struct nic_transfer *transfer, uint32_t flags)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);
    struct memory_wqe *wqe = post(base, opcode, transfer, flags);

    if (!wqe || !queue_pair->inline_bytes ||
        transfer->bytes > queue_pair->nic->base.inline_bytes_max) {
        return;
    }
    wqe->inlined = true;
    wqe->payload =
        queue_pair->inline_bytes + (size_t)(wqe - queue_pair->wqes) * queue_pair->inline_stride;
    if (transfer->bytes > 0) {
        memcpy(wqe->payload, (const void *)(uintptr_t)transfer->local_address, transfer->bytes);
    }
    base->stats.inline_wqes++;
}

void memory_post_write_immediate(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                                 uint32_t flags)
{
    post_any_write(base, MEMORY_WRITE_IMMEDIATE, transfer, flags);
    if (flags & NIC_POST_RING) {
        memory_ring_doorbell(base);
    }
}

uint32_t memory_post_written(struct nic_queue_pair *base, uint64_t remote_address,
                             uint32_t remote_key, uint32_t bytes, uint32_t immediate)
{
    const struct nic_transfer transfer = {.remote_address = remote_address,
                                          .remote_key = remote_key,
                                          .bytes = bytes,
                                          .immediate = immediate};
    uint8_t *place = base->place;
    struct memory_wqe *wqe;

    memory_require(place && bytes > 0 && bytes <= NIC_PLACE_BYTES, "%u bytes written to %s place",
                   bytes, place ? "a" : "no");
    wqe = post(base, MEMORY_WRITE_IMMEDIATE, &transfer, 0);
    wqe->inlined = true;
    wqe->payload = place;
    base->stats.inline_wqes++;
    memory_ring_doorbell(base);
    return 1;
}

void memory_post_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                       uint32_t flags)
{
    post_any_write(base, MEMORY_WRITE, transfer, flags);
}

void memory_post_foreign_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                               uint32_t flags)
{
    post(base, flags & NIC_POST_IMMEDIATE ? MEMORY_WRITE_IMMEDIATE : MEMORY_WRITE, transfer, flags);
}

void memory_post_read(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                      uint32_t flags)
{
    post(base, MEMORY_READ, transfer, flags);
}

/* They are kept, unless they are copied here. */
static void take_pieces(struct memory_queue_pair *queue_pair, struct memory_wqe *wqe,
                        const struct nic_piece *pieces, uint32_t count, bool copied)
{
    const size_t place = (size_t)(wqe - queue_pair->wqes);
    struct nic_piece *kept;

    if (!queue_pair->pieces) {
        queue_pair->pieces =
            memory_allocate(queue_pair->wqe_mask + 1, NIC_PIECES_MAX * sizeof(*pieces));
    }
    kept = queue_pair->pieces + place * NIC_PIECES_MAX;
    memcpy(kept, pieces, count * sizeof(*pieces));
    wqe->pieces = kept;
    wqe->piece_count = count;
    if (copied) {
        wqe->inlined = true;
        wqe->payload = queue_pair->inline_bytes + place * queue_pair->inline_stride;
        memory_wqe_gather(wqe, wqe->payload);
        queue_pair->base.stats.inline_wqes++;
    }
}

void memory_post_pieces(struct nic_queue_pair *base, bool read, const struct nic_transfer *transfer,
                        const struct nic_piece *pieces, uint32_t count, uint32_t flags)
{
    const bool copied = flags & NIC_POST_INLINE, immediate = flags & NIC_POST_IMMEDIATE;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        bytes += pieces[i].bytes;
    }
    memory_require(
        count > 0 && count <= base->nic->pieces_max && bytes == transfer->bytes &&
            !(read && (copied || immediate)) && (!copied || bytes <= base->nic->inline_bytes_max),
        "%u pieces of %" PRIu64 " bytes for a transfer of %u", count, bytes, transfer->bytes);
    const enum memory_opcode opcode = read        ? MEMORY_READ
                                      : immediate ? MEMORY_WRITE_IMMEDIATE
                                                  : MEMORY_WRITE;
    struct memory_wqe *wqe = post(base, opcode, transfer, flags);
    if (wqe) {
        take_pieces(memory_queue_pair(base), wqe, pieces, count, copied);
    }
}

void memory_post_atomic(struct nic_queue_pair *base, const struct nic_atomic *atomic,
                        uint32_t flags)
{
    const struct nic_transfer transfer = {.local_address = atomic->local_address,
                                          .remote_address = atomic->remote_address,
                                          .bytes = sizeof(atomic->operand),
                                          .local_key = atomic->local_key,
                                          .remote_key = atomic->remote_key};
    struct memory_wqe *wqe =
        post(base, atomic->swap ? MEMORY_COMPARE_SWAP : MEMORY_FETCH_ADD, &transfer, flags);

    memory_require(base->nic->atomics && atomic->remote_address % sizeof(atomic->operand) == 0,
                   "an atomic at 0x%" PRIx64, atomic->remote_address);
    if (wqe) {
        wqe->compare = atomic->compare;
        wqe->operand = atomic->operand;
    }
}

void memory_fence_last(struct nic_queue_pair *base)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);

    if (!base->failed) {
        memory_require(queue_pair->rung != base->posted, "the doorbell was rung before the fence");
        memory_wqe(queue_pair, base->posted - 1)->fence = true;
    }
}

void memory_post_bind(struct nic_queue_pair *base, struct nic_window *window,
                      const struct nic_keys *memory, uint64_t address, uint32_t bytes,
                      uint32_t flags)
{
    const uint32_t key = window->remote_key;
    const struct nic_transfer transfer = {.local_address = address,
                                          .remote_address = window->access,
                                          .bytes = bytes,
                                          .local_key = memory->local_key,
                                          .remote_key = nic_window_next_key(key),
                                          .immediate = key};

    memory_require(window->driver && bytes > 0 && window->access != 0,
                   "%u bytes for window 0x%x with rights 0x%x", bytes, key, window->access);
    if (post(base, MEMORY_BIND, &transfer, flags)) {
        window->remote_key = transfer.remote_key;
    }
}

void memory_post_invalidate(struct nic_queue_pair *base, struct nic_window *window, uint32_t flags)
{
    const struct nic_transfer transfer = {.remote_key = window->remote_key};

    memory_require(window->driver, "no window is to be invalidated");
    post(base, MEMORY_INVALIDATE, &transfer, flags);
}

void memory_ring_doorbell(struct nic_queue_pair *base)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);
    const uint32_t before = queue_pair->rung;

    if (before == base->posted) {
        return;
    }
    queue_pair->rung = base->posted;
    if (unlikely(queue_pair->fabric->options.clock_ns)) {
        memory_timed_ring(queue_pair, before);
    }
    base->stats.doorbells++;
    memory_settle(queue_pair);
}
