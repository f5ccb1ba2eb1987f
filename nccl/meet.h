/* meet.h: two comms exchange the blobs of their channels over TCP. One listens, and gives NCCL a handle with its
 * address and a token; the other connects, and shows the token. Nothing here blocks, and nothing that a stranger
 * sends or leaves out costs more than a place among GUESTS_MAX for a while.
 *
 * The bytes on the wire. Each side sends a greeting, the side that connects first:
 *
 *   0    4    MEET_MAGIC
 *   4    4    MEET_VERSION
 *   8    16   the token of the handle
 *   24   4    length of the blob
 *   28   1    traffic class that the side sends with, as a wish: the other one's own settings go before it
 *   29   1    service level, likewise
 *   30   2    0
 *   32   256  the blob, and zeros
 *
 * and then bytes, each a word of its own: MEET_JOINED, MEET_CONNECTED. Numbers are little-endian.
 *
 * By the greater blob is joined first, because the side with the lesser one sends as soon as it has joined
 * (docs/wire.md, "Blob"). If that is the side that listens, it joins when it has heard MEET_JOINED. A side whose
 * channel is connected says so, and closes: without that word, the end of the stream is the end of the peer.
 */
#ifndef NCCL_MEET_H
#define NCCL_MEET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "copyrpc.h"

#define MEET_MAGIC 0x4d525043u /* "CPRM" */
#define MEET_VERSION 1u
#define MEET_TOKEN_BYTES 16
#define MEET_JOINED 'J'
#define MEET_CONNECTED 'C'

#define GUESTS_MAX 32

struct meet_greeting {
    uint32_t magic;
    uint32_t version;
    uint8_t token[MEET_TOKEN_BYTES];
    uint32_t blob_bytes;
    uint8_t traffic_class;
    uint8_t service_level;
    uint16_t zero;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
};
_Static_assert(sizeof(struct meet_greeting) == 288, "a greeting has no holes");

enum meet_result {
    MEET_WAITS, /* for the network, or the peer */
    MEET_HEARD, /* the greeting is there; or a word */
    MEET_OVER,  /* the peer has closed, or cannot be reached: os_error, 0 = it has closed */
};

struct meeting {
    int fd;
    int os_error;
    bool connecting;
    bool said_all;        /* the peer: MEET_CONNECTED */
    uint64_t deadline_ns; /* until the greeting of the peer has come, and for what follows */
    uint32_t out_bytes;
    uint32_t out_sent;
    uint32_t in_bytes;
    uint8_t out[sizeof(struct meet_greeting) + 8];
    struct meet_greeting in;
};

/* A socket that listens, at any free port of the address, which it fills in. -1 and errno if it fails. */
int meet_listen(struct sockaddr_storage *address);
/* Starts to connect. NULL and errno if it fails at once, or there is no memory. */
struct meeting *meet_connect(const struct sockaddr_storage *address, uint64_t deadline_ns);
/* Takes who has connected; NULL and errno if nobody has. */
struct meeting *meet_accept(int listener, uint64_t deadline_ns);
void meet_end(struct meeting *meeting);

/* What is said is sent by the next steps. */
void meet_greet(struct meeting *meeting, const uint8_t token[MEET_TOKEN_BYTES], const void *blob,
                uint32_t blob_bytes, uint32_t traffic_class, uint32_t service_level);
void meet_say(struct meeting *meeting, char word);
/* Sends and receives what is possible now, up to the peer's whole greeting: MEET_HEARD, then and ever after. */
enum meet_result meet_step(struct meeting *meeting);
/* True if the greeting is one, of this version and with this token. */
bool meet_knows(const struct meeting *meeting, const uint8_t token[MEET_TOKEN_BYTES]);
/* After the greeting: the peer's next word. Sends, too. */
enum meet_result meet_hear(struct meeting *meeting, char *word);

#endif
