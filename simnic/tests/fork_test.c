/* fork_test.c: what children of a process with devices may do; to be run under `simnic run --private`.
 *
 * A child of a process that is being asked for connections can make connections of its own. One process knocks at the
 * parent without end, so that the parent's service thread answers whenever the parent forks. Each
 * child asks another process for a connection, which refuses all. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CHILDREN 60
#define KNOCK_US 2000
#define RESOLVE_MS 60000
#define MOST_PAGES 64 /* of the device, that a process has mapped */
#define CHILD_S 5     /* a child that hears nothing ends */

static struct sockaddr_in address_of(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    return address;
}

/* Returns an identifier that listens, NULL if that failed. */
static struct rdma_cm_id *start_listening(struct rdma_event_channel *channel, int backlog)
{
    struct sockaddr_in address = address_of(0);
    struct rdma_cm_id *id = NULL;
    if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
        rdma_bind_addr(id, (struct sockaddr *)&address) || rdma_listen(id, backlog)) {
        return NULL;
    }
    return id;
}

/* Takes one event. Returns its kind, -1 if there is none. */
static int next_event(struct rdma_event_channel *channel, struct rdma_cm_id **id)
{
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(channel, &event)) {
        return -1;
    }
    int kind = (int)event->event;
    if (id) {
        *id = event->id;
    }
    rdma_ack_cm_event(event);
    return kind;
}

/* Sends a request for a connection from `id`. Returns whether that worked. */
static bool ask(struct rdma_event_channel *channel, struct rdma_cm_id *id, uint16_t port)
{
    struct sockaddr_in address = address_of(port);
    struct rdma_conn_param parameters = {.qp_num = 0x123};
    return !rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS) &&
           next_event(channel, NULL) == RDMA_CM_EVENT_ADDR_RESOLVED &&
           !rdma_resolve_route(id, RESOLVE_MS) &&
           next_event(channel, NULL) == RDMA_CM_EVENT_ROUTE_RESOLVED &&
           !rdma_connect(id, &parameters);
}

__attribute__((noreturn)) static void refuse_all(int tell)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = start_listening(channel, 64), *id;
    uint16_t port = listener ? ntohs(rdma_get_src_port(listener)) : 0;
    if (write(tell, &port, sizeof(port)) != sizeof(port)) {
        _exit(1);
    }
    for (int kind; (kind = next_event(channel, &id)) >= 0;) {
        if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
            rdma_reject(id, NULL, 0);
            rdma_destroy_id(id);
        }
    }
    _exit(1);
}

__attribute__((noreturn)) static void knock(uint16_t port)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    while (channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0) {
        ask(channel, id, port);
        usleep(KNOCK_US);
        rdma_destroy_id(id);
    }
    _exit(1);
}

__attribute__((noreturn)) static void be_refused(uint16_t port)
{
    struct rdma_cm_id *id;
    alarm(CHILD_S);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    bool asked =
        channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0 && ask(channel, id, port);
    _exit(asked && next_event(channel, NULL) == RDMA_CM_EVENT_REJECTED ? 0 : 1);
}

static pid_t fork_bound(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

static void children_connect(void **state)
{
    (void)state;
    int told[2];
    uint16_t refusing = 0;
    assert_int_equal(pipe(told), 0);
    pid_t refuser = fork_bound();
    if (refuser == 0) {
        refuse_all(told[1]);
    }
    assert_int_equal(read(told[0], &refusing, sizeof(refusing)), sizeof(refusing));
    assert_int_not_equal(refusing, 0);

    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = start_listening(channel, 1024);
    assert_non_null(listener);
    pid_t knocker = fork_bound();
    if (knocker == 0) {
        knock(ntohs(rdma_get_src_port(listener)));
    }
    assert_int_equal(next_event(channel, NULL), RDMA_CM_EVENT_CONNECT_REQUEST);

    for (unsigned i = 0; i < CHILDREN; i++) {
        int status = -1;
        pid_t child = fork_bound();
        if (child == 0) {
            be_refused(refusing);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0) {
            fail_msg("child %u ended with status 0x%x", i, status);
        }
    }
    kill(refuser, SIGKILL);
    kill(knocker, SIGKILL);
    waitpid(refuser, NULL, 0);
    waitpid(knocker, NULL, 0);
}

/* Finds where the process has pages of the device. Returns how many. */
static unsigned find_pages(void *pages[])
{
    unsigned count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof(line), maps)) {
        uintptr_t start;
        if (count < MOST_PAGES && strstr(line, "simnic-doorbells") &&
            sscanf(line, "%" SCNxPTR, &start) == 1) {
            pages[count++] = (void *)start;
        }
    }
    if (maps) {
        fclose(maps);
    }
    return count;
}

/* libmlx5 unmaps the pages of the parent's, wherever they were. Nothing of the child's may have come to lie there: it asks for just
 * these addresses. */
__attribute__((noreturn)) static void close_inherited(struct ibv_context *context,
                                                      void *const pages[], unsigned count)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *mine[MOST_PAGES];
    unsigned char there;
    for (unsigned i = 0; i < count; i++) {
        mine[i] = mmap(pages[i], bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (ibv_close_device(context)) {
        _exit(1);
    }
    for (unsigned i = 0; i < count; i++) {
        if (mine[i] == MAP_FAILED || mincore(mine[i], bytes, &there)) {
            _exit(2);
        }
    }
    _exit(0);
}

static void children_close_devices(void **state)
{
    (void)state;
    int status = -1;
    void *pages[MOST_PAGES];
    struct ibv_device **devices = ibv_get_device_list(NULL);
    assert_non_null(devices);
    struct ibv_context *context = ibv_open_device(devices[0]);
    assert_non_null(context);
    const unsigned count = find_pages(pages);
    assert_int_not_equal(count, 0);
    pid_t child = fork_bound();
    if (child == 0) {
        close_inherited(context, pages, count);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ibv_close_device(context), 0);
    ibv_free_device_list(devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_connect),
        cmocka_unit_test(children_close_devices),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
