/* cm.h: the connection manager behind /dev/infiniband/rdma_cm: what the kernel's rdma_ucm, rdma_cm
 * and ib_cm do, in user space, for the addresses of the two rails. It does not know that
 * descriptors are virtual and system calls interposed, nor how a message reaches another process.
 *
 * Threads: any thread may use a cm. It has a lock of its own, which it never holds while it calls
 * the host's `send`, or while it waits for an event. cm_receive and cm_run are called by one thread
 * at a time. */
#ifndef SIMNIC_CM_CM_H
#define SIMNIC_CM_CM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cm;      /* one for a process */
struct cm_file; /* one for each open of /dev/infiniband/rdma_cm */

#define CM_MESSAGE_MAX_BYTES 1024

/* Shared by all processes of a session, zero at first: who is bound to which port. Reserve this
 * much in shared memory. */
#define CM_SHARED_BYTES (1024 * 1024)

/* What the cm needs of its surroundings. */
struct cm_host {
    void *context;
    uint32_t slot; /* of this process; slots name processes, 0 to 127 */
    uint32_t link; /* of the session's ports: session/link.h */
    void *shared;  /* CM_SHARED_BYTES, shared by all processes of the session */
    /* Sends a message to the process in a slot (or to this one): in order, once, unless that
     * process dies. Returns 0, -EAGAIN (its ring is full: try again from cm_run) or -EHOSTUNREACH
     * (nobody has that slot, or the rail is broken). */
    int (*send)(void *context, uint32_t slot, int rail, const void *message, size_t bytes);
    /* Returns whether the process that has this slot is the one that had it with this
     * generation. */
    bool (*alive)(void *context, uint32_t slot, uint32_t generation);
    /* Returns whether that process has ended, and all that it sent to this one has been given to
     * cm_receive. */
    bool (*gone)(void *context, uint32_t slot, uint32_t generation);
    /* Returns the current generation of a slot; 0: nobody ever had it. */
    uint32_t (*generation)(void *context, uint32_t slot);
    /* Returns whether the rail's device is not there. May be NULL. */
    bool (*unplugged)(void *context, int rail);
    void (*wake)(void *context); /* cm_run must be called soon */
    uint64_t (*now_ns)(void *context);
    void (*log)(void *context, const char *text); /* one line, as of an unknown command */
    /* The QP that a program named by its QPN in connect or accept: whether it is there, to
     * disconnect when it dies. May be NULL. */
    bool (*queue_pair_exists)(void *context, uint32_t qpn);
};

/* Returns a cm, or NULL if there is no memory. The host structure is copied. */
struct cm *cm_create(const struct cm_host *host);
void cm_destroy(struct cm *cm);

/* Opens a file. event_fd is an eventfd that the caller owns, and keeps open as long as the file.
 * Its counter is above zero exactly while events wait to be read. Returns NULL if there is no
 * memory. */
struct cm_file *cm_file_open(struct cm *cm, int event_fd);

/* The eventfd is not there any more. Its number may be another file's, and must not be used. */
void cm_file_lose_descriptor(struct cm_file *file, int event_fd);

/* The write() system call on the file: one command (struct rdma_ucm_cmd_hdr and what follows),
 * whose response is written to the address that the command names. GET_EVENT waits unless
 * nonblocking. Returns `bytes`, or -errno. */
ssize_t cm_file_write(struct cm_file *file, const void *command, size_t bytes, bool nonblocking);

/* Closes: destroys all of its ids, disconnecting or rejecting their peers. Wakes waiters in
 * GET_EVENT with -EBADF. */
void cm_file_close(struct cm_file *file);

/* The rail's device was unplugged. What is bound to it can only be destroyed now, and each program is told with DEVICE_REMOVAL. */
void cm_unplug(struct cm *cm, int rail);

/* A message from another process's cm, or this one's, has come in. */
void cm_receive(struct cm *cm, uint32_t source_slot, const void *message, size_t bytes);

/* Does what is due: timeouts, and messages that could not be sent. Returns when it must be called
 * next, by the clock of now_ns, or UINT64_MAX. Call it after cm_receive, after `wake`, and when
 * that time has come. */
uint64_t cm_run(struct cm *cm);

#endif
