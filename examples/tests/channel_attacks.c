/* channel_attacks.c: see channel_attacks.h. */
#include "channel_attacks.h"

#include <string.h>

#define FOREIGN 0xee /* what is written where nobody may */

/* ---- Memory: the device refuses -------------------------------------------------------------- */

static void reach(struct channel_peer *peer, enum ibv_wr_opcode opcode, uint64_t address,
                  uint32_t key, uint32_t bytes)
{
    memset(peer->payload, FOREIGN, bytes);
    assert_int_equal(peer_transfer(peer, opcode, address, key, bytes, 0), IBV_WC_REM_ACCESS_ERR);
    for (uint32_t i = 0; i < bytes; i++) {
        assert_int_equal(peer->payload[i], FOREIGN);
    }
}

#define ATTACK(name)                                                                               \
    static void name(struct channel_peer *peer, const struct channel_cts *before,                  \
                     const struct channel_peer *other)

ATTACK(after_the_completion)
{
    (void)other;
    reach(peer, IBV_WR_RDMA_WRITE, before->address, before->right.key, 8);
}

ATTACK(after_the_completion_with_an_immediate)
{
    (void)other;
    reach(peer, IBV_WR_RDMA_WRITE_WITH_IMM, before->address, before->right.key, 8);
}

ATTACK(behind_a_receive)
{
    struct channel_cts buffer = peer_await_buffer(peer, 1);
    (void)before, (void)other;
    reach(peer, IBV_WR_RDMA_WRITE, buffer.address + buffer.bytes, buffer.right.key, 1);
}

ATTACK(before_a_receive)
{
    struct channel_cts buffer = peer_await_buffer(peer, 1);
    (void)before, (void)other;
    reach(peer, IBV_WR_RDMA_WRITE, buffer.address - 1, buffer.right.key, 1);
}

ATTACK(across_the_end_of_a_receive)
{
    struct channel_cts buffer = peer_await_buffer(peer, 1);
    (void)before, (void)other;
    reach(peer, IBV_WR_RDMA_WRITE, buffer.address + buffer.bytes - 8, buffer.right.key, 16);
}

ATTACK(a_receive_is_read)
{
    struct channel_cts buffer = peer_await_buffer(peer, 1);
    (void)before, (void)other;
    reach(peer, IBV_WR_RDMA_READ, buffer.address, buffer.right.key, 8);
}

ATTACK(another_channels_receive)
{
    struct channel_cts buffer = peer_await_buffer(other, 1);
    (void)before;
    reach(peer, IBV_WR_RDMA_WRITE, buffer.address, buffer.right.key, 8);
}

ATTACK(another_channels_receive_with_a_key_of_ones_own)
{
    struct channel_cts buffer = peer_await_buffer(other, 1), mine = peer_await_buffer(peer, 1);
    (void)before;
    reach(peer, IBV_WR_RDMA_WRITE, buffer.address, mine.right.key, 8);
}

/* Who was told its address could write there: SECURITY.md tells of it. */
ATTACK(another_channels_area_is_read)
{
    (void)before;
    reach(peer, IBV_WR_RDMA_READ, other->receiver.area_address, other->receiver.area_key, 8);
}

ATTACK(behind_the_area)
{
    (void)before, (void)other;
    /* It is whole pages, of as many slots as the receiver wanted. */
    uint64_t bytes = channel_area_bytes(1u << peer->receiver.slots_log2);
    reach(peer, IBV_WR_RDMA_WRITE, peer->receiver.area_address + ((bytes + 0xffff) & ~0xffffull),
          peer->receiver.area_key, 8);
}

ATTACK(the_area_is_read)
{
    (void)before, (void)other;
    reach(peer, IBV_WR_RDMA_READ, peer->receiver.area_address, peer->receiver.area_key, 8);
}

/* ---- Immediates ------------------------------------------------------------------------------ */

#define SAYS(name, immediate)                                                                      \
    ATTACK(name)                                                                                   \
    {                                                                                              \
        (void)before, (void)other;                                                                 \
        peer_say_immediate(peer, immediate);                                                       \
    }

SAYS(a_slot_that_is_none, 200u | 1u << CHANNEL_MASK_SHIFT)
SAYS(a_slot_without_a_receive, peer_immediate(7))
SAYS(a_message_twice, peer_immediate(0))
SAYS(another_generation, peer_immediate(1) + (1u << CHANNEL_GENERATION_SHIFT))
SAYS(a_share_of_no_rail, 1u | 2u << CHANNEL_MASK_SHIFT)
SAYS(two_shares, 1u | 3u << CHANNEL_MASK_SHIFT)
SAYS(in_place_of_the_other_rail, peer_immediate(1) | CHANNEL_IMMEDIATE_PROXY)
SAYS(control_of_no_kind, 3u)
SAYS(a_probe_of_another_epoch, CHANNEL_IMMEDIATE_PROBE | 9u << CHANNEL_GENERATION_SHIFT)
SAYS(control_far_ahead, CHANNEL_IMMEDIATE_CONTROL | 100u << CHANNEL_GENERATION_SHIFT)

/* They land in the area, which the peer may write to. */
ATTACK(more_bytes_than_the_receive_has)
{
    struct channel_cts buffer = peer_await_buffer(peer, 1);
    (void)before, (void)other;
    uint64_t room = channel_area_bytes(1);
    if (buffer.bytes < room) {
        memset(peer->payload, 0, buffer.bytes + 1);
        peer_transfer(peer, IBV_WR_RDMA_WRITE_WITH_IMM, peer->receiver.area_address,
                      peer->receiver.area_key, (uint32_t)buffer.bytes + 1, peer_immediate(1));
    } else {
        peer_say_immediate(peer, peer_immediate(7));
    }
}

/* ---- Records --------------------------------------------------------------------------------- */

static void say_record(struct channel_peer *peer, const struct channel_record *record)
{
    memcpy(peer->payload, record, sizeof(*record));
    peer_transfer(
        peer, IBV_WR_RDMA_WRITE_WITH_IMM, peer->receiver.area_address + CHANNEL_RECORDS_OFFSET + 64,
        peer->receiver.area_key, sizeof(*record), peer_immediate(1) | CHANNEL_IMMEDIATE_RECORD);
}

#define RECORDS(name, ...)                                                                         \
    ATTACK(name)                                                                                   \
    {                                                                                              \
        struct channel_record record = {.number = 2, .count = 1, .sizes = {5}};                    \
        (void)before, (void)other;                                                                 \
        __VA_ARGS__;                                                                               \
        say_record(peer, &record);                                                                 \
    }

RECORDS(a_record_of_another_message, record.number = 3)
RECORDS(a_record_of_two_buffers, record.count = 2)
RECORDS(a_record_without_buffers, record.count = 0)
RECORDS(a_record_whose_zero_is_set, record.zero = 1)
RECORDS(a_record_whose_end_is_set, record.zero2[1] = 1)

/* ---- Control --------------------------------------------------------------------------------- */

#define CONTROLS(name, its_kind, ...)                                                              \
    ATTACK(name)                                                                                   \
    {                                                                                              \
        struct channel_control message = peer_control(peer, its_kind);                             \
        struct channel_offer *offer = (void *)message.body;                                        \
        struct channel_bye *bye = (void *)message.body;                                            \
        (void)before, (void)other, (void)offer, (void)bye;                                         \
        __VA_ARGS__;                                                                               \
        peer_say(peer, &message);                                                                  \
    }

CONTROLS(an_unknown_kind, 9)
CONTROLS(a_rail_that_is_none, CHANNEL_CONTROL_REPORT, message.rail = 2)
CONTROLS(a_zero_that_is_set, CHANNEL_CONTROL_LEAVE, message.zero2 = 1)
CONTROLS(another_sequence_number, CHANNEL_CONTROL_LEAVE, message.sequence += 8)
CONTROLS(an_offer_of_a_rail_that_is_up, CHANNEL_CONTROL_OFFER, message.epoch = 2,
         offer->queue_pairs = 1)
CONTROLS(an_answer_to_nothing, CHANNEL_CONTROL_ANSWER, offer->queue_pairs = 1)
CONTROLS(a_leave_that_counts, CHANNEL_CONTROL_LEAVE, bye->sent = 1)
CONTROLS(a_leave_twice, CHANNEL_CONTROL_LEAVE, peer_say(peer, &message),
         message.sequence = peer->control_sequence)

/* ---- All ------------------------------------------------------------------------------------- */

#define REFUSED(name)                                                                              \
    {                                                                                              \
#name, name, true, false                                                                   \
    }
#define REFUSED_OF_TWO(name)                                                                       \
    {                                                                                              \
#name, name, true, true                                                                    \
    }
#define VIOLATES(name)                                                                             \
    {                                                                                              \
#name, name, false, false                                                                  \
    }

const struct attack attacks[] = {
    REFUSED(after_the_completion),
    REFUSED(after_the_completion_with_an_immediate),
    REFUSED(behind_a_receive),
    REFUSED(before_a_receive),
    REFUSED(across_the_end_of_a_receive),
    REFUSED(a_receive_is_read),
    REFUSED_OF_TWO(another_channels_receive),
    REFUSED_OF_TWO(another_channels_receive_with_a_key_of_ones_own),
    REFUSED_OF_TWO(another_channels_area_is_read),
    REFUSED(behind_the_area),
    REFUSED(the_area_is_read),
    VIOLATES(a_slot_that_is_none),
    VIOLATES(a_slot_without_a_receive),
    VIOLATES(a_message_twice),
    VIOLATES(another_generation),
    VIOLATES(a_share_of_no_rail),
    VIOLATES(two_shares),
    VIOLATES(in_place_of_the_other_rail),
    VIOLATES(control_of_no_kind),
    VIOLATES(a_probe_of_another_epoch),
    VIOLATES(control_far_ahead),
    VIOLATES(more_bytes_than_the_receive_has),
    VIOLATES(a_record_of_another_message),
    VIOLATES(a_record_of_two_buffers),
    VIOLATES(a_record_without_buffers),
    VIOLATES(a_record_whose_zero_is_set),
    VIOLATES(a_record_whose_end_is_set),
    VIOLATES(an_unknown_kind),
    VIOLATES(a_rail_that_is_none),
    VIOLATES(a_zero_that_is_set),
    VIOLATES(another_sequence_number),
    VIOLATES(an_offer_of_a_rail_that_is_up),
    VIOLATES(an_answer_to_nothing),
    VIOLATES(a_leave_that_counts),
    VIOLATES(a_leave_twice),
};
const uint32_t attack_count = sizeof(attacks) / sizeof(attacks[0]);
