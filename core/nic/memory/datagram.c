/* datagram.c: queues for datagrams, and the targets that their ops name (nic/queue.h).
 *
 * A datagram lands whole, in the step that sends it, or is lost: if nobody is at its address, if the key is
 * wrong, if there is no receive, and as often as the options say. A receive that is too short, or that names
 * memory which may not be used, kills its own queue pair. */
#include "nic/memory/datagram.h"

#include <stdlib.h>
#include <string.h>

/* ---- Targets --------------------------------------------------------------------------------- */

int32_t memory_target_create(struct nic *base, struct nic_domain *domain,
                             const struct nic_target_options *options, struct nic_target **created,
                             crpc_error *error)
{
    struct memory_nic *nic = memory_nic(base);
    struct memory_target *target;
    int32_t status = nic_queue_check_kind(base, options->kind, error);

    if (status != CRPC_OK ||
        memory_planned_failure(nic->fabric, MEMORY_FAIL_TARGET, &status, error)) {
        return status;
    }
    target = memory_allocate(1, sizeof(*target));
    nic_target_init(&target->base, base, options);
    memcpy(target->gid, options->address.gid, sizeof(target->gid));
    target->domain = memory_domain_use(base, domain);
    target->next = nic->targets;
    nic->targets = target;
    nic->fabric->counters.targets++;
    *created = &target->base;
    return CRPC_OK;
}

void memory_target_free(struct memory_nic *nic, struct memory_target *target)
{
    struct memory_target **link = &nic->targets;

    while (*link != target) {
        link = &(*link)->next;
    }
    *link = target->next;
    nic->fabric->counters.targets--;
    memory_domain_leave(target->domain);
    free(target);
}

void memory_target_destroy(struct nic_target *base)
{
    struct memory_target *target = memory_target(base);

    memory_require(target->open == 0, "the target of %u open ops is destroyed", target->open);
    memory_target_free(memory_nic(base->nic), target);
}

void memory_target_name(struct memory_wqe *wqe, struct memory_target *target)
{
    wqe->target = target;
    if (target) {
        target->open++;
    }
}

void memory_target_leave(struct memory_wqe *wqe)
{
    if (wqe->target) {
        wqe->target->open--;
        wqe->target = NULL;
    }
}

/* ---- What is in front of a message ----------------------------------------------------------- */

static void put16(uint8_t *place, uint32_t value)
{
    place[0] = (uint8_t)(value >> 8);
    place[1] = (uint8_t)value;
}

/* As RoCE v2 over IPv4, since that is what the GIDs say. */
static void put_header(uint8_t *header, const struct memory_queue_pair *from,
                       const struct memory_queue_pair *to, uint32_t bytes)
{
    uint8_t *ip = header + NIC_DATAGRAM_HEADER_BYTES - 20;
    uint32_t sum = 0;

    memset(header, 0x6d,
           NIC_DATAGRAM_HEADER_BYTES); /* what is undefined looks like an IPv6 header */
    memset(ip, 0, 20);
    ip[0] = 0x45;
    put16(ip + 2, 20 + 8 + 12 + 8 + bytes + 4); /* UDP, BTH and DETH, and the checksum of RoCE */
    ip[8] = 64;
    ip[9] = 17;
    memcpy(ip + 12, from->nic->base.gid + 12, 4);
    memcpy(ip + 16, to->nic->base.gid + 12, 4);
    for (uint32_t i = 0; i < 20; i += 2) {
        sum += (uint32_t)ip[i] << 8 | ip[i + 1];
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    put16(ip + 10, ~sum & 0xffff);
}

/* ---- Execution ------------------------------------------------------------------------------- */

/* Returns who takes this datagram in, or NULL. */
static struct memory_queue_pair *taker_of(const struct memory_queue_pair *queue_pair,
                                          const struct memory_target *target)
{
    struct memory_fabric *fabric = queue_pair->fabric;
    struct memory_queue_pair *taker = memory_find(fabric, target->base.queue_pair_number);

    if (queue_pair->severed || !taker || !taker->open || !memory_datagrams(taker) ||
        memcmp(target->gid, taker->nic->base.gid, sizeof(target->gid)) != 0 ||
        target->base.queue_key != taker->queue->base.queue_key) {
        return NULL;
    }
    return random_percent(&fabric->random, fabric->options.datagrams_lost_percent) ? NULL : taker;
}

static void deliver(struct memory_queue_pair *queue_pair, struct memory_queue_pair *taker,
                    const struct memory_wqe *wqe)
{
    const uint32_t bytes = NIC_DATAGRAM_HEADER_BYTES + wqe->transfer.bytes;
    const enum memory_taking taking = memory_queue_take(taker, bytes, NULL);
    uint8_t *packet;

    if (taking == TAKING_EMPTY) {
        queue_pair->fabric->counters.datagrams_lost++;
        return;
    }
    if (taking != TAKING_READY) {
        memory_queue_refuse(taker, taking == TAKING_REFUSED ? NIC_ERROR_LOCAL : NIC_ERROR_LENGTH);
        memory_die(taker);
        if (taker != queue_pair) { /* its own WQEs are being executed */
            memory_settle(taker);
        }
        return;
    }
    packet = memory_allocate(1, bytes);
    put_header(packet, queue_pair, taker, wqe->transfer.bytes);
    if (wqe->inlined) {
        memcpy(packet + NIC_DATAGRAM_HEADER_BYTES, wqe->payload, wqe->transfer.bytes);
    } else {
        memory_wqe_gather(wqe, packet + NIC_DATAGRAM_HEADER_BYTES);
    }
    memory_queue_land(taker, packet, 0, bytes);
    free(packet);
    memory_queue_arrive_datagram(taker, wqe, queue_pair->base.number);
    queue_pair->fabric->counters.datagrams++;
}

void memory_datagram_execute(struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe)
{
    struct memory_queue_pair *taker;

    if (!wqe->inlined && !memory_wqe_allows(queue_pair, wqe, 0)) {
        memory_execute_failed(queue_pair, NIC_ERROR_LOCAL);
        return;
    }
    taker = taker_of(queue_pair, wqe->target);
    if (taker) {
        deliver(queue_pair, taker, wqe);
    } else {
        queue_pair->fabric->counters.datagrams_lost++;
    }
    queue_pair->executed++;
}
