/* ends.h: two programs in one, or one of them here and the other on another host: contexts of the public API, with an
 * endpoint or a channel between them. The client sends, the server answers with the same bytes, each changed; so what the
 * client gets has been through both. */
#ifndef TOOLS_CHECK_ENDS_H
#define TOOLS_CHECK_ENDS_H

#include <copyrpc.h>

#include "check.h"

#define END_BYTES_MAX (1u << 20) /* of a message; of a call a quarter */
#define END_BUFFERS 8u

enum service { SERVICE_CALLS, SERVICE_CHANNELS, SERVICE_RAILS };

struct blob {
    uint32_t bytes;
    uint8_t data[CRPC_BLOB_BYTES_MAX];
};

struct end {
    enum service service;
    bool serves;
    bool connected;
    bool parted; /* it was connected, and is no more */
    crpc_context *context;
    crpc_endpoint endpoint;
    crpc_channel channel;
    uint8_t *memory; /* of channels: a buffer to send and one to receive into for each place */
    crpc_region region;
    bool open[END_BUFFERS]; /* places of which something is open */
    uint32_t bytes[END_BUFFERS];
    uint8_t *sent[END_BUFFERS]; /* calls: what was sent */
    uint64_t done, bytes_done;  /* answers that were right */
    uint64_t random;
};

/* Opens a context for the service, and makes what `blob` describes. `device` is the first or the second of the subject.
 * The caller closes it even after a failure. */
bool end_open(struct end *end, const struct subject *subject, uint32_t device, enum service service,
              bool serves, struct blob *blob, struct outcome *outcome);
bool end_join(struct end *end, const struct blob *peer, struct outcome *outcome);
void end_close(struct end *end);

/* Polls once, and does what is due: answers, or checks answers. Returns false if something is wrong. */
bool end_poll(struct end *end, struct outcome *outcome);
/* The client's: sends as much as may be open. */
bool end_send(struct end *end, struct outcome *outcome);
bool end_idle(const struct end *end);

#endif
