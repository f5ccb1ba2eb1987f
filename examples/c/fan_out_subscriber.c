/* fan_out_subscriber.c: takes what fan_out_publisher sends, with any number of members.
 *
 *   fan_out_subscriber ADDRESS [MEMBERS]        e.g. fan_out_subscriber 10.99.0.1:7474 250
 *
 * Each member is a DCT with a mailbox of its own (fan_out.h). Here they are in one program, so that one machine
 * can have a thousand; a real subscriber has one. All share the receives of one SRQ.
 */
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "fan_out.h"

#define BATCH 256
#define RECEIVES_PER_MEMBER 1u

struct subscriber {
    crpc_context *context;
    crpc_queue receives;
    struct fan_out_member *members;
    struct fan_out_mailbox *mailboxes;
    uint32_t count;
    uint64_t number;   /* of the update that comes in now */
    uint32_t have_it;  /* members */
    uint32_t too_late; /* which did not read it in time */
    bool over;
};

static int failed(const char *what, const char *why)
{
    fprintf(stderr, "fan_out_subscriber: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

/* ---- Members --------------------------------------------------------------------------------- */

/* A WRITE_IMMEDIATE takes a receive, but not its memory: there is none. */
static void receive(struct subscriber *subscriber, uint32_t count)
{
    crpc_queue_op ops[BATCH];
    for (uint32_t i = 0; i < count && i < BATCH; i++) {
        ops[i] = (crpc_queue_op){.opcode = CRPC_QUEUE_RECEIVE};
    }
    while (count > 0) {
        uint32_t next = count < BATCH ? count : BATCH;
        crpc_queue_submit(subscriber->context, subscriber->receives, ops, next, NULL, 0, NULL);
        count -= next;
    }
}

static uint64_t random_key(void)
{
    uint64_t key = 0;
    FILE *source = fopen("/dev/urandom", "rb");
    if (!source || fread(&key, sizeof(key), 1, source) != 1) {
        fprintf(stderr, "fan_out_subscriber: no random numbers\n");
        exit(EXIT_FAILURE);
    }
    fclose(source);
    return key;
}

static int32_t open_member(struct subscriber *subscriber, uint32_t number, uint32_t remote_key,
                           crpc_error *error)
{
    const crpc_queue_options options = {.struct_size = sizeof(options),
                                        .kind = CRPC_QUEUE_KIND_DCT,
                                        .user_data = number,
                                        .receive_queue = subscriber->receives,
                                        .access_key = random_key()};
    struct fan_out_member *member = &subscriber->members[number];
    crpc_queue dct;
    int32_t status = crpc_queue_open(subscriber->context, &options, &dct, error);
    if (status < 0) {
        return status;
    }
    *member =
        (struct fan_out_member){.address = {.struct_size = sizeof(member->address)},
                                .access_key = options.access_key,
                                .mailbox = (uint64_t)(uintptr_t)&subscriber->mailboxes[number],
                                .remote_key = remote_key};
    return crpc_queue_get_address(subscriber->context, dct, &member->address);
}

static int32_t open_members(struct subscriber *subscriber, crpc_error *error)
{
    const crpc_queue_options shared = {.struct_size = sizeof(shared),
                                       .kind = CRPC_QUEUE_KIND_SRQ,
                                       .receives = subscriber->count * RECEIVES_PER_MEMBER};
    const uint64_t bytes = subscriber->count * sizeof(*subscriber->mailboxes);
    crpc_region_info info = {.struct_size = sizeof(info)};
    crpc_region region;
    int32_t status =
        crpc_region_register(subscriber->context, subscriber->mailboxes, bytes,
                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, &region, error);
    if (status == CRPC_OK) {
        crpc_region_get_info(subscriber->context, region, &info);
        status = crpc_queue_open(subscriber->context, &shared, &subscriber->receives, error);
    }
    for (uint32_t i = 0; i < subscriber->count && status == CRPC_OK; i++) {
        status = open_member(subscriber, i, info.remote_key, error);
    }
    if (status == CRPC_OK) {
        receive(subscriber, shared.receives);
    }
    return status;
}

/* ---- Telling the publisher ------------------------------------------------------------------- */

static void take_update(struct subscriber *subscriber, const crpc_completion *done);

/* The first updates may come while others are still being told of. */
static crpc_completion next(struct subscriber *subscriber)
{
    crpc_completion done;
    for (;;) {
        while (crpc_poll(subscriber->context, &done, 1) == 0) {
            crpc_wait(subscriber->context, CRPC_FOREVER);
        }
        if (done.kind != CRPC_COMPLETION_WORK) {
            return done;
        }
        take_update(subscriber, &done);
    }
}

/* Waits for completions of this kind, and returns the status. */
static int32_t await(struct subscriber *subscriber, uint8_t kind)
{
    crpc_completion done;
    do {
        done = next(subscriber);
    } while (done.kind != kind && done.kind != CRPC_COMPLETION_DISCONNECTED);
    return done.kind == kind || done.status < 0 ? done.status : CRPC_E_DISCONNECTED;
}

static int32_t join(struct subscriber *subscriber, crpc_endpoint publisher)
{
    int32_t status = CRPC_OK;
    for (uint32_t first = 0; first < subscriber->count && status == CRPC_OK;) {
        const uint32_t left = subscriber->count - first;
        const uint32_t count = left < FAN_OUT_MEMBERS_OF_CALL ? left : FAN_OUT_MEMBERS_OF_CALL;
        const uint32_t bytes = count * (uint32_t)sizeof(*subscriber->members);
        const crpc_op call = {.opcode = CRPC_OP_CALL,
                              .endpoint = publisher,
                              .payload_bytes = bytes,
                              .timeout_ns = 30000000000u}; /* 30 s */
        if (crpc_submit(subscriber->context, &call, 1, &subscriber->members[first], bytes,
                        &status) == 1) {
            status = await(subscriber, CRPC_COMPLETION_RESPONSE);
        }
        first += count;
    }
    return status;
}

static int32_t tell(struct subscriber *subscriber, const char *address, crpc_error *error)
{
    crpc_endpoint publisher;
    int32_t status = crpc_endpoint_connect(subscriber->context, address, NULL, &publisher, error);
    if (status < 0) {
        return status;
    }
    status = await(subscriber, CRPC_COMPLETION_CONNECTED);
    if (status < 0) {
        crpc_endpoint_get_error(subscriber->context, publisher, error);
        return status;
    }
    status = join(subscriber, publisher);
    if (status != CRPC_OK) {
        snprintf(error->message, sizeof(error->message), "the publisher does not take us: %s",
                 status > 0 ? "status of its own" : crpc_status_text(status));
    }
    crpc_endpoint_close(subscriber->context, publisher);
    return status;
}

/* ---- Updates --------------------------------------------------------------------------------- */

static void finish(struct subscriber *subscriber, const struct fan_out_update *update)
{
    printf("update %llu: %u members have it, %u too late: %.*s\n",
           (unsigned long long)subscriber->number, subscriber->have_it, subscriber->too_late,
           (int)(update->bytes < sizeof(update->text) ? update->bytes : sizeof(update->text)),
           update->text);
    fflush(stdout);
    subscriber->over = update->bytes == 0;
}

static void take_update(struct subscriber *subscriber, const crpc_completion *done)
{
    struct fan_out_update update;
    if (done->status != CRPC_OK || !(done->flags & CRPC_COMPLETION_IMMEDIATE) ||
        done->endpoint_user_data >= subscriber->count) {
        return; /* whoever knows a member's address and key can send to it */
    }
    const uint32_t number = done->reply_bytes_max;
    const struct fan_out_mailbox *mailbox = &subscriber->mailboxes[done->endpoint_user_data];
    memcpy(&update, &mailbox->updates[number % 2], sizeof(update)); /* then it does not change */
    if (number != (uint32_t)subscriber->number) {
        subscriber->number = number;
        subscriber->have_it = subscriber->too_late = 0;
    }
    if ((uint32_t)update.number == number && update.checksum == fan_out_checksum(&update)) {
        subscriber->have_it++;
    } else {
        subscriber->too_late++;
    }
    receive(subscriber, 1);
    if (subscriber->have_it + subscriber->too_late == subscriber->count) {
        finish(subscriber, &update);
    }
}

static void subscribe(struct subscriber *subscriber)
{
    crpc_completion done[BATCH];
    while (!subscriber->over) {
        int32_t count = crpc_poll(subscriber->context, done, BATCH);
        for (int32_t i = 0; i < count; i++) {
            if (done[i].kind == CRPC_COMPLETION_WORK) {
                take_update(subscriber, &done[i]);
            }
        }
        if (count == 0) {
            crpc_wait(subscriber->context, CRPC_FOREVER);
        }
    }
}

int main(int argc, char **argv)
{
    static struct subscriber subscriber;
    const uint32_t count = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    crpc_context_options options = {
        .struct_size = sizeof(options), .flags = CRPC_CONTEXT_QUEUES, .queues_max = count + 1};
    crpc_error error = {.struct_size = sizeof(error)};
    answer_options(argc, argv, "ADDRESS [MEMBERS]",
                   "Takes what fan_out_publisher sends, with so many members; one by default.");
    if (argc < 2 || argc > 3 || count < 1 || count > FAN_OUT_MEMBERS_MAX) {
        return failed("usage", "fan_out_subscriber ADDRESS [MEMBERS up to 8000]");
    }
    subscriber.count = count;
    subscriber.members = calloc(count, sizeof(*subscriber.members));
    subscriber.mailboxes = calloc(count, sizeof(*subscriber.mailboxes));
    if (!subscriber.members || !subscriber.mailboxes) {
        return failed("memory", "there is not enough");
    }
    if (crpc_context_open(&options, &subscriber.context, &error) < 0 ||
        open_members(&subscriber, &error) < 0) {
        return failed("cannot subscribe", error.message);
    }
    if (tell(&subscriber, argv[1], &error) != CRPC_OK) {
        return failed(argv[1], error.message);
    }
    printf("%u members\n", subscriber.count);
    fflush(stdout);
    subscribe(&subscriber);
    crpc_context_close(subscriber.context);
    free(subscriber.members);
    free(subscriber.mailboxes);
    return EXIT_SUCCESS;
}
