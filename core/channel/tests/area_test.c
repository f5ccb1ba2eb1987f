/* area_test.c: the control area of a channel is for its own peer only. All channels of an engine share the
 * protection domains of its rails' nics, and here a peer knows every key, where each area lies in the
 * process, and its own area's address as its hello told it.
 */
#include "pair_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "link/internal.h"
#include "link/wire.h"

#define PAGE ((uint64_t)sysconf(_SC_PAGESIZE))

static struct channel *thief, *victim; /* of side 0: what their peers can reach */
static uint8_t *before;                /* the victim's area */

static int open_two(void **state)
{
    crpc_channel_options options = pair_options();
    pair_setup(state);
    thief = pair.channel[0];
    pair_connect(&pair, &options);
    victim = pair.channel[0];
    pair_message(&pair, 5000, 1);
    before = malloc(victim->area.bytes);
    memcpy(before, victim->area.base, victim->area.bytes);
    return 0;
}

static int close_two(void **state)
{
    free(before);
    return pair_teardown(state);
}

/* The thief's peer writes, over one of its queue pairs. */
static enum nic_error write_over(uint32_t rail, uint64_t address, uint32_t key)
{
    static const uint8_t words[CHANNEL_CONTROL_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8};
    return memory_fabric_write(pair.fabric, thief->rails[rail].queues[0]->queue_pair->number,
                               address, key, sizeof(words), words);
}

static uint64_t place(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

/* Where somebody would look who knows the process, each offset, and what the thief's hello told. */
enum guess {
    GUESS_PLACE,    /* where it is in the process */
    GUESS_OWN,      /* where the thief's is for its peer */
    GUESS_DISTANCE, /* likewise, and as far from it as in the process */
    GUESS_BEHIND,   /* behind the thief's */
    GUESS_BEFORE,
    GUESS_STAGING,
    GUESS_ZERO,
    GUESSES,
};

static uint64_t guessed(enum guess guess)
{
    uint64_t own = thief->area.secret;
    const uint64_t guesses[GUESSES] = {
        [GUESS_PLACE] = place(victim->area.base),
        [GUESS_OWN] = own,
        [GUESS_DISTANCE] = own + place(victim->area.base) - place(thief->area.base),
        [GUESS_BEHIND] = own + thief->area.bytes,
        [GUESS_BEFORE] = own - victim->area.bytes,
        [GUESS_STAGING] = place(victim->staging.base),
        [GUESS_ZERO] = 0,
    };
    return guesses[guess];
}

static void steal(uint32_t rail, enum guess guess, uint64_t offset, bool of_other_rail)
{
    void *state = NULL;
    open_two(&state);
    uint32_t key = victim->area.keys[rail ^ of_other_rail].remote_key;
    assert_int_equal(write_over(rail, guessed(guess) + offset, key), NIC_ERROR_REMOTE_ACCESS);
    assert_memory_equal(victim->area.base, before, victim->area.bytes);
    pair_settle(&pair);
    pair_forget(&pair);
    pair_message(&pair, 5000, 2);
    close_two(&state);
}

static void who_knows_every_key_writes_to_no_other_area(void **state)
{
    static const uint64_t offsets[] = {0, CHANNEL_CONTROL_BYTES, CHANNEL_RECORDS_OFFSET,
                                       CHANNEL_BUFFERS_OFFSET};
    (void)state;
    for (uint32_t guess = 0; guess < GUESSES; guess++) {
        for (uint32_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
            for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
                steal(rail, guess, offsets[i], false);
                steal(rail, guess, offsets[i], true);
            }
        }
    }
}

/* So the thief above fails for no other reason. */
static void who_is_told_the_address_writes_to_it(void **state)
{
    (void)state;
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        uint32_t key = thief->area.keys[rail].remote_key;
        assert_int_equal(write_over(rail, thief->area.secret, key), NIC_ERROR_NONE);
        assert_int_equal(thief->area.base[7], 8);
    }
}

/* ---- What is told ---------------------------------------------------------------------------- */

#define CHANNELS 128u

static bool is_mapped(uint64_t address)
{
    return msync((void *)(uintptr_t)(address & ~(PAGE - 1)), PAGE, MS_ASYNC) == 0 ||
           errno != ENOMEM;
}

/* The body of the hello that a new channel's blob tells; with a key, that of the proof. */
static void tell(bool with_key, uint8_t body[LINK_BODY_BYTES], uint64_t *base)
{
    crpc_channel_options options = pair_options();
    struct channel *channel;
    struct link_blob blob;
    crpc_error error = {0};
    options.key_bytes = with_key ? 32 : 0;
    assert_int_equal(channel_blob(pair.engine[0], &options, &channel, (uint8_t *)&blob, &error),
                     CRPC_OK);
    memcpy(body, blob.hello.body, LINK_BODY_BYTES);
    *base = place(channel->area.base);
    link_close(&channel->link);
    pair_settle(&pair);
}

/* The first 8 bytes of both kinds of body are an address. */
static void addresses_tell_nothing(bool with_key)
{
    static uint64_t told[CHANNELS], base[CHANNELS];
    uint64_t set = 0, clear = 0;
    for (uint32_t i = 0; i < CHANNELS; i++) {
        uint8_t body[LINK_BODY_BYTES];
        tell(with_key, body, &base[i]);
        memcpy(&told[i], body, sizeof(told[i]));
        assert_false(is_mapped(told[i]));
        assert_int_equal(told[i] % PAGE, 0);
        assert_int_equal(told[i] >> 62, 1); /* no room is missing behind it */
        set |= told[i];
        clear |= ~told[i];
        for (uint32_t j = 0; j < i; j++) {
            uint64_t apart = told[i] - told[j];
            assert_true(apart + (1u << 20) > 2u << 20);
            assert_true(apart != base[i] - base[j]);
            assert_true(j == 0 || apart != told[j] - told[j - 1]);
        }
    }
    /* Each bit between page and top is set in some and clear in others: a miss is one in 2^121. */
    assert_int_equal(set & clear, (UINT64_C(1) << 62) - PAGE);
}

static void addresses_of_areas_tell_nothing(void **state)
{
    (void)state;
    addresses_tell_nothing(false);
}

static void addresses_for_proofs_tell_nothing(void **state)
{
    (void)state;
    addresses_tell_nothing(true);
}

/* The next peer of the same memory must not profit from what the last one was told. */
static void a_key_of_a_closed_channel_does_not_help(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    uint64_t told = victim->area.secret;
    link_close(&victim->link);
    link_close(&pair.channel[1]->link);
    pair_settle(&pair);
    pair_forget(&pair);
    pair_connect(&pair, &options);
    victim = pair.channel[0];
    memcpy(before, victim->area.base, victim->area.bytes);
    assert_int_equal(write_over(0, told, victim->area.keys[0].remote_key), NIC_ERROR_REMOTE_ACCESS);
    assert_memory_equal(victim->area.base, before, victim->area.bytes);
}

#define TWO(name) cmocka_unit_test_setup_teardown(name, open_two, close_two)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_knows_every_key_writes_to_no_other_area),
        TWO(who_is_told_the_address_writes_to_it),
        TWO(addresses_of_areas_tell_nothing),
        TWO(addresses_for_proofs_tell_nothing),
        TWO(a_key_of_a_closed_channel_does_not_help),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
