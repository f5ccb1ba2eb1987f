/* address.h: "host:port" as people write it, to and from socket addresses. */
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
    ADDRESS_TO_LISTEN,  /* "*" is every address, port 0 any free port */
};

struct address_name {
    char host[ADDRESS_HOST_BYTES]; /* without brackets */
    uint16_t port;
    bool any;       /* "*" */
    bool bracketed; /* "[...]": an IPv6 address and nothing else */
};

/* Splits and checks; looks nothing up. */
int32_t address_parse(const char *text, enum address_use use, struct address_name *name,
                      crpc_error *error);

/* Turns an address written in digits into socket addresses, at once. EAI_NONAME: it is a name.
 * The result is freed with freeaddrinfo. */
int address_numeric(const struct address_name *name, struct addrinfo **result);

/* The same for names; blocks for as long as the resolver takes. */
int address_look_up(const struct address_name *name, struct addrinfo **result);

/* "192.0.2.1:7471", "[2001:db8::1]:7471", "[fe80::1%eth0]:7471"; "" for any other family. */
void address_format(const struct sockaddr *address, char *text, size_t bytes);

#endif
