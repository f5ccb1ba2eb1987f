/* scale_test.c: a thousand communicators in one process: what they take, and that it is given back. */
#include "harness.h"
#include "place.h"
#include "signals.h"

#include <dirent.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COMMS 1000
#define AT_ONCE 50 /* that are being connected */
#define BYTES 4096u
#define SECONDS 300.0
/* Of a comm, with its share of a context: most are the queues of two rails, and what simnic has for them. */
#if defined(__SANITIZE_ADDRESS__)
#define MEMORY_KIB_MAX 8192
#else
#define MEMORY_KIB_MAX 1536
#endif

/* ---- What a process has ---------------------------------------------------------------------- */

struct taken {
    long threads;
    long descriptors;
    long memory_kib; /* resident */
};

static long number_of_status(const char *name)
{
    char line[256];
    long number = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            number = strtol(line + strlen(name), NULL, 10);
        }
    }
    fclose(status);
    CHECK(number >= 0);
    return number;
}

static struct taken take_stock(void)
{
    struct taken taken = {.threads = number_of_status("Threads:"),
                          .memory_kib = number_of_status("VmRSS:")};
    DIR *all = opendir("/proc/self/fd");
    CHECK(all != NULL);
    while (readdir(all) != NULL) {
        taken.descriptors++;
    }
    closedir(all);
    return taken;
}

static void tell(const char *side, const char *when, const struct taken *taken)
{
    fprintf(stderr, "# %s, %s: %ld threads, %ld descriptors, %ld MiB\n", side, when, taken->threads,
            taken->descriptors, taken->memory_kib >> 10);
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static void *comms[COMMS];

/* As many as AT_ONCE, from `first` on; the peer does the same. Each call returns at once. */
static void accept_some(struct side *side, int first)
{
    uint8_t handle[NET_HANDLE_BYTES];
    void *listen_comms[AT_ONCE], *device_comm = NULL;
    for (int i = 0; i < AT_ONCE; i++) {
        CHECK_EQUAL(net_listen(&side->net, 0, handle, &listen_comms[i]), NET_SUCCESS);
        side_send_handle(side, handle);
    }
    double end = now_seconds() + SECONDS;
    for (int left = AT_ONCE; left > 0;) {
        for (int i = 0; i < AT_ONCE; i++) {
            if (comms[first + i] == NULL) {
                CHECK_EQUAL(side->net.accept(listen_comms[i], &comms[first + i], &device_comm),
                            NET_SUCCESS);
                left -= comms[first + i] != NULL;
            }
        }
        CHECK(now_seconds() < end);
    }
    side_hear(side); /* the peer has all of its, too */
    for (int i = 0; i < AT_ONCE; i++) {
        CHECK_EQUAL(side->net.close_listen(listen_comms[i]), NET_SUCCESS);
    }
}

static void connect_some(struct side *side, int first)
{
    uint8_t handles[AT_ONCE][NET_HANDLE_BYTES];
    for (int i = 0; i < AT_ONCE; i++) {
        side_take_handle(side, handles[i]);
    }
    double end = now_seconds() + SECONDS;
    for (int left = AT_ONCE; left > 0;) {
        for (int i = 0; i < AT_ONCE; i++) {
            if (comms[first + i] == NULL) {
                CHECK_EQUAL(net_connect(&side->net, 0, handles[i], &comms[first + i]), NET_SUCCESS);
                left -= comms[first + i] != NULL;
            }
        }
        CHECK(now_seconds() < end);
    }
    side_tell(side);
}

/* ---- Using ----------------------------------------------------------------------------------- */

/* Every comm registers the same buffers, as NCCL does. */
static void transfer(struct side *side, bool receives, uint8_t *memory)
{
    static void *registrations[COMMS];
    static void *requests[COMMS];
    double end = now_seconds() + SECONDS;
    for (int i = 0; i < COMMS; i++) {
        void *data = memory + (size_t)i * BYTES;
        CHECK_EQUAL(side->net.register_memory(comms[i], memory, (size_t)COMMS * BYTES,
                                              NET_MEMORY_HOST, &registrations[i]),
                    NET_SUCCESS);
        while (requests[i] == NULL) {
            size_t bytes = BYTES;
            int tag = 0;
            CHECK_EQUAL(receives ? side->net.receive(comms[i], 1, &data, &bytes, &tag,
                                                     &registrations[i], NULL, &requests[i])
                                 : side->net.send(comms[i], data, bytes, tag, registrations[i],
                                                  NULL, &requests[i]),
                        NET_SUCCESS);
            CHECK(now_seconds() < end);
        }
    }
    for (int left = COMMS; left > 0;) {
        for (int i = 0; i < COMMS; i++) {
            int done = 0;
            if (requests[i] != NULL) {
                CHECK_EQUAL(side->net.test(requests[i], &done, NULL), NET_SUCCESS);
                left -= done;
                requests[i] = done ? NULL : requests[i];
            }
        }
        CHECK(now_seconds() < end);
    }
    for (int i = 0; i < COMMS; i++) {
        CHECK_EQUAL(side->net.deregister(comms[i], registrations[i]), NET_SUCCESS);
    }
}

/* ---- The two sides --------------------------------------------------------------------------- */

static void run(struct side *side, bool receives)
{
    const char *name = receives ? "receiver" : "sender";
    struct taken before = take_stock(), first = {0}, all, after;
    double begin = now_seconds();
    for (int i = 0; i < COMMS; i += AT_ONCE) {
        if (receives) {
            accept_some(side, i);
        } else {
            connect_some(side, i);
        }
        if (i == 0) {
            first = take_stock();
        }
    }
    double connected = now_seconds();
    all = take_stock();
    uint8_t *memory = pages((size_t)COMMS * BYTES);
    for (int i = 0; i < COMMS && !receives; i++) {
        pattern_fill(memory + (size_t)i * BYTES, BYTES, (uint64_t)i);
    }
    transfer(side, receives, memory);
    for (int i = 0; i < COMMS && receives; i++) {
        CHECK(pattern_is(memory + (size_t)i * BYTES, BYTES, (uint64_t)i));
    }
    side_tell(side);
    side_hear(side);
    for (int i = 0; i < COMMS; i++) {
        CHECK_EQUAL(receives ? side->net.close_receive(comms[i]) : side->net.close_send(comms[i]),
                    NET_SUCCESS);
    }
    malloc_trim(0);
    after = take_stock();
    tell(name, "before", &before);
    tell(name, "with 50 comms", &first);
    tell(name, "with 1000 comms", &all);
    tell(name, "after", &after);
    fprintf(stderr, "# %s: connected in %.1f s, the rest took %.1f s\n", name, connected - begin,
            now_seconds() - connected);
    /* Four contexts for 256 comms each, with three devices each; the library's threads are two of each context, and
     * up to eight that connect. */
    CHECK(all.threads - before.threads <= 4 * 10);
    CHECK(all.descriptors - before.descriptors <= 4 * 20);
    CHECK((all.memory_kib - first.memory_kib) / (COMMS - AT_ONCE) <= MEMORY_KIB_MAX);
#ifndef __SANITIZE_ADDRESS__ /* which keeps what is freed for a while */
    CHECK(after.memory_kib - before.memory_kib <= (all.memory_kib - before.memory_kib) / 4);
#endif
    CHECK_EQUAL(after.threads, before.threads);
    CHECK_EQUAL(after.descriptors, before.descriptors);
}

static void receive_all(struct side *side)
{
    run(side, true);
}

static void send_all(struct side *side)
{
    run(side, false);
}

static void test_a_thousand(void **state)
{
    (void)state;
    pair_run(NET_VERSION_MAX, receive_all, send_all, NULL, KILL_NOBODY, 580);
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thousand),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
