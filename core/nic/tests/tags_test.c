/* tags_test.c: the places of tags (nic/tags.h) and a device that does everything as late as it may: a random one that
 * keeps the rules, with an oracle, and one that keeps none. Arguments: steps and a seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nic/memory/random.h"
#include "nic/tags.h"

#define TAGS_MAX 6u
#define OPS_MAX 4096u
#define RECEIVES 8u

static uint64_t steps = 300000, seed = 1;

/* As the device has it. */
struct place {
    bool listed;
    bool coming; /* a message has matched, and its completion is not polled yet */
    uint32_t number;
};

struct op {
    uint8_t opcode;
    bool done;
};

struct world {
    struct nic nic;
    struct nic_queue queue;
    struct nic_queue_pair pair; /* of `from` */
    struct nic_queue from;
    struct random_generator random;
    struct nic_tag_command commands[64]; /* posted; from `executed` on not executed */
    bool missed[64];
    uint32_t posted, executed, told;
    struct place places[TAGS_MAX + 1];
    uint32_t next; /* place of the next tag */
    struct op ops[OPS_MAX];
    uint32_t op_count, open, matches, removed;
    bool mad; /* nobody knows what the device has told */
};

static void open_world(struct world *world, uint32_t tags)
{
    const struct nic_queue_options options = {.kind = NIC_QUEUE_TM_SRQ,
                                              .table = NIC_TABLE_DENSE,
                                              .receives = RECEIVES,
                                              .receive_pieces = 1,
                                              .tags = tags};
    world->nic.tags_max = TAGS_MAX;
    memset(&world->queue, 0, sizeof(world->queue));
    nic_queue_init(&world->queue, &world->nic, &options);
    assert_true(nic_queue_make_tables(&world->queue, nic_tags_commands(tags), RECEIVES));
    assert_true(nic_tags_make(&world->queue, tags));
    world->pair.number = 77;
    world->from = (struct nic_queue){.nic = &world->nic, .pair = &world->pair, .handle = 5};
    world->posted = world->executed = world->told = world->next = 0;
    world->op_count = world->open = 0;
    memset(world->places, 0, sizeof(world->places));
}

static void take(struct world *world, const crpc_completion *completions, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const crpc_completion *done = &completions[i];
        assert_true(done->user_data < world->op_count);
        struct op *op = &world->ops[done->user_data];
        assert_false(op->done);
        assert_int_equal(op->opcode, done->method);
        op->done = true;
        world->open--;
        world->removed += done->method == NIC_TAG_REMOVE && done->status == CRPC_OK;
    }
}

/* ---- The device ------------------------------------------------------------------------------ */

static void execute(struct world *world)
{
    const uint32_t index = world->executed++ % 64;
    const struct nic_tag_command *command = &world->commands[index];
    struct place *place =
        command->place == NIC_TAG_NO_PLACE ? NULL : &world->places[command->place];
    world->missed[index] = false;
    if (command->opcode == NIC_TAG_ADD) {
        assert_int_equal(command->place, world->next);
        assert_false(place->listed || place->coming);
        *place = (struct place){.listed = true, .number = command->position};
        world->next = command->next;
        assert_false(world->places[world->next].listed || world->places[world->next].coming);
    } else if (command->opcode == NIC_TAG_REMOVE) {
        world->missed[index] = !place->listed || place->coming;
        place->listed = place->listed && place->coming;
    }
}

static void tell_command(struct world *world)
{
    crpc_completion completions[2];
    const uint32_t index = world->told % 64;
    struct nic_tag_output output = {.completions = completions,
                                    .capacity = 1 + random_below(&world->random, 2)};
    const bool all =
        nic_tags_done(&world->queue, world->commands[index].opcode,
                      world->missed[index] ? NIC_TAG_MISSED : NIC_TAG_DONE, 0, &output);
    world->told += all;
    take(world, completions, output.count);
}

static void match(struct world *world, uint32_t place)
{
    if (world->places[place].listed && !world->places[place].coming) {
        world->places[place].coming = true;
        if (random_percent(&world->random, 50)) {
            nic_tags_begin(&world->queue, &world->from, place, 9, 8, false);
        }
    }
}

static void tell_match(struct world *world, uint32_t place)
{
    crpc_completion completion;
    struct nic_tag_output output = {.completions = &completion, .capacity = 1};
    if (!world->places[place].coming) {
        return;
    }
    world->places[place] = (struct place){0};
    if (random_percent(&world->random, 20)) {
        nic_tags_cancel(&world->queue, &world->from, place, &output);
    } else {
        assert_non_null(nic_tags_message(&world->queue, &world->from, place, 3, &output));
    }
    assert_int_equal(output.count, 1);
    assert_int_equal(completion.method, NIC_TAG_ADD);
    world->matches++;
    take(world, &completion, 1);
}

/* ---- The program ----------------------------------------------------------------------------- */

static void post(struct world *world)
{
    struct nic_tag_command *command = &world->commands[world->posted % 64];
    struct nic_work work = {.opcode = (uint8_t)(NIC_TAG_ADD + random_below(&world->random, 3)),
                            .user_data = world->op_count};
    if (world->op_count == OPS_MAX) {
        return;
    }
    if (random_percent(&world->random, 50)) {
        work.opcode = NIC_TAG_ADD;
    }
    if (work.opcode == NIC_TAG_REMOVE) {
        work.operand = world->op_count - random_below(&world->random, 20);
    }
    const bool room = nic_tags_room(&world->queue, work.opcode);
    assert_int_equal(nic_tags_post(&world->queue, &work, command), room);
    if (!room) {
        return;
    }
    if (random_percent(&world->random, 5)) {
        nic_tags_unpost(&world->queue, command);
        return;
    }
    for (uint32_t i = world->told; !world->mad && i != world->posted && work.opcode == NIC_TAG_ADD;
         i++) {
        assert_int_not_equal(world->commands[i % 64].place, command->place);
    }
    world->posted++;
    world->ops[world->op_count++] = (struct op){.opcode = work.opcode};
    world->open++;
}

static void step(struct world *world, uint32_t tags)
{
    const uint32_t what = random_below(&world->random, 100);
    const uint32_t place = random_below(&world->random, tags + 1);
    if (what < 30) {
        post(world);
    } else if (what < 50) {
        if (world->executed != world->posted) {
            execute(world);
        }
    } else if (what < 60) {
        if (world->told != world->executed) {
            tell_command(world);
        }
    } else if (what < 80) {
        match(world, place);
    } else {
        tell_match(world, place);
    }
}

/* What is left completes without the device. */
static void close_world(struct world *world)
{
    crpc_completion completions[3];
    uint32_t count;
    world->queue.stopped = true;
    while ((count = nic_queue_take_ended(&world->queue, completions, 3)) > 0) {
        take(world, completions, count);
    }
    for (uint32_t i = 0; i < world->op_count; i++) {
        assert_true(world->ops[i].done);
    }
    assert_int_equal(world->open, 0);
    assert_int_equal(world->queue.tags->open, 0);
    nic_queue_release(&world->queue);
}

static void a_place_is_used_when_all_of_it_was_told(void **state)
{
    static struct world world;
    (void)state;
    random_seed(&world.random, seed);
    for (uint64_t i = 0; i < steps;) {
        const uint32_t tags = 1 + random_below(&world.random, TAGS_MAX);
        const uint32_t last = 1 + random_below(&world.random, 3000);
        open_world(&world, tags);
        for (uint32_t k = 0; k < last; k++, i++) {
            step(&world, tags);
            assert_true(world.queue.tags->open <= tags);
        }
        close_world(&world);
    }
    assert_int_equal(world.nic.unknown_completions, 0);
    printf("# seed %llu: %u matches, %u removed\n", (unsigned long long)seed, world.matches,
           world.removed);
    assert_true(world.matches > steps / 200 && world.removed > steps / 2000);
}

/* Whatever it says, nothing else is touched, and each op completes once. */
static void a_device_gone_mad_does_no_harm(void **state)
{
    static struct world world;
    (void)state;
    random_seed(&world.random, seed);
    world.mad = true;
    for (uint32_t round = 0; round < 300; round++) {
        const uint32_t tags = 1 + random_below(&world.random, TAGS_MAX);
        open_world(&world, tags);
        for (uint32_t k = 0; k < 300; k++) {
            crpc_completion completions[2];
            struct nic_tag_output output = {.completions = completions, .capacity = 2};
            const uint32_t place = random_below(&world.random, 2 * TAGS_MAX);
            switch (random_below(&world.random, 6)) {
            case 0:
            case 1:
                post(&world);
                break;
            case 2:
                nic_tags_done(&world.queue, (uint8_t)(NIC_TAG_ADD + random_below(&world.random, 3)),
                              (enum nic_tag_result)random_below(&world.random, 3), 0, &output);
                break;
            case 3:
                nic_tags_begin(&world.queue, &world.from, place, 1, 2, true);
                break;
            case 4:
                nic_tags_message(&world.queue, &world.from, place, 3, &output);
                break;
            default:
                nic_tags_cancel(&world.queue, &world.from, place, &output);
            }
            take(&world, completions, output.count);
        }
        close_world(&world);
    }
    assert_true(world.nic.unknown_completions > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_is_used_when_all_of_it_was_told),
        cmocka_unit_test(a_device_gone_mad_does_no_harm),
    };
    steps = argc > 1 ? strtoull(argv[1], NULL, 10) : steps;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
