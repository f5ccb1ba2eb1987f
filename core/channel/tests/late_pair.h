/* late_pair.h: a pair of which what the library does outside of a poll is done when the test says so (late_cm.h), and the
 * situations in which something is late; until then, everything else goes on.
 */
#ifndef CORE_CHANNEL_TESTS_LATE_PAIR_H
#define CORE_CHANNEL_TESTS_LATE_PAIR_H

#include "link/tests/late_cm.h"
#include "pair_fixture.h"

/* A queue pair and its windows, if there are two for eight slots. */
#define MADE_EACH (1u + 8 / 2 * WINDOWS_EACH + CHANNEL_GROUP_MAX - 1)

extern struct cm late[2];

/* From here on, what may be slow is. */
void be_late(void);
uint32_t side_of(bool passive);
struct channel_rail *rail_1(uint32_t side);

/* Does what is late on one side, as often as it takes. */
void let_side_come(uint32_t side);
/* Everything that is slow comes to its end, as often as it takes. */
void let_all_come(void);
/* Then rail 1 is up, and nobody has waited for anything; closes the pair. */
void expect_rail_1_up(void);

/* Connected; rail 1 is lost, and both sides begin to destroy its queue pairs. */
void open_lost(uint32_t queue_pairs);
/* Side `passive` destroys two, which takes long: the windows, or then the queue pairs. Returns the side. */
uint32_t open_ending(bool second, bool passive);
/* Side `passive` makes the queue pairs of rail 1 (RAIL_MAKING), or connects them (RAIL_CONNECTING), which takes long. Returns the side. */
uint32_t open_at(enum rail_state state, bool passive, uint32_t queue_pairs);
uint32_t open_connecting(bool passive, uint32_t queue_pairs);
/* The four situations: whose task it is, and which. */
#define SITUATIONS 4u
uint32_t open_situation(uint32_t situation);

#endif
