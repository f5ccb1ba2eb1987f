/* desk.h: two queues with user data (nic/queue.h) on the nics of a station, by one driver: messages or datagrams go from the near
 * one to the far one. */
#ifndef TOOLS_CHECK_DESK_H
#define TOOLS_CHECK_DESK_H

#include "nic/queue.h"
#include "station.h"

#define DESK_SLOT_BYTES 8192u /* of a message, at the beginning of both memories */
#define DESK_INLINE_BYTES 100u
#define DESK_DEPTH 16u
#define DESK_RECEIVE 2u /* user data of its receives */

struct desk {
    struct station station;
    struct nic_queue *sender, *receiver;
    struct nic_queue *
        shared; /* the SRQ of a receiver that is a DCT or has tags; NULL = the receiver has receives of its own */
    struct nic_target *target; /* where what is sent goes; NULL = to the peer of the queue pair */
};

struct desk_setup {
    struct station_setup station;
    uint32_t
        kind; /* of both: NIC_QUEUE_RC, NIC_QUEUE_UD, or NIC_QUEUE_DCI, whose receiver is a DCT */
    uint32_t streams; /* of a DCI; 0 = it has none */
    uint32_t tags;    /* RC: the receiver has a TM-SRQ for so many; 0 = it has none */
    bool alone;       /* RC: there is no receiver, and the sender is not connected */
};

/* What a message has to have brought. */
struct message {
    uint8_t opcode;
    uint8_t flags;
    uint16_t stream; /* of a DCI with streams */
    uint32_t bytes;
    uint32_t immediate;
};

/* The caller closes it even after a failure. */
bool desk_open(struct desk *desk, const struct subject *subject, const struct desk_setup *setup,
               struct outcome *outcome);
void desk_close(struct desk *desk);

/* Datagrams go on to the receiver of another desk, or of the same; grh: with a GRH even where none is needed. */
bool desk_aim(struct desk *desk, const struct desk *to, bool grh, uint8_t service_level,
              struct outcome *outcome);

/* What precedes a message in its receive. */
uint32_t desk_header_bytes(const struct desk *desk);

/* Posts a receive; and an op. Each fails if there is no room, though nothing is open. */
bool desk_receive(struct desk *desk, struct outcome *outcome);
bool desk_send(struct desk *desk, const struct nic_work *work, struct outcome *outcome);
/* Polls a side until an op has completed, well or not. */
bool desk_next(struct desk *desk, struct nic *nic, crpc_completion *done, struct outcome *outcome);
/* The same; fails if it did not complete well. */
bool desk_await(struct desk *desk, struct nic *nic, crpc_completion *done, struct outcome *outcome);

/* A message from memory to memory, which has to arrive whole and unchanged. */
bool desk_exchange(struct desk *desk, const struct message *message, struct outcome *outcome);

#endif
