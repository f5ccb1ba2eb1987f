/* queues.c: the verbs of queues, and what comes of them. */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "line.h"
#include "post.h"

#define ARRAY 256u /* ops of one crpc_queue_submit; each with all pieces that it may have */

static int arrays; /* no op waits for room */

static crpc_queue queue_of(const struct thing *it)
{
    return (crpc_queue){it->bits};
}

/* ---- What became of them ---- */

/* The datagram that came last, for target_of. */
static crpc_completion letter;
static uint8_t letter_header[CRPC_QUEUE_HEADER_BYTES];

static void take_datagram(const crpc_completion *done, const struct post *post, uint32_t index,
                          struct post_result *result)
{
    result->written = 0;
    result->header = CRPC_QUEUE_HEADER_BYTES;
    result->source = (uint32_t)done->token;
    letter = *done;
    if (post->pieces[0].bytes >= CRPC_QUEUE_HEADER_BYTES) {
        memcpy(letter_header, post_memory(post, index, 0), CRPC_QUEUE_HEADER_BYTES);
    }
}

static void take_work(const crpc_completion *done)
{
    const struct thing *over = (const struct thing *)(uintptr_t)done->endpoint_user_data;
    uint32_t index;
    struct post *post = post_of(done->user_data, &index);
    struct post_result result = {.bytes = done->payload_bytes,
                                 .before = done->token,
                                 .immediate = done->reply_bytes_max,
                                 .written = done->token,
                                 .queue = over->name};
    if (over->datagrams && done->method == CRPC_QUEUE_RECEIVE && done->status == CRPC_OK) {
        take_datagram(done, post, index, &result);
    }
    if (done->flags & CRPC_COMPLETION_OF_DCT && done->method == CRPC_QUEUE_RECEIVE) {
        result.written = done->token >> 32; /* below it is who has sent */
    }
    tags_result(done, post, index, &result);
    if (post->opcode == POST_READ && !(done->flags & CRPC_COMPLETION_DETAIL)) {
        result.bytes = post_length(post);
    }
    if (done->flags & (CRPC_COMPLETION_IMMEDIATE | CRPC_COMPLETION_INVALIDATED)) {
        result.number = done->flags & CRPC_COMPLETION_IMMEDIATE ? "immediate" : "invalidated";
    }
    post_tell(post, index, crpc_status_name(done->status), done->status == CRPC_OK ? &result : NULL,
              done->method);
}

void queues_take(const crpc_completion *done, struct thing *queue)
{
    if (done->kind == CRPC_COMPLETION_WORK) {
        take_work(done);
    } else if (done->kind == CRPC_COMPLETION_ROOM || done->kind == CRPC_COMPLETION_DISCONNECTED) {
        queue->token = 0;
        if (arrays && done->kind == CRPC_COMPLETION_ROOM) {
            json_t *event = event_new("room");
            put_text(event, "endpoint", queue->name);
            event_tell(event);
        }
    } else if (done->kind == CRPC_COMPLETION_SRQ_LIMIT) {
        json_t *event = event_new("low");
        put_text(event, "endpoint", queue->name);
        put_status(event, CRPC_OK);
        event_tell(event);
    }
}

/* ---- Into the library ---- */

static uint64_t address_of(const struct post *post, uint32_t index, uint32_t piece)
{
    return (uint64_t)(uintptr_t)post_memory(post, index, piece);
}

static crpc_queue_op op_of(const struct post *post, uint32_t index)
{
    const struct thing *region = post->region;
    crpc_queue_op op = {.opcode = (uint8_t)post->opcode,
                        .flags = (uint8_t)((post->is_inline ? CRPC_QUEUE_INLINE : 0) |
                                           (post->fence ? CRPC_QUEUE_FENCE : 0) |
                                           (post->solicited ? CRPC_QUEUE_SOLICITED : 0) |
                                           (post->signal ? CRPC_QUEUE_SIGNAL : 0)),
                        .stream = post->stream,
                        .immediate = post_immediate(post, index),
                        .user_data = post_data(post, index),
                        .address = post->compare,
                        .remote_key = post->remote_key,
                        .remote_address = post_remote(post, index),
                        .operand = post->operand,
                        .target = {post->target}};
    if (post->piece_count == 0 && post->pieces[0].bytes > 0) {
        op.region.bits = region ? region->bits : 0;
        op.address = address_of(post, index, 0);
        op.bytes = post->pieces[0].bytes;
    }
    return op;
}

static uint32_t fill(const struct post *post, crpc_queue_op *ops, crpc_piece *pieces)
{
    const struct thing *region = post->region;
    uint32_t count = 0, piece_count = 0;
    for (; count < ARRAY && post->submitted + count < post->count; count++) {
        const uint32_t index = post->submitted + count;
        ops[count] = op_of(post, index);
        if (post->piece_count > 0) {
            ops[count].flags |= CRPC_QUEUE_PIECES;
            ops[count].address = piece_count;
            ops[count].bytes = post->piece_count;
        }
        for (uint32_t i = 0; i < post->piece_count; i++) {
            pieces[piece_count++] = (crpc_piece){.region = {region ? region->bits : 0},
                                                 .address = address_of(post, index, i),
                                                 .bytes = post->pieces[i].bytes};
        }
    }
    return count;
}

/* Submits what there is room for. Returns why not the rest. */
static int32_t submit(struct post *post)
{
    static crpc_queue_op ops[ARRAY];
    static crpc_piece pieces[ARRAY * POST_PIECES_MAX];
    int32_t reason = CRPC_OK;
    while (reason == CRPC_OK && post->submitted < post->count) {
        uint32_t count = fill(post, ops, pieces);
        int32_t taken = crpc_queue_submit(context, queue_of(post->queue), ops, count, pieces,
                                          count * post->piece_count, &reason);
        if (taken < 0) {
            return taken;
        }
        post->submitted += (uint32_t)taken;
    }
    return reason;
}

/* An op that is refused has ended, and those behind it are tried. */
static void submit_or_tell(struct post *post)
{
    const uint64_t blocked = post->opcode == POST_RECEIVE ? 2 : post->opcode > POST_TAG_ADD ? 4 : 1;
    struct thing *queue = post->queue;
    while (post->waits && !(queue->token & blocked)) {
        int32_t reason = submit(post);
        if (reason == CRPC_E_AGAIN) {
            queue->token |= blocked; /* until CRPC_COMPLETION_ROOM */
        } else if (reason != CRPC_OK) {
            post_tell(post, post->submitted++, crpc_status_name(reason), NULL, 0);
        }
        post->waits = post->submitted < post->count;
        if (!post->waits) {
            post_spoil(post);
        }
    }
}

void queues_submit(void)
{
    for (struct post *post = post_next(NULL); post; post = post_next(post)) {
        if (post->waits) {
            submit_or_tell(post);
        }
    }
}

static int32_t do_post(struct thing *queue, const char *opcode)
{
    struct thing *region = thing_named(text("region"));
    struct post *post = post_take(queue, opcode, region, region ? region->memory : NULL);
    const struct thing *target = thing_named(text("target"));
    post->target = target ? target->bits : 0;
    tags_fill(post);
    if (!arrays) {
        post->waits = 1; /* the turn's end submits them */
        return CRPC_OK;
    }
    int32_t reason = submit(post);
    put_number(answer(), "accepted", post->submitted);
    post_spoil(post);
    post->count = post->submitted;
    return post->submitted > 0 || reason == CRPC_E_AGAIN ? CRPC_OK : reason;
}

/* ---- Connecting ---- */

static void put_private(uint8_t *data, uint32_t *bytes)
{
    *bytes = (uint32_t)strlen(text("private"));
    memcpy(data, text("private"), strnlen(text("private"), CRPC_QUEUE_PRIVATE_BYTES_MAX));
}

crpc_queue_options queue_options_of_line(struct thing *made)
{
    const struct thing *shared = thing_named(text("shared"));
    crpc_queue_options options = {.struct_size = sizeof(options),
                                  .flags = number("sparse") ? CRPC_QUEUE_SPARSE : 0,
                                  .user_data = (uintptr_t)made,
                                  .sends = number("sends"),
                                  .send_pieces = number("send_pieces"),
                                  .inline_bytes = number("inline_bytes"),
                                  .receives = number("receives"),
                                  .receive_pieces = number("receive_pieces"),
                                  .receive_queue = {shared ? shared->bits : 0},
                                  .queue_key = number("queue_key"),
                                  .tags = number("tags"),
                                  .connect_timeout_ns = nanoseconds("connect_timeout_ms"),
                                  .retry_timeout = number("retry_timeout"),
                                  .retry_count = number("retry_count"),
                                  .not_ready_retry_count = number("not_ready_retry_count"),
                                  .reads_max = number("reads_max"),
                                  .streams = number("streams"),
                                  .stream_failures_max = number("stream_failures_max"),
                                  .access_key = number64("access_key")};
    put_private(options.private_data, &options.private_bytes);
    return options;
}

/* queue_open, _connect, _accept, _blob, datagrams_open, tags_open. */
static int32_t make_queue(const char *verb, struct thing *made)
{
    crpc_queue_options options = queue_options_of_line(made);
    crpc_queue handle = {made->bits};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t blob_bytes = sizeof(blob);
    int32_t status;
    made->datagrams = strcmp(verb, "datagrams_open") == 0;
    if (made->datagrams || strcmp(verb, "queue_open") == 0 || strcmp(verb, "tags_open") == 0) {
        options.kind = made->datagrams                  ? CRPC_QUEUE_KIND_UD
                       : strcmp(verb, "tags_open") == 0 ? CRPC_QUEUE_KIND_TM_SRQ
                                                        : CRPC_QUEUE_KIND_SRQ;
        status = crpc_queue_open(context, &options, &handle, NULL);
    } else if (strcmp(verb, "queue_blob") == 0) {
        status = crpc_queue_blob(context, &options, &handle, blob, &blob_bytes, NULL);
        put_bytes(answer(), "blob", blob, status == CRPC_OK ? blob_bytes : 0);
    } else {
        status = strcmp(verb, "queue_accept") == 0
                     ? crpc_queue_accept(context, handle, &options, NULL)
                     : crpc_queue_connect(context, text("address"), &options, &handle, NULL);
        status = tell_failure(made, status);
    }
    made->bits = handle.bits;
    return status;
}

static int32_t do_join(const struct thing *it)
{
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = bytes_of("blob", blob, sizeof(blob));
    return tell_failure(it, crpc_queue_join(context, queue_of(it), blob, bytes, NULL));
}

static int32_t do_reject(crpc_queue queue)
{
    uint8_t data[CRPC_QUEUE_PRIVATE_BYTES_MAX];
    uint32_t bytes;
    put_private(data, &bytes);
    return crpc_queue_reject(context, queue, data, bytes);
}

static void tell_address(const crpc_queue_address *address)
{
    put_number(answer(), "queue_pair_number", address->queue_pair_number);
    put_number(answer(), "packet_sequence_number", address->packet_sequence_number);
    put_number(answer(), "link", address->link);
    put_number(answer(), "mtu_bytes", address->mtu_bytes);
    put_number(answer(), "lid", address->lid);
    put_bytes(answer(), "gid", address->gid, sizeof(address->gid));
}

static int32_t tell_queue_address(crpc_queue queue)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    int32_t status = crpc_queue_get_address(context, queue, &address);
    tell_address(&address);
    return status;
}

crpc_queue_address queue_address_of_line(void)
{
    crpc_queue_address address = {.struct_size = sizeof(address),
                                  .queue_pair_number = number("queue_pair_number"),
                                  .packet_sequence_number = number("packet_sequence_number"),
                                  .link = number("link"),
                                  .mtu_bytes = number("mtu_bytes"),
                                  .lid = number("lid")};
    bytes_of("gid", address.gid, sizeof(address.gid));
    return address;
}

static int32_t do_join_address(const struct thing *it)
{
    const crpc_queue_address address = queue_address_of_line();
    return tell_failure(it, crpc_queue_join_address(context, queue_of(it), &address, NULL));
}

/* ---- Targets of datagrams ---- */

static int32_t make_target(const char *verb, struct thing *made)
{
    const crpc_queue_address address = queue_address_of_line();
    const crpc_target_options options = {.struct_size = sizeof(options),
                                         .queue_key = number("queue_key")};
    crpc_target target = {0};
    int32_t status = strcmp(verb, "target_of") == 0
                         ? crpc_target_of(context, &letter, letter_header, &target, NULL)
                         : crpc_target_open(context, &address, &options, &target, NULL);
    made->bits = target.bits;
    return status;
}

static int32_t tell_target_address(crpc_target target)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    int32_t status = crpc_target_get_address(context, target, &address);
    tell_address(&address);
    return status;
}

/* ---- Changing ---- */

static int32_t do_modify(crpc_queue queue)
{
    static const struct {
        const char *word;
        uint32_t change;
    } words[] = {{"access", CRPC_QUEUE_CHANGE_ACCESS},
                 {"not_ready_wait_ms", CRPC_QUEUE_CHANGE_NOT_READY_WAIT},
                 {"retry_timeout", CRPC_QUEUE_CHANGE_RETRY_TIMEOUT},
                 {"retry_count", CRPC_QUEUE_CHANGE_RETRY_COUNT},
                 {"not_ready_retry_count", CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT},
                 {"queue_key", CRPC_QUEUE_CHANGE_QUEUE_KEY},
                 {"limit", CRPC_QUEUE_CHANGE_SRQ_LIMIT}};
    crpc_queue_change change = {.struct_size = sizeof(change),
                                .access = number("access"),
                                .not_ready_wait_ns = nanoseconds("not_ready_wait_ms"),
                                .retry_timeout = number("retry_timeout"),
                                .retry_count = number("retry_count"),
                                .not_ready_retry_count = number("not_ready_retry_count"),
                                .queue_key = number("queue_key"),
                                .srq_limit = number("limit")};
    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        change.changes |= has(words[i].word) ? words[i].change : 0;
    }
    return crpc_queue_modify(context, queue, &change, NULL);
}

/* ---- Looking ---- */

void queue_private(const struct thing *queue, char private[CRPC_QUEUE_PRIVATE_BYTES_MAX + 1])
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    crpc_queue_get_info(context, queue_of(queue), &info);
    snprintf(private, CRPC_QUEUE_PRIVATE_BYTES_MAX + 1, "%.*s", (int)info.private_bytes,
             (const char *)info.private_data); /* the network may have added zeros */
}

static int32_t tell_queue(const struct thing *it)
{
    static const char *const states[] = {"none",      "new",     "requested",   "connecting",
                                         "connected", "closing", "disconnected"};
    static const char *const kinds[] = {"none", "rc", "srq", "ud", "dci", "dct", "tm_srq"};
    char private[CRPC_QUEUE_PRIVATE_BYTES_MAX + 1];
    crpc_queue_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_queue_get_info(context, queue_of(it), &info);
    queue_private(it, private);
    put_text(answer(), "state", states[info.state % 7]);
    put_text(answer(), "kind", info.kind < 7 ? kinds[info.kind] : "unknown");
    const struct {
        const char *name;
        uint32_t value;
    } told[] = {{"sends", info.sends},
                {"send_pieces", info.send_pieces},
                {"inline_bytes", info.inline_bytes},
                {"receives", info.receives},
                {"receive_pieces", info.receive_pieces},
                {"sends_open", info.sends_open},
                {"receives_open", info.receives_open},
                {"queues", info.queues},
                {"streams", info.streams},
                {"streams_failed", info.streams_failed},
                {"tags", info.tags},
                {"tags_open", info.tags_open}};
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        put_number(answer(), told[i].name, told[i].value);
    }
    put_text(answer(), "private", private);
    return status;
}

static int32_t tell_stats(crpc_queue queue)
{
    crpc_queue_stats s = {.struct_size = sizeof(s)};
    int32_t status = crpc_queue_get_stats(context, queue, &s);
    put_number(answer(), "sends", s.sends);
    put_number(answer(), "receives", s.receives);
    put_number(answer(), "signaled_wqes", s.signaled_wqes);
    put_number(answer(), "doorbells", s.doorbells);
    return status;
}

void queues_open(void)
{
    arrays = number("arrays") != 0;
}

int32_t queues_run(const char *verb, struct thing *it, struct thing *made)
{
#define IS(name) (strcmp(verb, name) == 0)
    crpc_queue queue = {it ? it->bits : 0};
    uint64_t limit = nanoseconds("timeout_ms");
    if (made && (IS("queue_open") || IS("queue_connect") || IS("queue_accept") ||
                 IS("queue_blob") || IS("datagrams_open") || IS("tags_open"))) {
        return make_queue(verb, made);
    } else if (made && (IS("target_open") || IS("target_of"))) {
        return make_target(verb, made);
    } else if (!it) {
        return VERB_UNKNOWN;
    } else if (IS("queue_join")) {
        return do_join(it);
    } else if (IS("queue_join_address")) {
        return do_join_address(it);
    } else if (IS("queue_address")) {
        return tell_queue_address(queue);
    } else if (IS("target_address")) {
        return tell_target_address((crpc_target){queue.bits});
    } else if (IS("target_close")) {
        return crpc_target_close(context, (crpc_target){queue.bits});
    } else if (IS("queue_reject")) {
        return do_reject(queue);
    } else if (IS("queue_modify") || IS("run_low")) {
        return do_modify(queue);
    } else if (IS("queue_fail")) {
        return crpc_queue_fail(context, queue);
    } else if (IS("queue_drain")) {
        return crpc_queue_drain(context, queue, limit ? limit : CRPC_FOREVER);
    } else if (IS("queue_close")) {
        it->token = 0;
        return crpc_queue_close(context, queue);
    } else if (IS("queue_info")) {
        return tell_queue(it);
    } else if (IS("queue_stats")) {
        return tell_stats(queue);
    } else if (IS("post")) {
        return do_post(it, text("opcode"));
    } else if (IS("post_receive")) {
        return do_post(it, "receive");
    } else if (tags_opcode(verb)) {
        return do_post(it, tags_opcode(verb));
    } else if (IS("memory")) {
        post_look(it->memory);
        return CRPC_OK;
    }
    return VERB_UNKNOWN;
#undef IS
}
