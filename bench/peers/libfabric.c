/* libfabric.c: calls by messages of libfabric, over connected endpoints (FI_EP_MSG) or, with PEER_ENDPOINT=rdm in the environment,
 * over reliable datagram endpoints (FI_EP_RDM), as the provider ofi_rxm makes them of connected ones.
 *
 * A request and its reply are one message each, with the number of the call as its CQ data. All buffers are registered once and
 * lie in one region. A server sends the reply from the buffer of the request, and gives that to the device again when the reply
 * has left. A connection is a pair of connected endpoints; of datagram endpoints, it is a server's endpoint to which the client's
 * one endpoint sends.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "peer.h"

#define API FI_VERSION(1, 17)
#define ENTRIES 64 /* completions of one look */
#define CONNECT_MS 5000

/* A receive, and on a server the reply that is sent from it. */
struct buffer {
    struct fi_context2 context; /* the provider's; first, so that a completion names the buffer */
    struct buffer *next;
    uint8_t *data;
    uint32_t endpoint;
    uint32_t slot;
    uint64_t bytes;
};

static struct {
    struct peer *peer;
    bool rdm, server;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_eq *eq;
    struct fid_pep *listener;
    struct fid_av *av;
    struct fid_ep **endpoints;
    uint32_t endpoint_count;
    fi_addr_t *addresses; /* of the other side's datagram endpoints */
    struct fid_mr *receive_region, *request_region;
    struct buffer *buffers;
    uint64_t buffer_count;
    struct buffer *first_waiting, **last_waiting; /* replies for which there was no room */
    struct fi_context2 nothing; /* of the client's sends, which have no completions */
} fabric = {.last_waiting = &fabric.first_waiting};

/* For `if (failed(...))`: whether a call of libfabric has, and says so. */
static bool failed(const char *what, int64_t status)
{
    if (status >= 0) {
        return false;
    }
    peer_failed(what, fi_strerror((int)-status));
    return true;
}

static void *region_key(struct fid_mr *region)
{
    return region ? fi_mr_desc(region) : NULL;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static bool find_provider(struct peer *peer)
{
    struct fi_info *hints = fi_allocinfo();
    /* A server listens there, a client connects to it; of datagram endpoints, both have their address, and any port. */
    uint64_t flags = fabric.server || fabric.rdm ? FI_SOURCE : 0;
    const char *port = fabric.rdm ? NULL : peer->options.port;
    hints->ep_attr->type = fabric.rdm ? FI_EP_RDM : FI_EP_MSG;
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->addr_format = FI_SOCKADDR;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = fabric.rdm ? FI_PROGRESS_MANUAL : FI_PROGRESS_UNSPEC;
    hints->domain_attr->cq_data_size = 4;
    hints->fabric_attr->prov_name = strdup(fabric.rdm ? "verbs;ofi_rxm" : "verbs");
    if (!fabric.rdm) {
        hints->tx_attr->size = 2 * peer->options.depth;
        hints->rx_attr->size = 2 * peer->options.depth;
    }
    int status = fi_getinfo(API, peer->options.host, port, flags, hints, &fabric.info);
    fi_freeinfo(hints);
    return !failed("fi_getinfo", status);
}

/* The buffers of all receives. A server has twice as many as calls may be open: the next request may come before the device has
 * said that the reply from a buffer has arrived. */
static bool make_buffers(uint64_t count)
{
    uint32_t size = fabric.peer->options.size;
    uint8_t *memory = peer_memory(count * size);
    bool local = fabric.info->domain_attr->mr_mode & FI_MR_LOCAL;
    fabric.buffers = peer_memory(count * sizeof(*fabric.buffers));
    fabric.buffer_count = count;
    for (uint64_t i = 0; i < count; i++) {
        fabric.buffers[i].data = memory + i * size;
    }
    return !(local &&
             failed("fi_mr_reg", fi_mr_reg(fabric.domain, memory, count * size, FI_SEND | FI_RECV,
                                           0, 1, 0, &fabric.receive_region, NULL))) &&
           !(local && !fabric.server &&
             failed("fi_mr_reg",
                    fi_mr_reg(fabric.domain, fabric.peer->requests, fabric.peer->requests_bytes,
                              FI_SEND, 0, 2, 0, &fabric.request_region, NULL)));
}

static bool open_domain(struct fi_info *info, uint64_t buffers)
{
    struct fi_cq_attr attributes = {.format = FI_CQ_FORMAT_DATA, .size = 2 * buffers + 1024};
    struct fi_av_attr addresses = {.type = FI_AV_TABLE, .count = fabric.peer->options.connections};
    return !failed("fi_domain", fi_domain(fabric.fabric, info, &fabric.domain, NULL)) &&
           !failed("fi_cq_open", fi_cq_open(fabric.domain, &attributes, &fabric.cq, NULL)) &&
           !(fabric.rdm &&
             failed("fi_av_open", fi_av_open(fabric.domain, &addresses, &fabric.av, NULL))) &&
           make_buffers(buffers);
}

/* There is room: an endpoint has no more receives than it was made for. */
static bool post_receive(struct buffer *buffer)
{
    return !failed("fi_recv", fi_recv(fabric.endpoints[buffer->endpoint], buffer->data,
                                      fabric.peer->options.size, region_key(fabric.receive_region),
                                      FI_ADDR_UNSPEC, buffer));
}

/* The endpoint, and its part of the buffers. */
static bool add_endpoint(struct fi_info *info, uint64_t buffers)
{
    uint32_t number = fabric.endpoint_count;
    if (failed("fi_endpoint", fi_endpoint(fabric.domain, info, &fabric.endpoints[number], NULL))) {
        return false;
    }
    struct fid_ep *endpoint = fabric.endpoints[number];
    struct fid *other = fabric.rdm ? &fabric.av->fid : &fabric.eq->fid;
    fabric.endpoint_count++;
    if (failed("fi_ep_bind", fi_ep_bind(endpoint, other, 0)) ||
        failed("fi_ep_bind",
               fi_ep_bind(endpoint, &fabric.cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION)) ||
        failed("fi_ep_bind", fi_ep_bind(endpoint, &fabric.cq->fid, FI_RECV)) ||
        failed("fi_enable", fi_enable(endpoint))) {
        return false;
    }
    for (uint64_t i = number * buffers; i < (number + 1) * buffers; i++) {
        fabric.buffers[i].endpoint = number;
        if (!post_receive(&fabric.buffers[i])) {
            return false;
        }
    }
    return true;
}

static bool open_fabric(struct peer *peer, bool server)
{
    const char *kind = getenv("PEER_ENDPOINT");
    uint32_t connections = peer->options.connections;
    fabric.peer = peer;
    fabric.server = server;
    fabric.rdm = kind && strcmp(kind, "rdm") == 0;
    fabric.endpoints = peer_memory(connections * sizeof(*fabric.endpoints));
    fabric.addresses = peer_memory(connections * sizeof(*fabric.addresses));
    return find_provider(peer) &&
           !failed("fi_fabric", fi_fabric(fabric.info->fabric_attr, &fabric.fabric, NULL));
}

/* ---- Connected endpoints --------------------------------------------------------------------- */

/* The next event, for which the client waits as long as connecting may take, and the server until it is stopped. */
static bool next_event(uint32_t wanted, struct fi_eq_cm_entry *entry)
{
    uint32_t event = 0;
    for (int waited_ms = 0; !peer_stop && (fabric.server || waited_ms < CONNECT_MS);
         waited_ms += 100) {
        ssize_t bytes = fi_eq_sread(fabric.eq, &event, entry, sizeof(*entry), 100, 0);
        if (bytes == -FI_EAVAIL) {
            struct fi_eq_err_entry error = {0};
            fi_eq_readerr(fabric.eq, &error, 0);
            return peer_failed("connecting", fi_strerror(error.err));
        }
        if (bytes > 0 && event == wanted) {
            return true;
        }
    }
    return peer_stop || peer_failed("connecting", "no answer");
}

static bool open_eq(void)
{
    struct fi_eq_attr attributes = {.wait_obj = FI_WAIT_UNSPEC};
    return !failed("fi_eq_open", fi_eq_open(fabric.fabric, &attributes, &fabric.eq, NULL));
}

/* The address at which the server listens comes over TCP: the provider does not listen at the port that it is told. */
static bool connect_msg(struct peer *peer)
{
    struct fi_eq_cm_entry entry;
    uint64_t bytes;
    int tcp = peer_tcp_connect(peer);
    void *address = tcp < 0 ? NULL : peer_hear(tcp, &bytes);
    if (address) { /* the provider resolves this one, whatever fi_connect says */
        free(fabric.info->dest_addr);
        fabric.info->dest_addr = address;
        fabric.info->dest_addrlen = bytes;
    }
    bool good = address && open_eq() && open_domain(fabric.info, peer->slot_count);
    for (uint32_t i = 0; i < peer->options.connections && good; i++) {
        good = add_endpoint(fabric.info, peer->options.depth) &&
               !failed("fi_connect", fi_connect(fabric.endpoints[i], address, NULL, 0)) &&
               next_event(FI_CONNECTED, &entry) && !peer_stop;
    }
    close(tcp);
    return good;
}

static bool listen_msg(struct peer *peer)
{
    struct sockaddr_storage name;
    size_t bytes = sizeof(name);
    if (!open_eq() ||
        failed("fi_passive_ep",
               fi_passive_ep(fabric.fabric, fabric.info, &fabric.listener, NULL)) ||
        failed("fi_pep_bind", fi_pep_bind(fabric.listener, &fabric.eq->fid, 0)) ||
        failed("fi_listen", fi_listen(fabric.listener)) ||
        failed("fi_getname", fi_getname(&fabric.listener->fid, &name, &bytes))) {
        return false;
    }
    int tcp = peer_tcp_accept(peer);
    bool good = tcp >= 0 && peer_tell(tcp, &name, bytes);
    close(tcp);
    return good || peer_stop;
}

static bool accept_msg(struct peer *peer)
{
    struct fi_eq_cm_entry entry;
    uint64_t buffers = 2ul * peer->options.depth;
    bool good = listen_msg(peer);
    for (uint32_t i = 0; i < peer->options.connections && good; i++) {
        good = next_event(FI_CONNREQ, &entry);
        if (peer_stop) {
            return true;
        }
        good = good &&
               (fabric.domain || open_domain(entry.info, buffers * peer->options.connections)) &&
               add_endpoint(entry.info, buffers) &&
               !failed("fi_accept", fi_accept(fabric.endpoints[i], NULL, 0)) &&
               next_event(FI_CONNECTED, &entry);
    }
    return good;
}

/* ---- Datagram endpoints ---------------------------------------------------------------------- */

/* Tells the other side the addresses of our endpoints, or is told those of its endpoints. */
static bool tell_names(int tcp)
{
    struct sockaddr_storage names[PEER_CONNECTIONS_MAX];
    for (uint32_t i = 0; i < fabric.endpoint_count; i++) {
        size_t bytes = sizeof(names[i]);
        if (failed("fi_getname", fi_getname(&fabric.endpoints[i]->fid, &names[i], &bytes))) {
            return false;
        }
    }
    return peer_tell(tcp, names, fabric.endpoint_count * sizeof(names[0]));
}

static bool hear_names(int tcp)
{
    uint64_t bytes;
    struct sockaddr_storage *names = peer_hear(tcp, &bytes);
    uint64_t count = names ? bytes / sizeof(*names) : 0;
    bool good = count > 0 && count <= fabric.peer->options.connections;
    for (uint64_t i = 0; i < count && good; i++) {
        good = fi_av_insert(fabric.av, &names[i], 1, &fabric.addresses[i], 0, NULL) == 1 ||
               peer_failed("fi_av_insert", "refused");
    }
    free(names);
    return good;
}

static uint64_t receives_of(uint64_t wanted)
{
    uint64_t most = fabric.info->rx_attr->size;
    return wanted < most ? wanted : most;
}

static bool connect_rdm(struct peer *peer)
{
    uint64_t buffers = receives_of(peer->slot_count);
    int tcp = peer_tcp_connect(peer);
    bool good = tcp >= 0 && open_domain(fabric.info, buffers) &&
                add_endpoint(fabric.info, buffers) && tell_names(tcp) && hear_names(tcp);
    close(tcp);
    return good;
}

static bool accept_rdm(struct peer *peer)
{
    uint64_t buffers = receives_of(2ul * peer->options.depth);
    bool good = open_domain(fabric.info, buffers * peer->options.connections);
    for (uint32_t i = 0; i < peer->options.connections && good; i++) {
        good = add_endpoint(fabric.info, buffers);
    }
    int tcp = good ? peer_tcp_accept(peer) : -1;
    if (tcp < 0) {
        return peer_stop;
    }
    good = hear_names(tcp) && tell_names(tcp);
    close(tcp);
    return good;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static ssize_t send_message(uint32_t endpoint, fi_addr_t address, void *data, uint64_t bytes,
                            void *key, uint32_t slot, void *context, uint64_t flags)
{
    struct iovec piece = {data, bytes};
    struct fi_msg message = {.msg_iov = &piece,
                             .desc = &key,
                             .iov_count = 1,
                             .addr = address,
                             .context = context,
                             .data = slot};
    return fi_sendmsg(fabric.endpoints[endpoint], &message, flags | FI_REMOTE_CQ_DATA);
}

static bool is_short(uint64_t bytes)
{
    return bytes <= fabric.info->tx_attr->inject_size;
}

static int32_t send_slots(struct peer *peer, const uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t connection = slots[i] % peer->options.connections;
        ssize_t status = send_message(fabric.rdm ? 0 : connection, fabric.addresses[connection],
                                      peer_request(peer, slots[i]), peer->options.size,
                                      region_key(fabric.request_region), slots[i], &fabric.nothing,
                                      is_short(peer->options.size) ? FI_INJECT : 0);
        if (status == -FI_EAGAIN) {
            return (int32_t)i;
        }
        if (failed("fi_sendmsg", status)) {
            return -1;
        }
    }
    return (int32_t)count;
}

/* Sends the reply from the request's buffer. Returns whether it could now; a negative number if it failed. */
static int32_t reply(struct buffer *buffer)
{
    bool inject = is_short(buffer->bytes);
    ssize_t status = send_message(buffer->endpoint, fabric.addresses[0], buffer->data,
                                  buffer->bytes, region_key(fabric.receive_region), buffer->slot,
                                  buffer, inject ? FI_INJECT : FI_COMPLETION);
    if (status == -FI_EAGAIN) {
        return 0;
    }
    return failed("fi_sendmsg", status) || (inject && !post_receive(buffer)) ? -1 : 1;
}

static bool send_waiting(void)
{
    int32_t sent = 1;
    while (fabric.first_waiting && sent > 0) {
        struct buffer *buffer = fabric.first_waiting;
        struct buffer *next = buffer->next;
        sent = reply(buffer);
        if (sent > 0) {
            fabric.first_waiting = next;
        }
    }
    if (!fabric.first_waiting) {
        fabric.last_waiting = &fabric.first_waiting;
    }
    return sent >= 0;
}

static bool take(const struct fi_cq_data_entry *entry)
{
    struct buffer *buffer = entry->op_context;
    if (!(entry->flags & FI_RECV)) {
        return !fabric.server || post_receive(buffer);
    }
    if (!fabric.server) {
        peer_answered(fabric.peer, (uint32_t)entry->data, buffer->data, entry->len);
        return post_receive(buffer);
    }
    buffer->slot = (uint32_t)entry->data;
    buffer->bytes = entry->len;
    buffer->next = NULL;
    int32_t sent = fabric.first_waiting ? 0 : reply(buffer);
    if (sent == 0) {
        *fabric.last_waiting = buffer;
        fabric.last_waiting = &buffer->next;
    }
    return sent >= 0;
}

static int32_t progress(struct peer *peer)
{
    struct fi_cq_data_entry entries[ENTRIES];
    ssize_t count = fi_cq_read(fabric.cq, entries, ENTRIES);
    (void)peer;
    if (count == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(fabric.cq, &error, 0);
        peer_failed("completion", fi_strerror(error.err));
        return -1;
    }
    if (count < 0 && count != -FI_EAGAIN) {
        failed("fi_cq_read", count);
        return -1;
    }
    for (ssize_t i = 0; i < count; i++) {
        if (!take(&entries[i])) {
            return -1;
        }
    }
    return send_waiting() ? count > 0 : -1;
}

/* ---- Both sides ------------------------------------------------------------------------------ */

static bool connect_all(struct peer *peer)
{
    return open_fabric(peer, false) && (fabric.rdm ? connect_rdm(peer) : connect_msg(peer));
}

static void leave(struct peer *peer)
{
    (void)peer;
    for (uint32_t i = 0; i < fabric.endpoint_count; i++) {
        if (!fabric.rdm) {
            fi_shutdown(fabric.endpoints[i], 0);
        }
        fi_close(&fabric.endpoints[i]->fid);
    }
}

static bool serve(struct peer *peer)
{
    if (!open_fabric(peer, true) || !(fabric.rdm ? accept_rdm(peer) : accept_msg(peer))) {
        return false;
    }
    int32_t found = 0;
    while (!peer_stop && found >= 0) {
        found = progress(peer);
        if (found == 0 && peer->options.patient) {
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
        }
    }
    return peer_stop;
}

static const char *version(void)
{
    return PEER_VERSION;
}

int main(int argc, char **argv)
{
    const struct peer_transport transport = {"libfabric", serve, connect_all, send_slots,
                                             progress,    leave, version};
    return peer_main(argc, argv, &transport);
}
