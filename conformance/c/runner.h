/* runner.h: what the runner's parts know of each other: runner.c has lines, events and connections, calls.c has
 * calls, services.c has listeners that are served, channels.c has channels, queues.c has
 * queues, dynamic.c has DCIs and DCTs, lanes.c has lanes, arenas.c has arenas, looks.c has devices, errors and the like. */
#ifndef CONFORMANCE_RUNNER_H
#define CONFORMANCE_RUNNER_H

#include <jansson.h>
#include <stdint.h>

#include <copyrpc.h>

#define VERB_UNKNOWN INT32_MIN

/* What run.py has names for: endpoints, channels, queues, targets, listeners, connections, requests, rooms, regions,
 * grants. */
struct thing {
    char name[32], mode[8];
    uint64_t bits;     /* the handle, or that of its endpoint; run.py tries the wrong kind, too */
    uint64_t token;    /* of a request; of a queue or an endpoint, which of its ops wait for room */
    int datagrams;     /* it is a queue for these */
    uint32_t bytes;    /* of `memory` */
    uint32_t mapped;   /* of a dma-buf: likewise, with what precedes it */
    void *memory;      /* a request's payload that was kept, or a region */
    uint64_t payload;  /* of a request, as its completion has it */
    uint64_t waits_ns; /* and how long its caller waits; 0 = for ever */
    uint32_t abandoned;
    int connected; /* an endpoint that reconnects is now */
    /* A listener that is served, or one of the connections that have come by it: */
    struct thing *service;
    uint32_t connections; /* of the listener, that there are */
    int stops;
    uint64_t arena; /* of an endpoint: where the places begin that it has lent */
    uint32_t place_bytes;
    crpc_op op; /* for which room was reserved */
    uint8_t *room;
};

/* ---- runner.c ---- */

extern crpc_context *context;

struct thing *thing_add(const char *name, uint64_t bits);
struct thing *thing_named(const char *name); /* NULL if there is none */
json_t *status_value(int32_t status);        /* its name; above 0, the number */
void put_status(json_t *to, int32_t status);
/* Of connecting: what fails at once is told as what fails later is. CRPC_OK. */
int32_t tell_failure(const struct thing *connection, int32_t status);
void turn(void); /* polls, tells, and submits what there is room for */

/* ---- calls.c ---- */

int32_t calls_run(const char *verb, struct thing *it, struct thing *made); /* or VERB_UNKNOWN */
void calls_submit(void); /* what there is room for */
int calls_waiting(void); /* whether something waits for room */
void calls_reset(void);
int32_t submit_op(const crpc_op *op, const void *payload); /* one op */
crpc_op answer_op(const struct thing *request, uint8_t opcode, uint32_t status, uint32_t bytes);
void tell_response(uint64_t id, int32_t status, uint64_t payload, uint32_t bytes);

/* ---- services.c ---- */

void service_accept(struct thing *service, crpc_endpoint endpoint);
int32_t service_stop(struct thing *service);
/* A connection of a service has come, or has gone. */
void service_take(const struct thing *connection, const crpc_completion *done);

/* ---- looks.c ---- */

int32_t looks_run(const char *verb, const struct thing *it,
                  struct thing *made); /* or VERB_UNKNOWN */

/* ---- channels.c ---- */

int32_t channels_run(const char *verb, struct thing *it, struct thing *made); /* or VERB_UNKNOWN */
void channels_take(const crpc_completion *done, const struct thing *channel);
void channels_submit(void); /* what there is room for */
int channels_waiting(void); /* whether something waits for room */
void channels_reset(void);  /* after the context was closed */
uint32_t channel_token(const struct thing *connection, uint8_t token[16]);

/* ---- queues.c ---- */

void queues_open(void);                                                     /* as the line says */
int32_t queues_run(const char *verb, struct thing *it, struct thing *made); /* or VERB_UNKNOWN */
void queues_take(const crpc_completion *done, struct thing *queue);
void queues_submit(void); /* what there is room for */
/* What the peer has sent, as far as it is text. */
void queue_private(const struct thing *queue, char private[CRPC_QUEUE_PRIVATE_BYTES_MAX + 1]);

crpc_queue_options queue_options_of_line(struct thing *made);
crpc_queue_address queue_address_of_line(void);

/* ---- dynamic.c ---- */

int32_t dynamic_run(const char *verb, struct thing *it, struct thing *made); /* or VERB_UNKNOWN */

/* ---- tags.c ---- */

struct post;
struct post_result;
const char *tags_opcode(const char *verb); /* that it posts, as post_take has it; or NULL */
void tags_fill(struct post *post);         /* with what the line says of tags */
void tags_result(const crpc_completion *done, const struct post *post, uint32_t index,
                 struct post_result *result);

/* ---- lanes.c ---- */

int32_t lanes_run(const char *verb, struct thing *it, struct thing *made); /* or VERB_UNKNOWN */
/* WORK, ROOM or DISCONNECTED of an endpoint. */
void lanes_take(const crpc_completion *done, struct thing *endpoint);
void lanes_submit(void);              /* what there is room for */
int lanes_waiting(uint64_t endpoint); /* whether an op of this one waits for room */
void lanes_reset(void);

/* ---- arenas.c ---- */

int32_t arenas_run(const char *verb, struct thing *it); /* or VERB_UNKNOWN */
/* Keeps the payload of a request: a copy, unless it stays in a place. Returns the number of that; -1: it is in none. */
int32_t arenas_keep(const struct thing *endpoint, const crpc_completion *done,
                    struct thing *request);
void arenas_forget(struct thing *it); /* frees its memory */
/* Gives the place of a payload back, if it is in one. */
void arenas_return(const crpc_completion *done);

#endif
