/* blob.h: endpoints and their blobs, for tests: the application carries LINK_BLOB_BYTES each way. */
#ifndef CORE_RPC_TESTS_BLOB_H
#define CORE_RPC_TESTS_BLOB_H

#include "rpc/internal.h"

static inline int32_t endpoint_blob(struct rpc_engine *engine, const crpc_endpoint_options *options,
                                    struct rpc_endpoint **endpoint, uint8_t *blob,
                                    crpc_error *error)
{
    struct link *link;
    int32_t status = link_blob(&engine->links, options, &link, blob, error);
    *endpoint = status == CRPC_OK ? endpoint_of_link(link) : NULL;
    return status;
}

static inline int32_t endpoint_join(struct rpc_endpoint *endpoint, const uint8_t *blob,
                                    crpc_error *error)
{
    return link_join(&endpoint->link, blob, LINK_BLOB_BYTES, error);
}

#endif
