/* channel.h: the interface of the channel engine, for capi and the tests. A channel stripes
 * messages over one rail or two. docs/design.md, section 12, explains how; docs/wire.md has the
 * formats.
 *
 * An engine belongs to one context, and only one thread at a time may use it. capi has checked the
 * arguments; the engine only asserts them, except in release builds. The engine itself checks what
 * peers send (receive.c, control.c, channel.c).
 */
#ifndef CORE_CHANNEL_CHANNEL_H
#define CORE_CHANNEL_CHANNEL_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/abi.h"
#include "base/handles.h"
#include "base/log.h"
#include "nic/nic.h"
#include "registration/registration.h"

struct cm;
struct channel_engine;
struct channel;
struct link_group;

#define CHANNEL_RAILS_MAX CRPC_RAILS_MAX
#define CHANNEL_GROUP_MAX CRPC_CHANNEL_GROUP_MAX
#define CHANNEL_BUFFER_BYTES_MAX (UINT64_C(1) << 30)

/* ---- Engine ---------------------------------------------------------------------------------- */

/* A buffer takes at most this many WQEs of a rail: one for each message_bytes_max of the device. */
#define CHANNEL_PARTS_MAX 32u

/* The nic of a rail must be opened with these values. A group's WQEs must fit into the send queue
 * together with the WQEs that are not signaled yet; otherwise the group would wait for ever. */
#define CHANNEL_SEND_DEPTH 340u
#define CHANNEL_SIGNAL_INTERVAL 32u
/* With mlx5, a bind takes three blocks of 64 bytes, and that is what a WQE with so much payload takes. With the place of a NOP, a send
 * queue then has 1,023 blocks of 1,024: 64 KiB. No WQE of a channel names more than one piece. */
#define CHANNEL_INLINE_BYTES 156u
static_assert(CHANNEL_GROUP_MAX * (CHANNEL_PARTS_MAX + 1) + 1 <=
                  CHANNEL_SEND_DEPTH - CHANNEL_SIGNAL_INTERVAL,
              "a group must fit");

/* Creates an engine. rails, cm (of rail 0; NULL: no rdma_cm), log and handles stay the caller's,
 * and must outlive the engine. virtual_clock_ns is NULL, or points to the time of a simulation. */
int32_t channel_engine_create(struct nic *const *rails, uint32_t rail_count, struct cm *cm,
                              struct log *log, struct handles *handles, uint32_t channels_max,
                              const uint64_t *virtual_clock_ns, struct channel_engine **engine,
                              crpc_error *error);
/* Closes everything that is still open, and frees the engine. */
void channel_engine_destroy(struct channel_engine *engine);
/* Returns the length of the longest buffer that can be sent, at most CHANNEL_BUFFER_BYTES_MAX. */
uint64_t channel_send_bytes_max(const struct channel_engine *engine);
/* Returns how many receives of the rail's shared queue new channels can still take. */
uint32_t channel_receives_left(const struct channel_engine *engine, uint32_t rail);
/* Returns how many receives arriving immediates have used. */
uint64_t channel_receives_completed(const struct channel_engine *engine, uint32_t rail);

/* ---- Data path ------------------------------------------------------------------------------- */

/* Accepts one op of a channel; channel_receive accepts all ops of one message, 1 to
 * CHANNEL_GROUP_MAX. `regions` are the registrations of the buffers with every rail of the channel;
 * NULL where an op has no bytes. Each function returns CRPC_OK, or returns the reason and changes
 * nothing. The caller calls channel_submit_end after the last op of a series. */
int32_t channel_receive(struct channel *channel, const crpc_channel_op *ops,
                        struct registration *const *regions, uint32_t count);
int32_t channel_send(struct channel *channel, const crpc_channel_op *op,
                     struct registration *region);
int32_t channel_cancel(struct channel *channel, const crpc_channel_op *op);
/* Sends what has gathered. */
void channel_submit_end(struct channel_engine *engine);

uint32_t channel_poll(struct channel_engine *engine, crpc_completion *completions,
                      uint32_t capacity);

/* Sends what has gathered and processes the completions of the devices, but returns no
 * completion. */
void channel_progress(struct channel_engine *engine);
/* Returns true if channel_poll would return something even if nothing new arrives. */
bool channel_something_waits(const struct channel_engine *engine);
/* Returns the latest time (CLOCK_MONOTONIC) at which channel_poll must be called; UINT64_MAX =
 * never. While sends wait for a clear-to-send this time is near, because clear-to-sends cause no
 * event. */
uint64_t channel_next_deadline_ns(const struct channel_engine *engine);

/* ---- Channels -------------------------------------------------------------------------------- */

/* Returns the links of the engine, for link_connect, link_listener_open and so on. Their options
 * are crpc_channel_options, in which no zero means a default and slots is a power of two. Each link
 * is the first member of a channel. */
struct link_group *channel_links(struct channel_engine *engine);
void channel_set_share(struct channel *channel, uint32_t rail0_share);
/* A nic has refused to register memory. If it is lost, its rail is lost from now on, and needs no keys. */
void channel_look_for_lost(struct channel_engine *engine);
/* Returns the mask of the rails that both sides have, without those whose devices here are lost. A region needs keys for all of them. */
uint32_t channel_rails(const struct channel *channel);
void channel_info(const struct channel *channel, crpc_channel_info *info);
void channel_stats(const struct channel *channel, crpc_channel_stats *stats);

#endif
