/* tag_messages.h: messages between processes as MPI has them: a receive names a tag and a mask, and gets the oldest
 * message that matches. If a process goes, the others end.
 *
 * The device matches. What is left to software is what has come before its receive: such a message lies in a list
 * here, and a later receive looks there first. In between is a race: the message may have come, and nobody has
 * looked, when its receive is given to the device. The device then holds this receive back until it is told
 * that everything was looked at (TAG_SYNC). Before that, we take the receive back (TAG_REMOVE) and give it the
 * message. */
#ifndef TAG_MESSAGES_H
#define TAG_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#define MESSAGE_BYTES_MAX 256u
#define RECEIVES_MAX 32u /* that may be open at once */

struct messages;

/* A receive. The caller fills the first four members. */
struct receive {
    uint64_t tag; /* what a message has where the mask has ones */
    uint64_t mask;
    void *buffer;
    uint32_t bytes;
    bool done;       /* tag is that of the message now, and bytes is its length */
    uint64_t number; /* in which order they were given */
};

/* Counts of what happened. */
struct messages_counts {
    uint64_t matched; /* by the device */
    uint64_t stored;  /* came before their receive */
    uint64_t taken_back;
};

/* Connects with all others: addresses[i] is where process i listens. Ends the program if that fails, as all functions
 * do. */
struct messages *messages_open(uint32_t rank, char *const *addresses, uint32_t count);
/* The receive belongs to this until it is done. */
void messages_receive(struct messages *messages, struct receive *receive);
void messages_wait(struct messages *messages, const struct receive *receive);
/* The data is copied. A tag of 64 bits is the caller's, whatever it means. */
void messages_send(struct messages *messages, uint32_t to, uint64_t tag, const void *data,
                   uint32_t bytes);
/* From now on only this process has to stay. */
void messages_need(struct messages *messages, uint32_t rank);
struct messages_counts messages_counts(const struct messages *messages);
/* All that was sent has arrived when this returns. */
void messages_close(struct messages *messages);

#endif
