/* tags.h: buffers with tags, of a TM-SRQ: the part that has to do with no device.
 *
 * A TM-SRQ has ordinary receives, and a list of buffers with a tag and a mask. A message that begins with a
 * header (NIC_TAG_HEADER_BYTES) whose tag matches goes into the oldest such buffer, without its header. Each
 * other message goes whole to an ordinary receive. The device names a buffer by its place in the list.
 *
 * Commands change the list: they are what `sends` of the queue tracks, complete in order, and each has a
 * completion of the device. That of a TAG_ADD is not shown: the op completes when its message has come, or
 * when it was taken back. So a place is used again when the device has nothing more to say of it: not of its
 * addition, not of a message, and not of a removal. All devices demand that the addition before names the
 * place of the next one. Hence there is a place more than tags.
 *
 * Order. A message may have come, and not been looked at, when the program adds a buffer that it matches. Then
 * a later message must not get the buffer. So the device counts tagged messages that nothing has matched. What
 * is added while its count is not the one that it was told last matches nothing, until the counts are equal
 * again. Each command tells the count up to which the program has said, by TAG_SYNC, that it has looked at
 * them. The counts have 16 bits (rdma-core, Documentation/tag_matching.md). */
#ifndef CORE_NIC_TAGS_H
#define CORE_NIC_TAGS_H

#include "nic/queue.h"

#define NIC_TAG_HEADER_BYTES 16u
#define NIC_TAGS_MAX                                                                               \
    8191u /* of a TM-SRQ, whatever the device has: there are commands for twice as many */
#define NIC_TAG_NO_PLACE UINT32_MAX

struct nic_tag {
    uint64_t user_data;
    uint64_t tag;     /* of its message */
    uint32_t context; /* likewise */
    uint32_t from;    /* number of the queue pair over which its message comes in; 0 = none does */
    uint32_t next;    /* of the free places, or of those that end without the device */
    uint32_t added;   /* position of its TAG_ADD */
    uint32_t handle;  /* the driver's own */
    bool open;        /* its TAG_ADD has not completed */
    bool ended;       /* likewise, and it does so without the device */
    bool adding;      /* the device has not told of its addition yet */
    bool removing;    /* likewise of a removal */
    bool rendezvous;  /* what comes in is a rendezvous request */
};

struct nic_tags {
    struct nic_tag *places;
    uint32_t *commands; /* by position: the place that a command concerns, or NIC_TAG_NO_PLACE */
    uint32_t count;     /* of places: one more than there can be tags */
    uint32_t open;      /* TAG_ADDs that have not completed */
    uint32_t free_first;
    uint32_t free_last;
    uint32_t seen; /* tagged messages without a match that polls have given */
    uint32_t told; /* of those, how many the program has looked at */
};

/* Returns how many commands a queue with so many tags has room for: a power of two. */
static inline uint32_t nic_tags_commands(uint32_t tags)
{
    uint32_t commands = 16;
    while (commands < 2 * tags + 2) {
        commands *= 2;
    }
    return commands;
}

/* And how many completions a device has for them at once: of each command one, of each tag two, since a long
 * message has one when it begins. */
static inline uint32_t nic_tags_completions(uint32_t tags, uint32_t commands)
{
    return commands + 2 * (tags + 1);
}

/* For create, behind nic_queue_make_tables with a table of sends for the commands. Returns false if there is no
 * memory. nic_queue_release frees it. */
bool nic_tags_make(struct nic_queue *queue, uint32_t tags);
void nic_tags_release(struct nic_queue *queue);

/* ---- Commands -------------------------------------------------------------------------------- */

/* What a driver gives the device. */
struct nic_tag_command {
    uint8_t opcode; /* of a TAG_REMOVE that finds nothing NIC_TAG_SYNC */
    uint16_t count; /* that the device is told, with each command */
    uint32_t position;
    uint32_t place;
    uint32_t next; /* TAG_ADD: the place of the next one */
};

/* Takes a place for the op, and a position in `sends`. Returns false, and changes nothing, if there is no
 * room. A TAG_REMOVE looks through all places. */
bool nic_tags_post(struct nic_queue *queue, const struct nic_work *work,
                   struct nic_tag_command *command);
/* Takes back what was posted last: the device had no room. */
void nic_tags_unpost(struct nic_queue *queue, const struct nic_tag_command *command);
/* Returns true if an op with this opcode would find room. */
bool nic_tags_room(const struct nic_queue *queue, uint8_t opcode);

/* ---- Completions ----------------------------------------------------------------------------- */

/* The caller's array. */
struct nic_tag_output {
    crpc_completion *completions;
    uint32_t capacity;
    uint32_t count;
    uint32_t errors;
};

enum nic_tag_result {
    NIC_TAG_DONE,
    NIC_TAG_MISSED, /* a removal: what it names was not in the list any more */
    NIC_TAG_FAILED, /* the device has done nothing */
};

/* The oldest command has completed, with this opcode as the device tells. Returns false if there was no room
 * for all that it completes: then call it again with the next poll. */
bool nic_tags_done(struct nic_queue *queue, uint8_t opcode, enum nic_tag_result result,
                   uint32_t syndrome, struct nic_tag_output *output);

/* A message has matched the buffer at a place, and begins to come in over queue `from`. */
void nic_tags_begin(struct nic_queue *queue, const struct nic_queue *from, uint32_t place,
                    uint64_t tag, uint32_t context, bool rendezvous);
/* All of it is there. Completes the TAG_ADD of the place; there is room for that. Returns NULL if the device names a
 * place where no message can have come in. The caller adds what the message has besides. */
crpc_completion *nic_tags_message(struct nic_queue *queue, const struct nic_queue *from,
                                  uint32_t place, uint32_t bytes, struct nic_tag_output *output);
/* It will never be: it was too long, or its queue has failed. There is room for a completion. */
void nic_tags_cancel(struct nic_queue *queue, const struct nic_queue *from, uint32_t place,
                     struct nic_tag_output *output);

/* A tagged message that nothing has matched, and the completion of its receive. */
static inline void nic_tags_unexpected(struct nic_queue *queue, crpc_completion *completion)
{
    queue->tags->seen++;
    completion->flags |= NIC_DONE_SYNC;
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* The TAG_ADD of a place completes without the device. */
void nic_tags_end(struct nic_queue *queue, uint32_t place);
/* A tagged message that nothing has matched came over a queue which was stopped: nobody can look at it. */
static inline void nic_tags_lost(struct nic_queue *queue)
{
    queue->tags->seen++;
    queue->tags->told++;
}
/* The queue pair with this number is gone: what came in over it comes no further. */
void nic_tags_leave(struct nic_queue *queue, uint32_t number);
/* For nic_queue_take_ended. */
void nic_tags_end_all(struct nic_queue *queue);
void nic_tags_take_ended(struct nic_queue *queue, uint32_t place, crpc_completion *completion);

#endif
