/* post.c: see post.h. */
#include "post.h"

#include <inttypes.h>
#include <stdio.h>
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

static uint32_t next_number(const char **list)
{
    char *end;
    uint32_t value = (uint32_t)strtoul(*list, &end, 10);
    *list = *end ? end + 1 : end;
    return value;
}

/* length=9 offset=5, or lengths=1,2 offsets=5,30, of the region; or inline. */
static void place(struct post *post, uint8_t *memory)
{
    const char *lengths = text("lengths"), *offsets = text("offsets");
    const uint32_t length = number("length");
    post->step = *text("step") ? number("step") : length;
    if (!memory && length > 0) {
        memory = post->own = malloc((size_t)post->count * length);
    }
    post->pieces[0] = (struct post_piece){memory ? memory + number("offset") : NULL, length};
    while (*lengths && post->piece_count < POST_PIECES_MAX) {
        uint8_t *at = memory + next_number(&offsets);
        post->pieces[post->piece_count++] = (struct post_piece){at, next_number(&lengths)};
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
                          .immediate = number(*text("invalidate") ? "invalidate" : "immediate"),
                          .remote_key = number("remote_key"),
                          .remote = number64("remote"),
                          .compare = number64("compare"),
                          .operand = number64("operand"),
                          .stream = (uint16_t)number("stream"),
                          .id = number("id"),
                          .count = *text("count") ? number("count") : 1,
                          .summary = number("summary") != 0,
                          .status = "CRPC_OK"};
    place(post, memory);
    const int moves = *text("remote") && !*text("operand"); /* atomics are all of one place */
    post->remote_step = *text("remote_step") ? number("remote_step") : moves ? post->step : 0;
    for (uint32_t i = 0; *text("seed") && i < post->count; i++) {
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

static void tell_message(const struct post *post, const struct post_result *result)
{
    if (post->opcode == POST_RECEIVE && result->number) {
        printf(" %s=%u", result->number, result->immediate);
    }
    if (post->opcode == POST_RECEIVE) {
        printf(" written=%" PRIu64, result->written);
    }
    printf(" queue=%s", result->queue);
    if (result->tagged) {
        printf(" tag=%" PRIu64 " context=%u", result->tag, result->context);
    } else if (result->header) {
        printf(" source=%u", result->source);
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
    printf("event kind=%s id=%" PRIu64 " status=%s ended=%u length=%u checksum=%u\n",
           event_of(post), post->id, post->status, post->ended, post->bytes, post->checksum);
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
    printf("event kind=%s id=%" PRIu64 " status=%s", event_of(post), post->id + index, status);
    if (result && fills) {
        printf(" length=%u checksum=%u", bytes, checksum(payload, bytes));
    }
    if (result && (post->opcode == POST_COMPARE_SWAP || post->opcode == POST_FETCH_ADD)) {
        printf(" before=%" PRIu64, result->before);
    }
    if (result && receives) {
        tell_message(post, result);
    }
    printf(" opcode=%u\n", method);
}

void post_look(uint8_t *memory)
{
    uint32_t length = *text("length") ? number("length") : 8;
    uint64_t value = number64("value");
    memory += number("offset");
    if (*text("seed")) {
        memcpy(memory, payload_of(length, number("seed")), length);
    } else if (*text("value")) {
        memcpy(memory, &value, sizeof(value));
    }
    memcpy(&value, memory, sizeof(value));
    tell("length=%u checksum=%u value=%" PRIu64, length, checksum(memory, length), value);
}
