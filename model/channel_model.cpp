// channel_model.cpp: see channel_model.hpp. What is not modelled is said in README.md.
#include "channel_model.hpp"

#include <cstring>

namespace
{

using Model = ChannelModel;

constexpr int kNone = 0xff;
constexpr int kBye = 2;
constexpr int kLine = 0x80; // a clear-to-send; otherwise a share

// As the immediate: number, mask, share, proxy.
int share_packet(int number, int mask, int share, int rail)
{
    return number << 4 | mask << 2 | share << 1 | (share != rail);
}
int number_of(int packet)
{
    return packet >> 4 & 7;
}
int mask_of(int packet)
{
    return packet >> 2 & 3;
}
int share_of(int packet)
{
    return packet >> 1 & 1;
}
int leader_of(int mask)
{
    return mask & 1 ? 0 : 1;
}

std::string described(int packet)
{
    std::string number = std::to_string(number_of(packet));
    return packet & kLine ? "clear-to-send " + number
                          : "share " + std::to_string(share_of(packet)) + " of " + number +
                                (packet & 1 ? " by proxy" : "");
}

std::string on(int rail)
{
    return " on rail " + std::to_string(rail);
}

const char *side_name(int side)
{
    return side == Model::sender ? "sender" : "receiver";
}

} // namespace

Model::State Model::initial() const
{
    State state;
    std::memset(&state, 0, sizeof(state));
    for (auto &outgoing : state.outgoing) {
        outgoing.carrier[0] = outgoing.carrier[1] = kNone;
    }
    return state;
}

// Whatever is unused is zero or kNone, so the bytes are the state.
std::string Model::encode(const State &state) const
{
    return std::string(reinterpret_cast<const char *>(&state), sizeof(state));
}

void Model::push(Pipe &pipe, int packet) const
{
    pipe.wqes[pipe.count++] = static_cast<std::uint8_t>(packet);
}

// ---- What lands, and what is polled -------------------------------------------------------------

// The payload, or the clear-to-send, is in the other side's memory. The device has read it just now, or
// before its queue pair failed.
std::string Model::land(State &state, int packet, int rail, bool alive) const
{
    int number = number_of(packet), slot = number % c_.slots;
    Incoming &incoming = state.incoming[slot];
    if (packet & kLine) {
        state.cts[rail][slot] =
            static_cast<std::uint8_t>(alive ? state.staging[rail][slot] : packet);
        if (alive && incoming.number == number + 1) {
            incoming.granted = static_cast<std::uint8_t>(incoming.granted | 1 << rail);
        }
        return "";
    }
    if (incoming.number != number + 1 || !incoming.open) {
        return described(packet) + " lands in a buffer that was returned";
    }
    if (!(incoming.granted >> rail & 1)) {
        return described(packet) + " lands without a right" + on(rail);
    }
    if (share_of(packet) == (c_.mutations.leader_is_rail_0 ? 0 : leader_of(mask_of(packet)))) {
        incoming.record = 1;
    }
    return "";
}

// An immediate is polled.
std::string Model::take(State &state, int packet) const
{
    int number = number_of(packet), bit = 1 << share_of(packet);
    Incoming &incoming = state.incoming[number % c_.slots];
    if (incoming.number != number + 1 || !incoming.open || (incoming.seen & bit)) {
        return c_.mutations.duplicates_ignored ? "" : described(packet) + " arrives twice";
    }
    if (incoming.mask == 0) {
        incoming.mask = static_cast<std::uint8_t>(mask_of(packet));
        if (c_.mutations.record_at_learning && !incoming.record) {
            return "the record is read before it has landed";
        }
    }
    incoming.seen = static_cast<std::uint8_t>(incoming.seen | bit);
    if (complete(incoming)) {
        if (!incoming.record) {
            return "a message is complete, and its record has not landed";
        }
        std::uint8_t done = incoming.number, telling = incoming.telling;
        std::memset(&incoming, 0, sizeof(incoming));
        incoming.number = done;
        incoming.telling = telling;
    }
    return "";
}

void Model::acknowledge(State &state, int packet, int rail) const
{
    int number = number_of(packet), slot = number % c_.slots;
    if (packet & kLine) {
        Incoming &incoming = state.incoming[slot];
        if (incoming.number == number + 1) {
            incoming.telling = static_cast<std::uint8_t>(incoming.telling & ~(1 << rail));
            state.staging[rail][slot] = 0;
        }
        return;
    }
    Outgoing &outgoing = state.outgoing[slot];
    if (outgoing.number == number + 1 && outgoing.carrier[share_of(packet)] == rail) {
        outgoing.done = static_cast<std::uint8_t>(outgoing.done | 1 << share_of(packet));
        outgoing.carrier[share_of(packet)] = kNone;
    }
    if (outgoing.done == outgoing.mask) { // its past does not matter any more
        outgoing = {};
        outgoing.carrier[0] = outgoing.carrier[1] = kNone;
    }
}

// ---- Sending ------------------------------------------------------------------------------------

int Model::heard(const State &state, int number, int *announced) const
{
    int rails = 0;
    *announced = 0;
    for (int rail = 0; rail < 2; rail++) {
        int line = state.cts[rail][number % c_.slots];
        if (line & kLine && number_of(line) == number && state.rails[rail][sender] == up) {
            rails |= 1 << rail;
            *announced |= mask_of(line);
        }
    }
    return rails;
}

void Model::post_steps(const State &state, const Sink &sink) const
{
    int number = state.next, slot = number % c_.slots, announced;
    int rails = heard(state, number, &announced);
    const Outgoing &outgoing = state.outgoing[slot];
    for (int rail = 0; rail < 2; rail++) {
        announced &= state.rails[rail][sender] == up ? 3 : ~(1 << rail);
    }
    if (number >= c_.messages || rails == 0 || (announced & ~rails) != 0 ||
        (outgoing.number != 0 && !c_.mutations.slot_needs_no_ack)) {
        return;
    }
    for (int mask = 1; mask <= 3; mask++) {
        if (mask & ~rails) {
            continue;
        }
        State after = state;
        after.next++;
        after.outgoing[slot] = {static_cast<std::uint8_t>(number + 1),
                                static_cast<std::uint8_t>(mask),
                                0,
                                {kNone, kNone}};
        for (int share = 0; share < 2; share++) {
            if (mask >> share & 1) {
                after.outgoing[slot].carrier[share] = static_cast<std::uint8_t>(share);
                push(after.pipes[share][sender][queue_of(number)],
                     share_packet(number, mask, share, share));
            }
        }
        sink("message " + std::to_string(number) + " is posted with mask " + std::to_string(mask),
             after, Duty::obligatory, "");
    }
}

void Model::repeat_steps(const State &state, const Sink &sink) const
{
    for (int slot = 0; slot < c_.slots; slot++) {
        const Outgoing &outgoing = state.outgoing[slot];
        for (int share = 0; share < 2; share++) {
            if (!(outgoing.mask >> share & 1) || (outgoing.done >> share & 1) ||
                outgoing.carrier[share] != kNone) {
                continue;
            }
            int number = outgoing.number - 1, announced;
            for (int rail = 0; rail < 2; rail++) {
                if (!(heard(state, number, &announced) >> rail & 1)) {
                    continue;
                }
                State after = state;
                int packet = share_packet(number, outgoing.mask, share, rail);
                after.outgoing[slot].carrier[share] = static_cast<std::uint8_t>(rail);
                push(after.pipes[rail][sender][queue_of(number)], packet);
                sink(described(packet) + " is posted again" + on(rail), after, Duty::obligatory,
                     "");
            }
        }
    }
}

// ---- Receiving ----------------------------------------------------------------------------------

void Model::receive_steps(const State &state, const Sink &sink) const
{
    const Incoming &last = state.incoming[state.posted % c_.slots];
    if (state.posted == c_.messages || last.open ||
        (last.telling != 0 && !c_.mutations.cts_read_late)) {
        return;
    }
    State after = state;
    Incoming &next = after.incoming[state.posted % c_.slots];
    std::memset(&next, 0, sizeof(next));
    next.open = 1;
    next.number = static_cast<std::uint8_t>(state.posted + 1);
    after.posted++;
    sink("receive " + std::to_string(state.posted) + " is posted", after, Duty::obligatory, "");
}

// Each rail has its own clear-to-sends, in order, which announce those of the rails that are up.
void Model::line_steps(const State &state, const Sink &sink) const
{
    for (int rail = 0; rail < 2; rail++) {
        int next = -1;
        for (int slot = 0; slot < c_.slots; slot++) {
            const Incoming &incoming = state.incoming[slot];
            if (incoming.open && !(incoming.posted >> rail & 1) &&
                (next < 0 || incoming.number < state.incoming[next].number)) {
                next = slot;
            }
        }
        if (state.rails[rail][receiver] != up || next < 0) {
            continue;
        }
        State after = state;
        Incoming &incoming = after.incoming[next];
        int rails = (state.rails[0][receiver] == up) | (state.rails[1][receiver] == up) << 1;
        int packet = kLine | (incoming.number - 1) << 4 | rails << 2;
        incoming.posted = static_cast<std::uint8_t>(incoming.posted | 1 << rail);
        incoming.telling = static_cast<std::uint8_t>(incoming.telling | 1 << rail);
        after.staging[rail][next] = static_cast<std::uint8_t>(packet);
        push(after.pipes[rail][receiver][queue_of(incoming.number - 1)], packet);
        sink(described(packet) + " is posted" + on(rail), after, Duty::obligatory, "");
    }
}

// ---- Queue pairs --------------------------------------------------------------------------------

void Model::pipe_steps(const State &state, int rail, int side, int queue, const Sink &sink) const
{
    const Pipe &pipe = state.pipes[rail][side][queue];
    bool alive = state.rails[rail][side] != fenced;
    bool deaf = state.rails[rail][1 - side] == fenced && !c_.mutations.report_without_fence;
    // What is under way lands even when its sender's queue pair has failed.
    if (pipe.landed < pipe.count && !deaf) {
        State after = state;
        Pipe &moved = after.pipes[rail][side][queue];
        int packet = pipe.wqes[moved.landed++];
        std::string violation = land(after, packet, rail, alive);
        if (!(packet & kLine)) {
            moved.arrivals[moved.arrived++] = static_cast<std::uint8_t>(packet);
        }
        sink(described(packet) + " lands" + on(rail), after,
             alive ? Duty::obligatory : Duty::optional, violation);
    }
    if (pipe.landed > 0 && alive) {
        State after = state;
        Pipe &moved = after.pipes[rail][side][queue];
        int packet = pipe.wqes[0];
        std::memmove(moved.wqes, moved.wqes + 1, kPipe - 1);
        moved.wqes[kPipe - 1] = 0;
        moved.count--;
        moved.landed--;
        acknowledge(after, packet, rail);
        sink(described(packet) + " is acknowledged" + on(rail), after,
             deaf ? Duty::optional : Duty::obligatory, "");
    }
    if (pipe.arrived > 0 && !deaf) {
        State after = state;
        Pipe &moved = after.pipes[rail][side][queue];
        int packet = pipe.arrivals[0];
        std::memmove(moved.arrivals, moved.arrivals + 1, kPipe - 1);
        moved.arrivals[kPipe - 1] = 0;
        moved.arrived--;
        std::string violation;
        if (!(c_.mutations.probing_is_deaf && state.rails[rail][1 - side] == probing)) {
            violation = take(after, packet);
        }
        sink(described(packet) + " is polled" + on(rail), after, Duty::obligatory, violation);
    }
    if (pipe.count > 0 && alive && deaf) {
        State after = state;
        std::string violation = fence(after, rail, side);
        sink(std::string("the ") + side_name(side) + " gets no answer" + on(rail), after,
             Duty::obligatory, violation);
    }
}

// ---- Trouble ------------------------------------------------------------------------------------

// The side's queue pairs are in the error state; what they had received is handled; it reports.
std::string Model::fence(State &state, int rail, int side) const
{
    std::string violation;
    state.rails[rail][side] = fenced;
    for (int queue = 0; queue < 2; queue++) {
        Pipe &pipe = state.pipes[rail][1 - side][queue];
        for (int i = 0; i < pipe.arrived; i++) {
            if (!c_.mutations.drain_forgotten && violation.empty()) {
                violation = take(state, pipe.arrivals[i]);
            }
        }
        if (!c_.mutations.report_without_fence) {
            pipe.arrived = 0;
            std::memset(pipe.arrivals, 0, kPipe);
        }
    }
    Report report = {static_cast<std::uint8_t>(rail), state.posted, {3, 3}};
    for (int slot = 0; slot < c_.slots; slot++) {
        const Incoming &incoming = state.incoming[slot];
        if (incoming.open) {
            report.seen[slot] = incoming.seen;
        }
    }
    if (side == sender) {
        report = {static_cast<std::uint8_t>(rail), 0, {0, 0}};
    }
    state.control[1 - side][state.controls[1 - side]++] = report;
    if (side == sender && c_.mutations.resend_at_once) {
        Report nothing = {static_cast<std::uint8_t>(rail), state.posted, {0, 0}};
        take_report(state, sender, nothing);
        state.known[rail][sender] = 0;
    }
    if (side == receiver) { // its queue pairs are gone, and the windows with them
        int rest = ~(1 << rail);
        for (Incoming &incoming : state.incoming) {
            incoming.posted &= static_cast<std::uint8_t>(c_.mutations.cts_not_renewed ? 3 : rest);
            incoming.telling &= static_cast<std::uint8_t>(rest);
            incoming.granted &= static_cast<std::uint8_t>(rest);
        }
        std::memset(state.staging[rail], 0, sizeof(state.staging[rail]));
    }
    // Nothing is left of it once both have.
    if (state.rails[rail][1 - side] == fenced && !c_.mutations.report_without_fence) {
        std::memset(state.pipes[rail], 0, sizeof(state.pipes[rail]));
    }
    return violation;
}

std::string Model::take_report(State &state, int side, const Report &report) const
{
    std::string violation;
    int rail = report.rail;
    if (state.rails[rail][side] != fenced) {
        violation = fence(state, rail, side);
    }
    state.known[rail][side] = 1;
    if (side == receiver) {
        return violation;
    }
    for (int slot = 0; slot < c_.slots; slot++) {
        for (int share = 0; share < 2; share++) {
            Outgoing &outgoing = state.outgoing[slot];
            if (outgoing.carrier[share] != rail) {
                continue;
            }
            // The slot's last message before `posted` is the one that `seen` tells of.
            int number = outgoing.number - 1;
            bool seen = number + c_.slots < report.posted ||
                        (number < report.posted && (report.seen[slot] >> share & 1));
            if (seen && !c_.mutations.report_not_heeded) {
                acknowledge(state, share_packet(number, outgoing.mask, share, rail), rail);
            } else {
                outgoing.carrier[share] = kNone;
            }
        }
    }
    return violation;
}

void Model::control_steps(const State &state, const Sink &sink) const
{
    for (int side = 0; side < 2; side++) {
        if (state.controls[side] == 0) {
            continue;
        }
        State after = state;
        Report report = state.control[side][0];
        std::string violation;
        if (report.rail == kBye) {
            bool all = true;
            for (const Incoming &incoming : state.incoming) {
                all &= !incoming.open;
            }
            all &= state.posted == c_.messages;
            if (!all && !c_.mutations.bye_overtakes) {
                continue; // it waits for what was sent before it
            }
            after.ended = 1;
            violation = all ? "" : "the channel ends, and a message that was sent is not complete";
        } else {
            violation = take_report(after, side, report);
        }
        std::memmove(&after.control[side][0], &after.control[side][1],
                     (kControl - 1) * sizeof(Report));
        std::memset(&after.control[side][kControl - 1], 0, sizeof(Report));
        after.controls[side]--;
        sink(std::string("the ") + side_name(side) + " takes " +
                 (report.rail == kBye ? "BYE" : "the report" + on(report.rail)),
             after, Duty::obligatory, violation);
    }
    bool idle = state.next == c_.messages && !state.bye_sent;
    for (const Outgoing &outgoing : state.outgoing) {
        idle &= outgoing.number == 0;
    }
    if (idle) {
        State after = state;
        after.bye_sent = 1;
        after.control[receiver][after.controls[receiver]++] = {kBye, 0, {0, 0}};
        sink("the sender says BYE", after, Duty::obligatory, "");
    }
}

void Model::trouble_steps(const State &state, const Sink &sink) const
{
    for (int rail = 0; rail < 2; rail++) {
        auto &there = state.rails[rail];
        bool other_up = state.rails[1 - rail][0] == up && state.rails[1 - rail][1] == up;
        for (int side = 0; side < 2; side++) {
            if (state.failures < c_.failures && there[side] != fenced && other_up && !state.ended) {
                State after = state;
                after.failures++;
                std::string violation = fence(after, rail, side);
                sink(std::string("the ") + side_name(side) + " sees an error" + on(rail), after,
                     Duty::optional, violation);
            }
            if (there[side] == probing) {
                State after = state;
                after.rails[rail][side] = up;
                sink(std::string("the ") + side_name(side) + " is probed" + on(rail), after,
                     Duty::obligatory, "");
            }
        }
        if (state.returns < c_.returns && there[0] == fenced && there[1] == fenced &&
            state.known[rail][0] && state.known[rail][1] && !state.ended) {
            State after = state;
            after.returns++;
            after.known[rail][0] = after.known[rail][1] = 0;
            after.rails[rail][sender] = c_.active_sends ? probing : up;
            after.rails[rail][receiver] = c_.active_sends ? up : probing;
            std::memset(after.pipes[rail], 0, sizeof(after.pipes[rail]));
            if (!c_.mutations.cts_of_any_epoch) {
                std::memset(after.cts[rail], 0, sizeof(after.cts[rail]));
            }
            sink("the rail comes back:" + on(rail), after, Duty::optional, "");
        }
    }
}

void Model::steps(const State &state, const Sink &sink) const
{
    post_steps(state, sink);
    repeat_steps(state, sink);
    receive_steps(state, sink);
    line_steps(state, sink);
    for (int rail = 0; rail < 2; rail++) {
        for (int side = 0; side < 2; side++) {
            for (int queue = 0; queue < c_.queue_pairs; queue++) {
                pipe_steps(state, rail, side, queue, sink);
            }
        }
    }
    control_steps(state, sink);
    trouble_steps(state, sink);
}

std::string Model::wedged(const State &state) const
{
    if (state.next < c_.messages) {
        return "message " + std::to_string(state.next) + " can never be sent";
    }
    for (int slot = 0; slot < c_.slots; slot++) {
        if (state.incoming[slot].open) {
            return "message " + std::to_string(state.incoming[slot].number - 1) +
                   " is never complete";
        }
        if (state.outgoing[slot].number != 0) {
            return "a message is never acknowledged";
        }
    }
    return state.ended ? "" : "the channel never ends";
}
