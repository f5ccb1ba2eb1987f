/* prove.h: how two sides prove to each other that they know the same key, before the service's
 * first message and before the peer has a right to this side's memory. The words that they exchange
 * are in docs/wire.md, "Keys". Only files of core/link, and the services' parts of making and
 * ending, use it.
 *
 * A link with a key has a struct link_proof from prepare to unprepare. */
#ifndef CORE_LINK_PROVE_H
#define CORE_LINK_PROVE_H

#include <stdbool.h>
#include <stdint.h>

#include "link/link.h"

/* Makes what the exchange needs, if link->options has a key, else nothing. The link has its queue
 * pair. Returns CRPC_OK, or fills *error and returns its status. */
int32_t link_prove_prepare(struct link *link, crpc_error *error);

/* Fills in the body of a hello: where the peer has to write its words. */
void link_prove_fill_body(const struct link *link, uint8_t body[LINK_BODY_BYTES]);
/* NULL, or what is wrong with such a body. */
const char *link_prove_body_fault(const uint8_t body[LINK_BODY_BYTES]);

/* Overwrites the key. Called as soon as it has been compared, or never will be. */
void link_prove_forget_key(struct link *link);

/* Notes this side's hello as it is sent. The peer's is in link->peer. */
void link_prove_hello(struct link *link, const struct link_hello *hello);

/* Compares the key that this side has, or lacks, with what the peer's hello says. Returns CRPC_OK
 * if both have one or neither has; otherwise fills *error and returns CRPC_E_KEY. */
int32_t link_prove_check(const struct link *link, crpc_error *error);

/* Only one side has a key: `ours`, this one. Fills *error and returns CRPC_E_KEY. */
int32_t link_prove_missing(bool ours, crpc_error *error);

/* True until the peer has proved its key. */
bool link_proving(const struct link *link);

/* The peer's first word has come before this side is connected: it is taken by link_prove_begin. */
void link_prove_hold(struct link *link, uint32_t number);
/* Sends the words that wait for room. */
void link_prove_send(struct link *link);

/* The queue pair is connected: says the first word. */
void link_prove_begin(struct link *link);
/* Takes a completion of the link's queue pair while the link is proving. */
void link_prove_take(struct link *link, const struct nic_completion *completion);
/* The connection has ended while the link is proving. Sets *error to what that says of the key, if
 * it says anything. */
void link_prove_lost(const struct link *link, crpc_error *error);

#endif
