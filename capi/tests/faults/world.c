/* world.c: see world.h. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inject.h"
#include "place.h"

#define OPS_MAX 4096u
#define MESSAGE 100000u
#define LIMIT_S 20                /* nothing takes so long, whatever fails */
#define TIMEOUT_NS 1000000000llu  /* of connecting and leaving, when a call fails */
#define PATIENT_NS 20000000000llu /* likewise, if none does */

crpc_context *contexts[2];
struct link links[LINKS];
bool must_succeed;

static crpc_listener listeners[LINK_KINDS];
static uint32_t ports[LINK_KINDS];
static uint64_t next_op;
static bool accepted[OPS_MAX];
static uint8_t ended[OPS_MAX];
static int32_t ended_with[OPS_MAX];
static unsigned char sent[MESSAGE], received[MESSAGE];

/* ---- Checks ---------------------------------------------------------------------------------- */

static void check_error(const char *what, int32_t status, const char *message)
{
    if (strcmp(crpc_status_name(status), "CRPC_E_?") == 0 || !message[0]) {
        problem("%s: status %d without a name or a message", what, status);
    }
    if (must_succeed) {
        problem("%s: %s, and no call has failed", what, message);
    }
}

bool checked(const char *what, int32_t status, const crpc_error *error)
{
    if (status >= 0) {
        return true;
    }
    if (error->status != status) {
        problem("%s: %s, but the error says %s", what, crpc_status_name(status),
                crpc_status_name(error->status));
    }
    check_error(what, status, error->message);
    return false;
}

uint64_t timeout(void)
{
    return must_succeed ? PATIENT_NS : TIMEOUT_NS;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- What comes ------------------------------------------------------------------------------ */

static void check_link_error(uint32_t side, const struct link *link, int32_t status,
                             const char *what)
{
    crpc_error error = {.struct_size = sizeof(error)};
    kind_get_error((uint32_t)(link - links), side, &error);
    if (error.status >= 0) {
        problem("%s with %s, but get_error says nothing", what, crpc_status_name(status));
    }
    check_error(what, status, error.message);
}

#define HANDED_OVER 1 /* the user_data of a request that came so; the listeners' is 0 */

/* Which link it is, its token would say; but there is only one at a time that is not complete. */
static void requested(uint32_t side, uint64_t bits, uint64_t user_data)
{
    uint32_t index = 0;
    while (index < LINKS && (links[index].made[SERVER] || !links[index].made[CLIENT])) {
        index++;
    }
    if (index ==
        LINKS) { /* of a connect that was tried again: the first try is not to be heard of */
        problem("a request that nobody made");
    }
    struct link *link = &links[index];
    if (link->hands && (side == CLIENT || user_data != HANDED_OVER)) {
        TRY("hand over",
            kind_hand_over(index, side, bits, side == CLIENT ? HANDED_OVER : 0, &error));
        return;
    }
    link->bits[SERVER] = bits;
    if (link->refuse) {
        int32_t status = kind_reject(index);
        link->made[SERVER] = false;
        link->told[SERVER] = true;
        if (status != CRPC_OK && (status != CRPC_E_STATE || must_succeed)) {
            problem("reject: %s", crpc_status_name(status));
        }
        return;
    }
    link->made[SERVER] = true;
    crpc_error error = {.struct_size = sizeof(error)};
    if (!checked("accept", kind_accept(index, &error), &error)) {
        int32_t status = kind_accept(index, &error);
        if (status != CRPC_OK && status != CRPC_E_STATE) {
            problem("accept fails again: %s", error.message);
        }
        if (status != CRPC_OK) {
            link->told[SERVER] = link->over[SERVER] = true;
            link->status[SERVER] = status;
        }
    }
}

static void op_ended(uint64_t op, int32_t status)
{
    if (op >= next_op || !accepted[op] || ended[op]++ != 0) {
        problem("op %llu has ended twice, or never was", (unsigned long long)op);
    }
    ended_with[op] = status;
    if (status < 0 && must_succeed) {
        problem("an op has ended with %s", crpc_status_name(status));
    }
}

static void reply(uint32_t side, const crpc_completion *request)
{
    int32_t reason = 0;
    const crpc_op op = {.opcode = CRPC_OP_REPLY,
                        .endpoint = request->endpoint,
                        .token = request->token,
                        .user_data = next_op,
                        .payload_bytes = request->payload_bytes};
    if (crpc_submit(contexts[side], &op, 1, (const void *)(uintptr_t)request->payload,
                    request->payload_bytes, &reason) == 1) {
        accepted[next_op++] = true;
    } else if (must_succeed) {
        problem("reply: %s", crpc_status_name(reason));
    }
}

static void take(uint32_t side, const crpc_completion *done)
{
    uint64_t user_data = done->endpoint_user_data;
    struct link *link = &links[user_data / 2 % LINKS];
    switch (done->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        requested(side, done->endpoint.bits, done->user_data);
        break;
    case CRPC_COMPLETION_CONNECTED:
        if (link->told[side]) {
            problem("CONNECTED comes twice");
        }
        link->told[side] = true;
        link->status[side] = done->status;
        if (done->status < 0) {
            check_link_error(side, link, done->status, "CONNECTED");
        }
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        if (link->over[side]) {
            problem("DISCONNECTED comes twice");
        }
        link->over[side] = true;
        if (done->status < 0 && !(link->left && done->status == CRPC_E_DISCONNECTED)) {
            check_link_error(side, link, done->status, "DISCONNECTED");
        }
        break;
    case CRPC_COMPLETION_REQUEST:
        reply(side, done);
        break;
    case CRPC_COMPLETION_RESPONSE:
    case CRPC_COMPLETION_REPLY:
    case CRPC_COMPLETION_CANCEL:
    case CRPC_COMPLETION_SENT:
    case CRPC_COMPLETION_RECEIVED:
    case CRPC_COMPLETION_WORK:
        op_ended(done->user_data, done->kind == CRPC_COMPLETION_CANCEL ? 0 : done->status);
        break;
    default:
        break;
    }
}

void pump(void)
{
    crpc_completion completions[32];
    for (uint32_t side = 0; side < 2; side++) {
        int32_t count = crpc_poll(contexts[side], completions, 32);
        if (count < 0) {
            problem("poll: %s", crpc_status_name(count));
        }
        for (int32_t i = 0; i < count; i++) {
            take(side, &completions[i]);
        }
        int32_t status = count == 0 ? crpc_wait(contexts[side], 300000) : CRPC_OK;
        if (status != CRPC_OK && status != CRPC_E_TIMEOUT &&
            (must_succeed || (status != CRPC_E_SYSTEM && status != CRPC_E_INTERRUPTED))) {
            problem("wait: %s", crpc_status_name(status));
        }
    }
}

#define PUMP_UNTIL(condition)                                                                      \
    do {                                                                                           \
        for (double end = seconds() + LIMIT_S; !(condition);) {                                    \
            if (seconds() > end) {                                                                 \
                problem("nothing more comes: waited for %s", #condition);                          \
            }                                                                                      \
            pump();                                                                                \
        }                                                                                          \
    } while (0)

/* ---- Connecting ------------------------------------------------------------------------------ */

static bool connected(const struct link *link)
{
    return link->told[0] && link->told[1] && link->status[0] == CRPC_OK &&
           link->status[1] == CRPC_OK && link->made[0] && link->made[1];
}

bool link_is_up(uint32_t index)
{
    const struct link *link = &links[index];
    return connected(link) && !link->over[0] && !link->over[1];
}

bool link_connect(uint32_t index, enum link_kind kind, const char *host)
{
    char address[128];
    struct link *link = &links[index];
    snprintf(address, sizeof(address), "%s:%u", host ? host : place_address(0), ports[kind]);
    link->kind = kind;
    TRY("connect", kind_connect(index, address, &error));
    PUMP_UNTIL(link->told[CLIENT] && (!link->made[SERVER] || link->told[SERVER]));
    return connected(link);
}

bool link_join(uint32_t index, enum link_kind kind)
{
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2];
    struct link *link = &links[index];
    link->kind = kind;
    for (uint32_t side = 0; side < 2; side++) {
        TRY("blob", kind_blob(index, side, blobs[side], &bytes[side], &error));
    }
    for (uint32_t side = 0; side < 2; side++) {
        TRY("join", kind_join(index, side, blobs[1 - side], bytes[1 - side], &error));
    }
    PUMP_UNTIL(link->told[CLIENT] && link->told[SERVER]);
    return connected(link);
}

void link_leave(uint32_t index)
{
    struct link *link = &links[index];
    int32_t status = kind_leave(index, CLIENT);
    link->left = link->kind == OF_QUEUES;
    if (status != CRPC_OK && (must_succeed || status != CRPC_E_STATE)) {
        problem("disconnect: %s", crpc_status_name(status));
    }
    PUMP_UNTIL(link->over[CLIENT] && (link->over[SERVER] || !must_succeed));
}

static void link_close(struct link *link)
{
    for (uint32_t side = 0; side < 2; side++) {
        if (link->made[side]) {
            int32_t status = kind_close((uint32_t)(link - links), side);
            if (status != CRPC_OK) {
                problem("close: %s", crpc_status_name(status));
            }
            link->made[side] = false;
        }
    }
}

/* ---- Ops ------------------------------------------------------------------------------------- */

void link_call(uint32_t index, uint32_t count)
{
    int32_t reason = 0;
    for (uint32_t i = 0; i < count; i++) {
        const crpc_op op = {.opcode = CRPC_OP_CALL,
                            .endpoint = {links[index].bits[CLIENT]},
                            .user_data = next_op,
                            .payload_bytes = 100,
                            .reply_bytes_max = 100};
        if (crpc_submit(contexts[CLIENT], &op, 1, sent, 100, &reason) == 1) {
            accepted[next_op++] = true;
        } else if (must_succeed) {
            problem("call: %s", crpc_status_name(reason));
        }
    }
}

static void submit(uint32_t side, crpc_channel_op op)
{
    int32_t reason = 0;
    op.user_data = next_op;
    if (crpc_channel_submit(contexts[side], &op, 1, &reason) == 1) {
        accepted[next_op++] = true;
    } else if (must_succeed) {
        problem("message: %s", crpc_status_name(reason));
    } else if (inject_failed() && reason != CRPC_E_DISCONNECTED && reason != CRPC_E_CLOSING &&
               reason !=
                   CRPC_E_UNSUPPORTED) { /* memory that one rail alone could register stays so */
        /* The call that failed was for this op, and nothing was changed. */
        if (crpc_channel_submit(contexts[side], &op, 1, &reason) != 1) {
            problem("a message is refused again: %s", crpc_status_name(reason));
        }
        accepted[next_op++] = true;
    }
}

void link_send(uint32_t index, crpc_region from, crpc_region to, uint32_t count)
{
    const struct link *link = &links[index];
    for (uint32_t i = 0; i < count; i++) {
        submit(SERVER, (crpc_channel_op){.opcode = CRPC_CHANNEL_RECEIVE,
                                         .channel = {link->bits[SERVER]},
                                         .region = to,
                                         .address = (uintptr_t)received,
                                         .bytes = MESSAGE});
        submit(CLIENT, (crpc_channel_op){.opcode = CRPC_CHANNEL_SEND,
                                         .channel = {link->bits[CLIENT]},
                                         .region = from,
                                         .address = (uintptr_t)sent,
                                         .bytes = MESSAGE,
                                         .timeout_ns = timeout()});
        ops_end();
    }
}

bool queue_submit(uint32_t side, crpc_queue queue, crpc_queue_op op)
{
    int32_t reason = 0;
    op.user_data = next_op;
    if (crpc_queue_submit(contexts[side], queue, &op, 1, NULL, 0, &reason) == 1) {
        accepted[next_op++] = true;
        return true;
    }
    if (must_succeed) {
        problem("opcode %u: %s", op.opcode, crpc_status_name(reason));
    }
    return false;
}

uint64_t op_next(void)
{
    return next_op;
}

void op_end(uint64_t op)
{
    for (double end = seconds() + (must_succeed ? LIMIT_S : 2);
         accepted[op] && !ended[op] && seconds() < end;) {
        pump();
    }
}

static bool all_ended(void)
{
    for (uint64_t op = 0; op < next_op; op++) {
        if (!ended[op]) {
            return false;
        }
    }
    return true;
}

void ops_end(void)
{
    /* What was refused at one side leaves the other waiting: closing ends it. */
    for (double end = seconds() + (must_succeed ? LIMIT_S : 2); !all_ended() && seconds() < end;) {
        pump();
    }
    if (must_succeed && !all_ended()) {
        problem("an op has not ended");
    }
}

/* ---- The world ------------------------------------------------------------------------------- */

void world_open(bool queues)
{
    const crpc_context_options options = {.struct_size = sizeof(options),
                                          .flags = CRPC_CONTEXT_RAILS |
                                                   (queues ? CRPC_CONTEXT_QUEUES : 0),
                                          .endpoints_max = 8,
                                          .receive_depth = 256,
                                          .rail_receive_depth = 1024,
                                          .channels_max = 4};
    memset(links, 0, sizeof(links));
    memset(accepted, 0, sizeof(accepted));
    memset(ended, 0, sizeof(ended));
    memset(ended_with, 0, sizeof(ended_with));
    next_op = 0;
    for (uint32_t side = 0; side < 2; side++) {
        TRY("open", crpc_context_open(&options, &contexts[side], &error));
    }
    for (uint32_t kind = 0; kind < (queues ? 3u : 2u); kind++) {
        const uint32_t flags[LINK_KINDS] = {0, CRPC_LISTENER_CHANNELS, CRPC_LISTENER_QUEUES};
        const crpc_listener_options of_kind = {.struct_size = sizeof(of_kind),
                                               .flags = flags[kind]};
        crpc_listener_info info = {.struct_size = sizeof(info)};
        TRY("listen", crpc_listener_open(contexts[SERVER], place_at(0, "0"), &of_kind,
                                         &listeners[kind], &error));
        crpc_listener_get_info(contexts[SERVER], listeners[kind], &info);
        ports[kind] = info.port;
    }
    if (!link_connect(0, OF_CALLS, NULL)) {
        problem("the witness cannot connect");
    }
}

/* What breaks if the device refuses to do its work: more than one connection may be on it. */
static bool is_of_the_device(const char *failed)
{
    return failed &&
           (strcmp(failed, "ibv_poll_cq") == 0 || strcmp(failed, "ibv_post_srq_recv") == 0);
}

static uint32_t queues_left(void)
{
    crpc_context_info info[2] = {{.struct_size = sizeof(info[0])},
                                 {.struct_size = sizeof(info[1])}};
    crpc_context_get_info(contexts[0], &info[0]);
    crpc_context_get_info(contexts[1], &info[1]);
    return info[0].queues + info[1].queues;
}

void world_close(void)
{
    bool harmless = !is_of_the_device(inject_failed());
    for (uint32_t i = 1; i < LINKS; i++) {
        link_close(&links[i]);
        if (links[i].shared.bits != 0 &&
            crpc_queue_close(contexts[SERVER], links[i].shared) != CRPC_OK) {
            problem("the SRQ does not close");
        }
    }
    PUMP_UNTIL(all_ended() && queues_left() == 0);
    uint64_t witness = next_op;
    link_call(0, 1);
    if (harmless && next_op == witness) {
        problem("the witness takes no call");
    }
    PUMP_UNTIL(all_ended());
    if (harmless && (ended_with[witness] != 0 || links[0].over[0] || links[0].over[1])) {
        problem("the witness was harmed: %s", crpc_status_name(ended_with[witness]));
    }
    crpc_context_info info = {.struct_size = sizeof(info)};
    for (uint32_t side = 0; side < 2; side++) {
        crpc_context_get_info(contexts[side], &info);
        if (info.endpoints != 1) {
            problem("%u endpoints are left, and not the witness alone", info.endpoints);
        }
    }
    link_close(&links[0]);
    for (uint32_t side = 0; side < 2; side++) {
        if (crpc_context_close(contexts[side]) != CRPC_OK) {
            problem("the context does not close");
        }
    }
}
