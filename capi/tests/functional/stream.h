/* stream.h: messages in both directions over a channel, every byte of which is checked. What each
 * message is (buffers, sizes, tags, what is in them) follows from the seed, the direction and its
 * number, so that the receiver knows it. Around each receive there are bytes that must stay as they
 * are; what was sent is overwritten as soon as SENT says it may be.
 */
#ifndef FUNCTIONAL_STREAM_H
#define FUNCTIONAL_STREAM_H

#include "side.h"

struct stream_options {
    uint32_t messages[2];  /* of each direction, 0: from side 0 to side 1 */
    uint32_t window;       /* messages under way at once, each way; 0 = 4 */
    uint32_t group_max;    /* buffers of a message; 0 = 1 */
    uint64_t bytes_max;    /* of a buffer */
    bool never_empty;      /* no buffer of 0 bytes */
    const uint64_t *sizes; /* NULL: random; else those of the messages, in turn */
    uint32_t size_count;
    bool regions;         /* registered; else plain memory */
    bool truncate;        /* some sends are longer than their buffers */
    bool shares;          /* rail0_share changes at random while messages flow */
    int32_t ends_with[2]; /* as the channel may end under it: how ops may complete then */
};

struct stream;

/* Makes the side's `take` its own. Starts at message `first` of either direction of the channel; one
 * stream a channel at a time. */
struct stream *stream_start(struct side *side, crpc_channel channel,
                            const struct stream_options *options, uint64_t seed, uint64_t first);
/* One round: posts what can be posted, polls the side; false when all has completed. */
bool stream_step(struct stream *stream);
/* Steps until all has completed, which must be within `seconds`. */
void stream_finish(struct stream *stream, double seconds);
/* Messages of this side that have completed, both ways. */
uint32_t stream_done(const struct stream *stream);
/* Of streams without end: both sides stop sending, and receive what was sent. Receives may remain. */
#define STREAM_ENDLESS UINT32_MAX
void stream_settle(struct stream *stream, double seconds);
/* All ops that were taken have completed. */
bool stream_idle(const struct stream *stream);
/* Checks that nothing is open; forgets its memory. */
void stream_end(struct stream *stream);

/* All of it: for what is expected to succeed. */
void stream_run(struct side *side, crpc_channel channel, const struct stream_options *options,
                uint64_t seed, uint64_t first);

#endif
