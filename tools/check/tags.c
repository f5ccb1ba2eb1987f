/* tags.c: queues that match tags (nic/tags.h), by both drivers. The commands that change the list of tags go through a queue pair that
 * libmlx5 hides, so what it writes cannot be compared: what they do is looked at. */
#include <endian.h>
#include <infiniband/tm_types.h>
#include <string.h>

#include "base/clock.h"
#include "desk.h"
#include "nic/tags.h"

#define TAGS 8u
#define SLOT_BYTES 4096u
#define BUFFERS_AT 65536u /* in the far memory, behind what receives fill */
#define LOW_MASK 0xffull  /* bits of a tag that the second buffer does not mind */
#define OFFSET(buffer) (BUFFERS_AT + (buffer)*SLOT_BYTES)

enum { BUFFER_REMOVED, BUFFER_MATCHED };
enum { USER_ADD = 100, USER_REMOVE = 200, USER_SYNC = 300 };

static struct desk desk;

static bool command(const struct nic_work *work, const struct nic_piece *piece,
                    struct outcome *outcome)
{
    const struct nic_queue_operations *operations = desk.station.far->operations->queues;
    const bool posted = operations->tag(desk.shared, work, piece);
    operations->ring(desk.shared);
    return posted || fails(outcome, "there is no room for a command that concerns tags");
}

static bool add(uint32_t buffer, uint64_t tag, uint64_t mask, struct outcome *outcome)
{
    struct station *station = &desk.station;
    const struct nic_work work = {.opcode = NIC_TAG_ADD,
                                  .user_data = USER_ADD + buffer,
                                  .remote_address = tag,
                                  .operand = mask};
    const struct nic_piece piece = {.address = (uintptr_t)station->sink + OFFSET(buffer),
                                    .bytes = SLOT_BYTES,
                                    .local_key = station->sink_keys.local_key};
    return command(&work, &piece, outcome);
}

/* Until the device has all commands: an addition shows no completion. */
static bool settle(struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    const struct tracking *commands = &desk.shared->sends;
    crpc_completion done;
    uint32_t errors = 0;
    while (commands->consumer != commands->producer) {
        if (desk.station.far->operations->queues->poll(desk.station.far, &done, 1, &errors) > 0) {
            return fails(outcome, "a buffer with a tag completed before any message came");
        }
        if (clock_now_ns() - start_ns > desk.station.subject->patience_ms * 1000000ull) {
            return fails(outcome, "a command that concerns tags has not completed within %u ms",
                         desk.station.subject->patience_ms);
        }
    }
    return true;
}

/* The next completion of the far side has to be this one. */
static bool expect(uint8_t opcode, uint64_t user_data, int32_t status, crpc_completion *done,
                   const char *what, struct outcome *outcome)
{
    if (!desk_next(&desk, desk.station.far, done, outcome)) {
        return fails_in(outcome, "%s", what);
    }
    return (done->method == opcode && done->user_data == user_data && done->status == status) ||
           fails(outcome, "%s: completion of op %u (%u) with status %d, not of op %u (%u) with %d",
                 what, done->method, (uint32_t)done->user_data, done->status, opcode,
                 (uint32_t)user_data, status);
}

/* A message behind a header with a tag. */
static bool send_tagged(uint64_t tag, uint32_t bytes, struct outcome *outcome)
{
    struct station *station = &desk.station;
    const struct ibv_tmh header = {.opcode = IBV_TMH_EAGER, .tag = htobe64(tag)};
    const struct nic_work work = {.opcode = NIC_SEND,
                                  .flags = NIC_WORK_SIGNAL,
                                  .address = (uintptr_t)station->source,
                                  .bytes = NIC_TAG_HEADER_BYTES + bytes};
    crpc_completion sent;
    static_assert(sizeof(header) == NIC_TAG_HEADER_BYTES, "what the device looks at");
    station_fill(station, station->source, NIC_TAG_HEADER_BYTES + bytes);
    memcpy(station->source, &header, sizeof(header));
    return desk_send(&desk, &work, outcome) && desk_await(&desk, station->near, &sent, outcome);
}

/* Into the buffer whose tag is the same but for the bits that its mask leaves out. */
static bool match(uint64_t tag, struct outcome *outcome)
{
    struct station *station = &desk.station;
    const uint32_t bytes = station_pick(station, SLOT_BYTES);
    crpc_completion done;
    if (!send_tagged(tag, bytes, outcome) ||
        !expect(NIC_TAG_ADD, USER_ADD + BUFFER_MATCHED, CRPC_OK, &done, "a message that matches",
                outcome)) {
        return false;
    }
    if (!(done.flags & NIC_DONE_MATCHED) || done.token != tag || done.payload_bytes != bytes) {
        return fails(outcome, "a message of %u bytes with tag 0x%llx matched as %u with 0x%llx",
                     bytes, (unsigned long long)tag, (uint32_t)done.payload_bytes,
                     (unsigned long long)done.token);
    }
    return station_same(station, NIC_TAG_HEADER_BYTES, OFFSET(BUFFER_MATCHED), bytes,
                        "a message with a tag", outcome);
}

/* A buffer that was taken back gets nothing: its message goes, header and all, to an ordinary receive. Then the device waits to be
 * told that it was looked at. */
static bool miss(uint64_t tag, struct outcome *outcome)
{
    struct station *station = &desk.station;
    const uint32_t bytes = station_pick(station, SLOT_BYTES);
    const struct nic_work removal = {
        .opcode = NIC_TAG_REMOVE, .user_data = USER_REMOVE, .operand = USER_ADD + BUFFER_REMOVED};
    const struct nic_work sync = {.opcode = NIC_TAG_SYNC, .user_data = USER_SYNC};
    crpc_completion done;
    return command(&removal, NULL, outcome) &&
           expect(NIC_TAG_ADD, USER_ADD + BUFFER_REMOVED, -NIC_ERROR_REMOVED, &done,
                  "a buffer that is taken back", outcome) &&
           expect(NIC_TAG_REMOVE, USER_REMOVE, CRPC_OK, &done, "taking it back", outcome) &&
           send_tagged(tag, bytes, outcome) &&
           expect(NIC_RECEIVE, DESK_RECEIVE, CRPC_OK, &done, "a message that matches nothing",
                  outcome) &&
           (done.flags & NIC_DONE_SYNC ||
            fails(outcome, "a message that matches nothing came as one without a tag")) &&
           station_same(station, 0, 0, NIC_TAG_HEADER_BYTES + bytes,
                        "a message that matches nothing", outcome) &&
           command(&sync, NULL, outcome) &&
           expect(NIC_TAG_SYNC, USER_SYNC, CRPC_OK, &done, "saying that it was looked at", outcome);
}

static bool one_round(struct outcome *outcome)
{
    struct station *station = &desk.station;
    const uint64_t high = (uint64_t)station_pick(station, UINT32_MAX) << 32;
    const uint64_t removed = high | 0x10000u, matched = high | 0x20000u;
    return desk_receive(&desk, outcome) && /* for a message that matches nothing: the second */
           add(BUFFER_REMOVED, removed, UINT64_MAX, outcome) &&
           add(BUFFER_MATCHED, matched, ~LOW_MASK, outcome) && settle(outcome) &&
           match(matched | (1 + station_pick(station, LOW_MASK)), outcome) &&
           miss(removed, outcome);
}

static bool by(const struct subject *subject, uint32_t driver, uint32_t rounds,
               struct outcome *outcome)
{
    struct desk_setup setup = {.station = {.options = station_options(), .driver = driver},
                               .kind = NIC_QUEUE_RC,
                               .tags = TAGS};
    bool good = desk_open(&desk, subject, &setup, outcome);
    for (uint32_t i = 0; good && i < rounds; i++) {
        good = one_round(outcome);
    }
    desk_close(&desk);
    return good;
}

/* queue_tags.c: commands change the list, messages go where it says, and the counts of both sides keep them in order. */
void check_tags(const struct subject *subject, struct outcome *outcome)
{
    const uint32_t rounds = subject->quick ? 50 : 2000;
    if (by(subject, 0, rounds, outcome) &&
        (!subject->direct || by(subject, CRPC_DRIVER_VERBS, rounds, outcome))) {
        passes(outcome, "%u messages to buffers with their tags, and as many to none%s", rounds,
               subject->direct ? ", by both drivers" : "");
    }
}
