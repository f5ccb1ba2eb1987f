/* tags.c: the verbs of receives with tags (TM-SRQs), and of messages for them. queues.c submits their ops. */
#include "runner.h"

#include <stdint.h>
#include <string.h>

#include "line.h"
#include "post.h"

const char *tags_opcode(const char *verb)
{
    static const char *const verbs[][2] = {{"post_tag", "tag_add"},
                                           {"remove_tag", "tag_remove"},
                                           {"sync_tags", "tag_sync"},
                                           {"send_tagged", "send"}};
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verb, verbs[i][0]) == 0) {
            return verbs[i][1];
        }
    }
    return NULL;
}

/* By which the library knows what was posted under this number. */
static uint64_t added(const struct post *removal, uint64_t id)
{
    uint64_t data = UINT64_MAX; /* nothing */
    for (const struct post *post = post_next(NULL); post; post = post_next(post)) {
        if (post->queue == removal->queue && post->opcode == POST_TAG_ADD &&
            id - post->id < post->count) {
            data = post_data(post, (uint32_t)(id - post->id));
        }
    }
    return data;
}

/* Each message is a header and its payload. */
static void put_headers(struct post *post)
{
    const uint32_t length = post->pieces[0].bytes;
    post->pieces[0].bytes = CRPC_TAG_HEADER_BYTES + length;
    post->step = has("step") ? number("step") : post->pieces[0].bytes;
    for (uint32_t i = 0; i < post->count; i++) {
        uint8_t *at = post_memory(post, i, 0);
        crpc_tag_header_write(at, number64("tag") + (uint64_t)i * number("tag_step"),
                              number("context"));
        memcpy(at + CRPC_TAG_HEADER_BYTES, payload_of(length, number("seed") + i), length);
    }
}

void tags_fill(struct post *post)
{
    if (post->opcode == POST_TAG_ADD) {
        post->remote = number64("tag");
        post->remote_step = number("tag_step");
        post->operand = has("mask") ? number64("mask") : UINT64_MAX;
    } else if (post->opcode == POST_TAG_REMOVE) {
        post->operand = added(post, number64("of"));
    } else if (post->opcode == POST_SEND && has("tag")) {
        put_headers(post);
    }
}

void tags_result(const crpc_completion *done, const struct post *post, uint32_t index,
                 struct post_result *result)
{
    if (done->status == CRPC_OK && done->method == CRPC_QUEUE_TAG_ADD) {
        result->tagged = 1;
        result->tag = done->token;
        result->context = (uint32_t)done->view;
    } else if (done->status == CRPC_OK && done->method == CRPC_QUEUE_RECEIVE &&
               done->flags & CRPC_COMPLETION_SYNC) {
        result->tagged = 1;
        result->header = CRPC_TAG_HEADER_BYTES;
        crpc_tag_header_read(post_memory(post, index, 0), done->payload_bytes, &result->tag,
                             &result->context);
    }
}
