/* rig.c: contexts' worth of nic and cm to connect with each other in one process. */
#include "place.h"
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cm/internal.h"

void side_open(struct side *side, const char *device)
{
    struct nic_options options = {
        .receive_depth = 256,
        .send_depth = 32,
        .send_completion_depth = 256,
        .signal_interval = 8,
    };
    crpc_error error = {.struct_size = sizeof(error)};
    strcpy(options.device, device);
    if (nic_open(CRPC_DRIVER_AUTO, &options, &side->nic, &error) ||
        cm_open(&side->nic, 1, &side->cm, &error)) {
        print_error("%s\n", error.message);
        fail();
    }
}

void side_close(struct side *side)
{
    cm_close(side->cm);
    side->nic->operations->close(side->nic);
    *side = (struct side){0};
}

int rig_set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    side_open(&rig->client, place_device(0));
    side_open(&rig->server, place_device(0));
    side_open(&rig->foreign, place_device(1));
    *state = rig;
    return 0;
}

int rig_tear_down(void **state)
{
    struct rig *rig = *state;
    if (rig->client.cm->identifiers + rig->server.cm->identifiers + rig->foreign.cm->identifiers) {
        return -1; /* the test has failed and left them: let its own message be the one that shows
                    */
    }
    side_close(&rig->client);
    side_close(&rig->server);
    side_close(&rig->foreign);
    free(rig);
    return 0;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static bool readable(int fd, int timeout_ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, timeout_ms) == 1;
}

struct cm_event side_expect(struct side *side, enum cm_event_kind kind)
{
    struct cm_event event;
    if (!readable(cm_event_fd(side->cm), RIG_WAIT_S * 1000)) {
        print_error("waited %d s in vain for an event of kind %d\n", RIG_WAIT_S, kind);
        fail();
    }
    assert_true(cm_pending(side->cm));
    assert_true(cm_event_take(side->cm, &event));
    if (event.error.message[0]) {
        print_message("# %d: %s\n", event.error.status, event.error.message);
    }
    assert_int_equal(event.kind, kind);
    return event;
}

void side_expect_silence(struct side *side)
{
    struct cm_event event;
    assert_false(readable(cm_event_fd(side->cm), 100));
    assert_false(cm_pending(side->cm));
    assert_false(cm_event_take(side->cm, &event));
}

/* ---- Connections ----------------------------------------------------------------------------- */

struct nic_queue_pair *side_queue_pair(struct side *side)
{
    struct nic_queue_pair *queue_pair = NULL;
    assert_int_equal(nic_queue_pair_create(side->nic, NULL, NULL, 16, &queue_pair, NULL), CRPC_OK);
    return queue_pair;
}

void queue_pair_drop(struct nic_queue_pair **queue_pair)
{
    if (*queue_pair) {
        (*queue_pair)->nic->operations->queue_pair_destroy(*queue_pair);
    }
    *queue_pair = NULL;
}

struct cm_identifier *side_listen(struct side *side, const char *address, void *owner)
{
    struct cm_identifier *identifier = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = cm_listen(side->cm, address, 0, owner, &identifier, &error);
    if (status) {
        print_error("%s: %d: %s\n", address, status, error.message);
    }
    assert_int_equal(status, CRPC_OK);
    assert_int_not_equal(cm_local_port(identifier), 0);
    return identifier;
}

struct cm_identifier *side_connect(struct side *side, const char *address, void *owner)
{
    struct cm_identifier *identifier = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = cm_connect(side->cm, address, owner, &identifier, &error);
    if (status) {
        print_error("%s: %d: %s\n", address, status, error.message);
    }
    assert_int_equal(status, CRPC_OK);
    return identifier;
}

const char *at_port(const char *host, const struct cm_identifier *listener)
{
    static char text[128];
    snprintf(text, sizeof(text), "%s:%u", host, cm_local_port(listener));
    return text;
}

struct link link_up(struct rig *rig, const char *address)
{
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct link link = {0};
    crpc_error error = {.struct_size = sizeof(error)};
    link.client = side_connect(&rig->client, address, &link);
    link.client_queue_pair = side_queue_pair(&rig->client);
    link.server_queue_pair = side_queue_pair(&rig->server);
    side_expect(&rig->client, CM_EVENT_ROUTED);
    assert_int_equal(cm_request(link.client, link.client_queue_pair, &transport, "ask", 4, &error),
                     CRPC_OK);
    link.server = side_expect(&rig->server, CM_EVENT_CONNECT_REQUEST).identifier;
    assert_int_equal(
        cm_accept(link.server, link.server_queue_pair, &transport, "answer", 7, &error), CRPC_OK);
    side_expect(&rig->client, CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(cm_establish(link.client, link.client_queue_pair, &transport, &error),
                     CRPC_OK);
    side_expect(&rig->server, CM_EVENT_ESTABLISHED);
    return link;
}

void link_down(struct rig *rig, struct link *link)
{
    cm_disconnect(link->client);
    side_expect(&rig->server, CM_EVENT_DISCONNECTED);
    side_expect(&rig->client, CM_EVENT_DISCONNECTED);
    cm_destroy(link->client);
    cm_destroy(link->server);
    queue_pair_drop(&link->client_queue_pair);
    queue_pair_drop(&link->server_queue_pair);
}

static void prove(struct nic_queue_pair *from, struct nic_queue_pair *to, uint32_t immediate)
{
    const struct nic_operations *operations = from->nic->operations;
    struct nic_transfer nothing = {.immediate = immediate};
    struct nic_completion completion;
    uint64_t start = clock_now_ns();
    uint32_t goal = from->posted + 1;
    operations->post_write_immediate(from, &nothing, NIC_POST_SIGNALED);
    operations->ring_doorbell(from);
    while (operations->poll(to->nic, &completion, 1) == 0) {
        assert_true(clock_now_ns() - start < RIG_WAIT_S * 1000000000ull);
        usleep(100);
    }
    assert_int_equal(completion.kind, NIC_COMPLETION_RECEIVE);
    assert_int_equal(completion.immediate, immediate);
    assert_int_equal(completion.queue_pair_number, to->number);
    while (from->completed != goal) {
        operations->poll(from->nic, &completion, 1);
        assert_true(clock_now_ns() - start < RIG_WAIT_S * 1000000000ull);
    }
}

void link_prove(struct rig *rig, const struct link *link)
{
    (void)rig;
    prove(link->client_queue_pair, link->server_queue_pair, 42);
    prove(link->server_queue_pair, link->client_queue_pair, 43);
}

/* ---- The machine ----------------------------------------------------------------------------- */

bool file_overlay(const char *path, const char *contents)
{
    static bool unshared;
    char name[] = "/tmp/overlay.XXXXXX";
    if (!unshared &&
        (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))) {
        return false;
    }
    unshared = true;
    int fd = mkstemp(name);
    if (fd < 0) {
        return false;
    }
    size_t bytes = strlen(contents);
    bool done = write(fd, contents, bytes) == (ssize_t)bytes && fchmod(fd, 0644) == 0 &&
                mount(name, path, NULL, MS_BIND, NULL) == 0;
    close(fd);
    unlink(name);
    return done;
}

bool address_present(const char *address)
{
    struct in6_addr wanted;
    struct ifaddrs *all;
    bool found = false;
    if (inet_pton(AF_INET6, address, &wanted) != 1 || getifaddrs(&all)) {
        return false;
    }
    for (struct ifaddrs *one = all; one && !found; one = one->ifa_next) {
        found = one->ifa_addr && one->ifa_addr->sa_family == AF_INET6 &&
                memcmp(&((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr, &wanted,
                       sizeof(wanted)) == 0;
    }
    freeifaddrs(all);
    return found;
}

uint32_t count_entries(const char *directory)
{
    uint32_t count = 0;
    DIR *open = opendir(directory);
    assert_non_null(open);
    while (readdir(open)) {
        count++;
    }
    closedir(open);
    return count;
}
