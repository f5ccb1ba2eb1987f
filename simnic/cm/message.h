/* message.h: messages between two connection managers. Both run on one machine, so fields are in
 * host order, and the layout is the compiler's. Only addresses and ports are in network order, as
 * they are in socket addresses. */
#ifndef SIMNIC_CM_MESSAGE_H
#define SIMNIC_CM_MESSAGE_H

#include <stdint.h>

#include "simnic/cm/cm.h"

#define CM_MESSAGE_MAGIC 0x73634d31u

/* How much private data a message of the InfiniBand CM carries. In a request it is what the address
 * header of the IP addressing annex leaves. The receiver is told these lengths, and not the
 * sender's: the rest is zeros. */
#define REQUEST_PRIVATE_BYTES 56
#define REPLY_PRIVATE_BYTES 196
#define REJECT_PRIVATE_BYTES 148
#define SIDR_REQUEST_PRIVATE_BYTES 180
#define SIDR_REPLY_PRIVATE_BYTES 136
#define MESSAGE_PRIVATE_BYTES 196

enum cm_message_type {
    MESSAGE_REQ = 1,  /* connect */
    MESSAGE_MRA,      /* seen, the program takes its time: stop sending again */
    MESSAGE_REP,      /* accept */
    MESSAGE_RTU,      /* ready to use */
    MESSAGE_REJ,      /* reject */
    MESSAGE_DREQ,     /* disconnect */
    MESSAGE_DREP,     /* disconnected */
    MESSAGE_SIDR_REQ, /* resolve a service to a UD QP */
    MESSAGE_SIDR_REP, /* the QP, or why not */
};

/* Why a connection was rejected (the CM's REJ reasons) and how a service lookup ended (its SIDR
 * status). */
enum cm_reject_reason {
    REJECT_TIMEOUT = 4,
    REJECT_INVALID_SERVICE_ID = 8,
    REJECT_CONSUMER_DEFINED = 28,
    REJECT_VENDOR_OPTION = 35,
};
enum sidr_status { SIDR_SUCCESS = 0, SIDR_UNSUPPORTED = 1, SIDR_REJECT = 2 };

struct cm_message {
    uint32_t magic;
    uint16_t type;
    uint16_t bytes;                  /* of the whole message, to catch a torn one */
    uint32_t source_generation;      /* of the sender's slot */
    uint32_t destination_generation; /* of the slot this is for: its next owner must not take it */
    uint32_t source_communication_id;
    uint32_t destination_communication_id; /* 0 where the sender does not know it */

    uint32_t status; /* reason of REJ, status of SIDR_REP, what MRA is about (a cm_message_type) */
    uint32_t queue_pair_number;
    uint32_t queue_key;
    uint32_t packet_sequence_number;
    uint32_t ece_vendor_id, ece_attributes;
    uint16_t port_space;
    uint8_t queue_pair_type;
    uint8_t ip_version; /* 4 or 6 */
    uint8_t source_address[16], destination_address[16];
    uint16_t source_port, destination_port;
    uint8_t responder_resources, initiator_depth; /* as the sender sees them */
    uint8_t flow_control, retry_count, rnr_retry_count, shared_receive_queue;
    uint8_t traffic_class, private_length;
    uint8_t private_data[MESSAGE_PRIVATE_BYTES];
};

_Static_assert(sizeof(struct cm_message) <= CM_MESSAGE_MAX_BYTES, "a message fits the ring");

#endif
