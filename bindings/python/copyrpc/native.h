/* native.h: C functions of the package itself: loops over whole arrays, so that a batch costs one
 * call from Python, and functions that Python lacks. cffi reads this file like copyrpc.h, and the
 * same rules hold. cffi releases the GIL during each call. */
#ifndef COPYRPC_NATIVE_H
#define COPYRPC_NATIVE_H

/* Marks the user_data of ops that belong to the package itself, and of endpoints whose requests go
 * to arrays. */
#define COPYRPC_NATIVE_MARK 0x8000000000000000u

/* A payload, which may lie anywhere, and the trace that travels with it. */
struct copyrpc_native_carried {
    uint64_t payload; /* its address */
    crpc_trace trace;
};

/* Works as crpc_submit, but payloads may lie anywhere: payloads[i] belongs to ops[i]. That of an op with
 * CRPC_OP_TRACED is a struct copyrpc_native_carried. Writes the ops' payload_offset, and the token of those. */
int32_t copyrpc_native_submit(crpc_context *context, crpc_op *ops, void **payloads, uint32_t count,
                              int32_t *reason);

/* Does the same for calls to one endpoint that only differ in payload and user_data. user_data
 * counts up from that of `first`. `ops` is room for the ops. */
int32_t copyrpc_native_submit_calls(crpc_context *context, const crpc_op *first, crpc_op *ops,
                                    void **payloads, const uint32_t *payload_bytes, uint32_t count,
                                    int32_t *reason);

/* Do the same as copyrpc_native_submit, crpc_channel_submit and so on, and also write the result to *taken,
 * where it is even if a signal handler raises an exception before Python has seen it. */
int32_t copyrpc_native_submit_noted(crpc_context *context, crpc_op *ops, void **payloads,
                                    uint32_t count, int32_t *reason, int32_t *taken);
int32_t copyrpc_native_channel_submit_noted(crpc_context *context, const crpc_channel_op *ops,
                                            uint32_t count, int32_t *reason, int32_t *taken);
int32_t copyrpc_native_queue_submit_noted(crpc_context *context, crpc_queue queue,
                                          const crpc_queue_op *ops, uint32_t count,
                                          const crpc_piece *pieces, uint32_t piece_count,
                                          int32_t *reason, int32_t *taken);
int32_t copyrpc_native_lane_submit_noted(crpc_context *context, crpc_endpoint endpoint,
                                         const crpc_lane_op *ops, uint32_t count,
                                         const crpc_piece *pieces, uint32_t piece_count,
                                         int32_t *reason, int32_t *taken);

/* Do the same as crpc_endpoint_accept and so on, and write the result to *status. */
void copyrpc_native_endpoint_accept_noted(crpc_context *context, crpc_endpoint endpoint,
                                          const crpc_endpoint_options *options, crpc_error *error,
                                          int32_t *status);
void copyrpc_native_channel_accept_noted(crpc_context *context, crpc_channel channel,
                                         const crpc_channel_options *options, crpc_error *error,
                                         int32_t *status);
void copyrpc_native_queue_accept_noted(crpc_context *context, crpc_queue queue,
                                       const crpc_queue_options *options, crpc_error *error,
                                       int32_t *status);

/* Do the same as crpc_endpoint_hand_over and so on, and write the result to *status. */
void copyrpc_native_endpoint_hand_over_noted(crpc_context *context, crpc_endpoint endpoint,
                                             crpc_context *to, uint64_t user_data,
                                             crpc_error *error, int32_t *status);
void copyrpc_native_channel_hand_over_noted(crpc_context *context, crpc_channel channel,
                                            crpc_context *to, uint64_t user_data, crpc_error *error,
                                            int32_t *status);
void copyrpc_native_queue_hand_over_noted(crpc_context *context, crpc_queue queue, crpc_context *to,
                                          uint64_t user_data, crpc_error *error, int32_t *status);

/* Works as crpc_submit, for ops that an application filled. A user_data with the mark gives
 * CRPC_E_INVALID. */
int32_t copyrpc_native_submit_array(crpc_context *context, const crpc_op *ops, uint32_t count,
                                    const void *payload, uint64_t payload_bytes, int32_t *reason);

/* Works as crpc_channel_submit, for ops that an application filled. A user_data with the mark gives
 * CRPC_E_INVALID. */
int32_t copyrpc_native_channel_submit_array(crpc_context *context, const crpc_channel_op *ops,
                                            uint32_t count, int32_t *reason);

/* Works as crpc_queue_submit, for ops that an application filled. Ops with a payload that name no
 * region, and are neither inline nor in pieces, get `region`. To change them, they are copied to `room`,
 * as many at a time as it has room for; each time costs a doorbell. A user_data with the mark gives
 * CRPC_E_INVALID. */
int32_t copyrpc_native_queue_submit_array(crpc_context *context, crpc_queue queue,
                                          const crpc_queue_op *ops, uint32_t count,
                                          crpc_region region, const crpc_piece *pieces,
                                          uint32_t piece_count, crpc_queue_op *room,
                                          uint32_t room_count, int32_t *reason);

/* Returns the index of the first op with this opcode, or `count` if there is none. */
uint32_t copyrpc_native_queue_find(const crpc_queue_op *ops, uint32_t count, uint8_t opcode);

/* Works as crpc_lane_submit, for ops that an application filled. Ops with a payload that name no region,
 * and are neither inline nor in pieces, get `region`. A user_data with the mark gives CRPC_E_INVALID. */
int32_t copyrpc_native_lane_submit_array(crpc_context *context, crpc_endpoint endpoint,
                                         const crpc_lane_op *ops, uint32_t count,
                                         crpc_region region, const crpc_piece *pieces,
                                         uint32_t piece_count, int32_t *reason);

/* Ops of one queue, or of one lane, that Python waits for. Their completions go to `completions`, with
 * the user_data that the application gave them. */
struct copyrpc_native_works {
    struct copyrpc_native_works *next; /* in struct copyrpc_native_poll */
    crpc_queue queue;
    crpc_endpoint endpoint; /* whose lane it is; 0: they are the queue's */
    crpc_region region;     /* as in copyrpc_native_queue_submit_array */
    const void *ops;        /* crpc_queue_op, or crpc_lane_op */
    const crpc_piece *pieces;
    crpc_completion *completions; /* room for `total` */
    uint64_t first_id;
    uint32_t total;
    uint32_t piece_count;
    uint32_t submitted; /* the first of the ops, which the library has taken */
    uint32_t completed;
    int32_t refused; /* why the library will not take the others, 0 if it may */
    uint32_t sparse; /* the queue: each op then asks for a completion, which it would not have */
    uint32_t sync_barred; /* a TAG_SYNC is refused with CRPC_E_BUSY */
};

/* Submits what is left of the ops, as far as there is room. Those of a queue are copied to `room`, as in
 * copyrpc_native_queue_submit_array; for a lane it is not used. A TAG_REMOVE takes back the latest TAG_ADD that
 * was submitted before it with the user_data that it names, of these ops, or else of those of `chain`; or
 * else what was submitted otherwise. Returns 1 if there is nothing left to submit, 0 if there is no room. */
int32_t copyrpc_native_works_submit(crpc_context *context, struct copyrpc_native_works *works,
                                    const struct copyrpc_native_works *chain, crpc_queue_op *room,
                                    uint32_t room_count);

/* Completes the ops that were not submitted: the first with `refused`, those behind it with
 * CRPC_E_CANCELED. */
void copyrpc_native_works_refuse(struct copyrpc_native_works *works);

/* Works as crpc_cache_forget, for many buffers. A registration that an open op still uses stays,
 * until the buffer of that op is forgotten. */
void copyrpc_native_forget(crpc_context *context, void *const *addresses, const uint64_t *bytes,
                           uint32_t count);

/* Where the payload of a reply lies, for a call of the batch that Python waits for. */
struct copyrpc_native_span {
    uint64_t begin;
    uint64_t end;
};

/* The result of another op of the package. */
struct copyrpc_native_result {
    uint64_t id; /* its user_data without the mark */
    int64_t status;
    uint64_t address;
    uint64_t bytes;
};

/* Where the payload of a reply lies that is in an arena. */
struct copyrpc_native_place {
    crpc_endpoint endpoint;
    uint64_t payload;
};

/* The results of a poll, sorted by what Python does with them. Each array has room for `capacity`
 * entries. */
struct copyrpc_native_poll {
    uint64_t low; /* in: ids of the batch, low <= id < high */
    uint64_t high;
    uint32_t capacity;
    uint32_t spans_count; /* good replies of the batch */
    uint32_t results_count;
    uint32_t events_count; /* everything else */
    uint32_t left; /* set by a poll that found something, until Python has handed all of it out */
    struct copyrpc_native_span *spans;
    uint64_t *span_ids;
    struct copyrpc_native_result *results;
    crpc_completion *events;
    struct copyrpc_native_place *places; /* of the package's replies: given back by the next poll */
    uint32_t places_count;
    struct copyrpc_native_works *works; /* in: those that Python waits for */
};

/* Works as crpc_poll, for the package itself. Returns the number of completions. */
int32_t copyrpc_native_poll(crpc_context *context, struct copyrpc_native_poll *poll);

/* Works as crpc_poll, for an application's array; `poll` gets the completions of the package.
 * `capacity` is at most poll->capacity. Returns how many completions are for the application. */
int32_t copyrpc_native_poll_array(crpc_context *context, crpc_completion *completions,
                                  uint32_t capacity, struct copyrpc_native_poll *poll);

/* Copies the payloads of `count` completions to `buffer`, one after the other, each at a multiple
 * of 8. Writes its place to offsets[i]. Returns how many completions fit. */
uint32_t copyrpc_native_gather(const crpc_completion *completions, uint32_t count, uint8_t *buffer,
                               uint64_t buffer_bytes, uint64_t *offsets);

/* Closes *context, if that is not NULL, and sets it to NULL. */
void copyrpc_native_close(crpc_context **context);

/* Creates an eventfd that wakes a sleeper. Returns -errno if it fails. */
int32_t copyrpc_native_wake_open(void);
void copyrpc_native_wake(int wake_fd);

#endif
