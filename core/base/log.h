/* log.h: the log of a context: a ring that the caller drains, and stderr if COPYRPC_LOG says so.
 * Cold path only: the data path counts and does not log. */
#ifndef CORE_BASE_LOG_H
#define CORE_BASE_LOG_H

#include "base/abi.h"

#define LOG_ENTRIES 256

struct log {
    uint32_t ring_level;   /* CRPC_LOG_*: what the ring keeps */
    uint32_t stderr_level; /* what goes to stderr */
    uint64_t written;
    uint64_t read;
    uint32_t lost; /* overwritten since the last read */
    crpc_log_entry entries[LOG_ENTRIES];
};

/* stderr_level comes from the environment variable COPYRPC_LOG. */
void log_init(struct log *log, uint32_t ring_level);

void log_write(struct log *log, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Takes the oldest entries; returns how many. */
uint32_t log_read(struct log *log, crpc_log_entry *entries, uint32_t capacity);

#endif
