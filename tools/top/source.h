/* source.h: the contexts of this host, and what they tell (core/base/snapshot.h). */
#ifndef TOOLS_TOP_SOURCE_H
#define TOOLS_TOP_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../core/base/snapshot.h"

struct source {
    char socket[64]; /* its name */
    pid_t pid;       /* as seen from here; 0 = not known */
    char process[32];
    const char *
        answer; /* "polling", or why there is none: "not polling", "stopped", "refused", "version" */
    struct snapshot_context context;
    struct snapshot_endpoint *endpoints; /* context.records of them */
};

struct sources {
    struct source *all;
    uint32_t count;
};

/* Asks all contexts at once, for timeout_ms at most; of one process, unless pid is 0. Returns false, and says why on stderr, if
 * /proc/net/unix cannot be read. */
bool sources_ask(struct sources *sources, pid_t pid, int timeout_ms);
void sources_free(struct sources *sources);

#endif
