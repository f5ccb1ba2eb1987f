/* stream.c: see stream.h. */
#include "stream.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GROUP_MAX CRPC_CHANNEL_GROUP_MAX
#define MARGIN 64u       /* around each buffer, not to be written */
#define MISALIGN_MAX 64u /* buffers begin anywhere */
#define SPARE_MAX 200u   /* receives that are longer than what comes */
#define CANARY 0xa5
#define WHOLE_MAX (1u << 20) /* longer buffers are only marked at their ends */

/* What one message is. */
struct buffer_plan {
    uint32_t bytes; /* sent */
    uint32_t room;
    uint32_t tag;
    uint32_t misalign;
    uint64_t key; /* what its bytes follow from */
};

struct plan {
    uint32_t count;
    struct buffer_plan buffers[GROUP_MAX];
    uint8_t order[GROUP_MAX]; /* in which the sender posts */
};

struct place {
    struct plan plan;
    uint32_t left; /* ops open; 0 = free */
    uint8_t done;  /* a bit each */
};

/* One direction, of one side. */
struct half {
    bool receives;
    uint32_t direction;
    uint32_t posted;     /* messages */
    uint32_t last;       /* how many there are to be */
    bool refused;        /* CRPC_E_AGAIN: until ROOM */
    bool begun;          /* the message after them is planned */
    uint32_t posted_ops; /* and so many of its ops taken */
    uint32_t completed;  /* messages */
    uint32_t ops_open;
    uint8_t *memory;
    uint64_t memory_bytes;
    crpc_region region;
    struct place *places; /* message n is in n % window */
};

struct stream {
    struct stream *next; /* of all that this process runs */
    struct side *side;
    crpc_channel channel;
    struct stream_options options;
    uint64_t seed;
    uint64_t first;
    uint64_t stride;
    bool stopped;          /* sends no more */
    bool ended;            /* the channel has */
    struct half halves[2]; /* receiving, sending */
};

/* ---- Plans ----------------------------------------------------------------------------------- */

/* All orders of magnitude, and what lies beside the borders: of a line, and of where stripes begin. */
static uint32_t random_size(uint64_t *state, uint64_t most)
{
    uint64_t value = side_random(state);
    uint64_t size;
    switch (value % 8) {
    case 0:
        size = 0;
        break;
    case 1:
        size = 120 + (value >> 8) % 20;
        break;
    case 2:
        size = 65536 - 130 + (value >> 8) % 260;
        break;
    case 3:
        size = most - (value >> 8) % 3;
        break;
    default:
        size = (value >> 8) & ((UINT64_C(2) << (value >> 40) % 30) - 1);
    }
    return (uint32_t)(size <= most ? size : size % (most + 1));
}

static void plan_message(const struct stream *stream, uint32_t direction, uint32_t number,
                         struct plan *plan)
{
    const struct stream_options *options = &stream->options;
    uint64_t state = side_mix(stream->seed + number * UINT64_C(2) + direction);
    plan->count = 1 + (uint32_t)(side_random(&state) % options->group_max);
    bool same_tags = side_random(&state) % 4 == 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        struct buffer_plan *buffer = &plan->buffers[i];
        buffer->bytes = options->sizes ? (uint32_t)options->sizes[number % options->size_count]
                                       : random_size(&state, options->bytes_max);
        buffer->room = buffer->bytes + (uint32_t)(side_random(&state) % 2 * SPARE_MAX);
        if (options->truncate && buffer->bytes > 0 && side_random(&state) % 8 == 0) {
            buffer->room = (uint32_t)(side_random(&state) % buffer->bytes);
        }
        buffer->tag = same_tags ? 7 : 0xfffffff0u + number % 2 * 8 + i;
        buffer->misalign = (uint32_t)(side_random(&state) % MISALIGN_MAX);
        buffer->key = side_random(&state);
        plan->order[i] = (uint8_t)i;
    }
    for (uint32_t i = plan->count; !same_tags && i > 1; i--) {
        uint32_t other = (uint32_t)(side_random(&state) % i);
        uint8_t kept = plan->order[i - 1];
        plan->order[i - 1] = plan->order[other];
        plan->order[other] = kept;
    }
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static uint64_t word_at(uint64_t key, uint64_t index)
{
    return key ^ index * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(uint8_t *bytes, uint64_t count, uint64_t key)
{
    uint64_t word;
    for (uint64_t i = 0; i < count; i += 8) {
        word = word_at(key, i);
        memcpy(bytes + i, &word, count - i < 8 ? count - i : 8);
    }
}

/* The first byte that is wrong, or count. */
static uint64_t first_wrong(const uint8_t *bytes, uint64_t count, uint64_t key)
{
    for (uint64_t i = 0; i < count; i += 8) {
        uint64_t word = word_at(key, i);
        if (memcmp(bytes + i, &word, count - i < 8 ? count - i : 8) != 0) {
            return i;
        }
    }
    return count;
}

static void mark(uint8_t *from, uint8_t *to)
{
    if ((uint64_t)(to - from) > WHOLE_MAX) {
        memset(to - WHOLE_MAX / 2, CANARY, WHOLE_MAX / 2);
        to = from + WHOLE_MAX / 2;
    }
    memset(from, CANARY, (size_t)(to - from));
}

static bool marked(const uint8_t *from, const uint8_t *to)
{
    if ((uint64_t)(to - from) > WHOLE_MAX) {
        /* What was marked began up to MARGIN before it. */
        return marked(to - WHOLE_MAX / 2, to) && marked(from, from + WHOLE_MAX / 2 - MARGIN);
    }
    for (; from < to; from++) {
        if (*from != CANARY) {
            return false;
        }
    }
    return true;
}

static uint8_t *buffer_of(const struct stream *stream, const struct half *half, uint32_t number,
                          uint32_t index)
{
    uint32_t place = number % stream->options.window;
    return half->memory + (place * stream->options.group_max + index) * stream->stride + MARGIN +
           half->places[place].plan.buffers[index].misalign;
}

/* ---- Completions ----------------------------------------------------------------------------- */

static void check_received(const struct buffer_plan *plan, uint8_t *bytes, uint32_t number,
                           uint32_t index, int32_t status, uint32_t told)
{
    uint32_t came = status == CRPC_OK ? plan->bytes : 0;
    if (status == CRPC_OK || status == CRPC_E_TRUNCATED) {
        EXPECT(told == plan->bytes, "message %u.%u: %u bytes, not %u", number, index, told,
               plan->bytes);
    }
    if (status == CRPC_OK || status == CRPC_E_TRUNCATED) {
        uint64_t wrong = first_wrong(bytes, came, plan->key);
        EXPECT(wrong == came, "message %u.%u of %u bytes: byte %llu is wrong", number, index, came,
               (unsigned long long)wrong);
        EXPECT(marked(bytes + came, bytes + plan->room + MARGIN),
               "message %u.%u of %u bytes: something came after it", number, index, came);
    }
    EXPECT(marked(bytes - MARGIN, bytes), "message %u.%u: something came before it", number, index);
    EXPECT(marked(bytes + plan->room, bytes + plan->room + MARGIN),
           "message %u.%u: something came after its buffer", number, index);
}

static bool may_end(const struct stream *stream, int32_t status)
{
    return status != CRPC_OK &&
           (status == stream->options.ends_with[0] || status == stream->options.ends_with[1]);
}

static void take_op(struct stream *stream, const crpc_completion *completion)
{
    struct half *half = &stream->halves[completion->kind == CRPC_COMPLETION_SENT];
    uint32_t number = (uint32_t)(completion->user_data / GROUP_MAX);
    uint32_t index = (uint32_t)(completion->user_data % GROUP_MAX);
    EXPECT(number <= half->posted, "message %u was not posted", number);
    struct place *place = &half->places[number % stream->options.window];
    const struct buffer_plan *plan = &place->plan.buffers[index];
    uint8_t *bytes = buffer_of(stream, half, number, index);
    EXPECT_EQUAL(completion->flags, CRPC_COMPLETION_OF_CHANNEL);
    EXPECT_EQUAL(completion->endpoint.bits, stream->channel.bits);
    EXPECT(place->left > 0 && index < place->plan.count && !(place->done & 1u << index),
           "message %u.%u has completed twice", number, index);
    EXPECT(completion->payload == (uint64_t)(uintptr_t)bytes || plan->room == 0,
           "message %u.%u: another buffer", number, index);
    int32_t expected = plan->bytes > plan->room ? CRPC_E_TRUNCATED : CRPC_OK;
    bool lost = may_end(stream, completion->status);
    EXPECT(lost || completion->status == expected, "message %u.%u: %s", number, index,
           crpc_status_name(completion->status));
    stream->ended |= lost;
    if (!lost) {
        EXPECT_EQUAL(completion->token, stream->first + number);
    }
    if (half->receives) {
        check_received(plan, bytes, number, index, completion->status, completion->payload_bytes);
    } else if (!lost) {
        mark(bytes, bytes + plan->bytes);
    }
    place->done |= (uint8_t)(1u << index);
    half->ops_open--;
    if (--place->left == 0) {
        half->completed++;
    }
}

static struct stream *streams;

static void take(struct side *side, const crpc_completion *completion)
{
    struct stream *stream = streams;
    bool of_channel = completion->flags & CRPC_COMPLETION_OF_CHANNEL;
    while (stream && (!of_channel || stream->channel.bits != completion->endpoint.bits)) {
        stream = stream->next;
    }
    if (!stream) {
        EXPECT(side->take_call, "completion of kind %u", completion->kind);
        side->take_call(side, completion);
    } else if (completion->kind == CRPC_COMPLETION_ROOM) {
        stream->halves[0].refused = stream->halves[1].refused = false;
    } else {
        EXPECT(completion->kind == CRPC_COMPLETION_SENT ||
                   completion->kind == CRPC_COMPLETION_RECEIVED,
               "completion of kind %u", completion->kind);
        take_op(stream, completion);
    }
}

/* ---- Posting --------------------------------------------------------------------------------- */

static crpc_channel_op op_of(const struct stream *stream, const struct half *half, uint32_t number,
                             uint32_t index)
{
    const struct plan *plan = &half->places[number % stream->options.window].plan;
    const struct buffer_plan *buffer = &plan->buffers[index];
    return (crpc_channel_op){.opcode = half->receives ? CRPC_CHANNEL_RECEIVE : CRPC_CHANNEL_SEND,
                             .flags =
                                 half->receives && index + 1 < plan->count ? CRPC_CHANNEL_MORE : 0,
                             .tag = buffer->tag,
                             .channel = stream->channel,
                             .user_data = (uint64_t)number * GROUP_MAX + index,
                             .region = half->region,
                             .address = (uint64_t)(uintptr_t)buffer_of(stream, half, number, index),
                             .bytes = half->receives ? buffer->room : buffer->bytes};
}

/* The next message gets its place; false if that is still in use. */
static bool begin_message(struct stream *stream, struct half *half)
{
    struct place *place = &half->places[half->posted % stream->options.window];
    if (place->left > 0) {
        return false;
    }
    plan_message(stream, half->direction, half->posted, &place->plan);
    place->left = place->plan.count;
    place->done = 0;
    half->ops_open += place->left;
    for (uint32_t i = 0; i < place->plan.count; i++) {
        const struct buffer_plan *buffer = &place->plan.buffers[i];
        uint8_t *bytes = buffer_of(stream, half, half->posted, i);
        if (half->receives) {
            mark(bytes - MARGIN, bytes + buffer->room + MARGIN);
        } else {
            fill(bytes, buffer->bytes, buffer->key);
        }
    }
    return true;
}

/* What was begun and not taken never will be. */
static void abandon(struct half *half, struct place *place)
{
    uint32_t open = place->plan.count - half->posted_ops;
    place->left -= open;
    half->ops_open -= open;
    half->posted_ops = 0;
    half->begun = false;
}

/* The rest of the message that was begun; true if it is taken whole. */
static bool post_rest(struct stream *stream, struct half *half, struct place *place)
{
    crpc_channel_op ops[GROUP_MAX];
    int32_t reason;
    uint32_t count = place->plan.count - half->posted_ops;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t nth = half->posted_ops + i;
        ops[i] = op_of(stream, half, half->posted, half->receives ? nth : place->plan.order[nth]);
    }
    int32_t taken = crpc_channel_submit(stream->side->context, ops, count, &reason);
    EXPECT(taken >= 0, "%s", crpc_status_name(taken));
    EXPECT(!half->receives || taken == 0 || taken == (int32_t)count, "a group was taken in part");
    half->posted_ops += (uint32_t)taken;
    if (half->posted_ops == place->plan.count) {
        half->posted++;
        half->posted_ops = 0;
        half->begun = false;
        return true;
    }
    if (may_end(stream, reason) || (reason == CRPC_E_STALE && may_end(stream, CRPC_E_CLOSED))) {
        stream->ended = true;
        return false;
    }
    EXPECT(reason == CRPC_E_AGAIN, "%s", crpc_status_name(reason));
    half->refused = true;
    return false;
}

static void post_half(struct stream *stream, struct half *half)
{
    while (half->posted < half->last && !half->refused && !stream->ended) {
        if (!half->begun) {
            if ((stream->stopped && !half->receives) || !begin_message(stream, half)) {
                return;
            }
            half->begun = true;
        }
        if (!post_rest(stream, half, &half->places[half->posted % stream->options.window])) {
            return;
        }
    }
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void make_half(struct stream *stream, struct half *half, bool receives)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const struct stream_options *options = &stream->options;
    uint32_t direction = stream->side->index == 0 ? receives : !receives;
    half->receives = receives;
    half->direction = direction;
    half->last = options->messages[direction];
    half->places = calloc(options->window, sizeof(*half->places));
    half->memory_bytes = stream->stride * options->window * options->group_max;
    half->memory = mmap(NULL, half->memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(half->places && half->memory != MAP_FAILED, "no memory");
    if (options->regions && options->messages[direction] > 0) {
        uint32_t access = receives ? CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE : 0;
        EXPECT(crpc_region_register(stream->side->context, half->memory, half->memory_bytes, access,
                                    &half->region, &error) == CRPC_OK,
               "%s", error.message);
    }
}

struct stream *stream_start(struct side *side, crpc_channel channel,
                            const struct stream_options *options, uint64_t seed, uint64_t first)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    EXPECT(stream, "no memory");
    *stream = (struct stream){
        .side = side, .channel = channel, .options = *options, .seed = seed, .first = first};
    struct stream_options *ours = &stream->options;
    ours->window = ours->window ? ours->window : 4;
    ours->group_max = ours->group_max ? ours->group_max : 1;
    for (uint32_t i = 0; i < ours->size_count; i++) {
        ours->bytes_max = ours->sizes[i] > ours->bytes_max ? ours->sizes[i] : ours->bytes_max;
    }
    stream->stride = (ours->bytes_max + SPARE_MAX + 2 * MARGIN + MISALIGN_MAX + 63) / 64 * 64;
    make_half(stream, &stream->halves[0], true);
    make_half(stream, &stream->halves[1], false);
    side->take = take;
    stream->next = streams;
    streams = stream;
    return stream;
}

uint32_t stream_done(const struct stream *stream)
{
    return stream->halves[0].completed + stream->halves[1].completed;
}

bool stream_idle(const struct stream *stream)
{
    return stream->halves[0].ops_open + stream->halves[1].ops_open == 0;
}

static bool complete(const struct stream *stream)
{
    if (stream->ended) {
        return stream_idle(stream);
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct half *half = &stream->halves[i];
        bool stopped = stream->stopped && !half->receives;
        if (stopped ? half->begun || half->ops_open > 0 : half->completed < half->last) {
            return false;
        }
    }
    return true;
}

bool stream_step(struct stream *stream)
{
    if (stream->options.shares && stream->halves[1].posted % 4 == 0) {
        uint64_t state = side_mix(stream->seed ^ stream->halves[1].posted);
        const uint32_t edges[] = {0, 1, 512, 1023, 1024};
        uint64_t value = side_random(&state);
        uint32_t share = value % 10 < 5 ? edges[value % 10] : (uint32_t)((value >> 8) % 1025);
        int32_t status = crpc_channel_set_share(stream->side->context, stream->channel, share);
        EXPECT_EQUAL(status, CRPC_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct half *half = &stream->halves[i];
        post_half(stream, half);
        if (stream->ended && half->begun) {
            abandon(half, &half->places[half->posted % stream->options.window]);
        }
    }
    if (complete(stream)) {
        return false;
    }
    side_poll(stream->side, 10000000);
    return true;
}

void stream_finish(struct stream *stream, double seconds)
{
    double end = side_seconds() + seconds;
    while (stream_step(stream)) {
        EXPECT(side_seconds() < end,
               "after %.0f s: received %u of %u (%u ops open), sent %u of %u (%u ops open)",
               seconds, stream->halves[0].completed, stream->halves[0].posted,
               stream->halves[0].ops_open, stream->halves[1].completed, stream->halves[1].posted,
               stream->halves[1].ops_open);
    }
}

void stream_settle(struct stream *stream, double seconds)
{
    struct half *receiving = &stream->halves[0];
    struct half *sending = &stream->halves[1];
    double end = side_seconds() + seconds;
    stream->stopped = true;
    while (sending->begun) {
        stream_step(stream);
        EXPECT(side_seconds() < end || stream->ended, "a send is not taken");
    }
    side_tell(stream->side, &sending->posted, sizeof(sending->posted));
    while (!side_told(stream->side)) {
        stream_step(stream);
        EXPECT(side_seconds() < end, "the other does not come");
    }
    side_hear(stream->side, &receiving->last, sizeof(receiving->last));
    stream_finish(stream, seconds);
}

void stream_end(struct stream *stream)
{
    EXPECT(stream_idle(stream), "ops are open");
    for (uint32_t i = 0; i < 2; i++) {
        struct half *half = &stream->halves[i];
        if (half->region.bits) {
            EXPECT_EQUAL(crpc_region_deregister(stream->side->context, half->region), CRPC_OK);
        } else {
            int32_t status =
                crpc_cache_forget(stream->side->context, half->memory, half->memory_bytes);
            EXPECT(status >= 0, "%s", crpc_status_name(status));
        }
        munmap(half->memory, half->memory_bytes);
        free(half->places);
    }
    struct stream **link = &streams;
    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
    free(stream);
}

void stream_run(struct side *side, crpc_channel channel, const struct stream_options *options,
                uint64_t seed, uint64_t first)
{
    struct stream *stream = stream_start(side, channel, options, seed, first);
    stream_finish(stream, 120);
    side_meet(side); /* polling: the other may still need our acknowledgement */
    stream_end(stream);
}
