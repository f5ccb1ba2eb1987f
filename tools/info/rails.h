/* rails.h: finds the rails that a context opens by default, and why it opens no others. */
#ifndef TOOLS_INFO_RAILS_H
#define TOOLS_INFO_RAILS_H

#include <copyrpc.h>

#define LEFT_OUT_MAX 64

struct port_left_out {
    char device[64];
    uint32_t port;
    const char *why;
};

struct rails {
    uint32_t count;
    crpc_rail_info rails[CRPC_RAILS_MAX];
    crpc_error error; /* why there is no rail at all */
    uint32_t left_out_count;
    struct port_left_out left_out[LEFT_OUT_MAX]; /* the other ports */
};

/* Opens a context for a moment, with CRPC_CONTEXT_RAILS and no other options. */
void rails_find(struct rails *rails);

#endif
