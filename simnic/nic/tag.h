/* tag.h: tag matching: its list (tag.c) and the transfers that the NIC makes itself
 * (rendezvous.c). */
#ifndef SIMNIC_NIC_TAG_H
#define SIMNIC_NIC_TAG_H

#include "simnic/nic/nic.h"

struct cqe;

#define TAG_APPLICATION 1u        /* cqe->app */
#define TAG_FLAG_COUNT 0x40u      /* of a tag segment: it tells software's count */
#define TAG_FLAG_COMPLETION 0x80u /* a completion is asked for */
#define TAG_HEADERS_BYTES ((uint32_t)(sizeof(struct ibv_tmh) + sizeof(struct ibv_rvh)))

/* What happens to a message that begins at a tag-matching SRQ. */
enum tag_kind {
    TAG_NONE,       /* it is not at such an SRQ */
    TAG_WITHOUT,    /* it has no tag */
    TAG_UNEXPECTED, /* nothing matches */
    TAG_MATCHED,    /* what follows its header goes into a tagged buffer */
    TAG_SOFTWARE,   /* all of it goes there: a rendezvous that software has to make */
    TAG_RENDEZVOUS, /* a rendezvous that the NIC makes: nothing is left to do with the message */
    TAG_NOT_READY   /* it must come again */
};

/* What a CQE tells: its app_op (libmlx5 cq.c). */
enum tag_cqe {
    TAG_CQE_CONSUMED = 1,
    TAG_CQE_EXPECTED = 2,
    TAG_CQE_UNEXPECTED = 3,
    TAG_CQE_WITHOUT = 4,
    TAG_CQE_APPENDED = 5,
    TAG_CQE_REMOVED = 6,
    TAG_CQE_SYNCHRONIZED = 7,
    TAG_CQE_CONSUMED_WHOLE = 10,
    TAG_CQE_SOFTWARE = 11,
    TAG_CQE_CANCELED = 12
};

/* ---- tag.c ---- */
/* Executes a WQE that changes the list. Returns 0 or a syndrome. */
uint8_t tag_execute(struct nic *nic, struct queue_pair *qp, const struct send_request *request);

/* Looks at the first packet of a message. `whole`: it is the last one, too. Then, for TAG_MATCHED
 * and TAG_SOFTWARE, qp->receive is the tagged buffer. */
enum tag_kind tag_begin(struct nic *nic, struct queue_pair *qp, bool whole, const uint8_t *payload,
                        uint32_t bytes);
/* An ordinary receive has been taken for the message. */
void tag_count_unexpected(struct queue_pair *qp);
/* Completes the CQE of a message that came in, if it concerns tags. */
void tag_complete(struct queue_pair *qp, bool whole, struct cqe *cqe);
/* The message that is coming in will not be completed. Returns whether it was matched: then its
 * tag's completion tells of it, and no other. */
bool tag_abandon(struct nic *nic, struct queue_pair *qp);
/* Tells that a rendezvous has brought all its data, or will not. */
void tag_transferred(struct nic *nic, struct queue_pair *qp, uint16_t index, uint32_t bytes);
void tag_cancel(struct nic *nic, struct queue_pair *qp, uint16_t index);

/* ---- rendezvous.c ---- */
bool rendezvous_has_room(const struct queue_pair *qp);
/* Starts the READ into a tag's buffer that a request, TMH and RVH, asks for. Returns false if
 * software must do it. */
bool rendezvous_start(struct nic *nic, struct queue_pair *qp, uint16_t tag,
                      const struct segment *buffer, const uint8_t *request);
/* A WQE of the NIC's own completed, or failed. */
void rendezvous_complete(struct nic *nic, struct queue_pair *qp, const struct in_flight *m);
void rendezvous_fail(struct nic *nic, struct queue_pair *qp, uint8_t syndrome, uint16_t index);
/* Gives the send queue back to the program. */
void rendezvous_end(struct nic *nic, struct queue_pair *qp);

#endif
