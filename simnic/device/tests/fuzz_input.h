/* fuzz_input.h: the bytes that a fuzz target takes its choices from; zeros when they are used up. */
#ifndef SIMNIC_DEVICE_TESTS_FUZZ_INPUT_H
#define SIMNIC_DEVICE_TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct input {
    const uint8_t *at;
    size_t left;
};

static struct input input;

static void bytes(void *to, size_t count)
{
    size_t there = count < input.left ? count : input.left;
    memset(to, 0, count);
    memcpy(to, input.at, there);
    input.at += there;
    input.left -= there;
}

static uint8_t byte(void)
{
    uint8_t value;
    bytes(&value, 1);
    return value;
}

static uint32_t word(void)
{
    uint32_t value;
    bytes(&value, sizeof(value));
    return value;
}

static uint32_t below(uint32_t limit)
{
    return byte() % limit;
}

#endif
