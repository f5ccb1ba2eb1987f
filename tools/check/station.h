/* station.h: two nics, a connected queue pair of each, and memory between them: what most checks stand on. The near
 * side sends, and the far side receives. Both are on one device, or on one each if two were given.
 *
 * Every wait ends: with what was waited for, with an error of the device, or when the subject's patience does. */
#ifndef TOOLS_CHECK_STATION_H
#define TOOLS_CHECK_STATION_H

#include "check.h"

#define STATION_BYTES (1u << 20) /* of each side's memory */
#define STATION_ARRIVALS 4096u   /* completions of receives that are kept: a power of two */

struct station {
    const struct subject *subject;
    struct nic *near, *far;
    struct nic_queue_pair *sender, *receiver;
    struct nic_transport transport;
    uint8_t *source, *sink; /* memory of near and far: peers of either may do anything with it */
    struct nic_keys source_keys, sink_keys;
    uint8_t mtu_code; /* of the path, if it is less than the port's; 0 = the port's */
    bool memory_borrowed;
    bool keep_receives_used;                          /* the far side posts none again */
    uint32_t arrived;                                 /* receives that completed */
    struct nic_completion arrivals[STATION_ARRIVALS]; /* the last of them */
    uint32_t sent_errors, received_errors;
    struct nic_completion sent_error, received_error; /* the first of each */
    uint64_t random;
};

/* What most checks open a nic with; they may change it first. */
struct nic_options station_options(void);

struct station_setup {
    struct nic_options options;
    uint32_t driver; /* 0 = the best that the device has */
    const struct station
        *memory_of; /* has the same memory as this one, which is closed later; NULL = its own */
};

/* Opens both nics, and connects a queue pair of each. NULL: as station_options say, with the best driver. The caller closes
 * it even after a failure. */
bool station_open(struct station *station, const struct subject *subject,
                  const struct station_setup *setup, struct outcome *outcome);
void station_close(struct station *station);
/* devx.c: opens one whose completions of sends, and perhaps those of receives, are compressed in the enhanced layout. Not here if the
 * device has no such. */
bool station_open_enhanced(struct station *station, const struct subject *subject, bool receives,
                           struct outcome *outcome);

/* Makes both queue pairs anew, for instance after they have failed. */
bool station_reconnect(struct station *station, struct outcome *outcome);

/* Connects a queue pair of the near side with one of the far side, as the station's transport says. */
bool station_connect(const struct station *station, struct nic_queue_pair *one,
                     struct nic_queue_pair *other, struct outcome *outcome);

/* Connects another queue pair of the near side to a new one of the far side, which the caller destroys. */
bool station_make_peer(struct station *station, struct nic_queue_pair *other,
                       struct nic_queue_pair **peer, struct outcome *outcome);

/* A transfer between offsets in the two memories. */
struct nic_transfer station_transfer(const struct station *station, uint32_t from, uint32_t to,
                                     uint32_t bytes, uint32_t immediate);
/* The same with plain random numbers, of which the seed is fixed. */
uint32_t station_pick(struct station *station, uint32_t below);
void station_fill(struct station *station, uint8_t *memory, uint32_t bytes);

/* Polls both sides once, and posts the receives that were used again. */
void station_poll(struct station *station);
/* Polls until the sender's WQEs have all completed, or until so many receives have since the station was opened.
 * Each returns false, with an outcome that says why, if an error comes instead, or nothing in time. */
bool station_wait_sent(struct station *station, struct outcome *outcome);
bool station_wait_arrived(struct station *station, uint32_t count, struct outcome *outcome);
/* Likewise, until the sender or the receiver has an error: any other end is the failure. */
bool station_wait_sent_error(struct station *station, struct outcome *outcome);
/* Polls for so long. */
void station_pass(struct station *station, uint32_t milliseconds);

const struct nic_completion *station_arrival(const struct station *station, uint32_t which);

/* What an error means, in words. */
const char *station_error_name(uint8_t status);

/* Fails unless the far memory has, from `to` on, what the near one has from `from` on. Of a READ it is the other way round, and
 * what is said of bytes, too. */
bool station_same(const struct station *station, uint32_t from, uint32_t to, uint32_t bytes,
                  const char *what, struct outcome *outcome);

/* ---- The checks that have a station ---------------------------------------------------------- */

/* doorbells.c */
void check_doorbell(struct station *station, struct outcome *outcome);
void check_doorbell_several(struct station *station, struct outcome *outcome);
void check_doorbell_shared(struct station *station, struct outcome *outcome);
void check_blueflame(struct station *station, struct outcome *outcome);
void check_blueflame_several(struct station *station, struct outcome *outcome);

/* rings.c */
void check_send_ring(struct station *station, struct outcome *outcome);
void check_completion_counter(struct station *station, struct outcome *outcome);
void check_receive_ring(struct station *station, struct outcome *outcome);

/* completions.c */
void check_send_order(struct station *station, struct outcome *outcome);
void check_error_completion(struct station *station, struct outcome *outcome);
void check_flush(struct station *station, struct outcome *outcome);
void check_arm(struct station *station, struct outcome *outcome);
void check_arm_late(struct station *station, struct outcome *outcome);

/* ordering.c */
void check_order_own(struct station *station, struct outcome *outcome);
void check_order_earlier(struct station *station, struct outcome *outcome);
void check_order_relaxed(struct station *station, struct outcome *outcome);
void check_order_flag(struct station *station, struct outcome *outcome);
void check_order_line(struct station *station, struct outcome *outcome);
void check_fence(struct station *station, struct outcome *outcome);

/* ece.c */
void check_ece(struct station *station, struct outcome *outcome);

/* fabric.c */
void check_mtu(struct station *station, struct outcome *outcome);
void check_retry(struct station *station, struct outcome *outcome);
void check_retry_early(struct station *station, struct outcome *outcome);
void check_keys(struct station *station, struct outcome *outcome);
void check_domains(struct station *station, struct outcome *outcome);
void check_closed(struct station *station, struct outcome *outcome);

/* memory.c */
void check_dma_buf(struct station *station, struct outcome *outcome);

#endif
