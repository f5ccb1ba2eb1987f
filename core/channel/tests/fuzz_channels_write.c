/* fuzz_channels_write.c: what the bad peer writes: immediates, records, control messages,
 * clear-to-sends, payload, and any bytes in what of the victim's memory it may reach. Most of it is
 * nearly right.
 */
#include "fuzz_channels.h"

/* The victim's queue pair that a packet comes over, or NULL. */
static const struct channel_queue *choose_queue(const struct channel *victim, uint8_t choice)
{
    const struct channel_rail *rail = &victim->rails[choice & 1];
    const struct channel_queue *queue = rail->queues[choice >> 1 & 1];
    return queue ? queue : rail->queues[0];
}

static void send_packet(const struct channel_queue *queue, uint64_t address, uint32_t key,
                        const void *data, uint32_t bytes, bool immediate, uint32_t value)
{
    uint32_t number = queue->queue_pair->number;
    if (immediate) {
        memory_fabric_write_immediate(world.fabric, number, address, key, bytes, data, value);
    } else {
        memory_fabric_write(world.fabric, number, address, key, bytes, data);
    }
}

/* Writes to the victim's area, as far as it reaches. */
static void write_area(const struct channel *victim, uint8_t where, uint64_t offset,
                       const void *data, uint32_t bytes, bool immediate, uint32_t value)
{
    const struct channel_queue *queue = choose_queue(victim, where);
    if (queue && victim->area.base) {
        send_packet(queue, victim->area.secret + offset, victim->area.keys[queue->rail].remote_key,
                    data, bytes, immediate, value);
    }
}

/* ---- Messages -------------------------------------------------------------------------------- */

static uint32_t choose_immediate(struct fuzz_input *input, const struct channel *victim,
                                 uint32_t *slot)
{
    uint8_t choice = fuzz_byte(input);
    *slot = choice >> 5 & victim->slot_mask;
    uint32_t mask = choice & 3 ? choice & 3 : 1;
    uint64_t number =
        victim->receive.incoming ? victim->receive.incoming[*slot].number : fuzz_byte(input);
    uint32_t immediate = *slot | mask << CHANNEL_MASK_SHIFT |
                         (choice & 4 ? CHANNEL_IMMEDIATE_RECORD : 0) |
                         (choice & 8 ? CHANNEL_IMMEDIATE_PROXY : 0) |
                         message_generation(victim, number) << CHANNEL_GENERATION_SHIFT;
    return choice & 16 ? (uint32_t)fuzz_near(input, immediate) : immediate;
}

static void write_message(struct fuzz_input *input, const struct channel *victim)
{
    uint8_t where = fuzz_byte(input);
    uint32_t slot;
    uint32_t immediate = choose_immediate(input, victim, &slot);
    write_area(victim, where, 0, NULL, 0, true, immediate);
}

/* The bad peer knows the address and the key of a buffer from the clear-to-sends in its own area. */
static void write_payload(struct fuzz_input *input, const struct channel *victim)
{
    static uint8_t bytes[4096];
    const struct channel *bad = world.ends[1].channel;
    uint8_t where = fuzz_byte(input);
    uint32_t slot;
    uint32_t immediate = choose_immediate(input, victim, &slot);
    const struct channel_queue *queue = choose_queue(victim, where);
    if (!bad || !bad->area.base || !queue) {
        return;
    }
    struct channel_cts cts;
    memcpy(&cts,
           bad->area.base + channel_buffers_offset(slot & (bad->options.slots - 1), queue->rail),
           sizeof(cts));
    uint64_t count = fuzz_near(input, cts.bytes) % (sizeof(bytes) + 1);
    uint64_t address = where & 4 ? fuzz_near(input, cts.address) : cts.address;
    uint32_t key = where & 8 ? (uint32_t)fuzz_near(input, cts.right.key) : cts.right.key;
    send_packet(queue, address, key, bytes, (uint32_t)count, !(where & 16), immediate);
}

static void write_record(struct fuzz_input *input, const struct channel *victim)
{
    uint8_t where = fuzz_byte(input);
    uint32_t slot;
    uint32_t immediate = choose_immediate(input, victim, &slot) | CHANNEL_IMMEDIATE_RECORD;
    uint8_t choice = fuzz_byte(input);
    struct channel_record record = {0};
    if (victim->receive.incoming) {
        const struct channel_incoming *incoming = &victim->receive.incoming[slot];
        record.number = incoming->number + 1;
        record.count = incoming->count;
        for (uint32_t i = 0; i < 8; i++) {
            record.sizes[i] = choice & 1 ? fuzz_half(input) : incoming->ops[i].bytes;
        }
    }
    switch (choice < 200 ? 0 : choice % 5) {
    case 1:
        record.number = fuzz_near(input, record.number);
        break;
    case 2:
        record.count = (uint32_t)fuzz_near(input, record.count);
        break;
    case 3:
        record.zero = fuzz_byte(input);
        break;
    case 4:
        record.zero2[choice & 1] = fuzz_byte(input);
        break;
    default:
        break;
    }
    write_area(victim, where, CHANNEL_RECORDS_OFFSET + slot * 64u, &record, sizeof(record),
               !(where & 4), immediate);
}

/* ---- Clear to send --------------------------------------------------------------------------- */

static void spoil_cts(struct fuzz_input *input, struct channel_cts *cts)
{
    switch (fuzz_byte(input) % 9) {
    case 1:
        cts->address = fuzz_near(input, cts->address);
        break;
    case 2:
        cts->bytes = fuzz_near(input, CHANNEL_BUFFER_BYTES_MAX);
        break;
    case 3:
        if (fuzz_byte(input) & 2) {
            cts->right.epoch = fuzz_word(input);
        } else {
            cts->right.key = fuzz_word(input);
        }
        break;
    case 4:
        cts->index = fuzz_byte(input);
        break;
    case 5:
        cts->count = fuzz_byte(input);
        break;
    case 6:
        cts->zero = fuzz_byte(input);
        cts->rails = fuzz_byte(input);
        break;
    case 7:
        cts->zero2[fuzz_byte(input) % 3] = fuzz_byte(input);
        break;
    case 8:
        cts->number = fuzz_near(input, cts->number);
        break;
    default:
        break;
    }
}

static void write_line(const struct channel *victim, uint8_t where, uint64_t number, uint32_t index,
                       const struct channel_cts *cts)
{
    const struct channel_queue *queue = choose_queue(victim, where);
    if (queue) {
        uint32_t slot = (uint32_t)number & victim->slot_mask;
        write_area(victim, where, channel_buffers_offset(slot, queue->rail) + index * 64u, cts,
                   sizeof(*cts), false, 0);
    }
}

/* Over one rail or over both, where they may contradict each other. */
static void write_cts(struct fuzz_input *input, const struct channel *victim)
{
    uint8_t where = fuzz_byte(input), choice = fuzz_byte(input);
    uint32_t count = choice & 3 ? 1 : 1 + fuzz_below(input, CHANNEL_GROUP_MAX + 2);
    uint64_t number = victim->send.number + (choice >> 5 & 3);
    uint32_t rail = where & 1, other = rail ^ 1;
    for (uint32_t i = 0; i < count; i++) {
        struct channel_cts cts = {
            .address = (uint64_t)(uintptr_t)world.memory[BAD] + fuzz_byte(input) * 64u,
            .bytes = fuzz_byte(input) * 12u,
            .right = {world.open_keys[rail].remote_key, victim->rails[rail].epoch},
            .tag = (choice + i) % TAGS,
            .index = (uint8_t)i,
            .count = (uint8_t)count,
            .rails = choice & 12 ? 3 : (uint8_t)(1u << rail),
            .number = number + 1};
        struct channel_cts second = cts;
        if (choice & 0x80) {
            spoil_cts(input, &cts);
        }
        if (choice & 0x10) {
            second = cts;
        }
        write_line(victim, where, number, i, &cts);
        if (choice & 4) {
            second.right = (struct channel_right){world.open_keys[other].remote_key,
                                                  victim->rails[other].epoch};
            write_line(victim, where ^ 1, number, i, &second);
        }
    }
}

/* ---- Control --------------------------------------------------------------------------------- */

static void fill_offer(struct fuzz_input *input, const struct channel *victim, uint32_t rail,
                       struct channel_offer *offer)
{
    const struct channel *bad = world.ends[1].channel;
    uint8_t choice = fuzz_byte(input);
    offer->queue_pairs = (uint8_t)victim->queue_pairs;
    offer->answer = choice & 1 ? fuzz_byte(input) % 4 : 0;
    offer->area_key = fuzz_word(input);
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        if (bad && rail < CHANNEL_RAILS_MAX && bad->rails[rail].queues[i]) {
            link_address_fill(&offer->addresses[i], bad->rails[rail].queues[i]->queue_pair);
            offer->area_key = bad->area.keys[rail].remote_key;
        } else {
            offer->addresses[i] = (struct link_address){.queue_pair_number = 1 + fuzz_byte(input),
                                                        .link = CRPC_LINK_ETHERNET,
                                                        .mtu_code = 5};
        }
    }
    switch (choice & 0x80 ? choice >> 1 & 7 : 0) {
    case 1:
        offer->queue_pairs = fuzz_byte(input);
        break;
    case 2:
        offer->zero = fuzz_byte(input);
        break;
    case 3:
        offer->zero2 = fuzz_byte(input);
        break;
    case 4:
        fuzz_bytes(input, &offer->addresses[choice >> 4 & 1], sizeof(offer->addresses[0]));
        break;
    case 5:
        offer->addresses[0].mtu_code = fuzz_byte(input);
        break;
    case 6:
        fuzz_bytes(input, &offer->ece_vendor, sizeof(offer->ece_vendor));
        break;
    default:
        break;
    }
}

static void fill_report(struct fuzz_input *input, const struct channel *victim,
                        struct channel_report *report)
{
    uint8_t choice = fuzz_byte(input);
    report->posted = fuzz_near(input, victim->send.number);
    report->unseen[0][0] = choice & 1 ? 0xff : fuzz_byte(input);
    report->unseen[1][0] = choice & 2 ? 0xff : fuzz_byte(input);
    report->zero = choice >= 250;
}

static void fill_bye(struct fuzz_input *input, const struct channel *victim, uint8_t kind,
                     struct channel_bye *bye)
{
    bye->sent = kind == CHANNEL_CONTROL_BYE ? fuzz_near(input, victim->stats.messages_received)
                                            : (fuzz_byte(input) >= 240);
    bye->posted = fuzz_near(input, victim->send.number);
}

static void write_control(struct fuzz_input *input, const struct channel *victim)
{
    uint8_t where = fuzz_byte(input), choice = fuzz_byte(input);
    uint32_t rail = choice >> 3 & 1;
    struct channel_control message = {.sequence = victim->control.in_sequence + world.ahead,
                                      .kind = choice & 7,
                                      .rail = (uint8_t)rail,
                                      .epoch = victim->rails[rail].epoch};
    message.epoch += message.kind == CHANNEL_CONTROL_OFFER;
    uint32_t place = message.sequence % CHANNEL_INBOX_MESSAGES;
    uint32_t sequence = message.sequence;
    switch (message.kind) {
    case CHANNEL_CONTROL_OFFER:
    case CHANNEL_CONTROL_ANSWER:
        fill_offer(input, victim, rail, (struct channel_offer *)message.body);
        break;
    case CHANNEL_CONTROL_REPORT:
        fill_report(input, victim, (struct channel_report *)message.body);
        break;
    case CHANNEL_CONTROL_BYE:
    case CHANNEL_CONTROL_LEAVE:
        fill_bye(input, victim, message.kind, (struct channel_bye *)message.body);
        break;
    case CHANNEL_CONTROL_ASLEEP:
        ((struct channel_asleep *)message.body)->number = fuzz_near(input, victim->receive.number);
        break;
    default:
        break;
    }
    switch (choice & 0x80 ? fuzz_byte(input) % 7 : 0) {
    case 1:
        message.sequence = (uint32_t)fuzz_near(input, message.sequence);
        break;
    case 2:
        message.rail = fuzz_byte(input);
        break;
    case 3:
        message.epoch = (uint32_t)fuzz_near(input, message.epoch + fuzz_byte(input));
        break;
    case 4:
        message.zero = fuzz_byte(input);
        break;
    case 5:
        sequence += fuzz_byte(input);
        break;
    case 6:
        message.zero2 = fuzz_byte(input);
        break;
    default:
        break;
    }
    write_area(victim, where, (uint64_t)place * CHANNEL_CONTROL_BYTES, &message, sizeof(message),
               true, CHANNEL_IMMEDIATE_CONTROL | sequence << CHANNEL_GENERATION_SHIFT);
    world.ahead++;
}

static void write_probe(struct fuzz_input *input, const struct channel *victim)
{
    uint8_t where = fuzz_byte(input);
    uint32_t epoch = (uint32_t)fuzz_near(input, victim->rails[where & 1].epoch);
    write_area(victim, where, 0, NULL, 0, true,
               CHANNEL_IMMEDIATE_PROBE | epoch << CHANNEL_GENERATION_SHIFT);
}

/* ---- Anything -------------------------------------------------------------------------------- */

static void write_anything(struct fuzz_input *input, const struct channel *victim)
{
    uint8_t bytes[256];
    uint8_t where = fuzz_byte(input);
    uint32_t count = fuzz_byte(input);
    uint64_t offset = fuzz_half(input);
    uint32_t immediate = fuzz_word(input);
    fuzz_bytes(input, bytes, count);
    if (where < 252) { /* else maybe behind its end, which is the end of the rail */
        offset %= channel_area_bytes(victim->options.slots) - count;
    }
    write_area(victim, where, offset, bytes, count, where & 4, immediate);
}

void bad_writes(struct fuzz_input *input)
{
    const struct channel *victim = world.ends[0].channel;
    uint8_t choice = fuzz_byte(input);
    if (!victim || !victim->area.base) {
        return;
    }
    switch (choice & 15) {
    case 0 ... 2:
        write_message(input, victim);
        break;
    case 3 ... 4:
        write_payload(input, victim);
        break;
    case 5 ... 6:
        write_record(input, victim);
        break;
    case 7 ... 9:
        write_cts(input, victim);
        break;
    case 10 ... 12:
        write_control(input, victim);
        break;
    case 13:
        write_probe(input, victim);
        break;
    default:
        write_anything(input, victim);
    }
}
