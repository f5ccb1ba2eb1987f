/* connect.c: listen, connect, accept and close. What a listen comm writes into NCCL's handle is where it is to be
 * met, and a token by which it knows whom to accept.
 *
 * connect and accept are called until there is a comm, and go one step further each time:
 *
 *   COMM_OPENING     until the session's context is open; then the channel is made, and its blob
 *   COMM_MEETING     until the peer has greeted with its blob; then it is joined
 *   COMM_CONNECTING  until the channel is connected
 *
 * A comm that is accepted begins when a guest has greeted with the token.
 */
#include "plugin.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define HANDLE_MAGIC 0x43525043u /* "CRPC" */
#define HANDLE_VERSION 2u
/* A stranger that says nothing is thrown out. */
#define GREETING_NS UINT64_C(10000000000)

/* NCCL calls connect with the same memory until there is a comm, and keeps what is written there
 * (its own networks keep their state so too). */
struct handle {
    uint32_t magic;
    uint32_t version;
    uint8_t token[MEET_TOKEN_BYTES];
    uint16_t family;
    uint16_t port; /* in network byte order */
    uint32_t
        scope_id; /* of a link-local address: the listening machine's number of the interface */
    uint8_t address[16];
    struct comm *connecting;
};
_Static_assert(sizeof(struct handle) <= NET_HANDLE_BYTES, "the handle is NCCL's in size");

struct listen_comm {
    struct device *device;
    int fd;
    uint8_t token[MEET_TOKEN_BYTES];
    struct meeting *guests[GUESTS_MAX]; /* who has connected, in this order */
    uint32_t guest_count;
    struct comm *accepting;
};

static pthread_mutex_t connecting_lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm *connecting;

/* ---- Addresses ------------------------------------------------------------------------------- */

static void write_address(struct handle *handle, const struct sockaddr_storage *address)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    handle->family = address->ss_family;
    if (address->ss_family == AF_INET) {
        handle->port = four->sin_port;
        memcpy(handle->address, &four->sin_addr, sizeof(four->sin_addr));
    } else {
        handle->port = six->sin6_port;
        handle->scope_id = six->sin6_scope_id;
        memcpy(handle->address, &six->sin6_addr, sizeof(six->sin6_addr));
    }
}

static bool read_address(const struct handle *handle, struct sockaddr_storage *address)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    memset(address, 0, sizeof(*address));
    address->ss_family = handle->family;
    if (handle->family == AF_INET) {
        four->sin_port = handle->port;
        memcpy(&four->sin_addr, handle->address, sizeof(four->sin_addr));
    } else {
        six->sin6_port = handle->port;
        six->sin6_scope_id = handle->scope_id;
        memcpy(&six->sin6_addr, handle->address, sizeof(six->sin6_addr));
    }
    return handle->family == AF_INET || handle->family == AF_INET6;
}

/* ---- Steps of both sides --------------------------------------------------------------------- */

static void fail(struct comm *comm, int32_t status)
{
    comm->status = status;
    comm->state = COMM_FAILED;
}

/* COMM_OPENING: true once there is a channel. */
static bool make_channel(struct comm *comm)
{
    struct session *session = comm->session;
    enum session_state state = atomic_load_explicit(&session->state, memory_order_acquire);
    if (state == SESSION_OPENING) {
        return false;
    }
    int32_t status = session->status;
    if (state == SESSION_OPEN) {
        pthread_mutex_lock(&session->lock);
        status = comm_make_channel(comm);
        pthread_mutex_unlock(&session->lock);
    }
    if (status < 0) {
        fail(comm, status);
        return false;
    }
    comm->state = COMM_MEETING;
    return true;
}

static void greet(struct comm *comm, const uint8_t token[MEET_TOKEN_BYTES])
{
    const struct way *way = &comm->session->way;
    meet_greet(comm->meeting, token, comm->blob, comm->blob_bytes, way->traffic_class,
               way->service_level);
}

/* The side with the lesser blob sends first, so it joins last. */
static bool joins_first(const struct comm *comm, const struct meet_greeting *peer)
{
    return memcmp(comm->blob, peer->blob, sizeof(comm->blob)) > 0;
}

static void join(struct comm *comm)
{
    const struct meet_greeting *peer = &comm->meeting->in;
    pthread_mutex_lock(&comm->session->lock);
    int32_t status = comm_join(comm, peer->blob, peer->blob_bytes);
    pthread_mutex_unlock(&comm->session->lock);
    if (status < 0) {
        fail(comm, status);
    }
}

/* COMM_CONNECTING: until it is connected, or the peer has gone without having been. */
static void watch(struct comm *comm)
{
    struct session *session = comm->session;
    struct meeting *meeting = comm->meeting;
    char word = '\0';
    enum meet_result heard = meet_hear(meeting, &word);
    meeting->said_all |= heard == MEET_HEARD && word == MEET_CONNECTED;
    pthread_mutex_lock(&session->lock);
    session_poll(session);
    if (comm->state == COMM_CONNECTING && heard == MEET_OVER && !meeting->said_all) {
        WARN("the peer has gone while its channel was being connected");
        fail(comm, CRPC_E_DISCONNECTED);
    }
    pthread_mutex_unlock(&session->lock);
}

/* Gives the comm to NCCL if it is connected, and ends it if it has failed. Any comm's poll may have found out. */
static int conclude(struct comm *comm, void **out)
{
    char word;
    if (comm->state == COMM_CONNECTED) {
        meet_say(comm->meeting, MEET_CONNECTED);
        meet_hear(comm->meeting, &word); /* sends it */
        meet_end(comm->meeting);
        comm->meeting = NULL;
        *out = comm;
        return NET_SUCCESS;
    }
    if (comm->channel.bits != 0) {
        pthread_mutex_lock(&comm->session->lock);
        comm_explain(comm, "connecting failed", comm->status);
        pthread_mutex_unlock(&comm->session->lock);
    }
    int result = net_result(comm->status);
    comm_destroy(comm);
    return result;
}

/* ---- Connect --------------------------------------------------------------------------------- */

static void remember_connect(struct comm *comm)
{
    pthread_mutex_lock(&connecting_lock);
    comm->next_connecting = connecting;
    connecting = comm;
    pthread_mutex_unlock(&connecting_lock);
}

static void forget_connect(struct comm *comm)
{
    pthread_mutex_lock(&connecting_lock);
    struct comm **link = &connecting;
    while (*link != NULL && *link != comm) {
        link = &(*link)->next_connecting;
    }
    if (*link == comm) {
        *link = comm->next_connecting;
    }
    pthread_mutex_unlock(&connecting_lock);
}

void net_forget_connects(void)
{
    pthread_mutex_lock(&connecting_lock);
    while (connecting != NULL) {
        struct comm *comm = connecting;
        connecting = comm->next_connecting;
        comm_destroy(comm);
    }
    pthread_mutex_unlock(&connecting_lock);
}

static int32_t lost(const struct meeting *meeting)
{
    switch (meeting->os_error) {
    case 0: /* it knows the token no more, or never did */
    case ECONNREFUSED:
        return CRPC_E_REFUSED;
    case EHOSTUNREACH:
    case ENETUNREACH:
        return CRPC_E_UNREACHABLE;
    case ETIMEDOUT:
        return CRPC_E_TIMEOUT;
    default:
        return CRPC_E_DISCONNECTED;
    }
}

static void meet_listener(struct comm *comm, const struct handle *handle)
{
    struct meeting *meeting = comm->meeting;
    switch (meet_step(meeting)) {
    case MEET_WAITS:
        if (now_ns() > meeting->deadline_ns) {
            WARN("no accept within COPYRPC_NCCL_CONNECT_SECONDS");
            fail(comm, CRPC_E_TIMEOUT);
        }
        break;
    case MEET_OVER:
        WARN("the peer's listen comm cannot be met: %s",
             meeting->os_error != 0 ? strerror(meeting->os_error) : "it has closed the connection");
        fail(comm, lost(meeting));
        break;
    case MEET_HEARD:
        if (!meet_knows(meeting, handle->token)) {
            WARN("who answers at the peer's address is none of this plugin's, or of another "
                 "version");
            fail(comm, CRPC_E_PROTOCOL);
            break;
        }
        if (joins_first(comm, &meeting->in)) {
            meet_say(meeting, MEET_JOINED);
        }
        join(comm);
        break;
    }
}

static void step_connect(struct comm *comm, const struct handle *handle)
{
    if (comm->state == COMM_OPENING && make_channel(comm)) {
        struct sockaddr_storage address;
        comm->meeting = read_address(handle, &address)
                            ? meet_connect(&address, now_ns() + settings.connect_timeout_ns)
                            : NULL;
        if (comm->meeting == NULL) {
            WARN("cannot connect to the peer's listen comm: %s", strerror(errno));
            fail(comm, errno == ENOMEM || errno == EMFILE ? CRPC_E_SYSTEM : CRPC_E_UNREACHABLE);
            return;
        }
        greet(comm, handle->token);
    }
    if (comm->state == COMM_MEETING) {
        meet_listener(comm, handle);
    }
    if (comm->state == COMM_CONNECTING) {
        watch(comm);
    }
}

int net_connect(int index, int traffic_class, void *opaque, void **send_comm)
{
    struct device *device = plugin_device(index);
    struct handle *handle = opaque;
    *send_comm = NULL;
    if (device == NULL || handle->magic != HANDLE_MAGIC || handle->version != HANDLE_VERSION) {
        WARN(
            "the peer's handle is none of this plugin's: does every rank load it, in one version?");
        return NET_INVALID_ARGUMENT;
    }
    struct comm *comm = handle->connecting;
    if (comm == NULL) {
        comm = comm_create(device, way_choose(device, way_asked(device, traffic_class)));
        if (comm == NULL) {
            return NET_SYSTEM_ERROR;
        }
        comm->sends = true;
        remember_connect(comm);
        handle->connecting = comm;
    }
    step_connect(comm, handle);
    if (comm->state < COMM_CONNECTED) {
        return NET_SUCCESS;
    }
    forget_connect(comm);
    handle->connecting = NULL;
    return conclude(comm, send_comm);
}

/* ---- Listen ---------------------------------------------------------------------------------- */

int net_listen(int index, void *handle, void **listen_comm)
{
    struct device *device = plugin_device(index);
    struct sockaddr_storage address;
    if (device == NULL) {
        return NET_INVALID_ARGUMENT;
    }
    if (!interface_choose(&settings, &address)) {
        return NET_SYSTEM_ERROR;
    }
    struct listen_comm *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return NET_SYSTEM_ERROR;
    }
    made->device = device;
    made->fd = meet_listen(&address);
    if (made->fd < 0 || getrandom(made->token, sizeof(made->token), 0) != sizeof(made->token)) {
        WARN("cannot listen for peers: %s", strerror(errno));
        if (made->fd >= 0) {
            close(made->fd);
        }
        free(made);
        return NET_SYSTEM_ERROR;
    }
    memset(handle, 0, NET_HANDLE_BYTES);
    struct handle out = {.magic = HANDLE_MAGIC, .version = HANDLE_VERSION};
    memcpy(out.token, made->token, sizeof(out.token));
    write_address(&out, &address);
    memcpy(handle, &out, sizeof(out));
    *listen_comm = made;
    return NET_SUCCESS;
}

int net_close_listen(void *listen_comm)
{
    struct listen_comm *listen = listen_comm;
    if (listen == NULL) {
        return NET_SUCCESS;
    }
    while (listen->guest_count > 0) {
        meet_end(listen->guests[--listen->guest_count]);
    }
    if (listen->accepting != NULL) {
        comm_destroy(listen->accepting);
    }
    close(listen->fd);
    free(listen);
    return NET_SUCCESS;
}

/* ---- Guests ---------------------------------------------------------------------------------- */

static void remove_guest(struct listen_comm *listen, uint32_t index)
{
    listen->guest_count--;
    memmove(&listen->guests[index], &listen->guests[index + 1],
            (listen->guest_count - index) * sizeof(listen->guests[0]));
}

static void turn_away(struct listen_comm *listen, uint32_t index)
{
    meet_end(listen->guests[index]);
    remove_guest(listen, index);
}

/* Who has been silent for longest makes room: who has the token has shown it by then, if others come so fast. */
static void let_in(struct listen_comm *listen)
{
    for (uint32_t i = 0; i < GUESTS_MAX; i++) {
        struct meeting *guest = meet_accept(listen->fd, now_ns() + GREETING_NS);
        if (guest == NULL) {
            return;
        }
        if (listen->guest_count == GUESTS_MAX) {
            turn_away(listen, 0);
        }
        listen->guests[listen->guest_count++] = guest;
    }
}

/* The first who has shown the token; NULL: nobody yet. Strangers are turned away. */
static struct meeting *find_guest(struct listen_comm *listen)
{
    for (uint32_t i = 0; i < listen->guest_count;) {
        struct meeting *guest = listen->guests[i];
        enum meet_result result = meet_step(guest);
        if (result == MEET_HEARD && meet_knows(guest, listen->token)) {
            remove_guest(listen, i);
            return guest;
        }
        if (result == MEET_WAITS && now_ns() <= guest->deadline_ns) {
            i++;
            continue;
        }
        if (result == MEET_HEARD) {
            INFO("refused somebody who is none of this job's");
        }
        turn_away(listen, i);
    }
    return NULL;
}

/* ---- Accept ---------------------------------------------------------------------------------- */

/* COMM_MEETING, with a guest who has greeted. */
static void meet_guest(struct comm *comm)
{
    struct meeting *meeting = comm->meeting;
    char word = '\0';
    bool first = joins_first(comm, &meeting->in);
    if (!first) {
        switch (meet_hear(meeting, &word)) {
        case MEET_WAITS:
            if (now_ns() > meeting->deadline_ns) {
                WARN("the peer has not joined within COPYRPC_NCCL_CONNECT_SECONDS");
                fail(comm, CRPC_E_TIMEOUT);
            }
            return;
        case MEET_OVER:
            WARN("the peer has gone while it was being accepted");
            fail(comm, CRPC_E_DISCONNECTED);
            return;
        case MEET_HEARD:
            if (word != MEET_JOINED) {
                fail(comm, CRPC_E_PROTOCOL);
                return;
            }
        }
    }
    join(comm);
}

static void step_accept(struct listen_comm *listen, struct comm *comm)
{
    if (comm->state == COMM_OPENING && make_channel(comm)) {
        greet(comm, listen->token);
    }
    if (comm->state == COMM_MEETING) {
        meet_guest(comm);
    }
    if (comm->state == COMM_CONNECTING) {
        watch(comm);
    }
}

/* Its packets travel as the guest's, so that what answers them is in the same class. */
static int begin_accept(struct listen_comm *listen)
{
    struct meeting *guest = find_guest(listen);
    if (guest == NULL) {
        return NET_SUCCESS;
    }
    struct way asked = {guest->in.traffic_class, guest->in.service_level};
    struct comm *comm = comm_create(listen->device, way_choose(listen->device, asked));
    if (comm == NULL) {
        meet_end(guest);
        return NET_SYSTEM_ERROR;
    }
    guest->deadline_ns = now_ns() + settings.connect_timeout_ns;
    comm->meeting = guest;
    listen->accepting = comm;
    return NET_SUCCESS;
}

int net_accept(void *listen_comm, void **receive_comm, void **device_comm)
{
    (void)device_comm;
    struct listen_comm *listen = listen_comm;
    *receive_comm = NULL;
    let_in(listen);
    if (listen->accepting == NULL) {
        int result = begin_accept(listen);
        if (listen->accepting == NULL) {
            return result;
        }
    }
    struct comm *comm = listen->accepting;
    step_accept(listen, comm);
    if (comm->state < COMM_CONNECTED) {
        return NET_SUCCESS;
    }
    listen->accepting = NULL;
    return conclude(comm, receive_comm);
}

int net_close_comm(void *comm)
{
    if (comm != NULL) {
        comm_destroy(comm);
    }
    return NET_SUCCESS;
}
