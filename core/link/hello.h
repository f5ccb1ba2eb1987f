/* hello.h: checks the hellos of a link. Only files of core/link include it. */
#ifndef CORE_LINK_HELLO_H
#define CORE_LINK_HELLO_H

#include "link/link.h"

void hello_fill(const struct link *link, struct link_hello *hello);

/* Checks a hello that arrived in a request (REQ or blob), and chooses version and features. `bytes`
 * may be more than 56, because rdma_cm adds padding. Returns CRPC_OK and fills *peer; otherwise
 * fills *error, and *reject says why. */
int32_t hello_check_request(const struct link_group *group, const void *data, size_t bytes,
                            struct link_peer *peer, struct link_reject *reject, crpc_error *error);

/* Checks the hello of a response (REP) likewise. Its version and features must be among those that
 * this side offered. */
int32_t hello_check_response(const struct link_group *group, const void *data, size_t bytes,
                             struct link_peer *peer, crpc_error *error);

void hello_fill_reject(const struct link_service *service, struct link_reject *reject,
                       uint16_t reason, uint32_t detail);

/* Explains the private data of a rejection; `bytes` may be 0. Fills *error and returns its
 * status. */
int32_t hello_explain_reject(const struct link_service *service, const void *data, size_t bytes,
                             crpc_error *error);

#endif
