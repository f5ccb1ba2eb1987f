#include "base/log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static const char *const level_names[] = {"off", "error", "warning", "info", "debug"};

#define LEVEL_COUNT (sizeof(level_names) / sizeof(level_names[0]))

static uint32_t level_from_environment(void)
{
    const char *value = getenv("COPYRPC_LOG");
    for (uint32_t level = 0; value && level < LEVEL_COUNT; level++) {
        if (strcmp(value, level_names[level]) == 0) {
            return level;
        }
    }
    return value && *value ? CRPC_LOG_WARNING : CRPC_LOG_OFF;
}

void log_init(struct log *log, uint32_t ring_level)
{
    memset(log, 0, sizeof(*log));
    log->ring_level = ring_level;
    log->stderr_level = level_from_environment();
}

void log_write(struct log *log, uint32_t level, const char *format, ...)
{
    assert(level >= CRPC_LOG_ERROR && level <= CRPC_LOG_DEBUG);
    if (level > log->ring_level && level > log->stderr_level) {
        return;
    }
    crpc_log_entry entry = {.time_ns = clock_now_ns(), .level = level};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(entry.message, sizeof(entry.message), format, arguments);
    va_end(arguments);

    if (level <= log->stderr_level) {
        fprintf(stderr, "copyrpc %s: %s\n", level_names[level], entry.message);
    }
    if (level > log->ring_level) {
        return;
    }
    if (log->written - log->read == LOG_ENTRIES) {
        log->read++;
        log->lost++;
    }
    log->entries[log->written++ % LOG_ENTRIES] = entry;
}

uint32_t log_read(struct log *log, crpc_log_entry *entries, uint32_t capacity)
{
    uint32_t count = 0;
    while (count < capacity && log->read != log->written) {
        entries[count] = log->entries[log->read++ % LOG_ENTRIES];
        entries[count].lost = log->lost;
        log->lost = 0;
        count++;
    }
    return count;
}
