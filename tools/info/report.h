/* report.h: all that copyrpc-info tells, gathered before any of it is written. */
#ifndef TOOLS_INFO_REPORT_H
#define TOOLS_INFO_REPORT_H

#include <copyrpc.h>

#include "card.h"
#include "choice.h"
#include "left_out.h"
#include "machine.h"
#include "port.h"
#include "rails.h"

#define REPORT_PORTS_MAX                                                                           \
    256 /* a kernel names no more devices than a node can have functions of cards */

struct report_port {
    crpc_device_info info;
    struct port port;
    struct card card;
    struct left_out left_out;
    struct choice choice;
};

struct report {
    struct machine machine;
    uint32_t port_count;
    struct report_port ports[REPORT_PORTS_MAX];
    struct rails rails;
    bool whole; /* false: there is no port, or one could not be read; `error` says why */
    crpc_error error;
};

static inline const char *report_link_name(const crpc_device_info *info)
{
    return info->link == CRPC_LINK_ETHERNET ? "RoCE" : "InfiniBand";
}

static inline const char *report_state_name(const crpc_device_info *info)
{
    return info->port_state == CRPC_PORT_ACTIVE ? "active" : "down";
}

#endif
