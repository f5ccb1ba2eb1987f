/* loop.h: the C side of the benchmark: an echo server that is driven by hand, and the C loops that
 * Go's loops are compared with. queues.c has that of queues. */
#ifndef BENCH_BINDINGS_GO_LOOP_H
#define BENCH_BINDINGS_GO_LOOP_H

#include <stdint.h>

#include <copyrpc.h>

#define BATCH 256
#define REQUEST_BYTES 32

/* Opens the echo server on `address`, and writes the address that it listens on. Also opens the
 * client of the C loop, without connecting it. Returns NULL, or the text of an error. */
const char *server_open(const char *address, char *listening, uint32_t bytes);
const char *c_client_connect(const char *address);
void close_all(void);

/* Polls the server once. Answers requests and accepts connections. */
void server_turn(void);

/* Makes one batch of calls by the C client, and drives the server in between. Writes the time that
 * the client alone needed, in ns: for filling and submitting, and for polling and reading, without
 * polls that found nothing. Returns their sum, or 0 if a call failed. */
uint64_t c_round(uint64_t *submit_ns, uint64_t *poll_ns);

#define QUEUE_BATCH 64
#define WRITE_BYTES 32

/* Opens a context with two queues that are connected to each other, and memory to write to. Returns
 * NULL, or the text of an error. */
const char *c_queues_open(void);
void c_queues_close(void);
/* Makes one batch of WRITEs, and writes the times, as c_round does. Returns 0 if one has failed. */
uint64_t c_queue_round(uint64_t *submit_ns, uint64_t *poll_ns);

uint64_t now_ns(void);

#endif
