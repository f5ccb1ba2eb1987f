/* process.h: what the shim keeps for a process: its device, the lock that guards it, and the
 * threads that run it. */
#ifndef SIMNIC_PROCESS_H
#define SIMNIC_PROCESS_H

#include "cm.h"
#include "device.h"
#include "fabric.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define PAGE_FILE_NAME "simnic-doorbells"

/* All zero in a forked child: the parent's threads, and what they were in the middle of, are not there. */
struct process {
    bool attached;
    uint32_t pid; /* whose device this is: a forked child has none until it opens one */
    struct fabric fabric;
    struct device device;
    struct cm *cm;
    _Atomic bool kicked;
    _Atomic uint64_t cm_due_ns;
    _Atomic bool cm_runs; /* in some thread */
    struct list cm_notes; /* messages for the cm that came in */
    int page_file;        /* memfd: the doorbell pages, page n at n * 4096 */
    uint64_t page_file_inode;
    bool page_file_lost;  /* and replaced: page_memory is not of this file */
    uint8_t *page_memory; /* our own mapping of it */
    bool page_used[DEVICE_MAX_PAGES];
};

extern struct process process;

/* Attaches this process to its session, once: slot, device, threads. Returns 0 or an errno. Any
 * thread. */
int process_attach(void);

/* Returns whether the descriptor of the doorbell pages is what it was. Programs may close descriptors
 * past the C library. */
bool process_has_page_file(void);

/* Everything in `process` and below is used with this lock held. */
void process_lock(void);
void process_unlock(void);
void process_device_lock(void); /* the same, for the device's threads: the program's go first */

/* Gives the cm its messages and its time. Without the lock; device threads. */
void process_run_cm(void);

/* Has the device thread look at what was changed. With or without the lock. */
void process_kick(void);

uint64_t process_now_ns(void);

/* One line on stderr, if SIMNIC_TRACE asks for it, and in the trace. */
void process_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- segv.c ---- */
void segv_install(void);
bool segv_is_installed(void);
struct sigaction;
/* What the program says its handler is, once ours is installed. Returns false if the signal is not
 * one of ours. Both are in our own memory. */
bool segv_swap_program_action(int signal_number, const struct sigaction *action,
                              struct sigaction *old);

#endif
