/* both_drivers.h: for tests that do the same through both drivers, on one simnic device, and compare
 * what it saw: one side for each driver, with a queue pair that sends and one that receives.
 */
#ifndef CORE_NIC_MLX5_TESTS_BOTH_DRIVERS_H
#define CORE_NIC_MLX5_TESTS_BOTH_DRIVERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tests/pair.h"
#include "device_trace.h"
#include "nic/mlx5/mlx5.h"

struct side {
    struct inbox inbox;
    struct nic_queue_pair *sender, *receiver;
    struct nic_keys memory;
    uint32_t position; /* of the next WQE, in blocks */
};

/* What the device saw of one WQE, made alike. */
struct seen {
    uint32_t units;
    uint8_t data[1024];
};

/* A random number; the seed is fixed. */
uint32_t pick(uint32_t below);

void side_open(struct side *side, uint32_t driver, uint8_t *memory, size_t bytes, uint32_t access);
void side_close(struct side *side);

/* Reads the next WQE that the device saw of the side. Checks number and index against the side's own,
 * and clears them. NOPs, which fill a ring's end, are left out. Returns its length in units. */
uint32_t side_next_wqe(struct side *side, struct device_trace_wqe *wqe);

/* Returns the word at `bytes`, which is big-endian, and clears it. */
uint32_t take_word(uint8_t *bytes);

/* `what` and `which` say in the message what was posted. */
void expect_alike(const struct seen *theirs, const struct seen *ours, const char *what,
                  uint32_t which);

#endif
