/* loop.h: the C side of the benchmark: an echo server that is driven by hand, and the loop that Go's is measured against. */
#ifndef BENCH_BINDINGS_GO_LOOP_H
#define BENCH_BINDINGS_GO_LOOP_H

#include <stdint.h>

#include <copyrpc.h>

#define BATCH 256
#define REQUEST_BYTES 32

/* Opens the echo server on `address` and gives where it listens; and the client of the C loop, not connected. NULL or an
 * error's text. */
const char *server_open(const char *address, char *listening, uint32_t bytes);
const char *c_client_connect(const char *address);
void close_all(void);

/* Polls the server once and answers what has come; connections are accepted. */
void server_turn(void);

/* One batch of calls by the C client, with the server driven in between. Gives the time spent in the client alone, in ns: that
 * of filling and submitting, and that of polling and reading, without polls that found nothing. 0: a call failed. */
uint64_t c_round(uint64_t *submit_ns, uint64_t *poll_ns);

#endif
