/* process.h: what the shim keeps for a process: its NIC, its connection manager, the pages of its
 * NIC, and the lock that guards them. */
#ifndef SIMNIC_SHIM_PROCESS_PROCESS_H
#define SIMNIC_SHIM_PROCESS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "simnic/cm/cm.h"
#include "simnic/fabric/fabric.h"
#include "simnic/nic/nic.h"

/* The name of the memfd that has the pages: /proc/self/maps shows it. */
#define PAGE_FILE_NAME "simnic-doorbells"

/* All zero in a forked child: the parent's threads, and what they were in the middle of, are not
 * there. */
struct process {
    bool attached; /* to the session: the rest is there */
    uint32_t pid;  /* whose NIC this is: a forked child has none until it opens a device */
    struct fabric fabric;
    struct nic nic;
    struct cm *cm;
    _Atomic bool kicked; /* the service thread has something to look at */
    _Atomic uint64_t cm_due_ns;
    _Atomic bool cm_runs; /* in some thread */
    struct list cm_notes; /* messages for the cm that came in */
    uint32_t
        cm_unplugged; /* rails of which the cm has still to be told that they are gone, a bit for each */
    int page_file; /* a memfd: the pages that programs map, page n at n * 4096 */
    uint64_t page_file_inode;
    bool page_file_lost;  /* and replaced: page_memory is not of this file */
    uint8_t *page_memory; /* our own mapping of it */
    bool page_used[NIC_MAX_PAGES];
};

extern struct process process;

/* Everything in `process` is used with this lock held, as is everything that names it in a
 * comment. */
void process_lock(void);
void process_unlock(void);
void process_service_lock(
    void); /* the same, for the service thread: the program's threads go first */

/* Has the service thread look at what was changed. With or without the lock. */
void process_kick(void);

/* In a forked child, whose parent held the lock: it has nothing any more. */
void process_forget(void);

/* One line on stderr, if SIMNIC_TRACE asks for it. */
void process_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
