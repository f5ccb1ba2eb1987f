/* fan_out_publisher.c: sends each line of its standard input to all subscribers, over one queue.
 *
 *   fan_out_publisher [ADDRESS]        e.g. 10.99.0.1:7474; *:7474 is the default
 *
 * fan_out.h says how. What this shows is streams: each member is of one of them. A member that is gone fails its
 * stream: what else is under way there is flushed, and is sent again after a reset. The members of other
 * streams notice nothing. (A member that is there, but takes nothing, is waited for, and holds up those of its
 * stream.) So a thousand members cost one queue, and one that dies costs some time of one stream.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "fan_out.h"

#define BATCH 64u
#define STREAMS_MAX 64u
#define SENDS 1024u

struct member {
    crpc_target target;
    uint64_t mailbox;
    uint32_t remote_key;
    bool gone;
};

struct stream {
    uint32_t open; /* ops */
    bool failed;
};

struct publisher {
    crpc_context *context;
    crpc_queue dci;
    crpc_region region; /* of the update */
    struct fan_out_update update;
    struct member *members;
    uint32_t *todo; /* those that have not got it, nor is it under way to them */
    uint32_t todo_count;
    uint32_t count;
    uint32_t gone;
    uint32_t open; /* ops */
    uint32_t stream_count;
    struct stream streams[STREAMS_MAX];
    char line[FAN_OUT_TEXT_BYTES]; /* what has been read of the next one */
    uint32_t line_bytes;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "fan_out_publisher: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static uint32_t stream_of(const struct publisher *publisher, uint32_t member)
{
    return member % publisher->stream_count;
}

/* ---- Members --------------------------------------------------------------------------------- */

static bool add_member(struct publisher *publisher, const struct fan_out_member *told)
{
    const crpc_target_options options = {.struct_size = sizeof(options),
                                         .kind = CRPC_QUEUE_KIND_DCI,
                                         .access_key = told->access_key};
    const size_t places = (size_t)publisher->count + 1;
    crpc_error error = {.struct_size = sizeof(error)};
    struct member member = {.mailbox = told->mailbox, .remote_key = told->remote_key};
    struct member *members = realloc(publisher->members, places * sizeof(*members));
    publisher->members = members ? members : publisher->members;
    uint32_t *todo = realloc(publisher->todo, places * sizeof(*todo));
    publisher->todo = todo ? todo : publisher->todo;
    if (!members || !todo) {
        return false;
    }
    if (crpc_target_open(publisher->context, &told->address, &options, &member.target, &error) <
        0) {
        fprintf(stderr, "fan_out_publisher: a member is not taken: %s\n", error.message);
        return false;
    }
    publisher->members[publisher->count++] = member;
    return true;
}

/* Takes the members of a request; the answer's status is 1 if it is none, or one cannot be reached. What is told
 * comes from a peer: it is copied, since that could change it, and the library checks the address. */
static void add_members(struct publisher *publisher, const crpc_completion *request)
{
    struct fan_out_member told[FAN_OUT_MEMBERS_OF_CALL];
    const uint32_t count = request->payload_bytes / (uint32_t)sizeof(told[0]);
    bool good = request->payload_bytes % sizeof(told[0]) == 0 && count <= FAN_OUT_MEMBERS_OF_CALL;
    memcpy(told, (const void *)(uintptr_t)request->payload, good ? request->payload_bytes : 0);
    for (uint32_t i = 0; i < count && good; i++) {
        good = add_member(publisher, &told[i]);
    }
    const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                           .flags = CRPC_OP_QUIET,
                           .endpoint = request->endpoint,
                           .token = request->token,
                           .status = good ? 0 : 1};
    crpc_submit(publisher->context, &reply, 1, NULL, 0, NULL);
    printf("%u members\n", publisher->count - publisher->gone);
    fflush(stdout);
}

/* Ops that name the target go on. */
static void drop_member(struct publisher *publisher, uint32_t number)
{
    struct member *member = &publisher->members[number];
    crpc_target_close(publisher->context, member->target);
    member->gone = true;
    publisher->gone++;
}

/* ---- What happens ---------------------------------------------------------------------------- */

static void end_of_dci(struct publisher *publisher)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue_get_error(publisher->context, publisher->dci, &error);
    fail("the queue has ended", error.message);
}

/* An op has completed. Those of a stream may do so in any order: its own status says what has become of each. */
static void take_work(struct publisher *publisher, const crpc_completion *done)
{
    const uint32_t member = (uint32_t)done->user_data;
    const uint32_t number = stream_of(publisher, member);
    struct stream *stream = &publisher->streams[number];
    stream->open--;
    publisher->open--;
    if (done->status == CRPC_E_FLUSHED) {
        publisher->todo[publisher->todo_count++] = member; /* another has failed: it comes again */
    } else if (done->status != CRPC_OK) {
        drop_member(publisher, member);
        stream->failed = true;
    }
    if (stream->failed && stream->open == 0) {
        if (crpc_queue_reset_stream(publisher->context, publisher->dci, number) != CRPC_OK) {
            end_of_dci(publisher);
        }
        stream->failed = false;
    }
}

static void take(struct publisher *publisher, const crpc_completion *done)
{
    switch (done->kind) {
    case CRPC_COMPLETION_WORK:
        take_work(publisher, done);
        break;
    case CRPC_COMPLETION_CONNECT_REQUEST:
        if (crpc_endpoint_accept(publisher->context, done->endpoint, NULL, NULL) < 0) {
            crpc_endpoint_close(publisher->context, done->endpoint);
        }
        break;
    case CRPC_COMPLETION_REQUEST:
        add_members(publisher, done);
        break;
    case CRPC_COMPLETION_CONNECTED:
        if (done->status < 0) {
            crpc_endpoint_close(publisher->context, done->endpoint);
        }
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        if (done->flags & CRPC_COMPLETION_OF_QUEUE) {
            end_of_dci(publisher);
        }
        crpc_endpoint_close(publisher->context, done->endpoint);
        break;
    }
}

/* Takes what there is. Returns false if that is nothing. */
static bool take_some(struct publisher *publisher)
{
    crpc_completion done[BATCH];
    int32_t count = crpc_poll(publisher->context, done, BATCH);
    for (int32_t i = 0; i < count; i++) {
        take(publisher, &done[i]);
    }
    return count > 0;
}

/* ---- Updates --------------------------------------------------------------------------------- */

static crpc_queue_op write_to(const struct publisher *publisher, uint32_t number)
{
    const struct member *member = &publisher->members[number];
    const uint64_t place = publisher->update.number % 2 * sizeof(struct fan_out_update);
    return (crpc_queue_op){.opcode = CRPC_QUEUE_WRITE_IMMEDIATE,
                           .stream = (uint16_t)stream_of(publisher, number),
                           .immediate = (uint32_t)publisher->update.number,
                           .user_data = number,
                           .region = publisher->region,
                           .address = (uint64_t)(uintptr_t)&publisher->update,
                           .bytes = sizeof(publisher->update),
                           .remote_key = member->remote_key,
                           .remote_address = member->mailbox + place,
                           .target = member->target};
}

/* Returns how many were taken: of those behind them, one that is not must be the first again. */
static uint32_t submit(struct publisher *publisher, const crpc_queue_op *ops, uint32_t count)
{
    int32_t reason;
    int32_t taken =
        crpc_queue_submit(publisher->context, publisher->dci, ops, count, NULL, 0, &reason);
    if (reason == CRPC_E_DISCONNECTED) {
        end_of_dci(publisher);
    }
    for (int32_t i = 0; i < taken; i++) {
        publisher->streams[ops[i].stream].open++;
        publisher->open++;
    }
    return taken < 0 ? 0 : (uint32_t)taken;
}

/* Sends to those that are left, but not in streams that have failed. What there is no room for comes again. */
static void send_some(struct publisher *publisher)
{
    crpc_queue_op ops[BATCH];
    uint32_t kept = 0, at = 0;
    bool room = true;
    while (at < publisher->todo_count) {
        uint32_t count = 0;
        for (; at < publisher->todo_count && count < BATCH; at++) {
            const uint32_t number = publisher->todo[at];
            if (room && !publisher->streams[stream_of(publisher, number)].failed) {
                ops[count++] = write_to(publisher, number);
            } else {
                publisher->todo[kept++] = number;
            }
        }
        const uint32_t taken = count > 0 ? submit(publisher, ops, count) : 0;
        for (uint32_t i = taken; i < count; i++) {
            publisher->todo[kept++] = (uint32_t)ops[i].user_data;
        }
        room = taken == count;
    }
    publisher->todo_count = kept;
}

/* Sends the update to everybody, and waits until all have it or are gone. Who joins meanwhile gets the next. */
static void publish(struct publisher *publisher, const char *text, uint32_t bytes)
{
    struct fan_out_update *update = &publisher->update;
    memset(update->text, 0, sizeof(update->text));
    memcpy(update->text, text, bytes);
    update->bytes = bytes;
    update->number++;
    update->checksum = fan_out_checksum(update);
    const uint32_t before = publisher->gone;
    uint32_t members = 0;
    for (uint32_t i = 0; i < publisher->count; i++) {
        if (!publisher->members[i].gone) {
            publisher->todo[members++] = i;
        }
    }
    publisher->todo_count = members;
    while (publisher->todo_count > 0 || publisher->open > 0) {
        send_some(publisher);
        if (!take_some(publisher)) {
            crpc_wait(publisher->context, CRPC_FOREVER);
        }
    }
    const uint32_t lost = publisher->gone - before;
    printf("update %llu: %u members have it, %u are gone\n", (unsigned long long)update->number,
           members - lost, lost);
    fflush(stdout);
}

/* Publishes the lines that have come. Returns false at the end. */
static bool read_lines(struct publisher *publisher)
{
    char bytes[4096];
    ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));
    for (ssize_t i = 0; i < count; i++) {
        if (bytes[i] != '\n' && publisher->line_bytes < sizeof(publisher->line)) {
            publisher->line[publisher->line_bytes++] =
                bytes[i]; /* the rest of a long one is lost */
        } else if (bytes[i] == '\n' && publisher->line_bytes > 0) {
            publish(publisher, publisher->line, publisher->line_bytes);
            publisher->line_bytes = 0;
        }
    }
    return count > 0;
}

static void serve(struct publisher *publisher)
{
    struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                            {.fd = crpc_context_fd(publisher->context), .events = POLLIN}};
    for (;;) {
        while (take_some(publisher)) {
        }
        if (crpc_context_arm(publisher->context) != CRPC_OK || poll(fds, 2, -1) <= 0 ||
            fds[0].revents == 0) {
            continue;
        }
        if (!read_lines(publisher)) {
            return;
        }
    }
}

/* With as many streams as the device has, up to STREAMS_MAX. */
static void open_dci(struct publisher *publisher)
{
    crpc_queue_options options = {.struct_size = sizeof(options),
                                  .kind = CRPC_QUEUE_KIND_DCI,
                                  .sends = SENDS,
                                  .streams = STREAMS_MAX};
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status;
    while ((status = crpc_queue_open(publisher->context, &options, &publisher->dci, &error)) ==
               CRPC_E_UNSUPPORTED &&
           options.streams > 1) {
        options.streams /= 2;
    }
    if (status < 0) {
        fail("no DCI with streams", error.message);
    }
    publisher->stream_count = options.streams;
}

int main(int argc, char **argv)
{
    static struct publisher publisher;
    const crpc_context_options options = {.struct_size = sizeof(options),
                                          .flags = CRPC_CONTEXT_QUEUES};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_listener listener;
    answer_options(argc, argv, "[ADDRESS]",
                   "Sends each line of its standard input to all subscribers. ADDRESS is *:7474 if "
                   "none is given.");
    if (crpc_context_open(&options, &publisher.context, &error) < 0 ||
        crpc_region_register(publisher.context, &publisher.update, sizeof(publisher.update), 0,
                             &publisher.region, &error) < 0) {
        fail("no context", error.message);
    }
    open_dci(&publisher);
    if (crpc_listener_open(publisher.context, argc > 1 ? argv[1] : "*:7474", NULL, &listener,
                           &error) < 0) {
        fail("cannot listen", error.message);
    }
    crpc_listener_get_info(publisher.context, listener, &info);
    printf("listening on %s, %u streams\n", info.address, publisher.stream_count);
    fflush(stdout);
    serve(&publisher);
    publish(&publisher, "", 0); /* the end */
    crpc_context_close(publisher.context);
    free(publisher.members);
    free(publisher.todo);
    return EXIT_SUCCESS;
}
