/* address.h: converts "host:port" to socket addresses, and socket addresses to text. */
#ifndef CORE_CM_ADDRESS_H
#define CORE_CM_ADDRESS_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/abi.h"

#define ADDRESS_HOST_BYTES 256 /* a DNS name has at most 253 characters */
#define ADDRESS_TEXT_BYTES 64

enum address_use {
    ADDRESS_TO_CONNECT, /* a host and a port other than 0 */
    ADDRESS_TO_LISTEN,  /* "*" means every address, port 0 any free port */
};

struct address_name {
    char host[ADDRESS_HOST_BYTES]; /* without brackets */
    uint16_t port;
    bool any;       /* "*" */
    bool bracketed; /* "[...]": an IPv6 address and nothing else */
};

/* Splits and checks an address. Looks nothing up. Returns CRPC_OK, or fills *error. */
int32_t address_parse(const char *text, enum address_use use, struct address_name *name,
                      crpc_error *error);

/* Converts a numeric address to socket addresses, without blocking. Returns 0 or EAI_*; EAI_NONAME
 * means that the host is a name. The caller frees the result with freeaddrinfo. */
int address_numeric(const struct address_name *name, struct addrinfo **result);

/* Does the same for names. Blocks until the resolver has finished. */
int address_look_up(const struct address_name *name, struct addrinfo **result);

/* Writes an address, e.g. "192.0.2.1:7471", "[2001:db8::1]:7471" or "[fe80::1%eth0]:7471". Writes
 * "" for other address families. */
void address_format(const struct sockaddr *address, char *text, size_t bytes);

#endif
