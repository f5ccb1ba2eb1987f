/* fan_out.h: what fan_out_publisher.c and fan_out_subscriber.c have in common.
 *
 * A subscriber has a DCT and a *mailbox* for each of its members, and tells the publisher by a call where they
 * are. After that there is no connection between them. The publisher has one DCI, and writes each update into
 * the mailboxes of all members, by WRITE_IMMEDIATE, whose immediate is the number of the update: so the
 * subscriber's processor hears of it when it is there.
 *
 * A mailbox has room for two updates, in turn. A subscriber that is so slow that the next but one comes while it
 * reads notices that by the checksum.
 *
 * All of it is as in memory: both sides must have the same byte order.
 */
#ifndef EXAMPLES_FAN_OUT_H
#define EXAMPLES_FAN_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include <copyrpc.h>

#define FAN_OUT_MEMBERS_MAX 8000u /* of a subscriber: one SRQ has receives for all of them */
#define FAN_OUT_MEMBERS_OF_CALL 64u
#define FAN_OUT_TEXT_BYTES 236u

/* An element of a request. */
struct fan_out_member {
    crpc_queue_address address; /* of its DCT */
    uint64_t access_key;
    uint64_t mailbox;
    uint32_t remote_key;
    uint32_t zero;
};

struct fan_out_update {
    uint64_t number; /* from 1 on */
    uint32_t bytes;  /* of the text; 0: there will be no more updates */
    uint32_t checksum;
    char text[FAN_OUT_TEXT_BYTES];
    uint32_t zero;
};

struct fan_out_mailbox {
    struct fan_out_update updates[2]; /* update n is in updates[n % 2] */
};

/* FNV-1a. */
static inline uint32_t fan_out_checksum(const struct fan_out_update *update)
{
    uint32_t sum = 2166136261u ^ (uint32_t)update->number;
    for (uint32_t i = 0; i < update->bytes && i < FAN_OUT_TEXT_BYTES; i++) {
        sum = (sum ^ (uint8_t)update->text[i]) * 16777619u;
    }
    return sum;
}

#endif
