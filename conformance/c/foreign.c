/* foreign.c: a peer that knows nothing of copyrpc: it does with librdmacm and libibverbs alone what run.py says, as far as a
 * scenario of queues needs it. So it shows that the other side is one that any RDMA program can talk to.
 *
 * docs/conformance.md has the words. Statuses are named as the library names them, and no more: run.py compares them. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "foreign.h"
#include "line.h"

#define THINGS_MAX 1024
#define COMPLETIONS 8192
#define RESOLVE_MS 60000

static struct ibv_context **all; /* devices; one of them is the one in use */
struct ibv_context *device;
struct ibv_pd *domain;
static struct ibv_comp_channel *channel;
static struct rdma_event_channel *events;
static struct thing things[THINGS_MAX];
static uint32_t things_count;
struct ibv_cq *completions;
uint64_t *results;
struct ibv_mr *results_region;

static struct thing *thing_add(const char *name)
{
    struct thing *thing = &things[things_count++];
    if (things_count == THINGS_MAX) {
        abort(); /* run.py tells of a runner that died */
    }
    *thing = (struct thing){.status = "CRPC_OK"};
    snprintf(thing->name, sizeof(thing->name), "%s", name);
    if (!*name) {
        snprintf(thing->name, sizeof(thing->name), "%u", things_count);
    }
    return thing;
}

static struct thing *thing_named(const char *name)
{
    for (uint32_t i = things_count; i > 0; i--) {
        if (strcmp(things[i - 1].name, name) == 0) {
            return &things[i - 1];
        }
    }
    return NULL;
}

static const char *status_of(int failed)
{
    return !failed ? "CRPC_OK" : errno == EINVAL ? "CRPC_E_INVALID" : "CRPC_E_SYSTEM";
}

/* ---- The device ---- */

static const char *do_open(void)
{
    int count = 0;
    all = rdma_get_devices(&count); /* those that connections are of */
    for (int i = 0; i < count; i++) {
        if (strcmp(ibv_get_device_name(all[i]->device), text("device")) == 0) {
            device = all[i];
        }
    }
    events = rdma_create_event_channel();
    domain = device ? ibv_alloc_pd(device) : NULL;
    channel = domain ? ibv_create_comp_channel(device) : NULL;
    completions = channel ? ibv_create_cq(device, COMPLETIONS, NULL, channel, 0) : NULL;
    results = calloc(RESULTS, sizeof(*results));
    results_region = completions ? ibv_reg_mr(domain, results, RESULTS * sizeof(*results),
                                              IBV_ACCESS_LOCAL_WRITE)
                                 : NULL;
    if (!events || !results_region || ibv_req_notify_cq(completions, 0)) {
        return "CRPC_E_NO_DEVICE";
    }
    put_text(answer(), "device", text("device"));
    put_text(answer(), "driver_name", text("driver"));
    return "CRPC_OK";
}

static void end_queue(struct thing *it)
{
    if (it->id && it->qp) {
        rdma_disconnect(it->id);
        rdma_destroy_qp(it->id);
    } else if (it->qp) {
        ibv_destroy_qp(it->qp);
    }
    if (it->id) {
        rdma_destroy_id(it->id);
    }
    it->id = NULL;
    it->qp = NULL;
}

static const char *do_reset(void)
{
    for (uint32_t i = 0; i < things_count; i++) {
        end_queue(&things[i]);
    }
    for (uint32_t i = 0; i < things_count; i++) {
        if (things[i].window) {
            ibv_dealloc_mw(things[i].window);
        }
        if (things[i].target) {
            verbs_close_target(&things[i]);
        }
    }
    for (uint32_t i = 0; i < things_count; i++) {
        if (things[i].region) {
            ibv_dereg_mr(things[i].region);
        }
        free(things[i].memory);
    }
    things_count = 0;
    post_reset();
    if (device) {
        rdma_destroy_event_channel(events);
        ibv_dereg_mr(results_region);
        free(results);
        ibv_destroy_cq(completions);
        ibv_destroy_comp_channel(channel);
        ibv_dealloc_pd(domain);
        rdma_free_devices(all);
    }
    device = NULL;
    completions = NULL;
    return "CRPC_OK";
}

/* ---- Memory ---- */

static const char *do_register(struct thing *made)
{
    /* CRPC_ACCESS_*, in its order */
    static const int rights[] = {IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE,
                                 IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC};
    int access = IBV_ACCESS_MW_BIND;
    for (uint32_t i = 0; i < 4; i++) {
        access |= number("access") >> i & 1 ? rights[i] : 0;
    }
    made->memory = aligned_alloc(4096, (number("length") + 4095u) & ~4095u);
    made->region = ibv_reg_mr(domain, made->memory, number("length"), access);
    return status_of(!made->region);
}

static const char *do_window(const struct thing *queue, struct thing *made)
{
    const struct thing *region = thing_named(text("region"));
    made->window = ibv_alloc_mw(domain, IBV_MW_TYPE_2);
    if (!made->window || !ops_bind(queue, region, made->window)) {
        return status_of(1);
    }
    put_number(answer(), "remote_key", made->window->rkey);
    return "CRPC_OK";
}

/* ---- Connecting ---- */

static struct sockaddr_in address_of(const char *text)
{
    char host[64];
    struct sockaddr_in address = {.sin_family = AF_INET};
    snprintf(host, sizeof(host), "%s", text);
    char *colon = strchr(host, ':');
    if (colon) {
        *colon = '\0';
        address.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    }
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
}

static const char *do_listen(struct thing *made)
{
    struct sockaddr_in address = address_of(text("address"));
    char host[INET_ADDRSTRLEN] = "";
    if (rdma_create_id(events, &made->id, made, RDMA_PS_TCP) ||
        rdma_bind_addr(made->id, (struct sockaddr *)&address) || rdma_listen(made->id, 16)) {
        return status_of(1);
    }
    inet_ntop(AF_INET, &address.sin_addr, host, sizeof(host));
    json_object_set_new(answer(), "address",
                        json_sprintf("%s:%u", host, ntohs(rdma_get_src_port(made->id))));
    return "CRPC_OK";
}

static uint32_t or_default(const char *key, uint32_t otherwise)
{
    return number(key) ? number(key) : otherwise;
}

/* What the line says of a queue, with the library's defaults. */
static void take_options(struct thing *made)
{
    made->attributes =
        (struct ibv_qp_init_attr){.qp_context = made,
                                  .qp_type = IBV_QPT_RC,
                                  .send_cq = completions,
                                  .recv_cq = completions,
                                  .cap = {.max_send_wr = or_default("sends", 256),
                                          .max_send_sge = or_default("send_pieces", 1),
                                          .max_recv_wr = or_default("receives", 1),
                                          .max_recv_sge = or_default("receive_pieces", 1),
                                          .max_inline_data = or_default("inline_bytes", 60)}};
    const size_t bytes = strlen(text("private"));
    memcpy(made->own_private, text("private"),
           bytes < PRIVATE_BYTES_MAX ? bytes : PRIVATE_BYTES_MAX);
    made->parameters = (struct rdma_conn_param){
        .private_data = made->own_private,
        .private_data_len = (uint8_t)bytes,
        .responder_resources = (uint8_t)or_default("reads_max", RDMA_MAX_RESP_RES),
        .initiator_depth = (uint8_t)or_default("reads_max", RDMA_MAX_INIT_DEPTH),
        .retry_count = (uint8_t)or_default("retry_count", 6),
        .rnr_retry_count = (uint8_t)or_default("not_ready_retry_count", 7)};
}

static const char *do_connect(struct thing *made)
{
    struct sockaddr_in address = address_of(text("address"));
    take_options(made);
    int failed = rdma_create_id(events, &made->id, made, RDMA_PS_TCP) ||
                 rdma_resolve_addr(made->id, NULL, (struct sockaddr *)&address, RESOLVE_MS);
    return status_of(failed);
}

/* Returns whether it failed. */
static int make_pair(struct thing *made)
{
    int failed = rdma_create_qp(made->id, domain, &made->attributes);
    made->qp = made->id->qp;
    return failed;
}

static const char *do_accept(struct thing *request, struct thing *made)
{
    take_options(made);
    made->id = request->id;
    made->id->context = made;
    request->id = NULL;
    memcpy(made->private, request->private, sizeof(made->private));
    int failed = make_pair(made) || rdma_accept(made->id, &made->parameters);
    return status_of(failed);
}

static void tell_connection(const char *kind, const struct thing *it, const char *status)
{
    json_t *event = event_new(kind);
    put_text(event, "endpoint", it->name);
    put_text(event, "status", status);
    event_tell(event);
}

static void tell_connected(struct thing *it, const char *status)
{
    it->connected = strcmp(status, "CRPC_OK") == 0;
    it->over = !it->connected;
    tell_connection("connected", it, status);
}

static void keep_private(struct thing *it, const struct rdma_cm_event *event)
{
    const struct rdma_conn_param *given = &event->param.conn;
    if (given->private_data) {
        memcpy(it->private, given->private_data,
               given->private_data_len < PRIVATE_BYTES_MAX ? given->private_data_len
                                                           : PRIVATE_BYTES_MAX);
    }
}

static void take_request(const struct thing *listener, const struct rdma_cm_event *event)
{
    struct thing *request = thing_add("");
    request->id = event->id;
    keep_private(request, event);
    json_t *told = event_new("connect_request");
    put_text(told, "listener", listener->name);
    put_text(told, "connection", request->name);
    put_text(told, "private", request->private);
    event_tell(told);
}

void queue_end(struct thing *it, const char *status)
{
    /* A peer that hears of an error may be gone before the op completes with it. */
    if (strcmp(it->status, "CRPC_OK") == 0 || strcmp(it->status, "CRPC_E_DISCONNECTED") == 0) {
        it->status = status;
    }
    if (it->connected && !it->over) {
        struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
        it->over = 1;
        ibv_modify_qp(it->qp, &error, IBV_QP_STATE); /* so that what is open is flushed */
        if (it->id) {
            rdma_disconnect(it->id);
        }
    }
}

static void take_event(const struct rdma_cm_event *event)
{
    const int asks = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    struct thing *it = asks ? event->listen_id->context : event->id->context;
    switch (event->event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        take_request(it, event);
        break;
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (make_pair(it) || rdma_resolve_route(it->id, RESOLVE_MS)) {
            tell_connected(it, "CRPC_E_SYSTEM");
        }
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        if (rdma_connect(it->id, &it->parameters)) {
            tell_connected(it, "CRPC_E_SYSTEM");
        }
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        if (event->param.conn.private_data_len > 0 && !*it->private) {
            keep_private(it, event);
        }
        tell_connected(it, "CRPC_OK");
        break;
    case RDMA_CM_EVENT_REJECTED:
        keep_private(it, event);
        tell_connected(it, "CRPC_E_REFUSED");
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        queue_end(it, it->draining ? "CRPC_OK" : "CRPC_E_DISCONNECTED");
        break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
    default:
        if (!it->connected && !it->over) {
            tell_connected(it, "CRPC_E_UNREACHABLE");
        }
    }
}

/* ---- Ends ---- */

/* Queues that drain, and queues of which nothing is open any more. */
static void look_after(struct thing *it)
{
    int waits = it->sends_open > 0;
    for (const struct post *post = post_next(NULL); post; post = post_next(post)) {
        waits |= post->queue == it && post->waits;
    }
    if (it->draining && !it->over && !waits) {
        queue_end(it, "CRPC_OK");
    }
    if (it->connected && it->over && it->qp && !waits && it->receives_open == 0) {
        it->connected = 0;
        tell_connection("disconnected", it, it->status);
    }
}

/* ---- Lines ---- */

static const char *do_post(struct thing *it, const char *opcode)
{
    struct thing *region = thing_named(text("region"));
    struct post *post = post_take(it, opcode, region, region ? region->memory : NULL);
    post->target = (uintptr_t)thing_named(text("target"));
    post->waits = 1; /* the turn's end posts them */
    return "CRPC_OK";
}

#define IS(name) (strcmp(verb, name) == 0)

static const char *of_queue(struct thing *it, const char *verb)
{
    if (IS("post")) {
        return do_post(it, text("opcode"));
    } else if (IS("post_receive")) {
        return do_post(it, "receive");
    } else if (IS("queue_fail")) {
        queue_end(it, "CRPC_E_DISCONNECTED");
    } else if (IS("queue_drain")) {
        it->draining = 1;
    } else if (IS("queue_info")) {
        put_text(answer(), "state", it->connected ? "connected" : "disconnected");
        put_text(answer(), "private", it->private);
        put_number(answer(), "sends_open", it->sends_open);
        put_number(answer(), "receives_open", it->receives_open);
        put_number(answer(), "receives", it->attributes.cap.max_recv_wr);
    } else if (IS("queue_address")) {
        return status_of(verbs_tell_address(it));
    } else if (IS("queue_join_address")) {
        tell_connected(it, status_of(verbs_join(it)));
    } else if (IS("queue_stats")) {
        put_number(answer(), "sends", it->sends);
        put_number(answer(), "receives", it->receives);
    } else if (IS("queue_close")) {
        end_queue(it);
    } else if (IS("queue_reject")) {
        return status_of(rdma_reject(it->id, text("private"), (uint8_t)strlen(text("private"))));
    } else if (IS("region")) {
        put_big(answer(), "address", (uintptr_t)it->memory);
        put_number(answer(), "remote_key", it->region->rkey);
    } else if (IS("memory")) {
        post_look(it->memory);
    } else if (IS("target_open")) {
        return status_of(verbs_target(thing_add(text("name"))));
    } else if (IS("target_address")) {
        return status_of(verbs_tell_target(it));
    } else if (IS("target_close")) {
        return status_of(verbs_close_target(it));
    } else if (IS("listener")) {
        put_number(answer(), "requests", 1); /* rdma_cm does not count */
        put_number(answer(), "refused", 0);
    } else {
        return "UNKNOWN_VERB";
    }
    return "CRPC_OK";
}

static const char *run(const char *verb)
{
    static const char *const keys[] = {"queue", "connection", "listener", "region", "target"};
    const char *name = "";
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && !*name; i++) {
        name = text(keys[i]);
    }
    struct thing *it = thing_named(name);
    if (IS("hello")) {
        line_hello();
        return "CRPC_OK";
    } else if (IS("open")) {
        return do_open();
    } else if (IS("reset")) {
        return do_reset();
    } else if (*name && !it) {
        return "UNKNOWN_NAME";
    } else if (IS("listen")) {
        return do_listen(thing_add(text("name")));
    } else if (IS("register")) {
        return do_register(thing_add(text("name")));
    } else if (
        IS("queue_blob")) { /* which nobody reads: a queue that is connected by its address */
        struct thing *made = thing_add(text("name"));
        take_options(made);
        put_text(answer(), "blob", "");
        return status_of(verbs_make(made));
    } else if (IS("datagrams_open")) {
        struct thing *made = thing_add(text("name"));
        take_options(made);
        return status_of(verbs_make_datagrams(made));
    } else if (IS("target_of")) {
        return status_of(verbs_target_of(thing_add(text("name"))));
    } else if (IS("queue_connect")) {
        return do_connect(thing_add(text("name")));
    } else if (it && IS("window")) {
        return do_window(it, thing_add(text("name")));
    } else if (it && IS("queue_accept")) {
        return do_accept(it, thing_add(text("name")));
    }
    return it ? of_queue(it, verb) : "UNKNOWN_VERB";
}

static void turn(void)
{
    do {
        ops_submit();
    } while (ops_take() > 0);
    for (uint32_t i = 0; i < things_count; i++) {
        look_after(&things[i]);
    }
    fflush(stdout);
}

/* Sleeps until run.py, rdma_cm or the device has something; false when run.py has gone. */
static int sleep_and_obey(void)
{
    struct pollfd sources[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = device ? events->fd : -1, .events = POLLIN},
                               {.fd = device ? channel->fd : -1, .events = POLLIN}};
    struct rdma_cm_event *event;
    struct ibv_cq *cq;
    void *unused;
    poll(sources, 3, -1);
    if (sources[2].revents && ibv_get_cq_event(channel, &cq, &unused) == 0) {
        ibv_ack_cq_events(cq, 1);
        ibv_req_notify_cq(cq, 0); /* before the next turn looks */
    }
    if (sources[1].revents && rdma_get_cm_event(events, &event) == 0) {
        struct rdma_cm_event copy = *event;
        take_event(&copy);
        rdma_ack_cm_event(event);
    }
    if (!sources[0].revents) {
        return 1;
    }
    const char *line = line_read();
    if (line) {
        const char *refused = line_take(line);
        tell_end(json_string(refused ? refused : run(line_verb())));
        fflush(stdout);
    }
    return line != NULL;
}

int main(int count, char **arguments)
{
    static const char *const verbs[] = {"hello",          "open",
                                        "reset",          "listen",
                                        "listener",       "register",
                                        "region",         "memory",
                                        "window",         "queue_connect",
                                        "queue_accept",   "queue_blob",
                                        "queue_address",  "queue_join_address",
                                        "queue_reject",   "queue_info",
                                        "queue_stats",    "queue_fail",
                                        "queue_drain",    "queue_close",
                                        "post",           "post_receive",
                                        "datagrams_open", "target_open",
                                        "target_of",      "target_address",
                                        "target_close",   NULL};
    static const struct line_program program = {.name = "foreign", .verbs = verbs};
    line_begin(&program, count, arguments);
    do {
        turn();
    } while (sleep_and_obey());
    do_reset();
    return 0;
}
