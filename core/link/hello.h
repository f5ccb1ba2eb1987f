/* hello.h: the hello of a link, checked: for the files of core/link alone. */
#ifndef CORE_LINK_HELLO_H
#define CORE_LINK_HELLO_H

#include "link/link.h"

void hello_fill(const struct link *link, struct link_hello *hello);

/* Checks a hello that came as a request (REQ or blob), of which `bytes` bytes arrived (more than 56
 * are allowed: rdma_cm pads), and agrees on version and features. On failure *reject says why. */
int32_t hello_check_request(const struct link_service *service, const void *data, size_t bytes,
                            struct link_peer *peer, struct link_reject *reject, crpc_error *error);

/* The same for the one that came back (REP): version and features must be among those offered. */
int32_t hello_check_response(const struct link_service *service, const void *data, size_t bytes,
                             struct link_peer *peer, crpc_error *error);

void hello_fill_reject(const struct link_service *service, struct link_reject *reject,
                       uint16_t reason, uint32_t detail);

/* Explains the private data of a rejection; `bytes` may be 0. Fills *error, returns its status. */
int32_t hello_explain_reject(const struct link_service *service, const void *data, size_t bytes,
                             crpc_error *error);

#endif
