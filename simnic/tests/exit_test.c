/* exit_test.c: what a process told a peer by rdma_cm before it ended arrives, however soon it ended; to be run under `simnic run
 * --private`.
 *
 * The client stops itself (all of its threads) once it has asked. The server answers and ends with _exit. Only then does the client go
 * on: it finds the answer of a process that is dead. */
#include <arpa/inet.h>
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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RESOLVE_MS 60000
#define PATIENCE_S 60 /* a process that hears nothing ends */
#define WORDS "the last words"

/* How the server ends a conversation. */
typedef void last_words(struct rdma_event_channel *channel, struct rdma_cm_id *request);

static struct sockaddr_in address_of(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    return address;
}

/* Takes one event; the caller acknowledges it. Ends the process if there is none. */
static struct rdma_cm_event *take(struct rdma_event_channel *channel)
{
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(channel, &event)) {
        _exit(100);
    }
    return event;
}

static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event = take(channel);
    struct rdma_cm_id *id = event->id;
    if (event->event != type) {
        fprintf(stderr, "# %s instead of %s\n", rdma_event_str(event->event), rdma_event_str(type));
        _exit(101);
    }
    rdma_ack_cm_event(event);
    return id;
}

static struct rdma_conn_param parameters(void)
{
    return (struct rdma_conn_param){.private_data = WORDS,
                                    .private_data_len = sizeof(WORDS),
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .qp_num = 0x123};
}

/* ---- the server ---- */

static void reject(struct rdma_event_channel *channel, struct rdma_cm_id *request)
{
    (void)channel;
    rdma_reject(request, WORDS, sizeof(WORDS));
}

static void accept_one(struct rdma_event_channel *channel, struct rdma_cm_id *request)
{
    struct rdma_conn_param accepted = parameters();
    (void)channel;
    rdma_accept(request, &accepted);
}

__attribute__((noreturn)) static void serve(enum rdma_port_space space, int tell, last_words *say)
{
    struct sockaddr_in address = address_of(0);
    struct rdma_cm_id *listener;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    alarm(PATIENCE_S);
    if (!channel || rdma_create_id(channel, &listener, NULL, space) ||
        rdma_bind_addr(listener, (struct sockaddr *)&address) || rdma_listen(listener, 1)) {
        _exit(1);
    }
    uint16_t port = ntohs(rdma_get_src_port(listener));
    if (write(tell, &port, sizeof(port)) != sizeof(port)) {
        _exit(1);
    }
    say(channel, expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST));
    _exit(0);
}

/* ---- the client ---- */

__attribute__((noreturn)) static void ask(enum rdma_port_space space, uint16_t port,
                                          enum rdma_cm_event_type answer)
{
    struct sockaddr_in address = address_of(port);
    struct rdma_conn_param request = parameters();
    struct rdma_cm_id *id;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    alarm(PATIENCE_S);
    if (!channel || rdma_create_id(channel, &id, NULL, space) ||
        rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS)) {
        _exit(1);
    }
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(id, RESOLVE_MS)) {
        _exit(1);
    }
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (rdma_connect(id, &request)) {
        _exit(1);
    }
    raise(SIGSTOP);
    struct rdma_cm_event *event = take(channel);
    const struct rdma_conn_param *conn = &event->param.conn;
    const struct rdma_ud_param *ud = &event->param.ud;
    const void *data = space == RDMA_PS_UDP ? ud->private_data : conn->private_data;
    bool told = event->event == answer && data && memcmp(data, WORDS, sizeof(WORDS)) == 0;
    if (!told) {
        fprintf(stderr, "# %s instead of %s\n", rdma_event_str(event->event),
                rdma_event_str(answer));
    }
    _exit(told ? 0 : 2);
}

/* ---- both ---- */

static pid_t fork_bound(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

/* The server hears of the request when the client has stopped: else it may answer too early. */
static void check(enum rdma_port_space space, last_words *say, enum rdma_cm_event_type answer)
{
    int told[2], status = -1;
    uint16_t port = 0;
    assert_int_equal(pipe(told), 0);
    pid_t server = fork_bound();
    if (server == 0) {
        serve(space, told[1], say);
    }
    assert_int_equal(read(told[0], &port, sizeof(port)), sizeof(port));
    kill(server, SIGSTOP);
    assert_int_equal(waitpid(server, &status, WUNTRACED), server);
    assert_true(WIFSTOPPED(status));
    pid_t client = fork_bound();
    if (client == 0) {
        ask(space, port, answer);
    }
    assert_int_equal(waitpid(client, &status, WUNTRACED), client);
    if (!WIFSTOPPED(status)) {
        fail_msg("the client ended with status 0x%x", status);
    }
    kill(server, SIGCONT);
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_int_equal(status, 0);
    kill(client, SIGCONT);
    assert_int_equal(waitpid(client, &status, 0), client);
    assert_int_equal(status, 0);
    close(told[0]);
    close(told[1]);
}

static void a_rejection(void **state)
{
    (void)state;
    check(RDMA_PS_TCP, reject, RDMA_CM_EVENT_REJECTED);
}

static void an_acceptance(void **state)
{
    (void)state;
    check(RDMA_PS_TCP, accept_one, RDMA_CM_EVENT_CONNECT_RESPONSE);
}

static void an_acceptance_of_datagrams(void **state)
{
    (void)state;
    check(RDMA_PS_UDP, accept_one, RDMA_CM_EVENT_ESTABLISHED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rejection),
        cmocka_unit_test(an_acceptance),
        cmocka_unit_test(an_acceptance_of_datagrams),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
