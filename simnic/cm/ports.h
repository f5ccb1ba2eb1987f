/* ports.h: who is bound to which port of a port space, in memory that all processes of the session
 * share. */
#ifndef SIMNIC_CM_PORTS_H
#define SIMNIC_CM_PORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "simnic/cm/cm.h"

#define PORT_NONE (-1) /* not an entry */

struct port_key {
    uint16_t port_space;
    uint16_t port;    /* host order; 0 asks for an ephemeral one */
    uint8_t family;   /* AF_INET, AF_INET6 or AF_IB */
    bool any_address; /* the wildcard */
    bool family_only; /* an IPv6 wildcard that does not take IPv4 */
    bool reuse_address;
    uint8_t address[16]; /* network order, an IPv4 one in its first four bytes */
};

struct port_owner {
    uint32_t slot, generation;
};

/* Binds. Returns the entry, with key->port filled in, or -EADDRINUSE, -EADDRNOTAVAIL (also: no port
 * is free). */
int ports_bind(const struct cm_host *host, struct port_key *key);
void ports_release(const struct cm_host *host, int entry);

/* Makes an entry one that ports_find finds; of the key, only the flags may have changed since the
 * bind. Returns 0 or, if another shares its port by reuse, -EADDRINUSE or -EADDRNOTAVAIL. */
int ports_listen(const struct cm_host *host, int entry, const struct port_key *key);

/* Finds the live process that listens at an address; one bound to the very address comes before a
 * wildcard. */
bool ports_find(const struct cm_host *host, const struct port_key *to, struct port_owner *owner);

/* Whether a live process listens at this port, at whatever address. */
bool ports_listened(const struct cm_host *host, const struct port_key *to);

/* Whether a listener bound to `bound` takes requests to `to`: 0 no, 1 as a wildcard, 2 by
 * address. */
int ports_match(const struct port_key *bound, const struct port_key *to);

#endif
