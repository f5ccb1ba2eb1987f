/* fuzz_main.c: runs a fuzz target without libFuzzer, as a test:
 *
 *   PROGRAM [--corpus FILE] [--seed S] [--count N]
 *   PROGRAM FILE...
 *
 * It replays the corpus, a file of inputs that each begin with their length in two bytes; then it
 * makes N inputs from seeds S, S + 1, ...: random bytes, or changes of what is in the corpus. A
 * failure tells what repeats it. With files, it replays these.
 */
#include <signal.h>
#include <unistd.h>

#include "fuzz.h"
#include "nic/memory/random.h"

#define INPUTS_MAX 8192u
#define INPUT_BYTES_MAX 4096u
#define RANDOM_BYTES_MAX 1024u

static struct {
    uint8_t *bytes;
    const uint8_t *inputs[INPUTS_MAX];
    uint16_t sizes[INPUTS_MAX];
    uint32_t count;
} corpus;

static char again[512]; /* how to repeat the input of the moment */

/* ---- Failing --------------------------------------------------------------------------------- */

static void tell(void)
{
    ssize_t written = write(STDERR_FILENO, again, strlen(again));
    (void)written;
}

static void on_signal(int number)
{
    tell();
    signal(number, SIG_DFL);
    raise(number);
}

/* Of the sanitizers, if they are there. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* ---- Inputs ---------------------------------------------------------------------------------- */

/* The caller frees it. A byte more, so that it may be empty. */
static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    fseek(file, 0, SEEK_END);
    size_t there = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(there + 1);
    *size = bytes ? fread(bytes, 1, there, file) : 0;
    fclose(file);
    return bytes;
}

static void read_corpus(const char *path)
{
    size_t size, at = 0;
    corpus.bytes = read_file(path, &size);
    while (at + 2 <= size && corpus.count < INPUTS_MAX) {
        uint16_t bytes = (uint16_t)(corpus.bytes[at] | corpus.bytes[at + 1] << 8);
        at += 2;
        fuzz_check(bytes <= size - at, "%s is no corpus", path);
        corpus.inputs[corpus.count] = corpus.bytes + at;
        corpus.sizes[corpus.count++] = bytes;
        at += bytes;
    }
}

/* In memory of its own length, so that a sanitizer sees what is read behind it. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    fuzz_check(copy != NULL, "out of memory");
    if (size > 0) {
        memcpy(copy, data, size);
    }
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void fill(struct random_generator *random, uint8_t *bytes, uint32_t count)
{
    bool small = random_percent(random, 50); /* more of what goes well */
    for (uint32_t i = 0; i < count; i++) {
        uint64_t dice = random_next(random);
        bytes[i] = (uint8_t)(dice >> 8);
        if (small && dice % 4 != 0) {
            bytes[i] &= 31;
        }
    }
}

/* Returns the new size. */
static uint32_t change(struct random_generator *random, uint8_t *bytes, uint32_t size)
{
    uint32_t place = size > 0 ? random_below(random, size) : 0;
    uint32_t length = 1 + random_below(random, 16);
    switch (random_below(random, 6)) {
    case 0:
        return place; /* its end is lost */
    case 1:           /* more behind it */
        length = RANDOM_BYTES_MAX / 4;
        length = length < INPUT_BYTES_MAX - size ? length : INPUT_BYTES_MAX - size;
        fill(random, bytes + size, length);
        return size + length;
    case 2: { /* the end of another */
        uint32_t other = random_below(random, corpus.count);
        uint32_t from = random_below(random, corpus.sizes[other] + 1u);
        length = corpus.sizes[other] - from;
        length = length < INPUT_BYTES_MAX - place ? length : INPUT_BYTES_MAX - place;
        memcpy(bytes + place, corpus.inputs[other] + from, length);
        return place + length;
    }
    case 3: /* a part is lost */
        length = length < size - place ? length : size - place;
        memmove(bytes + place, bytes + place + length, size - place - length);
        return size - length;
    default:
        for (uint32_t i = 0; i < length && size > 0; i++) {
            place = random_below(random, size);
            bytes[place] = random_percent(random, 50)
                               ? (uint8_t)random_next(random)
                               : (uint8_t)(bytes[place] ^ 1u << random_below(random, 8));
        }
        return size;
    }
}

static void run_seed(uint64_t seed)
{
    static uint8_t bytes[INPUT_BYTES_MAX];
    struct random_generator random;
    uint32_t size;
    random_seed(&random, seed);
    if (corpus.count > 0 && random_percent(&random, 70)) {
        uint32_t which = random_below(&random, corpus.count);
        size = corpus.sizes[which] < INPUT_BYTES_MAX ? corpus.sizes[which] : INPUT_BYTES_MAX;
        memcpy(bytes, corpus.inputs[which], size);
        for (uint32_t i = 1 + random_below(&random, 4); i > 0; i--) {
            size = change(&random, bytes, size);
        }
    } else {
        size = random_below(&random, RANDOM_BYTES_MAX);
        fill(&random, bytes, size);
    }
    run(bytes, size);
}

/* ---- The program ----------------------------------------------------------------------------- */

static int replay_files(int count, char **paths)
{
    for (int i = 0; i < count; i++) {
        size_t size;
        uint8_t *bytes = read_file(paths[i], &size);
        printf("%s: %zu bytes\n", paths[i], size);
        fflush(stdout);
        run(bytes, size);
        free(bytes);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    uint64_t seed = 1, inputs = 2000;
    int at = 1;
    signal(SIGABRT, on_signal);
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(tell);
    }
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        if (strcmp(argv[at], "--corpus") == 0) {
            path = argv[at + 1];
        } else if (strcmp(argv[at], "--seed") == 0) {
            seed = strtoull(argv[at + 1], NULL, 0);
        } else if (strcmp(argv[at], "--count") == 0) {
            inputs = strtoull(argv[at + 1], NULL, 0);
        } else {
            return 2;
        }
    }
    if (at < argc) {
        return replay_files(argc - at, argv + at);
    }
    if (path) {
        read_corpus(path);
    }
    printf("1..2\n");
    for (uint32_t i = 0; i < corpus.count; i++) {
        snprintf(again, sizeof(again), "%s: input %u of %s failed\n", argv[0], i, path);
        run(corpus.inputs[i], corpus.sizes[i]);
    }
    printf("ok 1 - %u inputs of the corpus\n", corpus.count);
    for (uint64_t i = 0; i < inputs; i++) {
        snprintf(again, sizeof(again), "again: %s%s%s --seed %llu --count 1\n", argv[0],
                 path ? " --corpus " : "", path ? path : "", (unsigned long long)(seed + i));
        run_seed(seed + i);
    }
    printf("ok 2 - %llu inputs from seed %llu\n", (unsigned long long)inputs,
           (unsigned long long)seed);
    free(corpus.bytes);
    return 0;
}
