/* ucx.c: calls by active messages of UCX (ucp_am_send_nbx), over one endpoint for each connection.
 *
 * A request and its reply are one active message each, whose header is the number of the call. UCX chooses how each size travels:
 * in the packet, by copies, or by a rendezvous. The server sends the reply from where the request lies if UCX lets it stay there.
 * The transport is for the environment to say: UCX_TLS=rc_x or rc_v.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#include "peer.h"

enum { REQUEST_ID, REPLY_ID };

/* A reply on its way, or a large request that still arrives: what has to stay until it is done. */
struct answer {
    struct answer *next;
    uint32_t slot;
    ucp_ep_h endpoint;
    void *kept;      /* data of UCX, to be released */
    uint8_t *buffer; /* our own, `size` bytes; NULL until it is needed */
};

static struct {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h *endpoints;
    uint32_t endpoint_count;
    uint32_t *numbers; /* the client's headers: they must last as long as the sends do */
    uint8_t *replies;  /* where large ones go, by slot */
    struct answer *free_answers;
    struct peer *peer;
    bool failed;
} ucx;

static bool failed_with(const char *what, ucs_status_t status)
{
    ucx.failed = true;
    return peer_failed(what, ucs_status_string(status));
}

/* ---- Answers --------------------------------------------------------------------------------- */

static struct answer *new_answer(uint32_t slot, ucp_ep_h endpoint)
{
    struct answer *answer = ucx.free_answers;
    if (answer) {
        ucx.free_answers = answer->next;
    } else {
        answer = peer_memory(sizeof(*answer));
    }
    answer->slot = slot;
    answer->endpoint = endpoint;
    answer->kept = NULL;
    return answer;
}

static void *buffer_of(struct answer *answer)
{
    if (!answer->buffer) {
        answer->buffer = peer_memory(ucx.peer->options.size);
    }
    return answer->buffer;
}

static void answer_done(struct answer *answer)
{
    if (answer->kept) {
        ucp_am_data_release(ucx.worker, answer->kept);
    }
    answer->next = ucx.free_answers;
    ucx.free_answers = answer;
}

static void reply_sent(void *request, ucs_status_t status, void *user_data)
{
    if (status != UCS_OK) {
        failed_with("reply", status);
    }
    answer_done(user_data);
    ucp_request_free(request);
}

/* Returns whether the reply has left already. */
static bool send_reply(struct answer *answer, const void *data, size_t bytes)
{
    ucp_request_param_t how = {.op_attr_mask =
                                   UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                               .cb.send = reply_sent,
                               .user_data = answer};
    ucs_status_ptr_t request = ucp_am_send_nbx(answer->endpoint, REPLY_ID, &answer->slot,
                                               sizeof(answer->slot), data, bytes, &how);
    if (UCS_PTR_IS_ERR(request)) {
        failed_with("ucp_am_send_nbx", UCS_PTR_STATUS(request));
    }
    return request == NULL;
}

static void large_request_here(void *request, ucs_status_t status, size_t bytes, void *user_data)
{
    struct answer *answer = user_data;
    if (status != UCS_OK) {
        failed_with("a large request", status);
    } else if (send_reply(answer, answer->buffer, bytes)) {
        answer_done(answer);
    }
    if (request) {
        ucp_request_free(request);
    }
}

static ucs_status_t receive_large_request(struct answer *answer, void *data, size_t bytes)
{
    ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                               UCP_OP_ATTR_FIELD_USER_DATA |
                                               UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                               .cb.recv_am = large_request_here,
                               .user_data = answer};
    ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(ucx.worker, data, buffer_of(answer), bytes, &how);
    if (UCS_PTR_IS_ERR(request)) {
        failed_with("ucp_am_recv_data_nbx", UCS_PTR_STATUS(request));
    }
    return UCS_INPROGRESS;
}

static ucs_status_t on_request(void *argument, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    uint32_t slot;
    (void)argument;
    if (header_bytes != sizeof(slot) || bytes > ucx.peer->options.size) {
        peer_failed("request", "of another size");
        ucx.failed = true;
        return UCS_OK;
    }
    memcpy(&slot, header, sizeof(slot));
    struct answer *answer = new_answer(slot, param->reply_ep);
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        return receive_large_request(answer, data, bytes);
    }
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) {
        answer->kept = data;
        if (!send_reply(answer, data, bytes)) {
            return UCS_INPROGRESS;
        }
        answer->kept = NULL; /* what is not kept is UCX's again as we return */
        answer_done(answer);
        return UCS_OK;
    }
    memcpy(buffer_of(answer), data, bytes);
    if (send_reply(answer, answer->buffer, bytes)) {
        answer_done(answer);
    }
    return UCS_OK;
}

/* ---- The client's calls ---------------------------------------------------------------------- */

static void request_sent(void *request, ucs_status_t status, void *user_data)
{
    (void)user_data;
    if (status != UCS_OK) {
        failed_with("request", status);
    }
    ucp_request_free(request);
}

static void large_reply_here(void *request, ucs_status_t status, size_t bytes, void *user_data)
{
    const uint32_t *slot = user_data;
    if (status != UCS_OK) {
        failed_with("a large reply", status);
    } else {
        peer_answered(ucx.peer, *slot, ucx.replies + (uint64_t)*slot * ucx.peer->options.size,
                      bytes);
    }
    if (request) {
        ucp_request_free(request);
    }
}

static ucs_status_t on_reply(void *argument, const void *header, size_t header_bytes, void *data,
                             size_t bytes, const ucp_am_recv_param_t *param)
{
    uint32_t slot;
    (void)argument;
    (void)header_bytes;
    memcpy(&slot, header, sizeof(slot));
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        peer_answered(ucx.peer, slot, data, bytes);
        return UCS_OK;
    }
    if (!ucx.replies) {
        ucx.replies = peer_memory((uint64_t)ucx.peer->slot_count * ucx.peer->options.size);
    }
    ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                               UCP_OP_ATTR_FIELD_USER_DATA |
                                               UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                               .cb.recv_am = large_reply_here,
                               .user_data = &ucx.numbers[slot]};
    ucs_status_ptr_t request = ucp_am_recv_data_nbx(
        ucx.worker, data, ucx.replies + (uint64_t)slot * ucx.peer->options.size, bytes, &how);
    if (UCS_PTR_IS_ERR(request)) {
        failed_with("ucp_am_recv_data_nbx", UCS_PTR_STATUS(request));
    }
    return UCS_INPROGRESS;
}

static int32_t send_slots(struct peer *peer, const uint32_t *slots, uint32_t count)
{
    ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS,
                               .cb.send = request_sent,
                               .flags = UCP_AM_SEND_FLAG_REPLY};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = slots[i];
        ucs_status_ptr_t request = ucp_am_send_nbx(
            ucx.endpoints[slot % ucx.endpoint_count], REQUEST_ID, &ucx.numbers[slot],
            sizeof(*ucx.numbers), peer_request(peer, slot), peer->options.size, &how);
        if (UCS_PTR_IS_ERR(request)) {
            failed_with("ucp_am_send_nbx", UCS_PTR_STATUS(request));
            return -1;
        }
    }
    return (int32_t)count;
}

static int32_t progress(struct peer *peer)
{
    (void)peer;
    int32_t found = ucp_worker_progress(ucx.worker) != 0;
    return ucx.failed ? -1 : found;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static bool set_handler(unsigned id, ucp_am_recv_callback_t callback)
{
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                    UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                                                    UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = id,
                                      .flags = UCP_AM_FLAG_WHOLE_MSG,
                                      .cb = callback};
    ucs_status_t status = ucp_worker_set_am_recv_handler(ucx.worker, &handler);
    return status == UCS_OK || failed_with("ucp_worker_set_am_recv_handler", status);
}

static bool open_worker(struct peer *peer)
{
    ucp_params_t params = {.field_mask =
                               UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_AM,
                           .estimated_num_eps = peer->options.connections};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucx.peer = peer;
    ucx.endpoints = peer_memory(peer->options.connections * sizeof(*ucx.endpoints));
    ucs_status_t status = ucp_init(&params, NULL, &ucx.context);
    if (status == UCS_OK) {
        status = ucp_worker_create(ucx.context, &worker, &ucx.worker);
    }
    if (status != UCS_OK) {
        return failed_with("ucp_worker_create", status);
    }
    return set_handler(REQUEST_ID, on_request) && set_handler(REPLY_ID, on_reply);
}

static void close_worker(void)
{
    if (ucx.worker) {
        ucp_worker_destroy(ucx.worker);
    }
    if (ucx.context) {
        ucp_cleanup(ucx.context);
    }
}

/* Waits until everything that the endpoint has to do is done, connecting included. */
static bool wait_for(ucs_status_ptr_t request, const char *what)
{
    ucs_status_t status = UCS_PTR_STATUS(request);
    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS && !peer_stop &&
               !ucx.failed) {
            if (ucp_worker_progress(ucx.worker) == 0) {
                nap(); /* the device and the other side may need this processor */
            }
        }
        ucp_request_free(request);
    }
    return status == UCS_OK || failed_with(what, status);
}

/* By the address of the server's worker, which comes over TCP, as in ucx_perftest. */
static bool connect_all(struct peer *peer)
{
    if (!open_worker(peer)) {
        return false;
    }
    int tcp = peer_tcp_connect(peer);
    uint64_t bytes;
    void *address = tcp < 0 ? NULL : peer_hear(tcp, &bytes);
    if (!address) {
        return false;
    }
    close(tcp);
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    ucp_request_param_t nothing = {.op_attr_mask = 0};
    ucx.numbers = peer_memory(peer->slot_count * sizeof(*ucx.numbers));
    for (uint32_t slot = 0; slot < peer->slot_count; slot++) {
        ucx.numbers[slot] = slot;
    }
    for (; ucx.endpoint_count < peer->options.connections; ucx.endpoint_count++) {
        ucs_status_t status =
            ucp_ep_create(ucx.worker, &params, &ucx.endpoints[ucx.endpoint_count]);
        if (status != UCS_OK) {
            return failed_with("ucp_ep_create", status);
        }
        if (!wait_for(ucp_ep_flush_nbx(ucx.endpoints[ucx.endpoint_count], &nothing),
                      "connecting")) {
            return false;
        }
    }
    free(address);
    return true;
}

static void leave(struct peer *peer)
{
    ucp_request_param_t nothing = {.op_attr_mask = 0};
    (void)peer;
    for (uint32_t i = 0; i < ucx.endpoint_count && !ucx.failed; i++) {
        wait_for(ucp_ep_close_nbx(ucx.endpoints[i], &nothing), "closing");
    }
    close_worker();
}

/* ---- The server ------------------------------------------------------------------------------ */

static bool serve(struct peer *peer)
{
    if (!open_worker(peer)) {
        return false;
    }
    int tcp = peer_tcp_accept(peer);
    if (tcp < 0) {
        return peer_stop;
    }
    ucp_address_t *address;
    size_t bytes;
    ucs_status_t status = ucp_worker_get_address(ucx.worker, &address, &bytes);
    if (status != UCS_OK) {
        return failed_with("ucp_worker_get_address", status);
    }
    bool good = peer_tell(tcp, address, bytes);
    ucp_worker_release_address(ucx.worker, address);
    close(tcp);
    while (good && !peer_stop && !ucx.failed) {
        if (ucp_worker_progress(ucx.worker) == 0 && peer->options.patient) {
            nap();
        }
    }
    return good && !ucx.failed;
}

static const char *version(void)
{
    return ucp_get_version_string();
}

int main(int argc, char **argv)
{
    const struct peer_transport transport = {"ucx",    serve, connect_all, send_slots,
                                             progress, leave, version};
    return peer_main(argc, argv, &transport);
}
