/* tags.h: the list of tags of a TM-SRQ, as its device has it (nic/tags.h). Its commands are WQEs of a queue
 * pair that is connected to itself. */
#ifndef CORE_NIC_MEMORY_TAGS_H
#define CORE_NIC_MEMORY_TAGS_H

#include "nic/memory/internal.h"
#include "nic/tags.h"

/* What a message is, and so what it has taken. */
enum memory_tagged {
    MEMORY_UNTAGGED,       /* an ordinary receive, uncounted */
    MEMORY_TAG_UNEXPECTED, /* an ordinary receive */
    MEMORY_TAG_MATCHED,    /* a buffer, for what follows the header */
    MEMORY_TAG_RENDEZVOUS, /* a buffer, for all of it */
};

static inline bool memory_tags_is_match(uint8_t tagged)
{
    return tagged >= MEMORY_TAG_MATCHED;
}

/* Bytes of the message that is coming in which do not land. */
static inline uint32_t memory_tags_skipped(const struct memory_queue_pair *target)
{
    return target->tagged == MEMORY_TAG_MATCHED ? NIC_TAG_HEADER_BYTES : 0;
}

int32_t memory_tags_make(struct memory_queue *queue, struct nic_domain *domain, uint32_t tags,
                         crpc_error *error);
/* Takes down what the device has, as far as there is any of it; and then the rest. */
void memory_tags_unmake(struct memory_queue *queue);
void memory_tags_free(struct memory_queue *queue);

bool memory_queue_tag(struct nic_queue *base, const struct nic_work *work,
                      const struct nic_piece *piece);
void memory_tags_ring(struct memory_queue *queue);
/* Executes the next WQE of the queue pair for commands. */
void memory_tags_execute(struct memory_queue_pair *queue_pair);

/* A message begins. Returns true if a buffer matches, and whether the message may land there. */
bool memory_tags_match(struct memory_queue_pair *target, const uint8_t *payload, uint32_t bytes,
                       enum memory_taking *taking);
/* It has taken an ordinary receive. */
void memory_tags_count(struct memory_queue_pair *target, const uint8_t *payload, uint32_t bytes);
void memory_tags_land(const struct memory_queue_pair *target, const uint8_t *data, uint32_t low,
                      uint32_t high);
/* The message that is coming in will come no further: nobody is told that it was unexpected. */
void memory_tags_abandon(struct memory_queue_pair *target);

/* As the polls in queue_completion.c. There is room for one completion at least; false: there was none for
 * the rest. */
bool memory_tags_done(const struct memory_queue_completion *entry, crpc_completion *completions,
                      uint32_t capacity, uint32_t *count, uint32_t *errors);
void memory_tags_message(const struct memory_queue_completion *entry, crpc_completion *completions,
                         uint32_t capacity, uint32_t *count, uint32_t *errors);
/* A message came over a queue that was stopped before anybody polled. */
void memory_tags_forget(struct nic_queue *receiver, uint8_t tagged, uint32_t place);

#endif
