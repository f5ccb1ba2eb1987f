/* flight.h: the last ops and completions of each endpoint, with flight_records of crpc_context_options. They are recorded where they
 * come in and go out, as metrics are counted, so core knows nothing of it and nobody pays for it who does not ask for it.
 */
#ifndef CAPI_FLIGHT_H
#define CAPI_FLIGHT_H

#include "private/context.h"

#define FLIGHT_RECORDS_MAX 65536u
/* So many of a failed endpoint are logged. */
#define FLIGHT_LOGGED 16u

struct flight;

/* Turns it on if the options, or the environment, ask for it. */
int32_t flight_open(struct crpc_context *context, uint32_t records, crpc_error *error);
void flight_close(struct flight *flight);

/* The first `taken` of these ops were accepted; if that is not all, the next one was refused for this reason. */
void flight_ops(struct flight *flight, const crpc_op *ops, uint32_t count, uint32_t taken,
                int32_t reason);
/* What a poll gives. Logs the last records of an endpoint that has failed. */
void flight_completions(struct crpc_context *context, const crpc_completion *completions,
                        uint32_t count);

#endif
