/* speed.c: the split by measurement. docs/design.md, section 12, argues why it settles.
 *
 * A message that both rails carry is a sample. It compares the two rails from one moment on, that of its post: each had
 * so many bytes to bring, with those that were under way, and took so long. So what both wait for counts for neither,
 * a rail without anything to do is never measured, and the share moves toward that with which both end together.
 * If both had something to do all the time, there is a second comparison, of what each brought since a share of its
 * last ended: without any latency, it tells the speeds themselves. Integers only.
 */
#include "channel/internal.h"

#include "channel/split.h"

/* Each message has a part for the slower rail, however slow: so that it is measured again. */
#define SHARE_MIN (SPLIT_FINE / 64)
/* How much a sample counts: by the time since the one before, but at the least 1/16 and at the most 1/2. */
#define SETTLE_NS_BITS 22u /* 4 ms */
#define WEIGHT_BITS 8u
#define WEIGHT_MIN ((1u << WEIGHT_BITS) / 16)
#define WEIGHT_MAX ((1u << WEIGHT_BITS) / 2)

static uint32_t clamp_share(uint64_t share)
{
    return (uint32_t)maximum(minimum(share, SPLIT_FINE - SHARE_MIN), SHARE_MIN);
}

/* Before anything was measured the links' speeds are all that is known. */
void speed_init(struct channel *channel)
{
    const struct channel_engine *engine = channel->engine;
    uint64_t first = engine->rails[0].nic->link_mbps;
    uint64_t second = engine->rail_count > 1 ? engine->rails[1].nic->link_mbps : 0;
    channel->share = first > 0 && second > 0 ? clamp_share(SPLIT_FINE * first / (first + second))
                                             : SPLIT_FINE / 2;
}

void speed_begin(struct channel *channel, struct channel_outgoing *outgoing)
{
    struct channel_sample *sample = &outgoing->sample;
    sample->began_ns = link_now_ns(&channel->engine->links);
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        sample->bytes[rail] = channel->rails[rail].under_way;
        sample->since_ns[rail] = channel->rails[rail].since_ns;
    }
    sample->valid = true;
}

/* Shifts two numbers until both have at most so many bits. */
static void narrow(uint64_t *first, uint64_t *second, uint32_t bits)
{
    uint32_t used = 64 - (uint32_t)__builtin_clzll(*first | *second | 1);
    uint32_t shift = used > bits ? used - bits : 0;
    *first >>= shift;
    *second >>= shift;
}

/* Rail r has brought bytes[r] from from_ns[r] to to_ns[r]: first_speed / (first_speed + second_speed), in parts of
 * SPLIT_FINE. */
static uint64_t share_of_speeds(const uint64_t bytes[CHANNEL_RAILS_MAX],
                                const uint64_t from_ns[CHANNEL_RAILS_MAX],
                                const uint64_t to_ns[CHANNEL_RAILS_MAX])
{
    uint64_t first_bytes = bytes[0], second_bytes = bytes[1];
    uint64_t first_ns = to_ns[0] - from_ns[0], second_ns = to_ns[1] - from_ns[1];
    narrow(&first_bytes, &second_bytes, 23);
    narrow(&first_ns, &second_ns, 19);
    uint64_t first = maximum(first_bytes, 1) * maximum(second_ns, 1);
    uint64_t second = maximum(second_bytes, 1) * maximum(first_ns, 1);
    return (first << SPLIT_FINE_BITS) /
           (first + second); /* 23 + 19 + 20 bits, and one for the sum */
}

/* What the sample says that the share should be. */
static uint64_t share_of_sample(const struct channel_sample *sample)
{
    const uint64_t began_ns[CHANNEL_RAILS_MAX] = {sample->began_ns, sample->began_ns};
    uint64_t share = share_of_speeds(sample->bytes, began_ns, sample->ended_ns);
    if (sample->since_ns[0] == 0 || sample->since_ns[1] == 0) {
        return share;
    }
    return (share + share_of_speeds(sample->bytes, sample->since_ns, sample->ended_ns)) / 2;
}

void speed_end(struct channel *channel, struct channel_outgoing *outgoing, uint32_t share)
{
    struct channel_sample *sample = &outgoing->sample;
    if (!sample->valid) {
        return;
    }
    uint64_t now_ns = link_now_ns(&channel->engine->links);
    struct channel_rail *rail = &channel->rails[share];
    rail->since_ns = rail->under_way > 0 ? now_ns : 0;
    sample->ended_ns[share] = now_ns;
    if (outgoing->done == 0) {
        return; /* the other is still to come */
    }
    uint64_t weight = (now_ns - channel->measured_ns) >> (SETTLE_NS_BITS - WEIGHT_BITS);
    weight = minimum(maximum(weight, WEIGHT_MIN), WEIGHT_MAX);
    channel->measured_ns = now_ns;
    channel->share = clamp_share(
        (channel->share * ((1u << WEIGHT_BITS) - weight) + share_of_sample(sample) * weight) >>
        WEIGHT_BITS);
}
