/* hint_write.h: writing a hint for channels of other programs: docs/wire.md, "Hint".
 *
 * A writer belongs to the caller. One thread at a time uses it.
 */
#ifndef CORE_CHANNEL_HINT_WRITE_H
#define CORE_CHANNEL_HINT_WRITE_H

#include <stdint.h>

#include "base/abi.h"

struct hint_writer;

/* Opens the shared memory of this name, "/name", or makes it, and withdraws what a writer before has left. Returns
 * CRPC_OK; CRPC_E_BUSY (somebody else writes it), CRPC_E_SYSTEM, CRPC_E_NO_MEMORY. */
int32_t hint_writer_open(const char *name, struct hint_writer **writer, crpc_error *error);
/* Tells the share of rail 0, at most SPLIT_WHOLE, or CHANNEL_HINT_NONE; good before that time of CLOCK_MONOTONIC. Makes no
 * system call. */
void hint_writer_publish(struct hint_writer *writer, uint32_t rail0_share, uint64_t until_ns);
/* Withdraws the hint, and lets others write. The shared memory stays: channels have it open. */
void hint_writer_close(struct hint_writer *writer);

#endif
