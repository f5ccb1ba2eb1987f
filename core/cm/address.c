/* address.c: "host:port" as people write it, to and from socket addresses. Needs no RDMA. */
#include "cm/address.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define SHAPES "write host:port, 192.0.2.1:port or [2001:db8::1]:port"

static int32_t parse_port(const char *digits, enum address_use use, const char *text,
                          uint16_t *port, crpc_error *error)
{
    uint32_t value = 0;
    size_t count = strspn(digits, "0123456789");
    if (count == 0 || digits[count] != '\0') {
        return error_set(error, CRPC_E_INVALID, 0, "\"%.100s\" does not end in a port number: %s",
                         text, SHAPES);
    }
    for (size_t i = 0; i < count && value <= 65535; i++) {
        value = value * 10 + (uint32_t)(digits[i] - '0');
    }
    if (value > 65535) {
        return error_set(error, CRPC_E_INVALID, 0, "\"%.100s\": ports go from 1 to 65535", text);
    }
    if (value == 0 && use == ADDRESS_TO_CONNECT) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "\"%.100s\": port 0 is only for listening; which port does the peer "
                         "listen on?",
                         text);
    }
    *port = (uint16_t)value;
    return CRPC_OK;
}

/* Finds the host and what follows the colon after it. */
static int32_t split(const char *text, struct address_name *name, const char **host,
                     size_t *host_bytes, const char **port, crpc_error *error)
{
    const char *colon = strrchr(text, ':');
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        if (!end || end[1] != ':') {
            return error_set(error, CRPC_E_INVALID, 0, "\"%.100s\" has no \"]:port\": %s", text,
                             SHAPES);
        }
        name->bracketed = true;
        *host = text + 1;
        *host_bytes = (size_t)(end - *host);
        *port = end + 2;
        return CRPC_OK;
    }
    if (!colon) {
        return error_set(error, CRPC_E_INVALID, 0, "\"%.100s\" has no port: %s", text, SHAPES);
    }
    *host = text;
    *host_bytes = (size_t)(colon - text);
    *port = colon + 1;
    if (memchr(text, ':', *host_bytes)) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "\"%.100s\": an IPv6 address goes in brackets: [2001:db8::1]:port", text);
    }
    return CRPC_OK;
}

int32_t address_parse(const char *text, enum address_use use, struct address_name *name,
                      crpc_error *error)
{
    const char *host = text;
    const char *port = text;
    size_t host_bytes = 0;
    *name = (struct address_name){0};
    int32_t status = split(text, name, &host, &host_bytes, &port, error);
    if (status) {
        return status;
    }
    if (host_bytes == 0) {
        return error_set(error, CRPC_E_INVALID, 0, "\"%.100s\" has no host: %s%s", text, SHAPES,
                         use == ADDRESS_TO_LISTEN ? ", or *:port for every address" : "");
    }
    if (host_bytes >= sizeof(name->host)) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "\"%.60s...\": no host name is longer than 253 characters", text);
    }
    memcpy(name->host, host, host_bytes);
    name->any = !name->bracketed && strcmp(name->host, "*") == 0;
    if (name->any && use == ADDRESS_TO_CONNECT) {
        return error_set(error, CRPC_E_INVALID, 0, "\"%.100s\": * is only for listening", text);
    }
    if (name->bracketed && !strchr(name->host, ':')) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "\"%.100s\": brackets are for IPv6 addresses only: %s", text, SHAPES);
    }
    return parse_port(port, use, text, &name->port, error);
}

static int resolve(const struct address_name *name, int flags, struct addrinfo **result)
{
    char port[8];
    struct addrinfo hints = {
        .ai_flags = flags | AI_NUMERICSERV,
        .ai_family = name->bracketed ? AF_INET6 : AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
    };
    snprintf(port, sizeof(port), "%u", name->port);
    return getaddrinfo(name->host, port, &hints, result);
}

int address_numeric(const struct address_name *name, struct addrinfo **result)
{
    return resolve(name, AI_NUMERICHOST, result);
}

int address_look_up(const struct address_name *name, struct addrinfo **result)
{
    return resolve(name, 0, result);
}

void address_format(const struct sockaddr *address, char *text, size_t bytes)
{
    char host[ADDRESS_HOST_BYTES];
    bool is_ipv6 = address->sa_family == AF_INET6;
    socklen_t length = is_ipv6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if ((!is_ipv6 && address->sa_family != AF_INET) ||
        getnameinfo(address, length, host, sizeof(host), NULL, 0, NI_NUMERICHOST)) {
        text[0] = '\0';
        return;
    }
    uint16_t port = is_ipv6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                            : ((const struct sockaddr_in *)address)->sin_port;
    snprintf(text, bytes, is_ipv6 ? "[%s]:%u" : "%s:%u", host, ntohs(port));
}
