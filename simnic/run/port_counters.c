/* port_counters.c: sums what the NICs of all processes have sent and received over a port, and writes it to sysfs. Others
 * of the same session may do so at the same time: each writes again as long as there is more than it has written. */
#include "simnic/run/port_counters.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simnic/session/rails.h"

#define HEAD_BYTES offsetof(struct fabric_file, cm)
#define DATA_UNIT_BYTES 4 /* of port_xmit_data and port_rcv_data */

void port_counters_open(struct port_counters *counters, const char *session_directory)
{
    char path[SESSION_PATH_BYTES];
    *counters = (struct port_counters){0};
    session_file(session_directory, SESSION_SYSFS, counters->sysfs);
    session_file(session_directory, SESSION_FABRIC, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    void *file = mmap(NULL, HEAD_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    counters->file = file == MAP_FAILED ? NULL : file;
}

void port_counters_close(struct port_counters *counters)
{
    if (counters->file) {
        munmap((void *)(uintptr_t)counters->file, HEAD_BYTES);
    }
    counters->file = NULL;
}

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void put(const struct port_counters *counters, uint32_t rail, const char *name,
                uint64_t value)
{
    char path[2 * SESSION_PATH_BYTES], fresh[2 * SESSION_PATH_BYTES], text[32];
    snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports/%d/counters/%s", counters->sysfs,
             rails[rail].device, RAIL_PORT, name);
    snprintf(fresh, sizeof(fresh), "%s/.counter.%d", counters->sysfs, (int)getpid());
    int length = snprintf(text, sizeof(text), "%" PRIu64 "\n", value);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
    if (fd < 0) {
        return;
    }
    bool good = write(fd, text, (size_t)length) == length;
    close(fd);
    if (!good || rename(fresh, path) != 0) {
        unlink(fresh);
    }
}

static void refresh(struct port_counters *counters, uint32_t rail)
{
    uint64_t sent_bytes = 0, sent = 0, received_bytes = 0, received = 0;
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        const struct fabric_traffic *traffic = &counters->file->traffic[slot][rail];
        sent_bytes += load(&traffic->sent_bytes);
        sent += load(&traffic->sent_packets);
        received_bytes += load(&traffic->received_bytes);
        received += load(&traffic->received_packets);
    }
    if (sent + received == counters->written[rail]) {
        return;
    }
    counters->written[rail] = sent + received;
    put(counters, rail, "port_xmit_data", sent_bytes / DATA_UNIT_BYTES);
    put(counters, rail, "port_xmit_packets", sent);
    put(counters, rail, "port_rcv_data", received_bytes / DATA_UNIT_BYTES);
    put(counters, rail, "port_rcv_packets", received);
}

void port_counters_refresh(struct port_counters *counters)
{
    for (uint32_t rail = 0; rail < FABRIC_RAILS && counters->file; rail++) {
        refresh(counters, rail);
    }
}
