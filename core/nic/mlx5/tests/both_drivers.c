/* both_drivers.c: see both_drivers.h. */
#include "both_drivers.h"

uint32_t pick(uint32_t below)
{
    static uint32_t random = 0x5eed;
    random = random * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random * below >> 32);
}

void side_open(struct side *side, uint32_t driver, uint8_t *memory, size_t bytes, uint32_t access)
{
    static const struct nic_transport transport = {
        .retry_timeout = 14, .retry_count = 7, .atomics = true};
    struct nic_options options = pair_options();
    assert_int_equal(nic_open(driver, &options, &side->inbox.nic, NULL), CRPC_OK);
    pair_enroll(side->inbox.nic, memory, bytes, access, &side->memory);
    assert_int_equal(
        nic_queue_pair_create(side->inbox.nic, NULL, NULL, PAIR_RECEIVES, &side->sender, NULL), 0);
    assert_int_equal(
        nic_queue_pair_create(side->inbox.nic, NULL, NULL, PAIR_RECEIVES, &side->receiver, NULL),
        0);
    pair_connect(side->sender, side->receiver, &transport);
}

void side_close(struct side *side)
{
    const struct nic_operations *operations = side->inbox.nic->operations;
    operations->queue_pair_destroy(side->sender);
    operations->queue_pair_destroy(side->receiver);
    operations->memory_deregister(side->inbox.nic, &side->memory);
    operations->close(side->inbox.nic);
}

uint32_t take_word(uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof(value));
    memset(bytes, 0, sizeof(value));
    return be32toh(value);
}

uint32_t side_next_wqe(struct side *side, struct device_trace_wqe *wqe)
{
    uint32_t units;
    do {
        assert_true(device_trace_next(wqe));
        assert_int_equal(wqe->number, side->sender->number);
        assert_int_equal(wqe->data[1] << 8 | wqe->data[2], side->position & 0xffff);
        uint32_t number_and_units = take_word(wqe->data + 4);
        assert_int_equal(number_and_units >> 8, side->sender->number);
        units = number_and_units & 0x3f;
        side->position += (units + 3) / 4;
    } while (wqe->data[3] == MLX5_OPCODE_NOP);
    assert_true(units * 16 <= wqe->bytes);
    memset(wqe->data + 1, 0, 2);
    return units;
}

void expect_alike(const struct seen *theirs, const struct seen *ours, const char *what,
                  uint32_t which)
{
    if (theirs->units == ours->units &&
        memcmp(theirs->data, ours->data, (size_t)ours->units * 16) == 0) {
        return;
    }
    print_error("%s %u: theirs %u units, ours %u\n", what, which, theirs->units, ours->units);
    for (uint32_t i = 0; i < ours->units * 16; i++) {
        if (theirs->data[i] != ours->data[i]) {
            print_error("byte %u: theirs %02x, ours %02x\n", i, theirs->data[i], ours->data[i]);
        }
    }
    fail();
}
