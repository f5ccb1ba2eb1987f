/* log.h: the log of a context. A ring keeps entries until the caller reads them; COPYRPC_LOG can
 * also send them to stderr. Only cold paths log: the data path counts instead. */
#ifndef CORE_BASE_LOG_H
#define CORE_BASE_LOG_H

#include "base/abi.h"

#define LOG_ENTRIES 256

struct log {
    uint32_t ring_level;   /* CRPC_LOG_*: the ring keeps entries up to this level */
    uint32_t stderr_level; /* entries up to this level go to stderr */
    uint64_t written;
    uint64_t read;
    uint32_t lost; /* overwritten since the last read */
    crpc_log_entry entries[LOG_ENTRIES];
};

/* Takes stderr_level from the environment variable COPYRPC_LOG. */
void log_init(struct log *log, uint32_t ring_level);

void log_write(struct log *log, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Takes out the oldest entries. Returns how many it wrote to `entries`. */
uint32_t log_read(struct log *log, crpc_log_entry *entries, uint32_t capacity);

#endif
