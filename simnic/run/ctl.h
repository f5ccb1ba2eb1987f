/* ctl.h: what the words of `simnic ctl` share: the options, and a session as it is seen from
 * outside.
 *
 * Other processes write to a session's memory. They may be changing it, may have been killed in the
 * middle, or may have overwritten it by mistake. So everything is copied first, and the copy is
 * checked. */
#ifndef SIMNIC_RUN_CTL_H
#define SIMNIC_RUN_CTL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "simnic/fabric/fabric.h"
#include "simnic/session/session.h"

struct ctl_options {
    const char *session; /* NULL: as session_choose says */
    const char *specification;
    bool json, all, raw, help;
    bool one_queue_pair; /* only this one is wanted: */
    uint32_t qpn;
    double seconds; /* 0: until Ctrl-C */
};

struct ctl_session {
    char directory[SESSION_PATH_BYTES];
    int fd;               /* the fabric file */
    struct fabric fabric; /* a mapping only: no slot is taken */
};

enum ctl_state {
    CTL_FREE,  /* nobody ever had the slot */
    CTL_ALIVE, /* its process lives */
    CTL_DEAD,  /* its process was killed, or crashed */
    CTL_ENDED  /* its process has left it */
};

/* A slot, copied. */
struct ctl_process {
    enum ctl_state state;
    uint32_t slot, pid, generation;
    char name[17]; /* printable ASCII */
};

/* Opens the session that the options mean. Returns 0, or complains and returns the exit status. */
int ctl_open(struct ctl_session *session, const struct ctl_options *options);
void ctl_close(struct ctl_session *session);

void ctl_look(struct ctl_session *session, uint32_t slot, struct ctl_process *process);

/* Copies a slot's statistics. Returns false if they cannot be read. */
bool ctl_statistics(const struct ctl_session *session, uint32_t slot,
                    struct fabric_process_statistics *statistics);

/* Flushes stdout. Returns the exit status. */
int ctl_flush(void);

/* Each does its word and returns the exit status. */
int ctl_stats(const struct ctl_options *options);
int ctl_trace(const struct ctl_options *options);
int ctl_fault(const struct ctl_options *options);
int ctl_sessions(const struct ctl_options *options);

#endif
