/* arenas.h: memory that the server lends its clients, with --arena. */
#ifndef TOOLS_PERF_ARENAS_H
#define TOOLS_PERF_ARENAS_H

#include <copyrpc.h>
#include <stdint.h>

struct arena;

struct arenas {
    crpc_context *context;
    uint32_t place_bytes; /* 0: nothing is lent */
    struct arena *first;
};

/* Lends a client that is connected an arena of its own. If there is no memory for it, says so, and the client has none. */
void arenas_lend(struct arenas *arenas, crpc_endpoint client);
/* The client has gone: its arena may be lent to another one. */
void arenas_end(struct arenas *arenas, crpc_endpoint client);
/* The context is closed. */
void arenas_free(struct arenas *arenas);

#endif
