/* tag_messages.c: see tag_messages.h. */
#include "tag_messages.h"

#include <copyrpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDINARY 32u /* receives for messages that match nothing */
#define PEERS_MAX 64u
#define SLOT_BYTES (CRPC_TAG_HEADER_BYTES + MESSAGE_BYTES_MAX)
#define BATCH 16
#define REMOVAL UINT64_C(0x100) /* in user_data: a slot is taken back */
#define ALL UINT32_MAX
#define NONE (UINT32_MAX - 1)
#define RETRY_NS UINT64_C(20000000)

/* A message that came before its receive. */
struct stored {
    struct stored *next;
    uint64_t tag;
    uint32_t bytes;
    bool claimed; /* by a receive that is being taken back */
    uint8_t data[MESSAGE_BYTES_MAX];
};

struct slot {
    struct receive *receive; /* NULL = free, unless it is being taken back */
    bool removing;
    struct stored *claimed;
};

struct messages {
    crpc_context *context;
    crpc_region region;
    crpc_queue srq;
    crpc_listener listener;
    crpc_queue peers[PEERS_MAX];
    bool connected[PEERS_MAX];
    uint32_t rank, count;
    char *const *addresses;
    struct slot slots[RECEIVES_MAX];
    struct stored *oldest, **newest;
    uint64_t receives;
    uint32_t sends_open;
    bool sync_due, sync_open;
    uint32_t needed; /* who has to stay, or ALL, or NONE */
    int32_t lost;    /* why one of those has not; or CRPC_OK */
    struct messages_counts counts;
    uint8_t memory[RECEIVES_MAX + ORDINARY][SLOT_BYTES];
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "tag_exchange: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void need(const char *what, int32_t status, const crpc_error *error)
{
    if (status < 0) {
        fail(what, error->message[0] ? error->message : crpc_status_name(status));
    }
}

static void poll_once(struct messages *messages);

/* ---- Ops ------------------------------------------------------------------------------------- */

/* There is room for all that a poll submits: two commands of each slot, one TAG_SYNC, and receives that have just
 * completed. So only a SEND can find none. */
static void submit(struct messages *messages, crpc_queue queue, const crpc_queue_op *op)
{
    int32_t reason;
    while (crpc_queue_submit(messages->context, queue, op, 1, NULL, 0, &reason) != 1) {
        if (reason != CRPC_E_AGAIN || op->opcode != CRPC_QUEUE_SEND) {
            fail(op->opcode == CRPC_QUEUE_SEND ? "a process is gone" : "submit",
                 crpc_status_name(reason));
        }
        poll_once(messages);
    }
}

/* Those of tags have the first places of the memory, and the others the rest. */
static void offer(struct messages *messages, uint8_t opcode, uint32_t place, uint64_t tag,
                  uint64_t mask)
{
    const crpc_queue_op op = {.opcode = opcode,
                              .user_data = place,
                              .region = messages->region,
                              .address = (uint64_t)(uintptr_t)messages->memory[place],
                              .bytes = SLOT_BYTES,
                              .remote_address = tag,
                              .operand = mask};
    submit(messages, messages->srq, &op);
}

static void command(struct messages *messages, uint8_t opcode, uint64_t user_data, uint64_t operand)
{
    const crpc_queue_op op = {.opcode = opcode, .user_data = user_data, .operand = operand};
    submit(messages, messages->srq, &op);
}

/* ---- Matching -------------------------------------------------------------------------------- */

static void complete(struct receive *receive, uint64_t tag, const void *data, uint32_t bytes)
{
    if (bytes > receive->bytes) {
        fail("receive", "the message is longer");
    }
    memcpy(receive->buffer, data, bytes);
    receive->tag = tag;
    receive->bytes = bytes;
    receive->done = true;
}

static void forget(struct messages *messages, struct stored *message)
{
    struct stored **link = &messages->oldest;
    while (*link != message) {
        link = &(*link)->next;
    }
    *link = message->next;
    if (messages->newest == &message->next) {
        messages->newest = link;
    }
    free(message);
}

/* The oldest receive that the device has and this message matches is taken back, to get it. */
static void claim(struct messages *messages, struct stored *message)
{
    struct slot *found = NULL;
    for (uint32_t i = 0; i < RECEIVES_MAX; i++) {
        struct slot *slot = &messages->slots[i];
        if (slot->receive && !slot->removing &&
            (message->tag & slot->receive->mask) == slot->receive->tag &&
            (!found || slot->receive->number < found->receive->number)) {
            found = slot;
        }
    }
    message->claimed = found != NULL;
    if (found) {
        const uint64_t place = (uint64_t)(found - messages->slots);
        found->claimed = message;
        found->removing = true;
        command(messages, CRPC_QUEUE_TAG_REMOVE, place | REMOVAL, place);
    }
}

static void take_unexpected(struct messages *messages, const crpc_completion *done)
{
    const uint8_t *from = messages->memory[done->user_data];
    struct stored *message = calloc(1, sizeof(*message));
    if (!message || done->payload_bytes < CRPC_TAG_HEADER_BYTES ||
        crpc_tag_header_read(from, done->payload_bytes, &message->tag, NULL) != CRPC_TAG_EAGER) {
        fail("message", "it has no tag");
    }
    message->bytes = done->payload_bytes - CRPC_TAG_HEADER_BYTES;
    memcpy(message->data, from + CRPC_TAG_HEADER_BYTES, message->bytes);
    *messages->newest = message;
    messages->newest = &message->next;
    messages->counts.stored++;
    messages->sync_due = true;
    offer(messages, CRPC_QUEUE_RECEIVE, (uint32_t)done->user_data, 0, 0);
    claim(messages, message);
}

/* Its receive has got a message of the device, or is back. */
static void take_added(struct messages *messages, const crpc_completion *done)
{
    struct slot *slot = &messages->slots[done->user_data];
    if (done->status == CRPC_OK) {
        complete(slot->receive, done->token, messages->memory[done->user_data],
                 done->payload_bytes);
        messages->counts.matched++;
    } else if (done->status == CRPC_E_CANCELED && slot->claimed) {
        complete(slot->receive, slot->claimed->tag, slot->claimed->data, slot->claimed->bytes);
        forget(messages, slot->claimed);
        slot->claimed = NULL;
        messages->counts.taken_back++;
    } else {
        fail("receive", crpc_status_name(done->status));
    }
    slot->receive = NULL;
}

static void take_removed(struct messages *messages, const crpc_completion *done)
{
    struct slot *slot = &messages->slots[done->user_data & ~REMOVAL];
    struct stored *message = slot->claimed;
    slot->removing = false;
    slot->claimed = NULL;
    if (message) { /* the device was faster, with a message of another process */
        claim(messages, message);
    }
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static crpc_queue_options options_of(const struct messages *messages)
{
    crpc_queue_options options = {.struct_size = sizeof(options),
                                  .inline_bytes = SLOT_BYTES,
                                  .receive_queue = messages->srq,
                                  .private_bytes = 1};
    options.private_data[0] = (uint8_t)messages->rank;
    return options;
}

static void connect(struct messages *messages, uint32_t to)
{
    crpc_queue_options options = options_of(messages);
    crpc_error error = {.struct_size = sizeof(error)};
    options.user_data = to;
    need(messages->addresses[to],
         crpc_queue_connect(messages->context, messages->addresses[to], &options,
                            &messages->peers[to], &error),
         &error);
}

static void take_request(struct messages *messages, crpc_queue queue)
{
    crpc_queue_options options = options_of(messages);
    crpc_queue_info info = {.struct_size = sizeof(info)};
    crpc_queue_get_info(messages->context, queue, &info);
    const uint32_t from = info.private_data[0];
    if (info.private_bytes == 0 || from <= messages->rank || from >= messages->count ||
        messages->peers[from].bits != 0) {
        crpc_queue_close(messages->context, queue);
        return;
    }
    options.user_data = from;
    options.private_bytes = 0;
    messages->peers[from] = queue;
    crpc_queue_accept(messages->context, queue, &options, NULL);
}

static void take_connected(struct messages *messages, const crpc_completion *done)
{
    const uint32_t peer = (uint32_t)done->endpoint_user_data;
    if (done->status == CRPC_OK) {
        messages->connected[peer] = true;
    } else if (peer < messages->rank) { /* it does not listen yet */
        crpc_queue_close(messages->context, messages->peers[peer]);
        messages->peers[peer].bits = 0;
    } else {
        fail("accept", crpc_status_name(done->status));
    }
}

/* ---- Polling --------------------------------------------------------------------------------- */

static void take_end(struct messages *messages, const crpc_completion *done)
{
    if (messages->needed == ALL || messages->needed == done->endpoint_user_data) {
        messages->lost = done->status;
    }
}

static void take_work(struct messages *messages, const crpc_completion *done)
{
    if (done->method == CRPC_QUEUE_SEND) {
        messages->sends_open--;
    }
    if (done->method == CRPC_QUEUE_TAG_ADD) {
        take_added(messages, done);
    } else if (done->method == CRPC_QUEUE_TAG_REMOVE) {
        take_removed(messages, done);
    } else if (done->method == CRPC_QUEUE_TAG_SYNC) {
        messages->sync_open = false;
    } else if (done->status != CRPC_OK) {
        take_end(messages, done);
    } else if (done->method == CRPC_QUEUE_RECEIVE) {
        take_unexpected(messages, done);
    }
}

static void take(struct messages *messages, const crpc_completion *done)
{
    const crpc_queue queue = {done->endpoint.bits};
    switch (done->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        take_request(messages, queue);
        break;
    case CRPC_COMPLETION_CONNECTED:
        take_connected(messages, done);
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        take_end(messages, done);
        break;
    case CRPC_COMPLETION_WORK:
        take_work(messages, done);
        break;
    default:
        break;
    }
}

static void poll_once(struct messages *messages)
{
    crpc_completion done[BATCH];
    int32_t count = crpc_poll(messages->context, done, BATCH);
    if (count == 0) {
        crpc_wait(messages->context, RETRY_NS);
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        take(messages, &done[i]);
    }
    /* Not before the last of the array: the device matches again when it hears this. What was claimed is taken
     * back before that, since commands are done in order. */
    if (messages->sync_due && !messages->sync_open) {
        messages->sync_due = false;
        messages->sync_open = true;
        command(messages, CRPC_QUEUE_TAG_SYNC, 0, 0);
    }
}

/* All messages of a process complete before its end, but to give them to their receives may take longer. */
static bool any_claims(const struct messages *messages)
{
    bool any = false;
    for (uint32_t i = 0; i < RECEIVES_MAX; i++) {
        any = any || messages->slots[i].claimed;
    }
    return any;
}

static void poll_for_more(struct messages *messages)
{
    if (messages->lost != CRPC_OK && !any_claims(messages)) {
        fail("a process is gone", crpc_status_name(messages->lost));
    }
    poll_once(messages);
}

/* ---- For the program ------------------------------------------------------------------------- */

void messages_receive(struct messages *messages, struct receive *receive)
{
    uint32_t place = 0;
    receive->done = false;
    receive->number = messages->receives++;
    for (struct stored *one = messages->oldest; one; one = one->next) {
        if (!one->claimed && (one->tag & receive->mask) == receive->tag) {
            complete(receive, one->tag, one->data, one->bytes);
            forget(messages, one);
            return;
        }
    }
    while (place < RECEIVES_MAX &&
           (messages->slots[place].receive || messages->slots[place].removing)) {
        place++;
    }
    if (place == RECEIVES_MAX) {
        fail("receive", "too many are open");
    }
    messages->slots[place].receive = receive;
    offer(messages, CRPC_QUEUE_TAG_ADD, place, receive->tag, receive->mask);
}

void messages_wait(struct messages *messages, const struct receive *receive)
{
    while (!receive->done) {
        poll_for_more(messages);
    }
}

void messages_send(struct messages *messages, uint32_t to, uint64_t tag, const void *data,
                   uint32_t bytes)
{
    uint8_t message[SLOT_BYTES];
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_SEND,
                              .flags = CRPC_QUEUE_INLINE,
                              .address = (uint64_t)(uintptr_t)message,
                              .bytes = CRPC_TAG_HEADER_BYTES + bytes};
    if (bytes > MESSAGE_BYTES_MAX) {
        fail("send", "the message is too long");
    }
    crpc_tag_header_write(message, tag, 0);
    memcpy(message + CRPC_TAG_HEADER_BYTES, data, bytes);
    messages->sends_open++;
    submit(messages, messages->peers[to], &op);
}

void messages_need(struct messages *messages, uint32_t rank)
{
    messages->needed = rank;
}

struct messages_counts messages_counts(const struct messages *messages)
{
    return messages->counts;
}

static bool all_connected(struct messages *messages)
{
    bool all = true;
    for (uint32_t i = 0; i < messages->count; i++) {
        if (i == messages->rank || messages->connected[i]) {
            continue;
        }
        all = false;
        if (i < messages->rank && messages->peers[i].bits == 0) {
            connect(messages, i);
        }
    }
    return all;
}

struct messages *messages_open(uint32_t rank, char *const *addresses, uint32_t count)
{
    const crpc_context_options options = {.struct_size = sizeof(options),
                                          .flags = CRPC_CONTEXT_QUEUES};
    const crpc_queue_options shared = {.struct_size = sizeof(shared),
                                       .kind = CRPC_QUEUE_KIND_TM_SRQ,
                                       .receives = ORDINARY,
                                       .tags = RECEIVES_MAX};
    const crpc_listener_options queues = {.struct_size = sizeof(queues),
                                          .flags = CRPC_LISTENER_QUEUES};
    crpc_error error = {.struct_size = sizeof(error)};
    struct messages *messages = calloc(1, sizeof(*messages));
    if (!messages || count > PEERS_MAX || rank >= count) {
        fail("open", "there are too many processes");
    }
    messages->rank = rank;
    messages->count = count;
    messages->addresses = addresses;
    messages->newest = &messages->oldest;
    messages->needed = ALL;
    need("context", crpc_context_open(&options, &messages->context, &error), &error);
    need("region",
         crpc_region_register(messages->context, messages->memory, sizeof(messages->memory),
                              CRPC_ACCESS_LOCAL_WRITE, &messages->region, &error),
         &error);
    need("tags", crpc_queue_open(messages->context, &shared, &messages->srq, &error), &error);
    for (uint32_t i = 0; i < ORDINARY; i++) {
        offer(messages, CRPC_QUEUE_RECEIVE, RECEIVES_MAX + i, 0, 0);
    }
    need("listen",
         crpc_listener_open(messages->context, addresses[rank], &queues, &messages->listener,
                            &error),
         &error);
    while (!all_connected(messages)) {
        poll_for_more(messages);
    }
    return messages;
}

void messages_close(struct messages *messages)
{
    messages->needed = NONE;
    while (messages->sends_open > 0) {
        poll_once(messages);
    }
    crpc_context_close(messages->context);
    while (messages->oldest) {
        forget(messages, messages->oldest);
    }
    free(messages);
}
