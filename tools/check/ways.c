/* ways.c: how packets travel: what their headers say, which partition they are in, and how long a datagram may be. What the drivers ask for
 * is in core/nic/device/path.c and connect.c. */
#include <string.h>

#include "base/clock.h"
#include "desk.h"
#include "nic/device/device.h"

#define TRAFFIC_CLASS                                                                              \
    0x68u /* DSCP 26. The lower two bits are those of ECN, with RoCE: devices set them */
#define HOP_LIMIT 64u /* path.c */
#define SERVICE_LEVEL 3u
#define SERVICE_LEVELS 16u
#define SOME_MS 20u /* after which a datagram that has not come, while others do, was dropped */

static struct desk desk;

static bool is_ethernet(const struct nic *nic)
{
    return nic->link == CRPC_LINK_ETHERNET;
}

/* Whether packets need a GRH. `asked`: it was asked for, in words of the peer that requires one. */
static bool needs_grh(const struct station *station, bool asked)
{
    const struct nic *near = station->near, *far = station->far;
    return is_ethernet(near) || asked || near->grh_required || far->grh_required ||
           memcmp(near->gid, far->gid, 8) != 0;
}

/* On Ethernet, the rest is ECN's. */
static uint32_t class_of(const struct nic *nic, uint32_t traffic_class)
{
    return is_ethernet(nic) ? traffic_class & ~3u : traffic_class;
}

/* ---- Headers that arrive --------------------------------------------------------------------- */

struct header {
    uint32_t traffic_class, hop_limit;
    uint8_t source[16];
};

/* The last 20 bytes are an IPv4 header, or all 40 a GRH or an IPv6 header. */
static bool read_header(const struct station *station, const crpc_completion *done,
                        struct header *header, struct outcome *outcome)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *bytes = station->sink;
    struct nic_target_options source;
    if (!nic_datagram_source(station->far, done, bytes, &source)) {
        return fails(outcome, "the header of a datagram begins with 0x%02x, and leads nowhere",
                     bytes[0]);
    }
    memcpy(header->source, source.address.gid, sizeof(header->source));
    if (bytes[20] == 0x45 && memcmp(header->source, mapped, sizeof(mapped)) == 0) {
        header->traffic_class = bytes[21];
        header->hop_limit = bytes[28];
    } else {
        header->traffic_class = (bytes[0] & 0xfu) << 4 | bytes[1] >> 4;
        header->hop_limit = bytes[7];
    }
    return true;
}

/* Each router on the way takes a hop off, and there is none in a device. Where the kernel makes address handles, it puts in what the
 * system's route says. */
static bool hops_right(const struct station *station, uint32_t hop_limit)
{
    const struct subject *subject = station->subject;
    const bool ours = subject->direct || !is_ethernet(station->near);
    return !ours                  ? hop_limit >= 1
           : subject->devices < 2 ? hop_limit == HOP_LIMIT
                                  : hop_limit >= 1 && hop_limit <= HOP_LIMIT;
}

static bool header_right(const struct station *station, const crpc_completion *done, bool asked,
                         struct outcome *outcome)
{
    const struct nic *near = station->near;
    const bool there = (done->flags & NIC_DONE_GRH) != 0, needed = needs_grh(station, asked);
    struct header header = {0};
    if (there != needed) {
        return fails(outcome, "a datagram that %s a GRH came %s one",
                     needed ? "needs" : "needs not", there ? "with" : "without");
    }
    if (!there) {
        return true;
    }
    if (!read_header(station, done, &header, outcome)) {
        return false;
    }
    if (memcmp(header.source, near->gid, sizeof(header.source)) != 0) {
        return fails(outcome, "a datagram came from another GID than that of index %u",
                     near->gid_index);
    }
    if (!hops_right(station, header.hop_limit)) {
        return fails(outcome, "a datagram with hop limit %u came with %u", HOP_LIMIT,
                     header.hop_limit);
    }
    return class_of(near, header.traffic_class) == class_of(near, TRAFFIC_CLASS) ||
           fails(
               outcome,
               "a datagram of traffic class 0x%02x came with 0x%02x: has somebody set one for all "
               "of the port (/sys/class/infiniband/%s/tc)?",
               TRAFFIC_CLASS, header.traffic_class, near->device);
}

static bool send_bytes(struct desk *by, uint32_t bytes, struct outcome *outcome)
{
    const struct nic_work work = {.opcode = NIC_SEND,
                                  .flags = NIC_WORK_SIGNAL,
                                  .address = (uintptr_t)by->station.source,
                                  .bytes = bytes};
    return desk_send(by, &work, outcome);
}

static bool one_header(bool asked, struct outcome *outcome)
{
    crpc_completion received, sent;
    return desk_aim(&desk, &desk, asked, 0, outcome) && desk_receive(&desk, outcome) &&
           send_bytes(&desk, 64, outcome) &&
           desk_await(&desk, desk.station.far, &received, outcome) &&
           desk_await(&desk, desk.station.near, &sent, outcome) &&
           header_right(&desk.station, &received, asked, outcome);
}

/* Returns whether an op of the far side completes in a moment. */
static bool comes_soon(struct desk *to, crpc_completion *done)
{
    const uint64_t start_ns = clock_now_ns();
    uint32_t errors = 0;
    do {
        if (to->station.far->operations->queues->poll(to->station.far, done, 1, &errors) == 1) {
            return true;
        }
    } while (clock_now_ns() - start_ns < SOME_MS * 1000000ull);
    return false;
}

/* A subnet may carry nothing on some levels, so that one comes is enough; each datagram says on which it went. *level: that which came; 0 =
 * none did. */
static bool find_level(uint32_t *level, struct outcome *outcome)
{
    crpc_completion received, sent;
    *level = 0;
    if (!desk_receive(&desk, outcome)) {
        return false;
    }
    for (uint8_t next = 1; next < SERVICE_LEVELS; next++) {
        desk.station.source[0] = next;
        if (!desk_aim(&desk, &desk, false, next, outcome) || !send_bytes(&desk, 64, outcome) ||
            !desk_await(&desk, desk.station.near, &sent, outcome)) {
            return false;
        }
        if (comes_soon(&desk, &received)) {
            const uint32_t said = desk.station.sink[NIC_DATAGRAM_HEADER_BYTES];
            *level = (uint32_t)(received.token >> 48 & 0xf);
            return *level == said ||
                   fails(outcome, "a datagram of service level %u came on %u", said, *level);
        }
    }
    return true;
}

/* path.c: "There is a GRH on Ethernet, and on InfiniBand if either port requires one or a router lies between"; it has the hop limit,
 * traffic class and source GID that the driver has put into the way. */
void check_header(const struct subject *subject, struct outcome *outcome)
{
    struct desk_setup setup = {.station = {.options = station_options()}, .kind = NIC_QUEUE_UD};
    uint32_t level = 0;
    setup.station.options.network.traffic_class = TRAFFIC_CLASS;
    bool good = desk_open(&desk, subject, &setup, outcome) && one_header(false, outcome) &&
                one_header(true, outcome);
    const bool ethernet = good && is_ethernet(desk.station.near);
    good = good && (ethernet || find_level(&level, outcome));
    if (good && ethernet) {
        passes(outcome,
               "datagrams with traffic class 0x%02x, hop limit and source GID as asked for",
               TRAFFIC_CLASS);
    } else if (good && level == 0) {
        passes(outcome, "datagrams with and without a GRH, as asked for; no service level but 0 "
                        "carries any");
    } else if (good) {
        passes(outcome, "datagrams with and without a GRH, as asked for; also on service level %u",
               level);
    }
    desk_close(&desk);
}

/* ---- What a connected queue pair was told ---------------------------------------------------- */

static bool same(uint32_t is, uint32_t asked, const char *what, struct outcome *outcome)
{
    return is == asked ||
           fails(outcome, "a queue pair was given %s %u, and has %u", what, asked, is);
}

/* Kernel drivers of other vendors than mlx5's tell some of it alone, and 0 for the rest. */
static bool kept(const struct station *station, uint32_t is, uint32_t asked, const char *what,
                 struct outcome *outcome)
{
    return (is == 0 && !station->subject->direct) || same(is, asked, what, outcome);
}

/* On Ethernet, the kernel puts in the hop limit of the system's route, and no service level can be asked. Some do not tell a way of
 * RoCE. */
static bool tells_way(const struct nic *near, const struct ibv_ah_attr *way)
{
    static const uint8_t none[16];
    return !is_ethernet(near) ||
           (way->is_global && memcmp(way->grh.dgid.raw, none, sizeof(none)) != 0);
}

static bool way_right(const struct station *station, const struct ibv_ah_attr *way,
                      const struct nic_address *peer, struct outcome *outcome)
{
    const struct nic *near = station->near;
    const bool ethernet = is_ethernet(near), grh = needs_grh(station, peer->grh_required);
    if (!same(way->is_global, grh, "GRHs:", outcome) ||
        (!ethernet && !same(way->sl, SERVICE_LEVEL, "service level", outcome))) {
        return false;
    }
    if (!grh) {
        return true;
    }
    return same(way->grh.sgid_index, near->gid_index, "the source GID of index", outcome) &&
           kept(station, class_of(near, way->grh.traffic_class), class_of(near, TRAFFIC_CLASS),
                "traffic class", outcome) &&
           (ethernet || same(way->grh.hop_limit, HOP_LIMIT, "hop limit", outcome)) &&
           (way->grh.hop_limit > 0 || fails(outcome, "a queue pair has hop limit 0")) &&
           (memcmp(way->grh.dgid.raw, peer->gid, sizeof(peer->gid)) == 0 ||
            fails(outcome, "a queue pair has another GID of its peer than it was given"));
}

static bool query(const struct station *station, struct nic_queue_pair *made,
                  const struct nic_address *peer, bool *told, struct outcome *outcome)
{
    const struct device_nic *near = to_device_nic(station->near);
    const uint8_t mtu_code = peer->mtu_code < near->mtu_code ? peer->mtu_code : near->mtu_code;
    struct ibv_qp_attr is = {0};
    struct ibv_qp_init_attr unused;
    int os_error = ibv_query_qp(device_qp(made), &is,
                                IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_PKEY_INDEX | IBV_QP_DEST_QPN |
                                    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
                                &unused);
    if (os_error) {
        return fails(outcome, "a queue pair does not say what it was given: %s",
                     strerror(os_error));
    }
    *told = tells_way(station->near, &is.ah_attr);
    return kept(station, is.dest_qp_num, peer->queue_pair_number, "the peer's number", outcome) &&
           kept(station, is.path_mtu, mtu_code, "the code of the MTU,", outcome) &&
           same(is.pkey_index, near->partition_index, "the P_Key of index", outcome) &&
           kept(station, is.timeout, station->transport.retry_timeout, "timeout", outcome) &&
           kept(station, is.retry_cnt, station->transport.retry_count, "retries,", outcome) &&
           kept(station, is.rnr_retry, NIC_RNR_RETRY, "RNR retries,", outcome) &&
           (!*told || way_right(station, &is.ah_attr, peer, outcome));
}

static bool connect_and_query(struct station *station, bool asked, bool *told,
                              struct outcome *outcome)
{
    struct nic *near = station->near;
    struct nic_queue_pair *made = NULL;
    struct nic_address peer;
    crpc_error error = {.struct_size = sizeof(error)};
    station->receiver->operations->queue_pair_address(station->receiver, &peer);
    peer.grh_required |= asked;
    if (nic_queue_pair_create(near, NULL, NULL, 0, &made, &error) != CRPC_OK) {
        return refused(outcome, error.status, error.message);
    }
    int32_t status = made->operations->queue_pair_connect(made, &peer, &station->transport, &error);
    bool good = status == CRPC_OK ? query(station, made, &peer, told, outcome)
                                  : refused(outcome, status, error.message);
    made->operations->queue_pair_destroy(made);
    return good;
}

/* connect.c: the kernel and the device take the way of a connection as it is given. */
void check_path(const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    struct station_setup setup = {.options = station_options()};
    bool told = false;
    setup.options.network =
        (struct nic_network){.traffic_class = TRAFFIC_CLASS, .service_level = SERVICE_LEVEL};
    if (station_open(&station, subject, &setup, outcome) &&
        connect_and_query(&station, false, &told, outcome) &&
        connect_and_query(&station, true, &told, outcome)) {
        passes(outcome,
               "connected queue pairs have peer, MTU, P_Key, timeout and retries%s as given",
               told ? ", GRH, GIDs, traffic class" : " (the kernel does not tell the rest)");
    }
    station_close(&station);
}

/* ---- Partitions ------------------------------------------------------------------------------ */

static bool partition_at(const struct nic *nic, int index, uint16_t *key)
{
    __be16 found = 0;
    const bool there = ibv_query_pkey(device_context(nic), (uint8_t)nic->port, index, &found) == 0;
    *key = be16toh(found);
    return there;
}

/* The first other partition of which the port is a full member: its members talk to each other. Returns 0 if there is none. */
static uint16_t other_partition(const struct nic *nic)
{
    uint16_t key;
    for (int index = 0; partition_at(nic, index, &key); index++) {
        if (key & 0x8000u && key & 0x7fffu &&
            !nic_same_partition(key, nic->network.partition_key)) {
            return key;
        }
    }
    return 0;
}

static uint32_t violations(const struct nic *nic)
{
    struct ibv_port_attr port;
    return ibv_query_port(device_context(nic), (uint8_t)nic->port, &port) == 0 ? port.bad_pkey_cntr
                                                                               : 0;
}

/* One datagram, and where it has to have come from. */
static bool arrives(struct desk *from, struct desk *to, struct outcome *outcome)
{
    crpc_completion received, sent;
    if (!desk_aim(from, to, false, 0, outcome) || !send_bytes(from, 64, outcome) ||
        !desk_await(from, from->station.near, &sent, outcome) ||
        !desk_await(to, to->station.far, &received, outcome)) {
        return false;
    }
    return (received.token & 0xffffffu) == from->sender->pair->number ||
           fails(outcome, "a datagram of another partition was delivered");
}

/* What comes first to the other desk has to be from there. */
static bool keep_apart(struct desk *other, struct outcome *outcome)
{
    crpc_completion sent;
    if (!desk_receive(&desk, outcome) || !desk_receive(other, outcome) ||
        !desk_aim(&desk, other, false, 0, outcome) || !send_bytes(&desk, 64, outcome) ||
        !desk_await(&desk, desk.station.near, &sent, outcome)) {
        return false;
    }
    if (comes_soon(other, &sent)) {
        return fails(outcome, "a datagram of partition 0x%04x was delivered in partition 0x%04x",
                     desk.station.near->network.partition_key,
                     other->station.near->network.partition_key);
    }
    return arrives(&desk, &desk, outcome) && arrives(other, other, outcome);
}

/* path.c: the P_Key that was chosen is that at its index in the port's table; and a device delivers nothing from one partition to
 * another. */
void check_partition(const struct subject *subject, struct outcome *outcome)
{
    static struct desk other;
    struct subject one = *subject; /* both sides: the table of another port may be another */
    struct desk_setup setup = {.station = {.options = station_options()}, .kind = NIC_QUEUE_UD};
    one.devices = 1;
    bool good = desk_open(&desk, &one, &setup, outcome);
    const struct nic *near = desk.station.near;
    uint16_t key = 0;
    if (good && is_ethernet(near)) {
        good = not_here(outcome, "on Ethernet all is one partition");
    }
    if (good && (!partition_at(near, to_device_nic(desk.station.near)->partition_index, &key) ||
                 key != near->network.partition_key)) {
        good = fails(outcome, "the P_Key of index %u is 0x%04x, not 0x%04x",
                     to_device_nic(desk.station.near)->partition_index, key,
                     near->network.partition_key);
    }
    if (good) {
        setup.station.options.network.partition_key = other_partition(near);
        good = setup.station.options.network.partition_key != 0 ||
               not_here(outcome, "the port is a full member of partition 0x%04x alone", key);
    }
    const uint32_t before = good ? violations(near) : 0;
    good = good && desk_open(&other, &one, &setup, outcome) && keep_apart(&other, outcome);
    if (good) {
        passes(outcome,
               "P_Key 0x%04x is at its index; a datagram to partition 0x%04x was dropped, and the "
               "port has counted %u violations",
               key, setup.station.options.network.partition_key, violations(near) - before);
    }
    desk_close(&other);
    desk_close(&desk);
}

/* ---- The longest datagram -------------------------------------------------------------------- */

/* What is too long the device refuses, or drops in silence, as the specification has it (IBTA, C10-93.1.1). */
static bool too_long_is_dropped(uint32_t bytes, struct outcome *outcome)
{
    crpc_completion sent, received;
    if (!desk_receive(&desk, outcome) || !send_bytes(&desk, bytes, outcome) ||
        !desk_next(&desk, desk.station.near, &sent, outcome)) {
        return false;
    }
    return !comes_soon(&desk, &received) ||
           fails(outcome, "a datagram of %u bytes was sent, though the MTU is %u", bytes,
                 bytes - 1);
}

/* open.c: nic->mtu_bytes is the port's active MTU: so long may a datagram be. */
void check_datagram_mtu(const struct subject *subject, struct outcome *outcome)
{
    const struct desk_setup setup = {.station = {.options = station_options()},
                                     .kind = NIC_QUEUE_UD};
    bool good = desk_open(&desk, subject, &setup, outcome);
    const uint32_t near_bytes = good ? desk.station.near->mtu_bytes : 0;
    const uint32_t far_bytes = good ? desk.station.far->mtu_bytes : 0;
    const uint32_t bytes = near_bytes < far_bytes ? near_bytes : far_bytes;
    for (uint32_t less = 0; good && less < 4; less++) {
        const struct message message = {
            .opcode = NIC_SEND, .flags = NIC_WORK_SIGNAL, .bytes = bytes - less};
        station_fill(&desk.station, desk.station.source, bytes);
        good = desk_exchange(&desk, &message, outcome);
    }
    if (good && too_long_is_dropped(near_bytes + 1, outcome)) {
        passes(outcome, "datagrams of %u bytes come whole, and none that is longer", bytes);
    }
    desk_close(&desk);
}
