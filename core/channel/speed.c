/* speed.c: the split by measurement. A rail's speed is the bytes of large shares that it has
 * acknowledged, over the time in which it had any under way. Both are halved now and then, so that
 * what happened lately counts most. Integers only.
 */
#include "channel/internal.h"

#include "channel/split.h"

#define SAMPLE_BYTES (UINT64_C(4) << 20) /* of each rail before the split changes */
#define FORGET_BYTES (UINT64_C(32) << 20)
/* A rail that carried nothing would never be measured again. */
#define SHARE_MIN 32u

static uint32_t clamp_share(uint64_t share)
{
    return (uint32_t)maximum(minimum(share, SPLIT_WHOLE - SHARE_MIN), SHARE_MIN);
}

/* Before anything was measured the links' speeds are all that is known. */
void speed_init(struct channel *channel)
{
    const struct channel_engine *engine = channel->engine;
    uint64_t first = engine->rails[0].nic->link_mbps;
    uint64_t second = engine->rail_count > 1 ? engine->rails[1].nic->link_mbps : 0;
    channel->share = first > 0 && second > 0 ? clamp_share(SPLIT_WHOLE * first / (first + second))
                                             : SPLIT_WHOLE / 2;
}

void speed_forget(struct channel_rail *rail)
{
    rail->speed = (struct rail_speed){0};
}

void speed_begin(struct channel *channel, uint32_t index, uint32_t bytes)
{
    struct rail_speed *speed = &channel->rails[index].speed;
    if (bytes < SPEED_SHARE_BYTES_MIN) {
        return;
    }
    if (speed->open++ == 0) {
        speed->mark_ns = link_now_ns(&channel->engine->links);
    }
}

/* bytes / time of one rail against the other's, without division of one by the other first. */
static void weigh(struct channel *channel)
{
    struct rail_speed *first = &channel->rails[0].speed;
    struct rail_speed *second = &channel->rails[1].speed;
    if (first->bytes < SAMPLE_BYTES || second->bytes < SAMPLE_BYTES) {
        return;
    }
    /* KiB per millisecond: 64 bits hold the products for any speed and time. */
    uint64_t first_speed = (first->bytes >> 10) * 1000000 / maximum(first->busy_ns, 1);
    uint64_t second_speed = (second->bytes >> 10) * 1000000 / maximum(second->busy_ns, 1);
    if (first_speed + second_speed > 0) {
        channel->share = clamp_share(SPLIT_WHOLE * first_speed / (first_speed + second_speed));
    }
    if (first->bytes > FORGET_BYTES || second->bytes > FORGET_BYTES) {
        first->bytes /= 2;
        first->busy_ns /= 2;
        second->bytes /= 2;
        second->busy_ns /= 2;
    }
}

void speed_end(struct channel *channel, uint32_t index, uint32_t bytes)
{
    struct rail_speed *speed = &channel->rails[index].speed;
    if (bytes < SPEED_SHARE_BYTES_MIN || speed->open == 0) {
        return; /* too small, or posted before the rail was lost or had company */
    }
    uint64_t now_ns = link_now_ns(&channel->engine->links);
    speed->open--;
    speed->bytes += bytes;
    speed->busy_ns += now_ns - speed->mark_ns;
    speed->mark_ns = now_ns;
    weigh(channel);
}
