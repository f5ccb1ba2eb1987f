/* channel_attacks.h: what hostile senders of a channel do. Each has connected as it should, and sent message 0, which the
 * receiver has taken; the receives of messages 1 and 2 are open, and that of message 7 is not posted.
 */
#ifndef EXAMPLES_TESTS_CHANNEL_ATTACKS_H
#define EXAMPLES_TESTS_CHANNEL_ATTACKS_H

#include "channel_peer.h"

struct attack {
    const char *name;
    /* `before`: message 0 as it was cleared to send. `other`: an honest peer, whose receives are open, too. */
    void (*attack)(struct channel_peer *peer, const struct channel_cts *before,
                   const struct channel_peer *other);
    /* The device refuses it, and the queue pair is gone; otherwise the receiver has to find out that the protocol was violated. */
    bool refused;
    bool needs_other;
};

extern const struct attack attacks[];
extern const uint32_t attack_count;

#endif
