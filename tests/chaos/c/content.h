/* content.h: the bytes of requests, replies and messages, which follow from their id.
 *
 * A message of at least HEADER_BYTES begins with its id and its length. What follows is a part of a
 * table of random bytes, from a place that the id chooses, so bytes of another message, or at
 * another place, are noticed. */
#ifndef CHAOS_CONTENT_H
#define CHAOS_CONTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "journal.h"

#define HEADER_BYTES 16u
#define MESSAGE_BYTES_MAX (256u * 1024u)
#define TABLE_BYTES (65536u + MESSAGE_BYTES_MAX)
/* The id of a reply is that of its call with this bit. */
#define REPLY_BIT (1ull << 63)

/* Maps the table. Returns whether it could. */
bool content_open(const char *path);

void content_fill(void *buffer, uint32_t bytes, uint64_t id);

/* Checks all but the id, which it gives if there is one, else 0. */
enum verdict content_check(const void *buffer, uint32_t bytes, uint64_t *id);

/* The status that a reply to this call has. */
int32_t content_status(uint64_t id);

#endif
