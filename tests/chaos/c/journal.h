/* journal.h: what a worker tells the oracle. tests/chaos/README.md says what each record means.
 *
 * The journal is a ring in a file that both sides map. What a worker has written survives its kill,
 * since the pages belong to the file. If the ring is full, the worker waits for the oracle. */
#ifndef CHAOS_JOURNAL_H
#define CHAOS_JOURNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define JOURNAL_MAGIC 0x736f6163u /* "caos" */

enum record_kind {
    RECORD_READY =
        1, /* a server listens: a is its port for calls; b those for channels | for queues
                          * << 32 */
    RECORD_BEGIN = 2,    /* an op is about to be submitted; status is its enum op_type */
    RECORD_REFUSED = 3,  /* it was not accepted: it will not end */
    RECORD_ENDED = 4,    /* an op has completed: status is the completion's */
    RECORD_EXECUTED = 5, /* a request has come: id is that of the call; status is a verdict */
    RECORD_STATE = 6,    /* what a worker holds, in answer to SIGUSR1 */
    RECORD_DONE = 7,     /* the worker has closed everything, and ends */
    RECORD_TROUBLE = 8,  /* something that must not happen: a is a line of the program */
    RECORD_MISTAKE = 9,  /* it does wrong now, as it was told to */
    /* What the peer of a queue has left in this side's memory, when it can reach it no more: id is that of
     * the connection, status a slot, a the id of the WRITE in it, b a verdict. The last one has status -1,
     * and a is the counter. */
    RECORD_FOUND = 10,
};

enum op_type {
    OP_CALL = 1,    /* a: connection. Its end's a is a verdict; b: TOO_EARLY by how many ns */
    OP_REPLY = 2,   /* a: connection, b: the call's id. Also a DROP */
    OP_CANCEL = 3,  /* a: connection, b: the call's id */
    OP_SEND = 4,    /* a: connection, b: tag. Its end's a is number << 8 | 1, or 0: not known */
    OP_RECEIVE = 5, /* a: connection, b: tag | place << 8 | count << 16: of a group, whose ids are
                     * in a row. Its end's a is number << 8 | verdict; b is the send's id */
    OP_CONNECT = 6, /* ends with CONNECTED */
    OP_CONNECTION = 7, /* from CONNECTED to DISCONNECTED, or to its close (CRPC_E_CLOSED). b of the
                        * accepting side's: the id of the other side's connect, where that is known */
    /* Of queues, all with a: connection. */
    OP_QUEUE_SEND = 8,
    /* Of an SRQ: a is 0. Its end's a is a verdict, and the connection << 8 if it is of an SRQ, 0 if that is
     * closed; b is the send's id. */
    OP_QUEUE_RECEIVE = 9,
    OP_WRITE = 10, /* b: slot of the peer's memory */
    OP_READ = 11,  /* likewise; its end's a is a verdict */
    OP_ADD = 12,   /* of 1 to the peer's counter; its end's a is a verdict */
};

enum verdict {
    RIGHT = 0,
    WRONG_LENGTH = 1,
    WRONG_ID = 2,
    WRONG_BYTES = 3,
    WRONG_STATUS = 4,
    TOO_EARLY = 5, /* a deadline that had not passed */
};

struct record {
    uint32_t kind; /* enum record_kind */
    int32_t status;
    uint64_t id; /* of the op: the worker's life << 32 | number */
    uint64_t a, b;
};

struct journal {
    uint32_t magic;
    uint32_t room; /* records */
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(4096) struct record records[];
};

/* Maps the journal that the orchestrator has made. Returns NULL, with errno, if that fails. */
struct journal *journal_open(const char *path);

/* Appends a record. Waits while there is no room. */
void journal_put(struct journal *journal, uint32_t kind, int32_t status, uint64_t id, uint64_t a,
                 uint64_t b);

#endif
