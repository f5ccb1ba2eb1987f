/* rig.h: contexts' worth of nic and cm to connect with each other in one process. */
#ifndef CORE_CM_TESTS_RIG_H
#define CORE_CM_TESTS_RIG_H

#include "cm/cm.h"

#define RIG_WAIT_S 60 /* the VM is slow and its threads share cores: never assert on time */
#define RIG_TRANSPORT ((struct nic_transport){.retry_timeout = 14, .retry_count = 7})

struct side {
    struct nic *nic;
    struct cm *cm;
};

struct rig {
    struct side client;  /* on rxe0 */
    struct side server;  /* on rxe0 */
    struct side foreign; /* on rxe1 */
};

/* A connection with both its ends. */
struct link {
    struct cm_identifier *client, *server;
    struct nic_queue_pair *client_queue_pair, *server_queue_pair;
};

/* cmocka fixtures: *state is a struct rig. */
int rig_set_up(void **state);
int rig_tear_down(void **state);

void side_open(struct side *side, const char *device);
void side_close(struct side *side);

/* Waits for the next event, prints its error, and fails the test if it is of another kind. */
struct cm_event side_expect(struct side *side, enum cm_event_kind kind);
void side_expect_silence(struct side *side);

struct nic_queue_pair *side_queue_pair(struct side *side);
void queue_pair_drop(struct nic_queue_pair **queue_pair);

struct cm_identifier *side_listen(struct side *side, const char *address, void *owner);
struct cm_identifier *side_connect(struct side *side, const char *address, void *owner);

/* Connects through a listener of rig->server, and disconnects and destroys again. */
struct link link_up(struct rig *rig, const char *address);
void link_down(struct rig *rig, struct link *link);
/* An immediate each way: the queue pairs work. */
void link_prove(struct rig *rig, const struct link *link);

/* "host:port" with the port of a listener. */
const char *at_port(const char *host, const struct cm_identifier *listener);

/* Lets this process alone see other contents of a file such as /etc/hosts; false if it may not. */
bool file_overlay(const char *path, const char *contents);
bool address_present(const char *address);
uint32_t count_entries(const char *directory);

#endif
