/* blob.h: channels and their blobs, for tests: the application carries LINK_BLOB_BYTES each way. */
#ifndef CORE_STRIPE_TESTS_BLOB_H
#define CORE_STRIPE_TESTS_BLOB_H

#include "stripe/channel.h"

static inline int32_t channel_blob(struct stripe_engine *engine,
                                   const crpc_channel_options *options,
                                   struct stripe_channel **channel, uint8_t *blob,
                                   crpc_error *error)
{
    struct link *link;
    int32_t status = link_blob(&engine->links, options, &link, blob, error);
    *channel = status == CRPC_OK ? channel_of_link(link) : NULL;
    return status;
}

static inline int32_t channel_join(struct stripe_channel *channel, const uint8_t *blob,
                                   crpc_error *error)
{
    return link_join(&channel->link, blob, LINK_BLOB_BYTES, error);
}

#endif
