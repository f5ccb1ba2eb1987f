/* channel.h: messages striped over one rail or two: what capi (and the tests) may ask of it.
 * docs/design.md section 12 tells how it works, docs/wire.md what it sends.
 *
 * One engine belongs to one context and one thread at a time. Arguments have been checked by capi:
 * here they are asserted, in all builds but release. What a peer sends is checked here
 * (receive.c, control.c, channel.c).
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

/* A buffer takes at most so many WQEs of a rail, one each message_bytes_max of its device. */
#define CHANNEL_PARTS_MAX 32u

/* What a rail's nic must have been opened with: a group's WQEs fit beside those that no completion
 * tells of, or it would wait for ever. */
#define CHANNEL_SEND_DEPTH 512u
#define CHANNEL_SIGNAL_INTERVAL 32u
static_assert(CHANNEL_GROUP_MAX * (CHANNEL_PARTS_MAX + 1) + 1 <=
                  CHANNEL_SEND_DEPTH - CHANNEL_SIGNAL_INTERVAL,
              "a group must fit");

/* rails, cm (of rail 0; NULL: no rdma_cm), log and handles stay the caller's and must outlive the
 * engine. virtual_clock_ns is NULL, or where a simulation keeps its time. */
int32_t channel_engine_create(struct nic *const *rails, uint32_t rail_count, struct cm *cm,
                              struct log *log, struct handles *handles, uint32_t channels_max,
                              const uint64_t *virtual_clock_ns, struct channel_engine **engine,
                              crpc_error *error);
/* Closes what is still open. */
void channel_engine_destroy(struct channel_engine *engine);
/* The longest buffer that may be sent, at most CHANNEL_BUFFER_BYTES_MAX. */
uint64_t channel_send_bytes_max(const struct channel_engine *engine);
/* Receives of the rail's shared queue that no channel has asked for. */
uint32_t channel_receives_left(const struct channel_engine *engine, uint32_t rail);
/* Receives that immediates have used up. */
uint64_t channel_receives_completed(const struct channel_engine *engine, uint32_t rail);

/* ---- Data path ------------------------------------------------------------------------------- */

/* One message to be received: 1 to CHANNEL_GROUP_MAX ops and the registrations of their memory with the
 * rails (all of which have every
 * rail of the channel, or bytes 0). All are taken, or none and it says why. After the last of a
 * series comes channel_submit_end. */
int32_t channel_receive(struct channel *channel, const crpc_channel_op *ops,
                        struct registration *const *regions, uint32_t count);
int32_t channel_send(struct channel *channel, const crpc_channel_op *op,
                     struct registration *region);
int32_t channel_cancel(struct channel *channel, const crpc_channel_op *op);
/* Sends what has gathered. */
void channel_submit_end(struct channel_engine *engine);

uint32_t channel_poll(struct channel_engine *engine, crpc_completion *completions,
                      uint32_t capacity);

/* Sends what has gathered and takes what the devices have, but gives nothing. */
void channel_progress(struct channel_engine *engine);
/* True if channel_poll would give something without anything new arriving. */
bool channel_something_waits(const struct channel_engine *engine);
/* When channel_poll has something to do at the latest; UINT64_MAX: never. CLOCK_MONOTONIC. A
 * clear-to-send arrives without an event, so while sends wait for one this is soon. */
uint64_t channel_next_deadline_ns(const struct channel_engine *engine);

/* ---- Channels -------------------------------------------------------------------------------- */

/* The connections, for link_connect, link_listener_open and the like; their options are
 * crpc_channel_options, without zeros where zero means a default; slots is a power of two. Each link
 * begins a channel. */
struct link_group *channel_links(struct channel_engine *engine);
void channel_set_share(struct channel *channel, uint32_t rail0_share);
/* Mask of the rails that both sides have: those whose keys a region needs. */
uint32_t channel_rails(const struct channel *channel);
void channel_info(const struct channel *channel, crpc_channel_info *info);
void channel_stats(const struct channel *channel, crpc_channel_stats *stats);

#endif
