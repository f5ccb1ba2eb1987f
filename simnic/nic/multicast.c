/* multicast.c: datagrams for groups (IBTA 10.5.2; RoCE addresses groups by IP multicast addresses).
 * The fabric is one network, or with InfiniBand two subnets. A packet to a group goes to every process of the session that has
 * members, on both rails of one network, and each process gives it to its attached QPs. */
#include "simnic/nic/internal.h"

#include <stdlib.h>
#include <string.h>

#define MOST_GROUPS 240u

static int position(const struct queue_pair *qp, const uint8_t group[16])
{
    for (uint32_t i = 0; i < qp->group_count; i++) {
        if (memcmp(qp->groups[i], group, 16) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static uint64_t bit_of(const uint8_t group[16])
{
    uint64_t words[2];
    memcpy(words, group, sizeof(words));
    return 1ull << ((words[0] ^ words[1] * 0x9e3779b97f4a7c15u) * 0x9e3779b97f4a7c15u >> 58);
}

/* Tells the senders which groups have members here. */
static void announce(struct nic *nic)
{
    uint64_t groups = 0;
    for (struct list *l = nic->all_queue_pairs.next; l != &nic->all_queue_pairs; l = l->next) {
        const struct queue_pair *qp = container_of(l, struct queue_pair, all);
        for (uint32_t i = 0; i < qp->group_count; i++) {
            groups |= bit_of(qp->groups[i]);
        }
    }
    atomic_store_explicit(&nic->fabric->file->slots[nic->fabric->slot].groups, groups,
                          memory_order_release);
}

bool multicast_attach(struct nic *nic, struct queue_pair *qp, const uint8_t group[16])
{
    if (position(qp, group) >= 0) {
        return true;
    }
    if (qp->group_count == MOST_GROUPS) {
        return false;
    }
    void *grown = realloc(qp->groups, (qp->group_count + 1) * sizeof(qp->groups[0]));
    if (!grown) {
        return false;
    }
    qp->groups = grown;
    memcpy(qp->groups[qp->group_count++], group, 16);
    announce(nic);
    return true;
}

bool multicast_detach(struct nic *nic, struct queue_pair *qp, const uint8_t group[16])
{
    int place = position(qp, group);
    if (place < 0) {
        return false;
    }
    memmove(qp->groups[place], qp->groups[--qp->group_count], 16);
    announce(nic);
    return true;
}

void multicast_leave(struct nic *nic, struct queue_pair *qp)
{
    free(qp->groups);
    qp->groups = NULL;
    if (qp->group_count) {
        qp->group_count = 0;
        announce(nic);
    }
}

static bool has_members(const struct nic *nic, uint32_t slot, uint64_t bit)
{
    return fabric_pid(nic->fabric, slot) &&
           atomic_load_explicit(&nic->fabric->file->slots[slot].groups, memory_order_acquire) & bit;
}

bool multicast_send(struct nic *nic, struct queue_pair *qp, struct packet *packet,
                    const uint8_t *payload, const uint8_t group[16])
{
    const uint64_t bit = bit_of(group);
    packet->flags |= PACKET_MULTICAST;
    memcpy(&packet->swap_or_add, group, 8);
    memcpy(&packet->compare, group + 8, 8);
    packet->rail = (uint8_t)((packet->rail & 15) | (packet->rail & 15) << 4);
    for (; qp->sent_packets < FABRIC_SLOTS; qp->sent_packets++) {
        uint32_t slot = qp->sent_packets;
        if (!has_members(nic, slot, bit)) {
            continue;
        }
        uint8_t *to = fabric_reserve(nic->fabric, slot, packet);
        if (!to) {
            return false;
        }
        memcpy(to, payload, packet->payload_bytes);
        fabric_commit(nic->fabric, slot, packet);
    }
    return true;
}

void multicast_receive(struct nic *nic, const struct packet *packet, const uint8_t *payload)
{
    uint8_t group[16];
    memcpy(group, &packet->swap_or_add, 8);
    memcpy(group + 8, &packet->compare, 8);
    struct list *next;
    for (struct list *l = nic->all_queue_pairs.next; l != &nic->all_queue_pairs; l = next) {
        struct queue_pair *qp = container_of(l, struct queue_pair, all);
        next = l->next;
        if (qp->type == TYPE_UD && position(qp, group) >= 0 &&
            rail_same_subnet(nic_link(nic), packet->rail & 15, qp->rail) &&
            qp_admits(nic, qp, packet) && !fabric_rail_down(nic->fabric, qp->rail) &&
            !(qp->blocks_own_multicast && packet->source_qpn == qp->number)) {
            datagram_receive(nic, qp, packet, payload);
        }
    }
}
