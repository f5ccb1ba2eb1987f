/* pair.c: see pair.h. */
#include "pair.h"

#include "give_up.h"

void pair_endpoints(crpc_context *const contexts[2], const crpc_endpoint_options *options,
                    crpc_endpoint endpoints[2])
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {CRPC_BLOB_BYTES_MAX, CRPC_BLOB_BYTES_MAX};
    for (int i = 0; i < 2; i++) {
        need(crpc_endpoint_blob(contexts[i], options, &endpoints[i], blobs[i], &bytes[i], &error),
             &error);
    }
    for (int i = 0; i < 2; i++) {
        need(crpc_endpoint_join(contexts[i], endpoints[i], blobs[!i], bytes[!i], &error), &error);
    }
}

void pair_wait_connected(crpc_context *context)
{
    crpc_completion completion;
    int32_t count;
    while ((count = crpc_poll(context, &completion, 1)) == 0) {
        crpc_wait(context, CRPC_FOREVER);
    }
    if (count != 1 || completion.kind != CRPC_COMPLETION_CONNECTED ||
        completion.status != CRPC_OK) {
        give_up("the two sides could not be connected");
    }
}
