// lane_model.cpp: see lane_model.hpp. What is not modelled is said in README.md.
#include "lane_model.hpp"

#include <algorithm>

namespace
{

const int giver = 1; // B

std::string name(int i)
{
    return i == 0 ? "A" : "B";
}

std::string text_of(const Said &said)
{
    static const char *const words[] = {"lane",    "ready", "ended", "revoke",
                                        "revoked", "GRANT", "FIN"};
    const int number = said.serial != 0 ? said.serial : said.life;
    return words[static_cast<int>(said.word)] +
           (number != 0 ? " " + std::to_string(number) : std::string());
}

// In a ring, each in a batch of its own, which is the longest. Messages and FIN have room elsewhere.
int bytes_of(const Said &said)
{
    switch (said.word) {
    case Word::lane:
        return 32 + 64;
    case Word::ready:
    case Word::ended:
    case Word::revoke:
    case Word::revoked:
        return 32 + 32;
    default:
        return 0;
    }
}

bool anything_due(const LaneSide &side)
{
    return side.due_address || side.due_ready || side.due_ended;
}

// The peer has told of the end of this life, or has gone on to the next.
bool heard_end(const LaneSide &side)
{
    return side.peer_life > side.life || (side.peer_life == side.life && side.heard_ended);
}

} // namespace

std::string LaneModel::encode(const State &state) const
{
    std::string bytes;
    auto put = [&](int value) { bytes.push_back(static_cast<char>(value)); };
    put(state.failures);
    put(state.ended);
    for (const LaneSide &side : state.sides) {
        put(static_cast<int>(side.state) | side.join_under_way << 3 | side.failed_lately << 4);
        put(side.due_address | side.due_ready << 1 | side.due_ended << 2 | side.heard_address << 3 |
            side.heard_ready << 4 | side.heard_ended << 5 | side.after << 6 | side.after_lost << 7);
        put(side.was_ready);
        put(static_cast<int>(side.leave) | side.fin_heard << 2 | static_cast<int>(side.grant) << 3);
        for (int value :
             {side.life, side.peer_life, side.told_life, side.ended_life, side.serial, side.tell,
              side.told, side.taken, side.taken_life, side.revoked, side.owed, side.held_bytes / 32,
              static_cast<int>(side.ops.size()), static_cast<int>(side.arriving.size())}) {
            put(value);
        }
        for (const LaneOp &op : side.ops) {
            put(op.serial << 1 | op.before_revoke);
        }
        for (const Said &said : side.arriving) {
            put(static_cast<int>(said.word));
            put(said.life);
            put(said.serial);
        }
    }
    return bytes;
}

// What must hold in every state.
std::string LaneModel::broken(const State &state) const
{
    for (int i = 0; i < 2; i++) {
        const LaneSide &side = state.sides[i];
        int bytes = side.held_bytes;
        for (const Said &said : side.arriving) {
            bytes += bytes_of(said);
        }
        if (bytes > c_.room) {
            return "the ring of " + name(i) + " would hold words of " + std::to_string(bytes) +
                   " bytes";
        }
    }
    return "";
}

// ---- What a side says ---------------------------------------------------------------------------

bool LaneModel::answer_due(const LaneSide &side) const
{
    const bool used = std::any_of(side.ops.begin(), side.ops.end(),
                                  [](const LaneOp &op) { return op.before_revoke; });
    const bool silent = c_.mutations.leave_says_nothing && side.leave == Leave::said;
    return side.owed != 0 && (!used || c_.mutations.answer_at_once) && !silent;
}

bool LaneModel::revoke_due(const LaneSide &side) const
{
    return side.state == Lane::open && side.tell != 0 &&
           (side.told == 0 || c_.mutations.revokes_at_once);
}

bool LaneModel::may_say_fin(const LaneSide &side) const
{
    return side.leave == Leave::wanted && side.ops.empty() &&
           (side.grant != Grant::revoked || c_.mutations.leave_before_revoked);
}

bool LaneModel::something_due(const LaneSide &side) const
{
    if (side.after) {
        return side.ops.empty() || side.after_lost; // or the batch is held back
    }
    return answer_due(side) ||
           (side.leave != Leave::said && (anything_due(side) || revoke_due(side))) ||
           may_say_fin(side);
}

// After FIN only what the peer waits for is said.
void LaneModel::say_due(State &state, int i) const
{
    LaneSide &side = state.sides[i];
    std::vector<Said> &to = state.sides[1 - i].arriving;
    if (answer_due(side)) {
        to.push_back({Word::revoked, 0, side.owed});
        side.owed = 0;
    }
    if (side.leave == Leave::said) {
        return;
    }
    if (side.due_address) {
        side.told_life = side.life;
        to.push_back({Word::lane, side.life, 0});
    }
    if (side.due_ready) {
        to.push_back({Word::ready, side.life, 0});
    }
    if (side.due_ended && !c_.mutations.end_not_said &&
        (!heard_end(side) || c_.mutations.end_always_said)) {
        side.ended_life = side.life;
        to.push_back({Word::ended, side.life, 0});
    }
    side.due_address = side.due_ready = side.due_ended = false;
    open_if_both(side);
    if (revoke_due(side)) {
        to.push_back({Word::revoke, 0, side.tell});
        side.told = side.tell;
        side.tell = 0;
    }
    if (may_say_fin(side)) {
        side.leave = Leave::said;
        to.push_back({Word::fin, 0, 0});
    }
}

void LaneModel::say_step(const State &state, int i, const Sink &sink) const
{
    if (!something_due(state.sides[i])) {
        return;
    }
    State after = state;
    LaneSide &side = after.sides[i];
    std::string violation;
    if (side.after) {
        violation = side.after_lost ? "the peer is told of what was not done" : "";
        side.after = side.after_lost = false;
    } else {
        say_due(after, i);
    }
    std::string step = name(i) + (state.sides[i].after ? " sends the message" : " says");
    const std::vector<Said> &said = after.sides[1 - i].arriving;
    for (std::size_t k = state.sides[1 - i].arriving.size(); k < said.size(); k++) {
        step += " " + text_of(said[k]);
    }
    sink(step, after, Duty::obligatory, violation);
}

// ---- What it makes of what the other has said ---------------------------------------------------

void LaneModel::open_if_both(LaneSide &side) const
{
    if (side.state == Lane::joined && side.life == side.peer_life &&
        (side.heard_ready || c_.mutations.ready_not_awaited) &&
        (!side.due_ready || c_.mutations.ready_not_said)) {
        side.state = Lane::open;
    }
}

void LaneModel::join_if_both(LaneSide &side) const
{
    if (side.state == Lane::waits && side.life == side.peer_life && side.heard_address &&
        !side.heard_ended && side.leave == Leave::none) {
        side.state = Lane::joining;
        side.join_under_way = true;
    }
}

// Its queue pair is gone, and with it all ops and rights.
void LaneModel::stop(LaneSide &side) const
{
    side.state = Lane::failed;
    if (side.join_under_way) {
        return;
    }
    side.ops.clear();
    side.grant = Grant::none;
    side.tell = 0;
    if (c_.mutations.answer_ends_with_lane) {
        side.owed = 0;
    }
    if (c_.mutations.asked_ends_with_lane) {
        side.told = 0;
    }
}

void LaneModel::fail(State &state, int i) const
{
    LaneSide &side = state.sides[i];
    if (side.state == Lane::failed) {
        return;
    }
    if (side.after && !side.ops.empty()) {
        state.ended = !c_.mutations.gate_ends_with_lane;
        side.after_lost = true;
    }
    side.due_address = side.due_ready = false;
    side.due_ended = side.told_life == side.life;
    side.failed_lately = true;
    stop(side);
}

std::string LaneModel::take_lane(LaneSide &side, int life) const
{
    const bool first = life == side.peer_life && !side.heard_address && !side.heard_ended;
    const bool next =
        life == side.peer_life + 1 && (side.heard_ended || side.ended_life == side.peer_life);
    if (!first && !next) {
        return "it gave the address of a lane that it cannot have";
    }
    side.peer_life = life;
    side.heard_address = true;
    side.heard_ready = side.heard_ready && c_.mutations.any_ready_counts;
    side.heard_ended = false;
    join_if_both(side);
    return "";
}

std::string LaneModel::take_ready(LaneSide &side, int life) const
{
    if (life != side.peer_life || side.heard_ended) {
        return "it tells of a lane that there is not";
    }
    if (!side.heard_address || life > side.told_life) {
        return "its lane cannot be ready, nor ended";
    }
    if (side.heard_ready && !c_.mutations.any_ready_counts) {
        return "it tells of its lane what it cannot, or twice";
    }
    side.heard_ready = side.was_ready = true;
    open_if_both(side);
    return "";
}

std::string LaneModel::take_ended(State &state, int i, int life) const
{
    LaneSide &side = state.sides[i];
    if (life != side.peer_life || side.heard_ended) {
        return "it tells of a lane that there is not";
    }
    if (!side.heard_address || life > side.told_life) {
        return "its lane cannot be ready, nor ended";
    }
    side.heard_ended = true;
    if (side.life == life) {
        fail(state, i);
    }
    return "";
}

std::string LaneModel::take_revoke(LaneSide &side, int serial) const
{
    if (!side.was_ready) {
        return "it speaks of grants before there is a lane";
    }
    if (side.owed != 0) {
        return "it revokes a grant before the last one was answered";
    }
    if (serial <= side.revoked) {
        return "it revokes what is no grant, or was revoked";
    }
    side.revoked = serial;
    side.owed = serial;
    for (LaneOp &op : side.ops) {
        op.before_revoke = true;
    }
    return "";
}

std::string LaneModel::take_revoked(State &state, int i, int serial) const
{
    LaneSide &side = state.sides[i];
    if (!side.was_ready) {
        return "it speaks of grants before there is a lane";
    }
    if (side.told == 0 || serial != side.told) {
        return "it answers a REVOKE that was not said";
    }
    side.told = 0;
    if (side.grant == Grant::revoked && side.serial == serial) { // or it came too late
        side.grant = Grant::none;
        const LaneSide &peer = state.sides[1 - i];
        for (const LaneOp &op : peer.ops) {
            if (op.serial == serial && peer.life == side.life) {
                return "the right ends under an op";
            }
        }
    }
    return "";
}

std::string LaneModel::take(State &state, int i, const Said &said) const
{
    LaneSide &side = state.sides[i];
    if (side.fin_heard && said.word != Word::revoked) {
        return "a word of its lane came after it took leave";
    }
    switch (said.word) {
    case Word::lane:
        return take_lane(side, said.life);
    case Word::ready:
        return take_ready(side, said.life);
    case Word::ended:
        return take_ended(state, i, said.life);
    case Word::revoke:
        return take_revoke(side, said.serial);
    case Word::revoked:
        return take_revoked(state, i, said.serial);
    case Word::grant:
        if (said.life > side.life ||
            (said.life == side.life && side.state != Lane::open && side.state != Lane::failed)) {
            return "a grant has come that cannot be used yet";
        }
        side.taken = said.serial;
        side.taken_life = said.life;
        return "";
    case Word::fin:
        side.fin_heard = true;
        side.leave = side.leave == Leave::none ? Leave::wanted : side.leave;
        break;
    }
    return "";
}

// Ends the views of the poll before, and parses one word, or all that there is.
void LaneModel::poll_steps(const State &state, int i, const Sink &sink) const
{
    const LaneSide &side = state.sides[i];
    if (side.arriving.empty() && side.held_bytes == 0) {
        return;
    }
    for (std::size_t most : {std::size_t(1), side.arriving.size()}) {
        if (most == 1 && side.arriving.size() > 1 && !c_.partial_polls) {
            continue;
        }
        State after = state;
        std::string step = name(i) + " polls";
        std::string violation;
        after.sides[i].held_bytes = 0;
        after.sides[i].failed_lately = false;
        for (std::size_t k = 0; k < std::min(most, side.arriving.size()) && violation.empty();
             k++) {
            const Said said = side.arriving[k];
            after.sides[i].arriving.erase(after.sides[i].arriving.begin());
            after.sides[i].held_bytes += bytes_of(said);
            step += " " + text_of(said);
            violation = take(after, i, said);
        }
        sink(step, after, Duty::obligatory, violation);
    }
}

// ---- Making, failing, making again --------------------------------------------------------------

void LaneModel::join_steps(const State &state, int i, const Sink &sink) const
{
    if (!state.sides[i].join_under_way) {
        return;
    }
    State after = state;
    LaneSide &side = after.sides[i];
    side.join_under_way = false;
    side.held_bytes = 0;              // a poll hears of it, before it parses anything
    if (side.state == Lane::failed) { // meanwhile
        stop(side);
    } else {
        side.state = Lane::joined;
        side.due_ready = true;
        open_if_both(side);
    }
    sink(name(i) + " has joined", after, Duty::obligatory, "");
    if (state.sides[i].state == Lane::joining && state.failures < c_.failures) {
        after = state;
        after.failures++;
        after.sides[i].join_under_way = false;
        after.sides[i].held_bytes = 0;
        fail(after, i);
        sink(name(i) + " cannot join", after, Duty::optional, "");
    }
}

void LaneModel::again_step(const State &state, int i, const Sink &sink) const
{
    const LaneSide &before = state.sides[i];
    if (before.state != Lane::failed || before.join_under_way || before.leave != Leave::none ||
        (anything_due(before) && !c_.mutations.again_at_once)) {
        return;
    }
    State after = state;
    LaneSide &side = after.sides[i];
    side.life += side.told_life == side.life && !c_.mutations.life_not_counted;
    side.held_bytes = side.failed_lately ? 0 : side.held_bytes; // the pause ends in a later poll
    side.failed_lately = false;
    side.state = Lane::waits;
    side.due_ready = side.due_ended = false;
    side.due_address = true;
    join_if_both(side);
    sink(name(i) + " makes its lane again", after, Duty::obligatory, "");
}

// Of itself: the network, or a device.
void LaneModel::failure_steps(const State &state, int i, const Sink &sink) const
{
    const Lane lane = state.sides[i].state;
    if (state.failures < c_.failures && lane != Lane::failed &&
        (lane != Lane::waits || c_.mutations.waiting_fails)) {
        State after = state;
        after.failures++;
        fail(after, i);
        sink("the lane of " + name(i) + " fails", after, Duty::optional, "");
    }
}

// ---- Ops and grants -----------------------------------------------------------------------------

void LaneModel::op_steps(const State &state, const Sink &sink) const
{
    const LaneSide &taker = state.sides[1 - giver];
    const LaneSide &owner = state.sides[giver];
    if (taker.state == Lane::open && taker.leave == Leave::none && !taker.after &&
        taker.taken != 0 && taker.taken_life == taker.life &&
        (taker.taken > taker.revoked || c_.mutations.ops_after_revoke) &&
        static_cast<int>(taker.ops.size()) < c_.ops_max) {
        State after = state;
        after.sides[1 - giver].ops.push_back({taker.taken, false});
        sink("an op of A", after, Duty::optional, "");
    }
    if (taker.ops.empty()) {
        return;
    }
    if (c_.calls_after && !taker.after && taker.leave == Leave::none) {
        State after = state;
        after.sides[1 - giver].after = true;
        sink("A sends a message behind it", after, Duty::optional, "");
    }
    const bool there = owner.life == taker.life && !owner.join_under_way &&
                       (owner.state == Lane::joined || owner.state == Lane::open);
    const bool right = owner.grant != Grant::none && owner.serial == taker.ops.front().serial;
    State after = state;
    if (there && right) {
        after.sides[1 - giver].ops.erase(after.sides[1 - giver].ops.begin());
        sink("the op is done", after, Duty::obligatory, "");
        return;
    }
    fail(after, 1 - giver);
    if (there) {
        fail(after, giver);
    }
    sink(there ? "the op is refused" : "nobody answers the op", after, Duty::obligatory,
         there && !c_.time_limits ? "a side that keeps the rules loses its lane" : "");
}

void LaneModel::grant_steps(const State &state, const Sink &sink) const
{
    const LaneSide &before = state.sides[giver];
    State after = state;
    LaneSide &side = after.sides[giver];
    if (before.state == Lane::open && before.leave == Leave::none && before.grant == Grant::none &&
        before.serial < c_.grants) {
        side.grant = Grant::bound;
        side.serial += before.serial == 0 || !c_.mutations.serial_repeated;
        after.sides[1 - giver].arriving.push_back({Word::grant, side.life, side.serial});
        sink("B grants " + std::to_string(side.serial), after, Duty::optional, "");
        return;
    }
    if (before.grant == Grant::bound && before.state == Lane::open && before.leave == Leave::none) {
        side.grant = Grant::revoked;
        side.tell = side.serial;
        sink("B revokes " + std::to_string(side.serial), after, Duty::optional, "");
    }
    if (before.grant == Grant::revoked && c_.time_limits) {
        side.grant = Grant::none;
        sink("B waits no longer", after, Duty::optional, "");
    }
}

void LaneModel::leave_steps(const State &state, int i, const Sink &sink) const
{
    if (c_.may_leave && state.sides[i].leave == Leave::none) {
        State after = state;
        after.sides[i].leave = Leave::wanted;
        sink(name(i) + " takes leave", after, Duty::optional, "");
    }
}

void LaneModel::steps(const State &state, const Sink &sink) const
{
    auto checked = [&](const std::string &step, const State &after, Duty duty,
                       const std::string &violation) {
        sink(step, after, duty, violation.empty() ? broken(after) : violation);
    };
    if (state.ended) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        say_step(state, i, checked);
        poll_steps(state, i, checked);
        join_steps(state, i, checked);
        again_step(state, i, checked);
        failure_steps(state, i, checked);
        leave_steps(state, i, checked);
    }
    op_steps(state, checked);
    grant_steps(state, checked);
}

// ---- The end of duties --------------------------------------------------------------------------

std::string LaneModel::wedged(const State &state) const
{
    const bool leaving = state.sides[0].leave != Leave::none || state.sides[1].leave != Leave::none;
    for (int i = 0; i < 2 && !state.ended; i++) {
        const LaneSide &side = state.sides[i];
        if (side.owed != 0 || side.told != 0) {
            return "a REVOKE of " + name(side.told != 0 ? i : 1 - i) + " is never answered";
        }
        if (side.grant == Grant::revoked) {
            return "a REVOKE of " + name(i) + " never ends";
        }
        if (leaving && (side.leave != Leave::said || !side.fin_heard)) {
            return "the two sides never part";
        }
        if (!leaving && side.state != Lane::open) {
            return "the lane of " + name(i) + " is never made again";
        }
    }
    if (!state.ended && !leaving && state.sides[0].life != state.sides[1].life) {
        return "the sides are in different lives";
    }
    return "";
}
