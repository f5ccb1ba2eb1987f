/* cm.h: the connection manager behind /dev/infiniband/rdma_cm: what the kernel's rdma_ucm, rdma_cm
 * and ib_cm do, in user space, for the addresses of the two rails. It knows nothing of file
 * descriptors being virtual, of system calls being interposed, or of how a message reaches another
 * process.
 *
 * Threads: a cm is used by any thread; it has a lock of its own, never held while it calls the
 * host's `send`, or while it waits for an event. cm_receive and cm_run are called by the device
 * thread only. */
#ifndef SIMNIC_CM_H
#define SIMNIC_CM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cm;      /* one a process */
struct cm_file; /* one an open of /dev/infiniband/rdma_cm */

#define CM_MESSAGE_MAX_BYTES 1024

/* Shared by all processes of a session, zero at first: who is bound to which port. Reserve this
 * much in shared memory. */
#define CM_SHARED_BYTES (256 * 1024)

/* What the cm needs of its surroundings. */
struct cm_host {
    void *context;
    uint32_t slot; /* of this process; slots name processes, 0 to 127 */
    void *shared;  /* CM_SHARED_BYTES, shared by all processes of the session */
    /* Sends a message to the process in a slot (or to this one): in order, once, unless that
     * process dies. Returns 0, -EAGAIN (its ring is full: try again from cm_run) or -EHOSTUNREACH
     * (nobody has that slot, or the rail is broken). */
    int (*send)(void *context, uint32_t slot, int rail, const void *message, size_t bytes);
    /* Returns whether the process that has this slot is the one that had it with this
     * generation. */
    bool (*alive)(void *context, uint32_t slot, uint32_t generation);
    uint32_t (*generation)(void *context,
                           uint32_t slot); /* current generation of a slot; 0: nobody */
    void (*wake)(void *context);           /* ask for cm_run to be called soon */
    uint64_t (*now_ns)(void *context);
    void (*log)(void *context,
                const char *text); /* one line for `simnic ctl trace`, as of an unknown command */
    /* The QP that a program named by its QPN in connect or accept: whether it is there, to
     * disconnect when it dies. May be NULL. */
    bool (*queue_pair_exists)(void *context, uint32_t qpn);
};

/* Returns a cm, or NULL without memory. The host structure is copied. */
struct cm *cm_create(const struct cm_host *host);
void cm_destroy(struct cm *cm);

/* Opens a file. event_fd is an eventfd (EFD_NONBLOCK not needed) that the caller owns and keeps
 * open as long as the file: cm keeps its counter above zero exactly while events wait to be read.
 * Returns NULL without memory. */
struct cm_file *cm_file_open(struct cm *cm, int event_fd);

/* The eventfd is not there any more: nothing is to be done with its number. */
void cm_file_lose_descriptor(struct cm_file *file, int event_fd);

/* The write() system call on the file: one command (struct rdma_ucm_cmd_hdr and what follows),
 * whose response is written to the address that the command names. GET_EVENT waits unless
 * nonblocking. Returns `bytes`, or -errno. */
ssize_t cm_file_write(struct cm_file *file, const void *command, size_t bytes, bool nonblocking);

/* Closes: destroys all of its ids, disconnecting or rejecting their peers. Wakes waiters in
 * GET_EVENT with -EBADF. */
void cm_file_close(struct cm_file *file);

/* A message from another process's cm (or this one's), called by the device thread. */
void cm_receive(struct cm *cm, uint32_t source_slot, const void *message, size_t bytes);

/* Does what is due: timeouts, messages that could not be sent. Returns when it wants to be called
 * next, in the clock of now_ns, or UINT64_MAX. Called by the device thread after cm_receive, after
 * `wake`, and when that time has come. */
uint64_t cm_run(struct cm *cm);

#endif
