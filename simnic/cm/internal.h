/* internal.h: what the files of the connection manager share: the identifiers and their states, the
 * files and their events, and the functions one file calls in another. All of them
 * are called with the cm's lock held.
 *
 * An identifier (struct cm_id, a program's rdma_cm_id) has two states, as in the kernel: what the
 * program has done with it (enum id_state, the kernel's rdma_cm) and where its conversation with a
 * peer is (enum talk_state, the kernel's ib_cm). */
#ifndef SIMNIC_CM_INTERNAL_H
#define SIMNIC_CM_INTERNAL_H

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>

#include "simnic/cm/cm.h"
#include "simnic/cm/message.h"
#include "simnic/cm/ports.h"
#include "simnic/session/rails.h"

#define SLOT_COUNT 128
#define ID_COUNT 65536u /* identifiers of a process; a power of two */
#define NO_RAIL (-1)
#define MULTICAST_QPN 0xffffffu
#define UDP_QUEUE_KEY 0x01234567u
#define PATH_MTU_4096 5    /* enum ibv_mtu */
#define PACKET_LIFETIME 16 /* as the kernel assumes of RoCE: 4.096 us * 2^16 */
#define HOP_LIMIT 64
#define ADDRESS_FAMILY_IB 27 /* AF_IB */

/* Verbs' values that user space knows only by libibverbs' header. */
enum { QUEUE_PAIR_RC = 2, QUEUE_PAIR_UC = 3, QUEUE_PAIR_UD = 4 };
enum { QUEUE_PAIR_XRC_INITIATOR = 9, QUEUE_PAIR_XRC_TARGET = 10 };

/* Events as rdma_cma.h numbers them. */
enum cm_event_type {
    EVENT_ADDR_RESOLVED,
    EVENT_ADDR_ERROR,
    EVENT_ROUTE_RESOLVED,
    EVENT_ROUTE_ERROR,
    EVENT_CONNECT_REQUEST,
    EVENT_CONNECT_RESPONSE,
    EVENT_CONNECT_ERROR,
    EVENT_UNREACHABLE,
    EVENT_REJECTED,
    EVENT_ESTABLISHED,
    EVENT_DISCONNECTED,
    EVENT_DEVICE_REMOVAL,
    EVENT_MULTICAST_JOIN,
    EVENT_MULTICAST_ERROR,
    EVENT_ADDR_CHANGE,
    EVENT_TIMEWAIT_EXIT,
};

enum id_state {
    ID_IDLE,
    ID_ADDR_BOUND,
    ID_ADDR_RESOLVED,
    ID_ROUTE_RESOLVED,
    ID_CONNECT,
    ID_DISCONNECT,
    ID_LISTEN,
};

enum talk_state {
    TALK_IDLE,
    TALK_REQ_SENT,
    TALK_REQ_RECEIVED,
    TALK_REP_SENT,
    TALK_REP_RECEIVED,
    TALK_ESTABLISHED,
    TALK_DREQ_SENT,
    TALK_DREQ_RECEIVED,
    TALK_TIMEWAIT,
    TALK_SIDR_REQ_SENT,
    TALK_SIDR_REQ_RECEIVED,
};

/* struct sockaddr_ib, which no system header declares. */
struct address_ib {
    uint16_t family, partition_key;
    uint32_t flow_info;
    uint8_t gid[16];
    uint64_t service_id, service_mask;
    uint64_t scope;
};

/* A conversation with a peer. */
struct cm_talk {
    enum talk_state state;
    bool begun;      /* the program has had one: commands about it are in order */
    uint32_t own_id; /* communication ids */
    uint32_t peer_id;
    struct port_owner peer;
    uint64_t due;      /* when a timer ends, or 0 */
    uint32_t attempts; /* how often `last` may be sent again */
    struct cm_message last;
    uint32_t receive_psn, send_psn, peer_qpn;
    uint8_t responder_resources, initiator_depth;
    uint8_t retry_count, rnr_retry_count, traffic_class;
};

struct cm_multicast {
    struct cm_multicast *next;
    uint32_t number;
    uint64_t uid;
    uint32_t events_reported;
};

struct cm_id {
    uint32_t number; /* as the program names it */
    uint64_t uid;    /* as it wants to be told; 0 until it accepts a request */
    struct cm_file *file;
    bool hidden;    /* made by a connect request that the program has not read */
    bool unplugged; /* its device is not there any more */
    uint16_t port_space;
    uint8_t queue_pair_type;
    enum id_state state;
    struct sockaddr_storage source, destination;
    int rail;  /* NO_RAIL while bound to none */
    int paths; /* 1 once the route is known */
    int port_entry;
    struct port_key bound; /* what port_entry says */
    uint8_t traffic_class, ack_timeout;
    bool ack_timeout_set, reuse_address, family_only, family_only_set;
    uint32_t queue_pair_number, queue_key, packet_sequence_number;
    uint32_t events_reported;
    uint32_t backlog; /* requests it may still get */
    struct cm_multicast *groups;
    struct cm_talk talk;
};

struct cm_event {
    struct cm_event *next;
    struct cm_id *id; /* who it counts for */
    struct cm_multicast *group;
    struct cm_id *request; /* the identifier that a connect request brings */
    struct rdma_ucm_event_resp response;
};

struct cm_file {
    struct cm_file *next;
    struct cm *cm;
    int event_fd;
    bool signalled; /* the counter of event_fd is above zero */
    bool closing;
    unsigned users; /* calls under way */
    pthread_cond_t changed;
    struct cm_event *first, **last;
};

struct outgoing {
    struct outgoing *next;
    uint32_t slot;
    int rail;
    struct cm_message message;
};

struct cm {
    struct cm_host host;
    pthread_mutex_t lock;
    struct cm_file *files;
    struct cm_id **ids; /* ID_COUNT of them */
    uint32_t id_limit;  /* those at and above were never used */
    uint32_t id_serial;
    uint32_t next_group;
    uint64_t random;
    uint64_t poll_due; /* when to look whether the peers live */
    bool timers_changed;
    struct outgoing *first_outgoing, **last_outgoing;
    unsigned outgoing_count;
    bool sending;               /* one thread sends at a time: messages stay in order */
    pthread_cond_t sent;        /* that thread is done */
    uint32_t heard[SLOT_COUNT]; /* generation of the process in a slot that spoke last, or 0 */
    uint64_t resend_due;
};

/* A command, taken apart. */
struct cm_call {
    struct cm_file *file;
    const void *in;
    uint32_t in_bytes;
    uint32_t out_bytes;
    int cancel_state; /* of the thread, as the program has it */
};

/* ---- cm.c */
struct cm_id *id_new(struct cm_file *file, uint16_t port_space, uint8_t queue_pair_type);
void id_destroy(struct cm_id *id); /* says goodbye to the peer, drops the events */
/* Gets the identifier that a command is about. Returns NULL, with the error to return, if it is none of the file's, or of a device that
 * is gone. */
struct cm_id *id_find(struct cm_file *file, uint32_t number, int *error);
/* The same, also if its device is gone. */
struct cm_id *id_find_any(struct cm_file *file, uint32_t number, int *error);
struct cm *cm_of(const struct cm_id *id);
uint32_t link_of(const struct cm_id *id); /* the session's */
bool on_infiniband(const struct cm_id *id);
uint32_t cm_random(struct cm *cm);
uint64_t cm_now(struct cm *cm);
bool call_copy_in(const struct cm_call *call, void *to, size_t bytes); /* false: too short */
/* Copies a command in, and finds the identifier that its field `id` names. Returns NULL, with the
 * error to return, if it is too short or names none of this file's. */
#define CALL_TAKE(call, command, error)                                                            \
    call_take(call, &(command), sizeof(command), offsetof(__typeof__(command), id), error)
struct cm_id *call_take(const struct cm_call *call, void *command, size_t bytes, size_t id_at,
                        int *error);
int call_copy_out(uint64_t response, const void *from, size_t bytes);

/* ---- unplug.c */
bool cm_rail_unplugged(struct cm *cm, int rail);

/* ---- commands.c: NULL and an error for a command that does not exist. */
typedef int cm_command(const struct cm_call *call);
cm_command *command_find(uint32_t number, int *error);

/* ---- events.c */
struct cm_event *event_new(struct cm_id *id, enum cm_event_type type, int status);
/* NULL is ignored. An event of an identifier that the program cannot know is dropped. */
void event_queue(struct cm_event *event);
void event_report(struct cm_id *id, enum cm_event_type type, int status);
struct cm_id *events_take_request(struct cm_id *id); /* a listener's next unread one, or NULL */
void events_drop_id(struct cm_id *id);
void events_drop_group(struct cm_file *file, struct cm_multicast *group);
void events_move(struct cm_id *id, struct cm_file *to);
int events_get(struct cm_file *file, const struct cm_call *call, bool nonblocking);

/* ---- address.c */
unsigned address_bytes(const struct sockaddr_storage *address); /* 0: unknown family */
bool address_any(const struct sockaddr_storage *address);
uint16_t address_port(const struct sockaddr_storage *address); /* host order */
int address_rail(const struct sockaddr_storage *address, uint32_t link);
bool address_gid(const struct sockaddr_storage *address, uint8_t gid[16]);
uint8_t rail_gid_index(int rail, const uint8_t gid[16]);                      /* the RoCE v2 one */
uint8_t address_raw(const struct sockaddr_storage *address, uint8_t raw[16]); /* gives 4, 6 or 0 */
void address_set(struct sockaddr_storage *address, uint8_t ip_version, const uint8_t raw[16],
                 uint16_t network_port);
int id_bind(struct cm_id *id, const struct sockaddr_storage *address);
cm_command command_bind_ip, command_bind, command_resolve_ip, command_resolve_addr,
    command_resolve_route;

/* ---- attributes.c */
void attributes_path(const struct cm_id *id, struct ib_user_path_rec *record);
void attributes_of_way(const struct rail_way *way, struct ib_uverbs_ah_attr *attribute);
/* The GID of an address of an identifier: on InfiniBand that of the port that has the address. */
void id_gid(const struct cm_id *id, const struct sockaddr_storage *address, uint8_t gid[16]);
void attributes_address_handle(const struct cm_id *id, struct ib_uverbs_ah_attr *attribute);
cm_command command_init_qp_attr;

/* ---- query.c */
cm_command command_query_route, command_query;

/* ---- connect.c */
cm_command command_connect, command_listen, command_accept, command_reject, command_disconnect,
    command_notify;
void talk_leave(struct cm_id *id); /* what ends a conversation when its identifier goes */
void talk_end(struct cm_id *id);   /* the peer is told nothing */
void talk_established(struct cm_id *id);

/* ---- receive.c */
void receive_message(struct cm *cm, uint32_t source_slot, const struct cm_message *message);
void receive_peer_died(struct cm_id *id);

/* ---- timers.c */
/* Sends a request, again and again until it is answered. */
void timer_expect_answer(struct cm_id *id, const struct cm_message *request);
void timer_delayed(struct cm_id *id);
void timer_timewait(struct cm_id *id);
void timer_stop(struct cm_id *id);
uint64_t timers_run(struct cm *cm, uint64_t now);

/* ---- outbox.c */
struct cm_message message_to_peer(const struct cm_id *id, enum cm_message_type type);
void outbox_add(struct cm *cm, uint32_t slot, int rail, const struct cm_message *message);
void outbox_to_peer(struct cm_id *id, const struct cm_message *message);
void outbox_flush(struct cm *cm); /* lock held, but let go while it sends */
/* The same, and waits for another thread that is sending: a program's message has been sent when its
 * call returns, unless a ring is full. */
void outbox_settle(struct cm *cm);

/* ---- options.c, multicast.c */
cm_command command_set_option, command_migrate_id;
cm_command command_join_ip_multicast, command_join_multicast, command_leave_multicast;

#endif
