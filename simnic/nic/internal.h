/* internal.h: what the files of the NIC share. See nic.h for what others may ask of it. */
#ifndef SIMNIC_NIC_INTERNAL_H
#define SIMNIC_NIC_INTERNAL_H

#include "base/compiler.h"
#include "simnic/fabric/quirk.h"
#include "simnic/nic/nic.h"

#define TERMINATOR_KEY 0x100u /* "invalid" L_Key: ends a scatter list shorter than its WQE */
#define NO_MESSAGE 0xffu      /* queue_pair.current: the responder is between messages */

/* Returns whether the device breaks this assumption on purpose. */
static inline bool nic_has_quirk(const struct nic *nic, enum quirk quirk)
{
    return unlikely(nic->fabric && fabric_has_quirk(nic->fabric, quirk));
}

/* ---- nic.c ---- */
/* Destroys what has numbers: QPs, SRQs and CQs. */
void nic_destroy_queues(struct nic *nic);
/* A number from 1 on that nothing in a table has, the next one after the last; 0 if all are
 * given. */
uint32_t nic_free_number(void *const *table, uint32_t end, uint32_t *last);

/* ---- registers.c ---- */
/* What a page's registers hold now is not of a WQE to come: its queue goes. */
void nic_forget_pushes(struct nic *nic, uint32_t page);

/* ---- blueflame.c ---- */
/* A doorbell of the QP rang at a register. Notes what the register holds: a WQE if one was
 * pushed. */
void blueflame_note(struct queue_pair *qp, struct doorbell_page *page, uint32_t which,
                    const uint8_t *at, uint64_t doorbell);
enum blueflame {
    BLUEFLAME_NONE, /* nothing was pushed: read the send queue */
    BLUEFLAME_WAIT, /* a push is coming in: look again */
    BLUEFLAME_TAKEN /* request.wqe is what was pushed */
};
/* Finds out whether the WQE at send_next was pushed, and takes it from the push: *bytes of it.
 * `available`: blocks that the program says are there. */
enum blueflame blueflame_take(struct nic *nic, struct queue_pair *qp, uint32_t available,
                              uint32_t *bytes);

/* ---- send_queue.c ---- */
/* Copies basic blocks of the send queue. Returns false if the memory is not there. */
bool send_queue_read(const struct queue_pair *qp, uint16_t index, uint8_t *to, uint32_t blocks);
/* Looks for the next WQE. Returns whether qp->request is one. */
bool send_queue_next(struct nic *nic, struct queue_pair *qp);
/* Reads the WQE at `index` into qp->request. `available`: blocks that the program says are
 * there. */
void send_queue_fetch(struct nic *nic, struct queue_pair *qp, uint16_t index, uint32_t available);
/* Reads again how far the program has posted. */
void send_queue_read_producer(struct queue_pair *qp);
/* Returns whether its doorbell record tells of WQEs that it does not know of. */
bool send_queue_has_more(const struct queue_pair *qp);

/* ---- wqe.c ---- */
/* The basic blocks of a WQE that begins with these bytes: at least one. */
uint32_t wqe_blocks(const uint8_t *wqe);
/* Parses request->wqe, `bytes` long, as the WQE at `index` of a QP. It reads no byte behind them,
 * and sets request->syndrome if the WQE is wrong. */
void wqe_parse(const struct queue_pair *qp, struct send_request *request, uint16_t index,
               uint32_t bytes);

/* ---- keys.c ---- */
/* Where the memory is; NULL if the key, the range, the domain or the access is wrong. *bytes, which may
 * be zero, becomes what is there in a row: less than was asked for only if the key is indirect. */
uint8_t *key_translate(struct nic *nic, uint32_t key, uint64_t address, uint64_t *bytes,
                       uint32_t access, uint32_t domain);
/* The same for an access that a peer asks a QP for: windows may be bound to one QP. */
uint8_t *key_translate_for_peer(struct nic *nic, const struct queue_pair *qp, uint32_t key,
                                uint64_t address, uint64_t *bytes, uint32_t access);
/* Copy from a key's memory, and to it: what the QP's requester has asked for, or its peer has sent. Each
 * returns false if something is wrong, or not there. */
bool key_read(struct nic *nic, uint32_t key, uint64_t address, uint8_t *to, uint64_t bytes,
              uint32_t domain);
bool key_write(struct nic *nic, const struct queue_pair *qp, bool of_requester, uint32_t key,
               uint64_t address, const uint8_t *from, uint64_t bytes, uint32_t domain);
/* The same for a peer. */
bool key_read_for_peer(struct nic *nic, const struct queue_pair *qp, uint32_t key, uint64_t address,
                       uint8_t *to, uint64_t bytes);
bool key_write_for_peer(struct nic *nic, const struct queue_pair *qp, uint32_t key,
                        uint64_t address, const uint8_t *from, uint64_t bytes);

/* ---- indirect.c ---- */
void indirect_destroy(struct key_layout *layout);
void indirect_destroy_all(struct nic *nic); /* in the end: of the keys that are left */
/* Finds the piece at an offset, which is within the key: its key and address; *bytes is shortened to it. Returns false if the layout has
 * no such piece. */
bool indirect_find(const struct memory_key *key, uint64_t offset, uint32_t *piece_key,
                   uint64_t *address, uint64_t *bytes);
/* Executes a UMR WQE about an indirect key. Returns 0 or a syndrome. */
uint8_t indirect_execute(struct queue_pair *qp, const struct send_request *request,
                         struct memory_key *key);

/* ---- segments.c: the memory of a message ---- Each returns 0 or a syndrome. */
/* Reads bytes of a message to be sent, from an offset on. */
uint8_t segments_gather(struct nic *nic, struct queue_pair *qp, const struct send_request *request,
                        uint32_t offset, uint8_t *to, uint32_t bytes);
/* Writes bytes of a message at an offset, to as many segments as there are. */
uint8_t segments_scatter(struct nic *nic, const struct queue_pair *qp, bool of_requester,
                         const struct segment *segments, uint32_t count, uint32_t domain,
                         uint32_t offset, const uint8_t *payload, uint32_t bytes);

/* ---- window.c ---- */
/* Executes a UMR WQE. Returns 0 or a syndrome. */
uint8_t window_execute(struct nic *nic, struct queue_pair *qp, const struct send_request *request);
bool window_invalidate(struct nic *nic, struct queue_pair *qp, uint32_t key);

/* ---- cq.c ---- */
struct cqe {
    struct mlx5_cqe64 fields; /* all but op_own */
    uint8_t opcode;           /* MLX5_CQE_ */
    bool solicited;
    uint32_t inline_bytes; /* data in the CQE: at most cq_inline_bytes */
    uint8_t inline_data[64];
};
void cq_look_at_arms(struct nic *nic);
void cq_look_at_arm(struct nic *nic, struct completion_queue *cq);
void cq_write(struct nic *nic, struct completion_queue *cq, struct cqe *cqe);
void cq_write_error(struct nic *nic, struct queue_pair *qp, bool requester, uint8_t syndrome,
                    uint8_t opcode, uint16_t wqe_counter);
/* Breaks a CQ for good, and the QPs that complete to it. cq may be NULL. */
void cq_overrun(struct nic *nic, struct completion_queue *cq);
/* Where the 64 bytes of a CQE are. */
uint8_t *cq_entry(const struct completion_queue *cq, uint32_t index);
/* Writes these 64 bytes. Returns false if the memory is not there. */
bool cq_put(const struct completion_queue *cq, uint32_t index, const void *bytes);
/* The owner bit of a CQE: it changes with each lap. */
uint8_t cq_owner(const struct completion_queue *cq, uint32_t index);
/* How much data fits into a CQE. */
uint32_t cq_inline_bytes(const struct completion_queue *cq);
/* Raises the event that the program armed the CQ for. */
void cq_fire(struct nic *nic, struct completion_queue *cq);

/* ---- compress.c ---- For CQs that have `compression` only. */
void compression_destroy(struct completion_queue *cq);
/* Takes a completion for which there is room. Returns false if it is to be written as it is. */
bool compression_take(struct nic *nic, struct completion_queue *cq, struct cqe *cqe);
/* Writes what waits. After compression_end, no later completion is written as like an earlier
 * one. */
void compression_flush(struct nic *nic, struct completion_queue *cq);
void compression_end(struct nic *nic, struct completion_queue *cq);
void compression_flush_all(struct nic *nic); /* at the end of a round */

/* ---- receive.c: receive WQEs, of a receive queue or an SRQ ---- */
enum receive_result { RECEIVE_OK, RECEIVE_EMPTY, RECEIVE_WRONG };
enum receive_result receive_take(struct nic *nic, struct queue_pair *qp);
/* Writes payload at an offset of the message; returns 0 or the syndrome of the error. */
uint8_t receive_scatter(struct nic *nic, struct queue_pair *qp, uint32_t offset,
                        const uint8_t *payload, uint32_t bytes);
/* Flushes what is posted to a QP in error, now and for some time. */
void receive_flush(struct nic *nic, struct queue_pair *qp);
/* The time of the next look has come. */
void receive_flush_late(struct nic *nic, struct queue_pair *qp);

/* ---- held.c ---- */
/* Returns true if the failed QP still holds WQEs of its SRQ. Then its timer will call receive_flush_late. When it
 * gives them back, they complete. */
bool held_wait(struct nic *nic, struct queue_pair *qp);
/* They are lost. */
void held_forget(struct queue_pair *qp);

/* ---- requester.c ---- */
/* Sends what may be sent. Returns whether it did something. */
bool requester_run(struct nic *nic, struct queue_pair *qp);
/* Sends again what was not settled. */
void requester_restart(struct nic *nic, struct queue_pair *qp);
/* Completes all messages in flight as flushed. */
void requester_flush_in_flight(struct nic *nic, struct queue_pair *qp);
/* Has completer_timeout see, after a while, whether the peer that has no room for datagrams lives. */
void requester_look_at_peer(struct nic *nic, struct queue_pair *qp);
/* Starts the timer of the oldest message, unless it runs. */
void requester_start_timer(struct nic *nic, struct queue_pair *qp);

/* ---- completer.c ---- */
void completer_receive(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                       const uint8_t *payload);
/* Completes the messages that are done, oldest first. */
void completer_complete(struct nic *nic, struct queue_pair *qp);
/* Writes the completion of a message. */
void completer_write(struct nic *nic, struct queue_pair *qp, const struct in_flight *m);
void completer_timeout(struct nic *nic, struct queue_pair *qp);

/* ---- responder.c ---- */
void responder_receive(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                       const uint8_t *payload);
/* The expected packet fails, and the connection with it. `event`: EVENT_, or -1 for none. */
void responder_break(struct nic *nic, struct queue_pair *qp, uint8_t aeth, int event);

/* ---- late.c ---- */
/* Has data land in a while, whatever says that they are there. */
void late_write(struct nic *nic, uint8_t *to, const uint8_t *from, uint32_t bytes);
/* Whether there is more to writing to memory than to copy. */
static inline bool late_matters(const struct nic *nic)
{
    return unlikely(nic->late.count) ||
           unlikely(nic->fabric && (nic->fabric->fault.placement_per_million ||
                                    fabric_has_quirk(nic->fabric, QUIRK_ORDER_RELAXED) ||
                                    fabric_has_quirk(nic->fabric, QUIRK_ORDER_FLAG)));
}
/* Then writes so, some of it late. `relaxed`: the memory has relaxed ordering. Returns false if it is not there. */
bool late_write_unordered(struct nic *nic, const struct queue_pair *qp, bool of_requester,
                          bool relaxed, uint8_t *to, const uint8_t *from, uint64_t bytes);
/* What the QP's requester has asked for, or its peer has sent, lands: a completion, which is written next, tells of it. */
void late_land(struct nic *nic, const struct queue_pair *qp, bool of_requester);
void late_land_all(struct nic *nic, const struct queue_pair *qp); /* both */
/* What was to land there does, since somebody reads it. */
void late_land_range(struct nic *nic, const uint8_t *start, uint64_t bytes);
void late_forget(struct nic *nic);
void late_run(struct nic *nic);
uint64_t late_due_ns(const struct nic *nic);

/* ---- response.c: what a responder answers ---- */
/* Acknowledges what has come. `wakes`: the peer is waiting for it. */
void response_acknowledge(struct nic *nic, struct queue_pair *qp, bool wakes);
/* Refuses the expected packet. Nothing else is answered until it comes again. */
void response_refuse(struct nic *nic, struct queue_pair *qp, uint8_t aeth);
/* Takes down the response to a READ or an atomic. Returns NULL if the peer has asked for too
 * many. */
struct owed_response *response_owe(struct nic *nic, struct queue_pair *qp,
                                   const struct packet *packet);
/* Sends what is owed. Returns whether all was sent. */
bool response_run(struct nic *nic, struct queue_pair *qp);

/* ---- datagram.c, multicast.c ---- */
bool datagram_send(struct nic *nic, struct queue_pair *qp, uint8_t *syndrome);
void datagram_receive(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                      const uint8_t *payload);
/* A datagram for a multicast group: every attached QP of this process gets it. */
void multicast_receive(struct nic *nic, const struct packet *packet, const uint8_t *payload);
/* Sends a datagram, whose header and payload these are, to the processes that have members of the group. Returns false if one of them has
 * no room: the next call goes on there. */
bool multicast_send(struct nic *nic, struct queue_pair *qp, struct packet *packet,
                    const uint8_t *payload, const uint8_t group[16]);
/* The QP leaves all its groups. */
void multicast_leave(struct nic *nic, struct queue_pair *qp);

/* ---- xrc.c ---- */
/* Has an XRC target receive from an SRQ. Returns false if there is none of its domain. */
bool xrc_select(struct nic *nic, struct queue_pair *qp, uint32_t srqn);
void xrc_forget(struct nic *nic, const struct shared_receive_queue *srq);

/* ---- dc.c ---- */
/* Connects a DCI to the destination of qp->request. Returns false if it must wait for messages to
 * another destination. */
bool dc_connect(struct nic *nic, struct queue_pair *qp);
/* fabric_reserve for a request of a DCI: puts the DC header before the payload, and completes
 * *packet. Returns where the payload goes, or NULL. */
uint8_t *dc_reserve(struct nic *nic, const struct queue_pair *qp, uint32_t slot,
                    struct packet *packet);
void dc_receive(struct nic *nic, struct queue_pair *dct, const struct packet *packet,
                const uint8_t *payload);
void dc_target_destroy(struct nic *nic, struct queue_pair *dct);
/* Ends the connection of one initiator, whose QP at the target this is, or those of all. */
void dc_initiator_break(struct nic *nic, struct queue_pair *qp);
void dc_target_break(struct nic *nic, struct queue_pair *dct);

/* ---- streams.c ---- */
void streams_destroy(struct queue_pair *dci);
void streams_clear(struct queue_pair *dci); /* none has failed */
/* Whether qp->request may go now: not while another stream has messages in flight. Gives it a
 * syndrome if its stream has failed. Only for DCIs with `streams`. */
bool streams_admit(struct queue_pair *dci);
/* The stream of the messages in flight fails with a syndrome that has been told. Returns false if
 * the QP does. */
bool streams_fail(struct nic *nic, struct queue_pair *dci, uint8_t syndrome);

/* ---- qp.c ---- */
/* registers.c: what a doorbell may have been missed for. nic->searches says whether there is something. */
bool nic_search(struct nic *nic); /* if it is time; returns whether it was */
uint64_t nic_search_due_ns(const struct nic *nic);

/* A fatal error of the QP: it goes to the error state, and what was not completed is flushed. */
void qp_fail(struct nic *nic, struct queue_pair *qp);
/* An asynchronous event, EVENT_; none of a DCT. */
void qp_event(struct nic *nic, const struct queue_pair *qp, int event);
/* Has the NIC look for something to send, or to answer. */
void qp_activate(struct nic *nic, struct queue_pair *qp);
/* Likewise, though it waits for room: the message that found none is flushed, and the next may go elsewhere. */
void qp_activate_anew(struct nic *nic, struct queue_pair *qp);
void qp_owes(struct nic *nic, struct queue_pair *qp);
/* In its turn: the member waits for room in the ring to that slot, or for a port: fabric->full_slot. */
void turns_await_room(struct turns *turns, struct list *member, uint32_t slot);
/* Takes the QP off the lists of those with something to do. */
void qp_rest(struct nic *nic, struct queue_pair *qp);
/* Has the NIC look at the QP's timers then at the latest. */
void qp_wake_at(struct nic *nic, struct queue_pair *qp, uint64_t time_ns);
uint32_t qp_mtu_bytes(const struct queue_pair *qp);
uint8_t qp_transport(const struct queue_pair *qp); /* enum packet_transport */
/* The session's links. */
static inline uint32_t nic_link(const struct nic *nic)
{
    return nic->fabric ? nic->fabric->link : 0;
}
/* Whether a packet's P_Key is one that the QP may get it with. All of RoCE is one partition. */
static inline bool qp_admits(const struct nic *nic, const struct queue_pair *qp,
                             const struct packet *packet)
{
    return !(nic_link(nic) & LINK_INFINIBAND) || nic_has_quirk(nic, QUIRK_PARTITION) ||
           rail_partitions_match(packet->partition, qp->attributes.partition);
}
/* Shows the path of a QP whose request names it: qp_tell_path. */
void qp_tell_path_of_request(const struct nic *nic, struct queue_pair *qp);
/* Whether the state is one in which requests of peers are received. */
bool qp_receives(const struct queue_pair *qp);

static inline uint8_t packet_levels(const struct rail_way *way)
{
    const uint8_t mask = (1 << RAIL_LID_MASK_BITS) - 1;
    return (uint8_t)(way->service_level | (way->path_bits & mask) << 4 | (way->lid & mask) << 6);
}

/* The place of a message in flight, by its position. */
static inline struct in_flight *qp_in_flight(struct queue_pair *qp, uint32_t position)
{
    return &qp->in_flight[position % NIC_IN_FLIGHT];
}

/* Difference of two packet sequence numbers, signed (IBTA 9.7.2). */
static inline int32_t psn_difference(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << 8) >> 8;
}

/* Packets of a message. */
static inline uint32_t packets_of(uint32_t bytes, uint32_t mtu_bytes)
{
    return bytes ? (bytes + mtu_bytes - 1) / mtu_bytes : 1;
}

#endif
