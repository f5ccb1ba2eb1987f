/* dynamic.c: the verbs of DCIs and DCTs that other queues do not have. queues.c has the rest, and what comes of them. */
#include "runner.h"

#include <string.h>

#include "line.h"

static int32_t open_queue(struct thing *made, uint32_t kind)
{
    crpc_queue_options options = queue_options_of_line(made);
    crpc_queue queue = {0};
    options.kind = kind;
    int32_t status = crpc_queue_open(context, &options, &queue, NULL);
    made->bits = queue.bits;
    return status;
}

static int32_t open_target(struct thing *made)
{
    const crpc_queue_address address = queue_address_of_line();
    const crpc_target_options options = {.struct_size = sizeof(options),
                                         .kind = CRPC_QUEUE_KIND_DCI,
                                         .access_key = number64("access_key")};
    crpc_target target = {0};
    int32_t status = crpc_target_open(context, &address, &options, &target, NULL);
    made->bits = target.bits;
    return status;
}

int32_t dynamic_run(const char *verb, struct thing *it, struct thing *made)
{
    if (made && strcmp(verb, "dci_open") == 0) {
        return open_queue(made, CRPC_QUEUE_KIND_DCI);
    } else if (made && strcmp(verb, "dct_open") == 0) {
        return open_queue(made, CRPC_QUEUE_KIND_DCT);
    } else if (made && strcmp(verb, "dc_target_open") == 0) {
        return open_target(made);
    } else if (it && strcmp(verb, "stream_reset") == 0) {
        return crpc_queue_reset_stream(context, (crpc_queue){it->bits}, number("stream"));
    }
    return VERB_UNKNOWN;
}
