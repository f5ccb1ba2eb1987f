/* connect.c: connecting a queue pair to an address that the peer has sent by other means than
 * rdma_cm (which does the same in core/cm).
 *
 * The address comes from the peer and is not to be trusted. On Ethernet the kernel resolves the
 * peer's IP address to a MAC address while the queue pair becomes ready to receive, which may block
 * for as long as ARP takes. So this may run in another thread than the one that polls, and does nothing
 * to the nic's queues: not even RESET, for which libmlx5 takes entries out of them.
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "nic/device/device.h"

void device_queue_pair_address(const struct nic_queue_pair *base, struct nic_address *address)
{
    const struct device_nic *nic = container_of(base->nic, const struct device_nic, base);
    const struct device_queue_pair *queue_pair =
        container_of(base, const struct device_queue_pair, base);
    *address = (struct nic_address){
        .queue_pair_number = base->number,
        .packet_sequence_number = queue_pair->packet_sequence_number,
        .lid = nic->lid,
        .link = (uint8_t)nic->base.link,
        .mtu_code = nic->mtu_code,
        .grh_required = nic->base.grh_required,
        .ece = queue_pair->ece,
    };
    memcpy(address->gid, nic->base.gid, sizeof(address->gid));
}

/* A queue pair for datagrams has a key instead of rights. */
static int datagrams_to_init(struct nic_queue_pair *base)
{
    const struct nic_queue *queue = base->owner;
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .pkey_index = to_device_nic(base->nic)->partition_index,
                                     .port_num = (uint8_t)base->nic->port,
                                     .qkey = queue->queue_key};
    return device_modify(base, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
}

int device_queue_pair_rights_to_init(struct nic_queue_pair *base)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .pkey_index = to_device_nic(base->nic)->partition_index,
        .port_num = (uint8_t)base->nic->port,
        .qp_access_flags = device_remote_access(to_device_queue_pair(base)),
    };
    return device_modify(base, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int device_queue_pair_to_init(struct nic_queue_pair *base)
{
    if (to_device_queue_pair(base)->past_verbs) { /* of these, all are of reliable connections */
        return device_queue_pair_rights_to_init(base);
    }
    switch (device_qp(base)->qp_type) {
    case IBV_QPT_UD:
        return datagrams_to_init(base);
    case IBV_QPT_DRIVER:
        return device_dci_to_init(base);
    default:
        return device_queue_pair_rights_to_init(base);
    }
}

static int to_ready_to_receive(struct nic_queue_pair *base, const struct nic_address *peer,
                               const struct nic_transport *transport)
{
    const struct device_nic *nic = to_device_nic(base->nic);
    uint8_t mtu_code = peer->mtu_code < nic->mtu_code ? peer->mtu_code : nic->mtu_code;
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)mtu_code,
        .dest_qp_num = peer->queue_pair_number,
        .rq_psn = peer->packet_sequence_number,
        .max_dest_rd_atomic = nic_read_depth(transport, nic->read_depth_in),
        .min_rnr_timer = nic_min_rnr_timer(transport),
        .ah_attr = device_way_to(nic, peer),
    };
    return device_ready_to_receive(to_device_queue_pair(base), peer->ece, &attributes,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER);
}

int device_queue_pair_to_send(struct nic_queue_pair *base, const struct nic_transport *transport)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = to_device_queue_pair(base)->packet_sequence_number,
        .timeout = (uint8_t)transport->retry_timeout,
        .retry_cnt = (uint8_t)transport->retry_count,
        .rnr_retry = nic_rnr_retry(transport),
        .max_rd_atomic = nic_read_depth(transport, to_device_nic(base->nic)->read_depth_out),
    };
    return device_modify(base, &attributes,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int32_t device_queue_pair_connect(struct nic_queue_pair *base, const struct nic_address *peer,
                                  const struct nic_transport *transport, crpc_error *error)
{
    assert(nic_address_valid(peer) && peer->link == base->nic->link);
    if (transport->atomics) {
        to_device_queue_pair(base)->atomics = base->nic->atomics;
    }
    int os_error = device_queue_pair_to_init(base);
    base->peer_number = peer->queue_pair_number;
    if (os_error == 0) {
        os_error = to_ready_to_receive(base, peer, transport);
        if (os_error) {
            return error_set(error, CRPC_E_UNREACHABLE, os_error,
                             "%s: no way to the peer's address: %s: are both ends on one network?",
                             base->nic->device, strerror(os_error));
        }
        os_error = device_queue_pair_to_send(base, transport);
    }
    if (os_error) {
        return error_set(error, CRPC_E_SYSTEM, os_error, "%s: cannot connect a queue pair: %s",
                         base->nic->device, strerror(os_error));
    }
    return CRPC_OK;
}
