/* packet.h: what travels between two NICs: the headers of InfiniBand Architecture Specification
 * volume 1, chapter 9 (BTH, RETH, AtomicETH, AETH, DETH, ImmDt, IETH), unpacked and in host order,
 * and a payload of at most one MTU. Only the addressing differs from that on a wire. Packets can be
 * lost, late or doubled as there. */
#ifndef SIMNIC_FABRIC_PACKET_H
#define SIMNIC_FABRIC_PACKET_H

#include <stdint.h>

/* A QPN names the process it is in: the slot is in its high bits. */
#define QPN_SLOT_SHIFT 18
#define QPN_INDEX_MASK ((1u << QPN_SLOT_SHIFT) - 1)
#define PSN_MASK 0xffffffu
#define PACKET_NO_RAIL 15 /* destination rail of a GID that no rail has */

/* BTH operation codes (IBTA table 35), without the transport in their high bits. */
enum packet_operation {
    PACKET_SEND_FIRST = 0,
    PACKET_SEND_MIDDLE = 1,
    PACKET_SEND_LAST = 2,
    PACKET_SEND_LAST_IMMEDIATE = 3,
    PACKET_SEND_ONLY = 4,
    PACKET_SEND_ONLY_IMMEDIATE = 5,
    PACKET_WRITE_FIRST = 6,
    PACKET_WRITE_MIDDLE = 7,
    PACKET_WRITE_LAST = 8,
    PACKET_WRITE_LAST_IMMEDIATE = 9,
    PACKET_WRITE_ONLY = 10,
    PACKET_WRITE_ONLY_IMMEDIATE = 11,
    PACKET_READ_REQUEST = 12,
    PACKET_READ_RESPONSE_FIRST = 13,
    PACKET_READ_RESPONSE_MIDDLE = 14,
    PACKET_READ_RESPONSE_LAST = 15,
    PACKET_READ_RESPONSE_ONLY = 16,
    PACKET_ACKNOWLEDGE = 17,
    PACKET_ATOMIC_ACKNOWLEDGE = 18,
    PACKET_COMPARE_SWAP = 19,
    PACKET_FETCH_ADD = 20,
    PACKET_SEND_LAST_INVALIDATE = 22,
    PACKET_SEND_ONLY_INVALIDATE = 23,
    PACKET_OPERATION_COUNT = 24,
    /* Not in the specification: a message of the connection manager, for a process. */
    PACKET_CM = 0xff,
};

enum packet_transport {
    TRANSPORT_RC = 0,
    TRANSPORT_UC = 1,
    TRANSPORT_UD = 3,
    TRANSPORT_XRC = 5,
    TRANSPORT_DC = 6
};

enum packet_flag {
    PACKET_SOLICITED = 1,
    PACKET_ACK_REQUEST = 2,
    PACKET_WAKE = 4,      /* wakes the receiver: somebody may be waiting for what it brings */
    PACKET_MULTICAST = 8, /* for the QPs attached to the group in swap_or_add and compare */
    PACKET_GRH = 16,      /* UD: the payload begins with 40 bytes of GRH */
};

struct packet {
    uint8_t operation; /* enum packet_operation */
    uint8_t transport; /* enum packet_transport */
    uint8_t flags;     /* enum packet_flag */
    uint8_t rail;      /* source rail in bits 0-3, destination rail in bits 4-7 */
    uint32_t payload_bytes;
    uint32_t destination_qpn;
    uint32_t source_qpn;
    uint32_t psn;
    uint32_t immediate;   /* ImmDt as it is on the wire, or IETH's key in host order */
    uint64_t address;     /* RETH, AtomicETH */
    uint32_t key;         /* RETH, AtomicETH: the R_Key; DETH: the Q_Key */
    uint32_t length;      /* RETH */
    uint8_t syndrome;     /* AETH */
    uint8_t levels;       /* service level in bits 0-3; low bits of the LIDs: PACKET_ below */
    uint16_t partition;   /* the P_Key */
    uint32_t msn;         /* AETH */
    uint64_t swap_or_add; /* AtomicETH; AtomicAckETH: the original value */
    uint64_t compare;     /* AtomicETH */
};

#define PACKET_LEVEL(levels) ((levels)&15)
#define PACKET_SOURCE_BITS(levels) ((levels) >> 4 & 3)
#define PACKET_DESTINATION_BITS(levels) ((levels) >> 6 & 3)
#define PACKET_HEADER_BYTES 64u /* on a wire, about: Ethernet, IP, UDP, BTH, ICRC */

/* DC: what comes before the payload of every request. See nic/dc.c. */
struct dc_header {
    uint64_t access_key;
    uint64_t connection;
    uint32_t first_psn; /* of the connection */
    uint8_t path_mtu;   /* enum ibv_mtu */
    uint8_t reserved[3];
};

/* AETH syndromes (IBTA table 46): kind in bits 5-6, value in bits 0-4. */
enum {
    AETH_ACK = 0x00,
    AETH_RNR_NAK = 0x20,
    AETH_NAK_SEQUENCE = 0x60,
    AETH_NAK_INVALID_REQUEST = 0x61,
    AETH_NAK_REMOTE_ACCESS = 0x62,
    AETH_NAK_REMOTE_OPERATION = 0x63,
    AETH_KIND_MASK = 0x60,
};

static inline uint32_t qpn_slot(uint32_t qpn)
{
    return qpn >> QPN_SLOT_SHIFT;
}

#endif
