/* mode.h: what belongs to calls, to channels and to queues, on the command line. */
#ifndef TOOLS_PERF_MODE_H
#define TOOLS_PERF_MODE_H

#include "copyrpc_perf_help.h"
#include "perf.h"

#define MODE_CALLS 0x1u
#define MODE_CHANNELS 0x2u
#define MODE_QUEUES 0x4u

/* Notes that an option was given. */
void mode_note(uint64_t *given, int key);
bool mode_given(uint64_t given, int key);
/* Returns MODE_* of what was asked for. */
uint32_t mode_of(const struct perf_options *options);
/* Returns NULL, or why the options that were given do not belong to this mode, in a static buffer. */
const char *mode_check(uint64_t given, uint32_t mode);
/* Sets what was left open for calls. Returns NULL, or what does not go together. */
const char *mode_finish_calls(struct perf_options *options, uint64_t given);
/* Sets what was left open for queues. Returns NULL, or what does not go together. */
const char *mode_finish_queues(struct perf_options *options, uint64_t given, bool server);

#endif
