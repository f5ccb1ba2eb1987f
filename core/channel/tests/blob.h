/* blob.h: channels and their blobs, for tests: the application carries LINK_BLOB_BYTES each way. */
#ifndef CORE_CHANNEL_TESTS_BLOB_H
#define CORE_CHANNEL_TESTS_BLOB_H

#include "channel/internal.h"

static inline int32_t channel_blob(struct channel_engine *engine,
                                   const crpc_channel_options *options, struct channel **channel,
                                   uint8_t *blob, crpc_error *error)
{
    struct link *link;
    int32_t status = link_blob(&engine->links, options, &link, blob, error);
    *channel = status == CRPC_OK ? channel_of_link(link) : NULL;
    return status;
}

static inline int32_t channel_join(struct channel *channel, const uint8_t *blob, crpc_error *error)
{
    return link_join(&channel->link, blob, LINK_BLOB_BYTES, error);
}

#endif
