/* device_trace.c: see device_trace.h. */
#include "device_trace.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simnic/fabric/layout.h"

static struct fabric_file *file;
static struct fabric_trace *trace;

static bool find_file(void)
{
    char path[256];
    const char *session = getenv("SIMNIC_SESSION");
    if (!session) {
        return false;
    }
    snprintf(path, sizeof(path), "%s/fabric", session);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    void *map = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) {
        return false;
    }
    file = map;
    atomic_store(&file->tracing, 1);
    return file->magic == FABRIC_MAGIC && file->version == FABRIC_VERSION;
}

bool device_trace_begin(void)
{
    bool found = find_file();
    if (!found) {
        printf("1..0 # SKIP not on simnic\n");
    }
    return found;
}

static void copy(uint64_t at, void *to, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        ((uint8_t *)to)[i] = trace->bytes[(at + i) % FABRIC_TRACE_BYTES];
    }
}

static bool find_own(void)
{
    for (uint32_t slot = 0; slot < FABRIC_SLOTS && !trace; slot++) {
        if ((uint32_t)atomic_load(&file->slots[slot].owner) == (uint32_t)getpid()) {
            trace = &file->trace[slot];
        }
    }
    return trace != NULL;
}

bool device_trace_next(struct device_trace_wqe *wqe)
{
    if (!trace && !find_own()) {
        return false;
    }
    uint64_t tail = atomic_load(&trace->tail);
    while (tail != atomic_load(&trace->head)) {
        struct fabric_trace_record record;
        copy(tail, &record, sizeof(record));
        bool is_wqe = record.kind == FABRIC_TRACE_WQE && record.count <= sizeof(wqe->data);
        if (is_wqe) {
            wqe->number = record.number;
            wqe->bytes = record.count;
            copy(tail + sizeof(record), wqe->data, record.count);
        }
        tail += sizeof(record) + ((record.count + 7) & ~7u);
        atomic_store(&trace->tail, tail);
        if (is_wqe) {
            return true;
        }
    }
    return false;
}

int device_trace_end(int status)
{
    if (file) {
        atomic_store(&file->tracing, 0);
        munmap(file, sizeof(*file));
        file = NULL;
        trace = NULL;
    }
    return status;
}
