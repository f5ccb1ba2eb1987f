/* post.c: see post.h. */
#include "post.h"

#include <stdlib.h>
#include <string.h>

#include "line.h"

static struct post posts[POSTS_MAX];
static uint32_t posts_count;

uint64_t post_data(const struct post *post, uint32_t index)
{
    return (uint64_t)index * POSTS_MAX + (uint64_t)(post - posts);
}

struct post *post_of(uint64_t data, uint32_t *index)
{
    *index = (uint32_t)(data / POSTS_MAX);
    return &posts[data % POSTS_MAX];
}

struct post *post_next(const struct post *after)
{
    size_t index = after ? (size_t)(after - posts) + 1 : 0;
    return index < posts_count ? &posts[index] : NULL;
}

/* ---- Where a payload lies ---- */

static uint32_t places(const struct post *post)
{
    return post->piece_count ? post->piece_count : 1;
}

uint32_t post_length(const struct post *post)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < places(post); i++) {
        bytes += post->pieces[i].bytes;
    }
    return bytes;
}

uint8_t *post_memory(const struct post *post, uint32_t index, uint32_t piece)
{
    uint8_t *memory = post->pieces[piece].memory;
    return memory ? memory + (size_t)index * post->step : NULL;
}

uint64_t post_remote(const struct post *post, uint32_t index)
{
    return post->remote + (uint64_t)index * post->remote_step;
}

uint32_t post_immediate(const struct post *post, uint32_t index)
{
    const int counts = post->opcode == POST_SEND_IMMEDIATE || post->opcode == POST_WRITE_IMMEDIATE;
    return post->immediate + (counts ? index : 0);
}

static void scatter(const struct post *post, uint32_t index, const uint8_t *payload)
{
    for (uint32_t i = 0; i < places(post); i++) {
        if (post->pieces[i].bytes > 0) {
            memcpy(post_memory(post, index, i), payload, post->pieces[i].bytes);
            payload += post->pieces[i].bytes;
        }
    }
}

/* The payload of an op in one place, until the next. */
static const uint8_t *gather(const struct post *post, uint32_t index)
{
    static uint8_t *buffer;
    uint32_t bytes = 0;
    buffer = realloc(buffer, post_length(post) + 1u);
    for (uint32_t i = 0; i < places(post); i++) {
        if (post->pieces[i].bytes > 0) {
            memcpy(buffer + bytes, post_memory(post, index, i), post->pieces[i].bytes);
            bytes += post->pieces[i].bytes;
        }
    }
    return buffer;
}

void post_spoil(const struct post *post)
{
    if (post->own) {
        memset(post->own, 0xee, (size_t)post->count * post->pieces[0].bytes);
    }
}

/* ---- Making ops ---- */

static enum post_opcode opcode_of(const char *name)
{
    static const char *const names[] = {"none",           "send",
                                        "send_immediate", "send_invalidate",
                                        "write",          "write_immediate",
                                        "read",           "compare_swap",
                                        "fetch_add",      "nop",
                                        "receive",        "tag_add",
                                        "tag_remove",     "tag_sync"};
    uint32_t opcode = sizeof(names) / sizeof(names[0]) - 1;
    while (opcode > 0 && strcmp(names[opcode], name) != 0) {
        opcode--;
    }
    return (enum post_opcode)opcode;
}

/* In one place or in pieces, of the region; or inline. */
static void place(struct post *post, uint8_t *memory)
{
    uint32_t lengths[POST_PIECES_MAX], offsets[POST_PIECES_MAX] = {0};
    const uint32_t length = number("length");
    post->step = has("step") ? number("step") : length;
    if (!memory && length > 0) {
        memory = post->own = malloc((size_t)post->count * length);
    }
    post->pieces[0] = (struct post_piece){memory ? memory + number("offset") : NULL, length};
    post->piece_count = numbers("lengths", lengths, POST_PIECES_MAX);
    numbers("offsets", offsets, POST_PIECES_MAX);
    for (uint32_t i = 0; i < post->piece_count; i++) {
        post->pieces[i] = (struct post_piece){memory + offsets[i], lengths[i]};
    }
}

struct post *post_take(void *queue, const char *opcode, void *region, uint8_t *memory)
{
    if (posts_count == POSTS_MAX) {
        abort(); /* run.py tells of a runner that died */
    }
    struct post *post = &posts[posts_count++];
    *post = (struct post){.queue = queue,
                          .region = region,
                          .opcode = opcode_of(opcode),
                          .is_inline = number("inline") != 0,
                          .fence = number("fence") != 0,
                          .solicited = number("solicited") != 0,
                          .signal = number("signal") != 0,
                          .immediate = number(has("invalidate") ? "invalidate" : "immediate"),
                          .remote_key = number("remote_key"),
                          .remote = number64("remote"),
                          .compare = number64("compare"),
                          .operand = number64("operand"),
                          .stream = (uint16_t)number("stream"),
                          .id = number("id"),
                          .count = has("count") ? number("count") : 1,
                          .summary = number("summary") != 0,
                          .status = "CRPC_OK"};
    place(post, memory);
    const int moves = has("remote") && !has("operand"); /* atomics are all of one place */
    post->remote_step = has("remote_step") ? number("remote_step") : moves ? post->step : 0;
    for (uint32_t i = 0; has("seed") && i < post->count; i++) {
        scatter(post, i, payload_of(post_length(post), number("seed") + i));
    }
    return post;
}

void post_reset(void)
{
    for (; posts_count > 0; posts_count--) {
        free(posts[posts_count - 1].own);
    }
}

/* ---- What became of them ---- */

static const char *event_of(const struct post *post)
{
    return post->opcode == POST_RECEIVE   ? "taken"
           : post->opcode == POST_TAG_ADD ? "matched"
                                          : "completed";
}

static void put_message(json_t *event, const struct post *post, const struct post_result *result)
{
    if (post->opcode == POST_RECEIVE && result->number) {
        put_number(event, result->number, result->immediate);
    }
    if (post->opcode == POST_RECEIVE) {
        put_number(event, "written", result->written);
    }
    put_text(event, "queue", result->queue);
    if (result->tagged) {
        put_big(event, "tag", result->tag);
        put_number(event, "context", result->context);
    } else if (result->header) {
        put_number(event, "source", result->source);
    }
}

static void tell_summary(struct post *post, const char *status, const uint8_t *payload,
                         uint32_t bytes)
{
    post->status = strcmp(post->status, "CRPC_OK") == 0 ? status : post->status;
    post->checksum = checksum_on(post->checksum, payload, bytes);
    post->bytes += bytes;
    if (++post->ended < post->count) {
        return;
    }
    json_t *event = event_new(event_of(post));
    put_number(event, "id", post->id);
    put_text(event, "status", post->status);
    put_number(event, "ended", post->ended);
    put_number(event, "length", post->bytes);
    put_number(event, "checksum", post->checksum);
    event_tell(event);
}

void post_tell(struct post *post, uint32_t index, const char *status,
               const struct post_result *result, unsigned method)
{
    const int receives = post->opcode == POST_RECEIVE || post->opcode == POST_TAG_ADD;
    const int fills = receives || post->opcode == POST_READ;
    const uint32_t header = result ? result->header : 0;
    const uint32_t bytes = result && fills ? result->bytes - header : 0;
    const uint8_t *payload = bytes > 0 ? gather(post, index) + header : NULL;
    if (post->summary) {
        tell_summary(post, status, payload, bytes);
        return;
    }
    json_t *event = event_new(event_of(post));
    put_number(event, "id", post->id + index);
    put_text(event, "status", status);
    if (result && fills) {
        put_number(event, "length", bytes);
        put_number(event, "checksum", checksum(payload, bytes));
    }
    if (result && (post->opcode == POST_COMPARE_SWAP || post->opcode == POST_FETCH_ADD)) {
        put_big(event, "before", result->before);
    }
    if (result && receives) {
        put_message(event, post, result);
    }
    put_number(event, "opcode", method);
    event_tell(event);
}

void post_look(uint8_t *memory)
{
    uint32_t length = has("length") ? number("length") : 8;
    uint64_t value = number64("value");
    memory += number("offset");
    if (has("seed")) {
        memcpy(memory, payload_of(length, number("seed")), length);
    } else if (has("value")) {
        memcpy(memory, &value, sizeof(value));
    }
    memcpy(&value, memory, sizeof(value));
    put_number(answer(), "length", length);
    put_number(answer(), "checksum", checksum(memory, length));
    put_big(answer(), "value", value);
}
