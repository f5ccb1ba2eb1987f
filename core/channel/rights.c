/* rights.c: the clear-to-sends of the peer (its side is grant.c): a table in our memory for each rail, which
 * its device writes over that rail. They come without an event. Anything may be in them, at any time: each
 * is copied once, and the copy is checked.
 */
#include "channel/internal.h"

#include <string.h>

#include "nic/barrier.h"

static inline const struct channel_cts *lines_of(const struct channel *channel, uint64_t number,
                                                 uint32_t rail)
{
    uint32_t slot = (uint32_t)number & channel->slot_mask;
    return (const struct channel_cts *)(channel->area.base + channel_buffers_offset(slot, rail));
}

/* Copies a clear-to-send if it is the wanted message's. The number lands last, so what lies before it is
 * whole. One of an earlier epoch tells of nothing; that of this epoch, which comes over it, only differs in
 * its right, which lands as one, and in its rails, of which either mask will do. */
static inline bool copy_line(const struct channel_cts *line, uint64_t number, uint32_t epoch,
                             struct channel_cts *copy)
{
    if (!barrier_device_wrote(&line->number, number + 1)) {
        return false;
    }
    wire_copy(copy, line);
    return copy->number == number + 1 && copy->right.epoch == epoch;
}

#define ALL_RAILS ((1u << CHANNEL_RAILS_MAX) - 1)

/* `rails`: those that it must announce. */
static inline bool line_valid(const struct channel_cts *line, uint32_t index, uint32_t count,
                              uint32_t rails)
{
    uint32_t shape; /* index, count, rails, zero */
    memcpy(&shape, &line->index, sizeof(shape));
    return (shape & ~(ALL_RAILS << 16)) == (index | count << 8) && (line->rails & rails) == rails &&
           (line->zero2[0] | line->zero2[1] | line->zero2[2]) == 0 &&
           line->bytes <= CHANNEL_BUFFER_BYTES_MAX && line->address <= UINT64_MAX - line->bytes;
}

/* Of one buffer, valid, with both rails announced, and alike but for the right: found with few instructions. */
static inline bool line_usual(const struct channel_cts *one, const struct channel_cts *other)
{
    uint64_t end, tag[2]; /* the tag and the shape */
    memcpy(&tag[0], &one->tag, sizeof(tag[0]));
    memcpy(&tag[1], &other->tag, sizeof(tag[1]));
    return ((one->address ^ other->address) | (one->bytes ^ other->bytes) | (tag[0] ^ tag[1]) |
            one->zero2[0] | one->zero2[1] | one->zero2[2] | other->zero2[0] | other->zero2[1] |
            other->zero2[2]) == 0 &&
           tag[0] >> 32 == (1u << 8 | ALL_RAILS << 16) && one->bytes <= CHANNEL_BUFFER_BYTES_MAX &&
           !__builtin_add_overflow(one->address, one->bytes, &end);
}
static_assert(offsetof(struct channel_cts, index) % 4 == 0, "the shape is a word");
static_assert(offsetof(struct channel_cts, zero2) == offsetof(struct channel_cts, tag) + 8, "tag");

/* Takes those of one rail, of which the first has been copied. Nothing comes of it if others are still to
 * come; or if they break the protocol, which ends the channel. */
__attribute__((noinline)) static void take_lines(struct channel *channel, uint64_t number,
                                                 uint32_t rail, const struct channel_cts *first,
                                                 struct channel_clear *clear)
{
    const struct channel_cts *lines = lines_of(channel, number, rail);
    struct channel_cts line = *first;
    bool known = clear->count != 0;
    uint32_t count = known ? clear->count : line.count;
    if (unlikely(count == 0 || count > CHANNEL_GROUP_MAX)) {
        link_violated(&channel->link, "it posted a receive of %u buffers", count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && !copy_line(&lines[i], number, channel->rails[rail].epoch, &line)) {
            return; /* the others are under way */
        }
        if (unlikely(!line_valid(&line, i, count, 1u << rail))) {
            link_violated(&channel->link, "it posted a receive that is malformed");
            return;
        }
        struct channel_target *target = &clear->targets[i];
        if (!known) {
            target->address = line.address;
            target->room = line.bytes;
            target->tag = line.tag;
        } else if (unlikely(target->address != line.address || target->room != line.bytes ||
                            target->tag != line.tag)) {
            link_violated(&channel->link, "over each rail it told of another buffer");
            return;
        }
        target->keys[rail] = line.right.key;
    }
    clear->count = count;
    clear->told |= 1u << rail;
    clear->announced = line.rails | (known ? clear->announced : 0);
}

static inline bool first_come(const struct channel *channel, uint64_t number, uint32_t rail,
                              struct channel_cts *copy)
{
    return copy_line(lines_of(channel, number, rail), number, channel->rails[rail].epoch, copy);
}

void rights_read(struct channel *channel, uint64_t number, struct channel_clear *clear)
{
    static_assert(CHANNEL_RAILS_MAX == 2, "both are named");
    struct channel_cts first[2];
    uint32_t wanted = channel->up & ~clear->told;
    uint32_t come = wanted & 1u && first_come(channel, number, 0, &first[0]) ? 1u : 0;
    come |= wanted & 2u && first_come(channel, number, 1, &first[1]) ? 2u : 0;
    if (likely(come == 0)) {
        return;
    }
    if (likely(come == ALL_RAILS && clear->count == 0 && line_usual(&first[0], &first[1]))) {
        clear->targets[0] =
            (struct channel_target){.address = first[0].address,
                                    .room = first[0].bytes,
                                    .keys = {first[0].right.key, first[1].right.key},
                                    .tag = first[0].tag};
        clear->count = 1;
        clear->told = ALL_RAILS;
        clear->announced = ALL_RAILS;
        return;
    }
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        if ((come & channel->up) >> rail & 1u) { /* none is up if the channel has ended */
            take_lines(channel, number, rail, &first[rail], clear);
        }
    }
}
