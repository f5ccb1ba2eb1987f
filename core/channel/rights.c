/* rights.c: the rights to write that the peer gave with its clear-to-sends (its side is grant.c), where
 * they are not there yet, or are others since.
 */
#include "channel/internal.h"

uint32_t rights_read(const struct channel *channel, uint64_t number, struct channel_target *targets,
                     uint32_t count)
{
    uint32_t slot = (uint32_t)number & channel->slot_mask;
    const struct channel_cts *table =
        (const struct channel_cts *)(channel->area.base + CHANNEL_BUFFERS_OFFSET +
                                     (size_t)slot * CHANNEL_SLOT_BUFFERS_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
            __atomic_load(&table[i].rights[rail], &targets[i].rights[rail], __ATOMIC_RELAXED);
        }
    }
    return rights_rails(channel, targets, count);
}

uint32_t rights_await(struct channel *channel)
{
    struct channel_engine *engine = channel->engine;
    struct channel_head *head = &channel->send.head;
    uint32_t rails = rights_read(channel, channel->send.number, head->targets, head->count);
    uint64_t now_ns = link_now_ns(&engine->links);
    if (rails != 0 && (head->rails & channel->up & ~rails) == 0) {
        channel->send.rights_late = false;
        return rails;
    }
    if (head->since_ns == 0) {
        head->since_ns = now_ns;
    }
    uint64_t most_ns = channel->send.rights_late ? RIGHTS_WAIT_SHORT_NS : RIGHTS_WAIT_NS;
    if (rails != 0 && now_ns - head->since_ns >= most_ns) {
        channel->send.rights_late = true;
        return rails;
    }
    channel->send.rights_wanted = true;
    list_append_once(&engine->waiting, &channel->waiting_link);
    return 0;
}
