/* multicast.c: datagrams for groups (IBTA 10.5.2; RoCE addresses groups by IP multicast addresses).
 * The fabric is one network, or with InfiniBand two subnets. A packet to a group goes to every process of the
 * session, on both rails of one network, and each process gives it to its attached QPs. */
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

bool multicast_attach(struct queue_pair *qp, const uint8_t group[16])
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
    return true;
}

bool multicast_detach(struct queue_pair *qp, const uint8_t group[16])
{
    int place = position(qp, group);
    if (place < 0) {
        return false;
    }
    memmove(qp->groups[place], qp->groups[--qp->group_count], 16);
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
            qp_admits(nic, qp, packet) && !fabric_rail_down(nic->fabric, qp->rail)) {
            datagram_receive(nic, qp, packet, payload);
        }
    }
}
