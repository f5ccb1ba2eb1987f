/* format.c: makes fabric files and writes faults into them. */
#include "simnic/fabric/format.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simnic/fabric/layout.h"
#include "simnic/fabric/quirk.h"

int fabric_format(const char *path, uint32_t link)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    const size_t head_bytes = offsetof(struct fabric_file, statistics);
    const uint32_t start[3] = {FABRIC_MAGIC, FABRIC_VERSION, link};
    /* Every process needs the head. It gets its memory now: if tmpfs were full later, writing to
     * the mapping would raise SIGBUS. */
    int result = ftruncate(fd, sizeof(struct fabric_file)) != 0 ? -errno : 0;
    if (!result) {
        result = -posix_fallocate(fd, 0, (off_t)head_bytes);
    }
    if (!result && pwrite(fd, start, sizeof(start), 0) < 0) {
        result = -errno;
    }
    close(fd);
    if (result) {
        unlink(path);
    }
    return result;
}

int fabric_read_link(const char *path, uint32_t *link)
{
    uint32_t start[3] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    ssize_t bytes = pread(fd, start, sizeof(start), 0);
    int result = bytes < 0 ? -errno : 0;
    close(fd);
    if (!result && (start[0] != FABRIC_MAGIC || start[1] != FABRIC_VERSION)) {
        result = -EPROTO;
    }
    *link = start[2];
    return result;
}

static void wake_all(struct fabric_file *file)
{
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        _Atomic uint32_t *asleep = &file->slots[slot].asleep;
        if (atomic_exchange(asleep, 0)) {
            syscall(SYS_futex, asleep, FUTEX_WAKE, 1, NULL, NULL, 0);
        }
    }
}

int fabric_set_fault(const char *path, const char *spec, char *error, size_t error_bytes)
{
    struct fabric_fault fault;
    if (!fault_parse(spec, &fault, error, error_bytes)) {
        return -EINVAL;
    }
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        int result = -errno;
        snprintf(error, error_bytes, "cannot open %s", path);
        return result;
    }
    const size_t head_bytes = offsetof(struct fabric_file, cm);
    struct fabric_file *file = mmap(NULL, head_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (file == MAP_FAILED) {
        return -errno;
    }
    /* A sequence lock: a reader's copy is good if the number is even, and the same before and after
     * it. */
    atomic_fetch_add_explicit(&file->fault_generation, 1, memory_order_acq_rel);
    fault.serial = file->fault.serial + 1;
    if (!fault.lasting_said) {
        fault.quirks |= file->fault.quirks & QUIRKS_LASTING;
    }
    if (!fault.placement_said) {
        fault.placement_per_million = file->fault.placement_per_million;
        fault.placement_us = file->fault.placement_us;
    }
    for (uint32_t rail = 0; rail < FABRIC_RAILS; rail++) {
        if (!(fault.rails_ece_said >> rail & 1)) {
            fault.rails_ece_said |= file->fault.rails_ece_said & 1u << rail;
            fault.rail_ece[rail] = file->fault.rail_ece[rail];
        }
    }
    file->fault = fault;
    atomic_fetch_add_explicit(&file->fault_generation, 1, memory_order_acq_rel);
    wake_all(file); /* else a NIC that sleeps would not notice before something else comes */
    munmap(file, head_bytes);
    return 0;
}
