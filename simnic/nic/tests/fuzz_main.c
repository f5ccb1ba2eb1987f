/* fuzz_main.c: runs the fuzz target without libFuzzer: `fuzz_nic FILE...` replays inputs,
 * `fuzz_nic [--seed S] [--count N]` makes its own; a failure tells the seed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simnic/fabric/fault.h"
#include "simnic/nic/tests/fuzz.h"

#define INPUT_BYTES 3000

static uint64_t current_seed;

static void tell(void)
{
    fprintf(stderr, "fuzz_nic: failed; to see it again: fuzz_nic --seed %llu --count 1\n",
            (unsigned long long)current_seed);
}

static void on_abort(int signal_number)
{
    tell();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* Of the sanitizers, if they are there. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void one_of_seed(uint64_t seed)
{
    static uint8_t input[INPUT_BYTES];
    struct fault_dice dice = {seed * 0x9e3779b97f4a7c15u};
    uint64_t kind = fault_roll(&dice);
    size_t size = 1 + fault_roll(&dice) % INPUT_BYTES;
    for (size_t i = 0; i < size; i++) {
        uint64_t roll = fault_roll(&dice);
        input[i] = (uint8_t)(roll >> 8);
        if (kind & 1 && roll % 4 == 0) { /* more of what goes well */
            input[i] = (uint8_t)(roll >> 16 & 15);
        }
    }
    current_seed = seed;
    LLVMFuzzerTestOneInput(input, size);
}

static int replay(const char *path)
{
    static uint8_t input[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t size = fread(input, 1, sizeof(input), file);
    fclose(file);
    printf("%s: %zu bytes\n", path, size);
    return LLVMFuzzerTestOneInput(input, size);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, inputs = 2000;
    int result = 0, files = 0;
    signal(SIGABRT, on_abort);
    signal(SIGSEGV, on_abort);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(tell);
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--count") == 0 && i + 1 < argc) {
            inputs = strtoull(argv[++i], NULL, 0);
        } else {
            result |= replay(argv[i]);
            files++;
        }
    }
    if (!files) {
        printf("1..1\n");
        for (uint64_t i = 0; i < inputs; i++) {
            one_of_seed(seed + i);
        }
        printf("ok 1 - %llu inputs from seed %llu\n", (unsigned long long)inputs,
               (unsigned long long)seed);
    }
    fuzz_end();
    return result;
}
