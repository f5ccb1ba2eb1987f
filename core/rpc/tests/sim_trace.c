/* sim_trace.c: calls with traces, which the peer must be told, each with its call, or not at all. */
#include "sim.h"

#include <string.h>

static crpc_trace trace_of(const struct sim_side *side, uint32_t number)
{
    crpc_trace trace = {0};
    simulation_fill((uint8_t *)&trace, offsetof(crpc_trace, reserved),
                    ~sim_key(side, number, false));
    return trace;
}

void sim_trace_choose(struct sim_side *side, crpc_op *op)
{
    static crpc_trace trace;
    if (random_percent(&side->sim->trace_random, 25)) {
        trace = trace_of(side, side->call_count);
        op->flags |= CRPC_OP_TRACED;
        op->token = (uint64_t)(uintptr_t)&trace;
    }
}

void sim_trace_book(const struct sim_side *side, const crpc_op *op, struct sim_call *call)
{
    call->told = rpc_trace_charge(side->endpoint, op) > 0;
    crpc_op placed = *op; /* takes less of a ring, if it goes to an arena */
    placed.payload_bytes = sizeof(struct wire_place);
    call->told_placed = rpc_trace_charge(side->endpoint, &placed) > 0;
}

static bool knows_traces(const struct sim_side *side)
{
    return !(side->engine->engine->features_left_out & WIRE_FEATURE_TRACES);
}

void sim_trace_request(struct sim_side *side, uint32_t number, const crpc_completion *completion)
{
    struct sim *sim = side->sim;
    const struct sim_call *book = &side->peer->calls[number];
    const bool both = knows_traces(side) && knows_traces(side->peer);
    const bool told = completion->flags & CRPC_COMPLETION_PLACED ? book->told_placed : book->told;
    crpc_trace trace;
    const int32_t status = rpc_request_trace(side->endpoint, completion->token, &trace);
    if (status == CRPC_OK) {
        const crpc_trace expected = trace_of(side->peer, number);
        if (!told || !both || memcmp(&trace, &expected, sizeof(trace)) != 0) {
            simulation_fail(&sim->base, "request %u has a trace that is not its own", number);
        }
        sim->counts[SIM_TRACED]++;
    } else if (status != CRPC_E_NOT_FOUND || (told && both)) {
        simulation_fail(&sim->base, "request %u has lost its trace: status %d", number, status);
    }
}
