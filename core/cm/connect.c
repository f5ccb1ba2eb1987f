/* connect.c: what the owner does with a connection: connect, request, establish, accept, reject,
 * disconnect.
 *
 * The queue pair is ours, not librdmacm's, so its way to ready-to-send is too; rdma_cm says with
 * what attributes. librdmacm would leave the RNR timer and the retries at values of its own.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cm/internal.h"

int32_t cm_connect(struct cm *cm, const char *address, void *owner,
                   struct cm_identifier **identifier, crpc_error *error)
{
    struct address_name name;
    int32_t status = address_parse(address, ADDRESS_TO_CONNECT, &name, error);
    if (status) {
        return status;
    }
    struct cm_identifier *made = cm_identifier_new_to(cm, owner, &name);
    if (!made) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a connection");
    }
    snprintf(made->target, sizeof(made->target), "%s", address);
    if (address_numeric(&name, &made->search->addresses) == 0) {
        made->search->next_address = made->search->addresses;
        cm_work_add(made);
    } else {
        made->search->addresses = NULL;
        status = cm_lookup_start(made, error);
        if (status) {
            cm_destroy(made);
            return status;
        }
    }
    *identifier = made;
    return CRPC_OK;
}

static struct rdma_conn_param parameters_of(const struct cm_identifier *identifier,
                                            const struct nic_queue_pair *queue_pair,
                                            const struct nic_transport *transport,
                                            const void *private_data, uint32_t private_bytes)
{
    return (struct rdma_conn_param){
        .private_data = private_data,
        .private_data_len = (uint8_t)private_bytes,
        .responder_resources = nic_read_depth(transport, identifier->read_depth_in),
        .initiator_depth = nic_read_depth(transport, identifier->read_depth_out),
        .flow_control = 1,
        .retry_count = (uint8_t)transport->retry_count,
        .rnr_retry_count = nic_rnr_retry(transport),
        .srq = 1,
        .qp_num = queue_pair->number,
    };
}

/* The kernel says EINVAL where the connection is no longer in the state for it. */
static int get_attributes(struct cm_identifier *identifier, enum ibv_qp_state state,
                          struct ibv_qp_attr *attributes, int *mask)
{
    *attributes = (struct ibv_qp_attr){.qp_state = state};
    if (rdma_init_qp_attr(identifier->id, attributes, mask)) {
        return errno == EINVAL ? ENOTCONN : errno;
    }
    return 0;
}

/* The interface at this end decides the partition of what rdma_cm connects. A queue pair of this context must be in the one that was
 * asked for; and DCTs and initiators are in one before anything connects. */
static int32_t check_partition(struct cm_identifier *identifier, const char *target,
                               crpc_error *error)
{
    const struct nic *nic = identifier->cm->nic;
    struct ibv_qp_attr attributes;
    int mask;
    __be16 key;
    if (nic->link == CRPC_LINK_ETHERNET || !(nic->partition_given || nic->initiators)) {
        return CRPC_OK;
    }
    int os_error = get_attributes(identifier, IBV_QPS_INIT, &attributes, &mask);
    if (os_error) {
        return cm_connect_error(target, os_error, error);
    }
    if (ibv_query_pkey(device_context(nic), (uint8_t)nic->port, attributes.pkey_index, &key) != 0 ||
        nic_same_partition(be16toh(key), nic->network.partition_key)) {
        return CRPC_OK;
    }
    return error_set(
        error, CRPC_E_UNREACHABLE, 0,
        "%.100s: the way there is in partition 0x%04x, and this context in 0x%04x: take "
        "addresses of IPoIB interfaces of that partition, or set partition_key",
        target, be16toh(key), nic->network.partition_key);
}

/* ECE travels in fields of REQ and REP that rdma_cm has for it: first what the connecting side offers, then what the other has made of
 * it. librdmacm sees to that by itself only where it has made the queue pairs. */
static void tell_ece(struct cm_identifier *identifier, struct ibv_ece ece)
{
    if (ece.options != 0) {
        rdma_set_local_ece(identifier->id, &ece);
    }
}

static struct ibv_ece ece_of(const struct nic_queue_pair *queue_pair)
{
    const struct nic_ece ours = container_of(queue_pair, const struct device_queue_pair, base)->ece;
    return (struct ibv_ece){.vendor_id = ours.vendor, .options = ours.options};
}

static struct nic_ece ece_of_peer(const struct cm_identifier *identifier)
{
    struct ibv_ece ece = {0};
    rdma_get_remote_ece(identifier->id, &ece);
    return (struct nic_ece){.vendor = ece.vendor_id, .options = ece.options};
}

int32_t cm_request_send(struct cm_identifier *identifier, crpc_error *error)
{
    struct cm_search *search = identifier->search;
    int32_t status = check_partition(identifier, identifier->target, error);
    if (status != CRPC_OK) {
        return status;
    }
    tell_ece(identifier, search->ece);
    if (rdma_connect(identifier->id, &search->parameters)) {
        return cm_connect_error(identifier->target, errno, error);
    }
    return CRPC_OK;
}

/* For the other addresses. */
static void keep_request(struct cm_search *search, const struct rdma_conn_param *parameters,
                         struct ibv_ece ece)
{
    search->parameters = *parameters;
    search->ece = ece;
    if (parameters->private_data_len > 0) {
        memcpy(search->private_data, parameters->private_data, parameters->private_data_len);
    }
    search->parameters.private_data = search->private_data;
    search->requested = true;
}

static void set_requesting(struct cm_identifier *identifier, bool requesting)
{
    pthread_mutex_lock(&identifier->cm->mutex);
    identifier->requesting = requesting;
    pthread_cond_broadcast(&identifier->cm->idle);
    pthread_mutex_unlock(&identifier->cm->mutex);
}

int32_t cm_request(struct cm_identifier *identifier, const struct nic_queue_pair *queue_pair,
                   const struct nic_transport *transport, const void *private_data,
                   uint32_t private_bytes, crpc_error *error)
{
    assert(private_bytes <= CM_PRIVATE_BYTES);
    struct rdma_conn_param parameters =
        parameters_of(identifier, queue_pair, transport, private_data, private_bytes);
    keep_request(identifier->search, &parameters, ece_of(queue_pair));
    set_requesting(identifier, true);
    int32_t status = cm_request_send(identifier, error);
    set_requesting(identifier, false);
    return status;
}

/* ---- The queue pair -------------------------------------------------------------------------- */

static int to_init(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair)
{
    struct ibv_qp_attr attributes;
    int mask;
    int os_error = get_attributes(identifier, IBV_QPS_INIT, &attributes, &mask);
    if (os_error) {
        return os_error;
    }
    attributes.qp_access_flags = device_remote_access(to_device_queue_pair(queue_pair));
    return device_modify(queue_pair, &attributes, mask);
}

/* Kernels set these for Ethernet, and InfiniBand devices refuse them: source MAC and VLAN. */
#define ETHERNET_ONLY_MASK 0xe00000

/* The number is what the peer's program says. With 0, the queue pair would look as if it were not connected
 * (nic_queue_operations.modify). */
#define NO_SUCH_PEER EPROTO

static int to_ready_to_receive(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                               const struct nic_transport *transport)
{
    struct ibv_qp_attr attributes;
    int mask;
    int os_error = get_attributes(identifier, IBV_QPS_RTR, &attributes, &mask);
    if (os_error) {
        return os_error;
    }
    if (identifier->cm->nic->link == CRPC_LINK_INFINIBAND) {
        mask &= ~ETHERNET_ONLY_MASK;
    }
    if (attributes.dest_qp_num == 0) {
        return NO_SUCH_PEER;
    }
    queue_pair->traffic_class = attributes.ah_attr.grh.traffic_class;
    queue_pair->service_level = attributes.ah_attr.sl;
    device_way_amend(to_device_nic(queue_pair->nic), &attributes.ah_attr);
    attributes.min_rnr_timer = nic_min_rnr_timer(transport);
    if (identifier->passive) {
        attributes.max_dest_rd_atomic = nic_read_depth(transport, identifier->read_depth_in);
    }
    queue_pair->peer_number = attributes.dest_qp_num;
    return device_ready_to_receive(to_device_queue_pair(queue_pair), ece_of_peer(identifier),
                                   &attributes, mask);
}

static int to_ready_to_send(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                            const struct nic_transport *transport)
{
    struct ibv_qp_attr attributes;
    int mask;
    int os_error = get_attributes(identifier, IBV_QPS_RTS, &attributes, &mask);
    if (os_error) {
        return os_error;
    }
    attributes.timeout = (uint8_t)transport->retry_timeout;
    attributes.retry_cnt = (uint8_t)transport->retry_count;
    attributes.rnr_retry = nic_rnr_retry(transport);
    if (identifier->passive) {
        attributes.max_rd_atomic = nic_read_depth(transport, identifier->read_depth_out);
    }
    return device_modify(queue_pair, &attributes, mask);
}

/* What `os_error` means for an attempt to bring the queue pair to `state`. */
static int32_t cannot_connect(const char *target, const char *state, int os_error,
                              crpc_error *error)
{
    if (os_error == ENOTCONN) {
        return cm_connect_error(target, os_error, error);
    }
    if (os_error == NO_SUCH_PEER) {
        return error_set(
            error, CRPC_E_PROTOCOL, 0,
            "%.100s: the peer says that its queue pair has the number 0, which none has", target);
    }
    return error_set(error, CRPC_E_SYSTEM, os_error, "%.100s: cannot move the queue pair to %s: %s",
                     target, state, strerror(os_error));
}

/* A dynamic queue pair receives already. To send, it needs the way to the peer's DCT: what an RC queue pair is told of its
 * peer. */
static int32_t make_dynamic_ready(struct cm_identifier *identifier,
                                  struct nic_queue_pair *queue_pair,
                                  const struct nic_transport *transport, const char *target,
                                  crpc_error *error)
{
    struct ibv_qp_attr attributes;
    int mask;
    int os_error = get_attributes(identifier, IBV_QPS_RTR, &attributes, &mask);
    if (os_error) {
        return cannot_connect(target, "RTR", os_error, error);
    }
    struct nic_address peer = {.queue_pair_number = attributes.dest_qp_num,
                               .lid = attributes.ah_attr.dlid,
                               .link = (uint8_t)queue_pair->nic->link,
                               .mtu_code = (uint8_t)attributes.path_mtu,
                               .grh_required = attributes.ah_attr.is_global,
                               .traffic_class = attributes.ah_attr.grh.traffic_class,
                               .service_level = attributes.ah_attr.sl};
    memcpy(peer.gid, attributes.ah_attr.grh.dgid.raw, sizeof(peer.gid));
    if (!nic_address_valid(&peer)) {
        return cannot_connect(target, "RTR", NO_SUCH_PEER, error);
    }
    return queue_pair->operations->queue_pair_connect(queue_pair, &peer, transport, error);
}

static int32_t make_ready(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                          const struct nic_transport *transport, crpc_error *error)
{
    const char *target = identifier->passive ? identifier->peer : identifier->target;
    const char *state = "INIT";
    if (nic_is_dynamic(queue_pair)) {
        return make_dynamic_ready(identifier, queue_pair, transport, target, error);
    }
    int os_error = to_init(identifier, queue_pair);
    if (os_error == 0) {
        state = "RTR";
        os_error = to_ready_to_receive(identifier, queue_pair, transport);
    }
    if (os_error == 0) {
        state = "RTS";
        os_error = to_ready_to_send(identifier, queue_pair, transport);
    }
    return os_error ? cannot_connect(target, state, os_error, error) : CRPC_OK;
}

/* ---- Answers --------------------------------------------------------------------------------- */

int32_t cm_establish(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                     const struct nic_transport *transport, crpc_error *error)
{
    int32_t status = make_ready(identifier, queue_pair, transport, error);
    if (status) {
        return status;
    }
    if (rdma_establish(identifier->id)) {
        return cm_connect_error(identifier->target, errno, error);
    }
    return CRPC_OK;
}

int32_t cm_accept(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                  const struct nic_transport *transport, const void *private_data,
                  uint32_t private_bytes, crpc_error *error)
{
    assert(private_bytes <= CM_PRIVATE_BYTES_MAX);
    int32_t status = check_partition(identifier, identifier->peer, error);
    if (status == CRPC_OK) {
        status = make_ready(identifier, queue_pair, transport, error);
    }
    if (status) {
        return status;
    }
    tell_ece(identifier, ece_of(queue_pair));
    struct rdma_conn_param parameters =
        parameters_of(identifier, queue_pair, transport, private_data, private_bytes);
    if (rdma_accept(identifier->id, &parameters)) {
        return cm_connect_error(identifier->peer, errno, error);
    }
    cm_hand_over_answered(identifier);
    return CRPC_OK;
}

void cm_reject(struct cm_identifier *identifier, const void *private_data, uint32_t private_bytes)
{
    assert(private_bytes <= CM_REJECT_BYTES_MAX);
    rdma_reject(identifier->id, private_data, (uint8_t)private_bytes);
}

void cm_disconnect(struct cm_identifier *identifier)
{
    rdma_disconnect(identifier->id);
}
