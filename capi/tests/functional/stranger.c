/* stranger.c: see stranger.h. */
#include "stranger.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cmocka.h>

#define RESOLVE_MS 60000

static struct sockaddr_in address_of(const char *text)
{
    char host[64];
    struct sockaddr_in address = {.sin_family = AF_INET};
    snprintf(host, sizeof(host), "%s", text);
    char *colon = strchr(host, ':');
    if (colon) {
        *colon = '\0';
        address.sin_port = htons((uint16_t)atoi(colon + 1));
    }
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    return address;
}

static void serve(struct rdma_event_channel *channel, enum stranger_kind kind,
                  const void *private_data, uint8_t private_bytes)
{
    struct rdma_cm_event *event;
    while (rdma_get_cm_event(channel, &event) == 0) {
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST && kind == STRANGER_REJECTS) {
            rdma_reject(id, private_data, private_bytes);
        }
    }
}

void stranger_listen(struct stranger *stranger, const char *host, enum stranger_kind kind,
                     const void *private_data, uint8_t private_bytes)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    fflush(NULL);
    stranger->pid = fork();
    assert_true(stranger->pid >= 0);
    if (stranger->pid == 0) {
        struct rdma_cm_id *id;
        struct sockaddr_in address = address_of(host);
        struct rdma_event_channel *channel = rdma_create_event_channel();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
            rdma_bind_addr(id, (struct sockaddr *)&address) || rdma_listen(id, 4)) {
            _exit(1);
        }
        char text[64] = {0};
        snprintf(text, sizeof(text), "%s:%u", host, ntohs(rdma_get_src_port(id)));
        if (write(ready[1], text, sizeof(text)) != (ssize_t)sizeof(text)) {
            _exit(1);
        }
        serve(channel, kind, private_data, private_bytes);
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], stranger->address, sizeof(stranger->address)),
                     sizeof(stranger->address));
    close(ready[0]);
}

void stranger_stop(struct stranger *stranger)
{
    kill(stranger->pid, SIGKILL);
    waitpid(stranger->pid, NULL, 0);
}

static enum rdma_cm_event_type next_event(struct rdma_event_channel *channel, uint8_t *answer,
                                          uint32_t *answer_bytes)
{
    struct rdma_cm_event *event;
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    enum rdma_cm_event_type type = event->event;
    *answer_bytes = event->param.conn.private_data_len;
    if (type == RDMA_CM_EVENT_REJECTED && *answer_bytes > 0) {
        memcpy(answer, event->param.conn.private_data, *answer_bytes);
    }
    rdma_ack_cm_event(event);
    return type;
}

uint32_t stranger_connect(const char *text, const void *private_data, uint8_t private_bytes,
                          uint8_t answer[196])
{
    struct rdma_cm_id *id;
    struct sockaddr_in address = address_of(text);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    uint32_t bytes;
    assert_non_null(channel);
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS), 0);
    assert_int_equal(next_event(channel, answer, &bytes), RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(id, RESOLVE_MS), 0);
    assert_int_equal(next_event(channel, answer, &bytes), RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct rdma_conn_param parameters = {.private_data = private_data,
                                         .private_data_len = private_bytes,
                                         .responder_resources = 1,
                                         .initiator_depth = 1,
                                         .retry_count = 7,
                                         .qp_num = 0x123};
    assert_int_equal(rdma_connect(id, &parameters), 0);
    assert_int_equal(next_event(channel, answer, &bytes), RDMA_CM_EVENT_REJECTED);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
    return bytes;
}
