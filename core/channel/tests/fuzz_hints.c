/* fuzz_hints.c: a hint of any bytes, and files of any length that should hold one. The share that a
 * channel takes from it is one that can be, and so is the split by it.
 *
 * It is for libFuzzer (./dev fuzz hints), or a test with fuzz_main.c.
 */
#include "channel/internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel/split.h"
#include "link/tests/fuzz.h"

#define NOW_NS UINT64_C(1000)

static void check_hint(const struct channel_hint *hint, const struct channel_hint *words)
{
    const uint32_t before = 0xdeadbeef;
    uint32_t share = before;
    bool taken = hint_read(hint, NOW_NS, &share);
    bool good = words->sequence % 2 == 0 && words->magic == CHANNEL_HINT_MAGIC &&
                (words->version == 1 || (words->version == 2 && words->until_ns > NOW_NS)) &&
                words->rail0_share <= SPLIT_WHOLE;
    fuzz_check(taken == good, "a hint was %s", taken ? "taken" : "refused");
    fuzz_check(share == (taken ? words->rail0_share : before), "share %u", share);
}

static void check_split(uint32_t bytes, uint32_t share, int64_t owed)
{
    uint32_t first = split_first(bytes, split_due(bytes, split_fine(share)));
    fuzz_check(first <= bytes, "%u of %u bytes", first, bytes);
    fuzz_check(first % SPLIT_ALIGN == 0 || first == bytes, "a part of %u bytes", first);
    first = split_whole(bytes, split_fine(share), &owed);
    fuzz_check(first == 0 || first == bytes, "%u bytes were split", bytes);
}

/* As a channel finds it: a file that another program has made. */
static void check_file(const uint8_t *bytes, size_t count)
{
    char name[64];
    struct channel_hint words = {0};
    snprintf(name, sizeof(name), "/copyrpc-fuzz-hint-%d", (int)getpid());
    int fd = shm_open(name, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_check(fd >= 0, "no shared memory");
    ssize_t written = write(fd, bytes, count);
    close(fd);
    const struct channel_hint *hint = hint_open(name);
    shm_unlink(name);
    fuzz_check(written == (ssize_t)count && (hint != NULL) == (count >= CHANNEL_HINT_BYTES_MIN),
               "a file of %zu bytes", count);
    if (hint) {
        memcpy(&words, bytes, minimum(count, sizeof(words)));
        check_hint(hint, &words);
    }
    hint_close(hint);
    fuzz_check(!hint_open(name), "a hint that is not there");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    uint8_t choice = fuzz_byte(&input);
    if (choice == 0xff) {
        check_file(input.next, input.left);
        return 0;
    }
    struct channel_hint words = {.magic = CHANNEL_HINT_MAGIC, .version = 1 + (choice >> 1) % 2};
    words.sequence = fuzz_byte(&input);
    words.rail0_share = fuzz_half(&input) % 2048;
    words.until_ns = NOW_NS + (choice >> 2) % 4 - 1;
    if (choice & 1) {
        fuzz_bytes(&input, &words, sizeof(words));
    }
    struct channel_hint *hint = malloc(sizeof(*hint));
    fuzz_check(hint != NULL, "out of memory");
    *hint = words;
    check_hint(hint, &words);
    free(hint);
    check_split(fuzz_word(&input) & ((1u << 30) - 1), words.rail0_share & (SPLIT_WHOLE - 1),
                (int32_t)fuzz_word(&input));
    return 0;
}
