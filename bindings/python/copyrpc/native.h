/* native.h: our own C functions beside the library's: loops over whole arrays, so that a batch costs one crossing, and what
 * Python has no call for. Read by cffi as copyrpc.h is; the same rules hold. cffi lets go of the GIL around each. */
#ifndef COPYRPC_NATIVE_H
#define COPYRPC_NATIVE_H

/* Set in the user_data of ops that belong to the package itself, and in that of endpoints whose requests go to arrays. */
#define COPYRPC_NATIVE_MARK 0x8000000000000000u

/* crpc_submit for payloads that lie anywhere: that of ops[i] at payloads[i]. Writes the ops' payload_offset. */
int32_t copyrpc_native_submit(crpc_context *context, crpc_op *ops, void **payloads, uint32_t count,
                              int32_t *reason);

/* The same for calls to one endpoint that differ only in payload and user_data, which counts up from that of `first`. `ops` is
 * room for them. */
int32_t copyrpc_native_submit_calls(crpc_context *context, const crpc_op *first, crpc_op *ops,
                                    void **payloads, const uint32_t *payload_bytes, uint32_t count,
                                    int32_t *reason);

/* crpc_submit for ops that an application filled. The mark in a user_data is CRPC_E_INVALID. */
int32_t copyrpc_native_submit_array(crpc_context *context, const crpc_op *ops, uint32_t count,
                                    const void *payload, uint64_t payload_bytes, int32_t *reason);

/* crpc_channel_submit for ops that an application filled. The mark in a user_data is CRPC_E_INVALID. */
int32_t copyrpc_native_channel_submit_array(crpc_context *context, const crpc_channel_op *ops,
                                            uint32_t count, int32_t *reason);

/* crpc_cache_forget for many buffers. One that shares pages with what an op still uses stays until that op's is forgotten. */
void copyrpc_native_forget(crpc_context *context, void *const *addresses, const uint64_t *bytes,
                           uint32_t count);

/* A reply to a call of the batch that is being waited for: where its payload lies. */
struct copyrpc_native_span {
    uint64_t begin;
    uint64_t end;
};

/* What became of another op of the package's own. */
struct copyrpc_native_result {
    uint64_t id; /* its user_data without the mark */
    int64_t status;
    uint64_t address;
    uint64_t bytes;
};

/* A poll, sorted by what Python does with it. The arrays have room for `capacity` each. */
struct copyrpc_native_poll {
    uint64_t low; /* in: ids of the batch, low <= id < high */
    uint64_t high;
    uint32_t capacity;
    uint32_t spans_count; /* good replies of the batch */
    uint32_t results_count;
    uint32_t events_count; /* all else */
    uint64_t first_id;     /* of the spans; the others' count up from there if `in_order` */
    uint32_t in_order;
    uint32_t reserved;
    struct copyrpc_native_span *spans;
    uint64_t *span_ids;
    struct copyrpc_native_result *results;
    crpc_completion *events;
};

/* crpc_poll for the package itself. Returns how many completions there were. */
int32_t copyrpc_native_poll(crpc_context *context, struct copyrpc_native_poll *poll);

/* crpc_poll for an application's array, and `poll` for what is not for the application: capacity is at most poll's.
 * Returns how many are for the application. */
int32_t copyrpc_native_poll_array(crpc_context *context, crpc_completion *completions,
                                  uint32_t capacity, struct copyrpc_native_poll *poll);

/* Copies the payloads of `count` completions one after the other to `buffer`, each at a multiple of 8, its place to offsets[i].
 * Returns how many completions had room. */
uint32_t copyrpc_native_gather(const crpc_completion *completions, uint32_t count, uint8_t *buffer,
                               uint64_t buffer_bytes, uint64_t *offsets);

/* Sleeps until one of two descriptors is readable, a signal comes, or timeout_ns is over. Returns 1 if the first is, 0 or
 * -errno else. Empties `wake_fd`. */
int32_t copyrpc_native_sleep(int fd, int wake_fd, uint64_t timeout_ns);

/* An eventfd to wake a sleeper; -errno if there is none to be had. */
int32_t copyrpc_native_wake_open(void);
void copyrpc_native_wake(int wake_fd);

#endif
