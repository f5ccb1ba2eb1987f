// rpc_model.cpp: see rpc_model.hpp. What is not modelled is said in README.md.
#include "rpc_model.hpp"

#include <algorithm>

namespace
{

char name(int i)
{
    return i == 0 ? 'A' : 'B';
}

int units_of(const std::vector<Message> &messages)
{
    int units = 0;
    for (const Message &message : messages) {
        units += message.size;
    }
    return units;
}

int sum(const std::vector<int> &numbers)
{
    int total = 0;
    for (int number : numbers) {
        total += number;
    }
    return total;
}

class Encoder
{
  public:
    void put(int value)
    {
        bytes_.push_back(static_cast<char>(value & 0xff));
        bytes_.push_back(static_cast<char>(value >> 8 & 0xff));
    }
    void put(std::vector<int> values)
    {
        std::sort(values.begin(), values.end());
        put(static_cast<int>(values.size()));
        for (int value : values) {
            put(value);
        }
    }
    void put(const std::vector<Message> &messages)
    {
        put(static_cast<int>(messages.size()));
        for (const Message &message : messages) {
            put(message.request);
            put(message.size);
            put(message.allowance);
        }
    }
    std::string take()
    {
        return std::move(bytes_);
    }

  private:
    std::string bytes_;
};

} // namespace

// ---- The parts ----------------------------------------------------------------------------------

RpcModel::State RpcModel::initial() const
{
    State state;
    for (Side &side : state) {
        side.request_limit = side.published_requests = c_.request_share;
        side.batch_limit = side.published_batches = c_.window;
        side.receives_posted = c_.receives;
    }
    return state;
}

// Totals only matter by their differences, and a limit on its way that is no higher than the one
// known does not matter.
std::string RpcModel::encode(State state) const
{
    Encoder encoder;
    for (int i = 0; i < 2; i++) {
        Side &side = state[i];
        const Side &peer = state[1 - i];
        encoder.put(side.request_produced - peer.request_consumed);
        encoder.put(peer.published_requests - peer.request_consumed);
        encoder.put(peer.published_requests - side.request_limit);
        encoder.put(side.batches_sent - peer.batches_consumed);
        encoder.put(peer.published_batches - peer.batches_consumed);
        encoder.put(peer.published_batches - side.batch_limit);
        encoder.put(side.open);
        encoder.put(side.fin_wanted | side.fin_sent << 1 | side.fin_received << 2 |
                    side.header_unreleased << 3);
        encoder.put(side.reply_outstanding);
        encoder.put(side.live);
        encoder.put(side.zombies);
        encoder.put(side.owed);
        encoder.put(static_cast<int>(side.arriving.size()));
        for (const Batch &batch : side.arriving) {
            encoder.put(batch.messages);
            encoder.put(batch.fin);
            encoder.put(peer.published_requests -
                        std::max(batch.request_limit, side.request_limit));
            encoder.put(peer.published_batches - std::max(batch.batch_limit, side.batch_limit));
        }
        encoder.put(side.parsing);
        for (int value : {side.held_units, side.held_charge, side.held_allowance, side.held_batches,
                          side.receives_posted}) {
            encoder.put(value);
        }
    }
    return encoder.take();
}

int RpcModel::charge(int size) const
{
    return size + (c_.mutations.header_not_charged ? 0 : 1);
}

bool RpcModel::may_call(const Side &side, int size, int allowance) const
{
    return !side.fin_wanted && side.request_produced + charge(size) <= side.request_limit &&
           side.reply_outstanding + allowance <= c_.reply_share;
}

// The sender is stuck in a way that only the peer's mailbox can end.
bool RpcModel::blocked(const State &state, int i) const
{
    const Side &side = state[i];
    bool window_closed = side.batches_sent >= side.batch_limit &&
                         (!side.open.empty() || (side.fin_wanted && !side.fin_sent));
    bool refused = false;
    for (int size : c_.requests) {
        refused |= makes_calls(i) && !side.fin_wanted &&
                   side.request_produced + charge(size) > side.request_limit;
    }
    return window_closed || refused;
}

// What must hold in every state.
std::string RpcModel::broken(const State &state) const
{
    for (int i = 0; i < 2; i++) {
        const Side &side = state[i];
        const Side &peer = state[1 - i];
        // The ring of `side` holds what the peer has written and this side has not released; an
        // open batch lies in the peer's staging ring at the same positions.
        int units = side.held_units + units_of(side.parsing) + side.header_unreleased;
        for (const Batch &batch : side.arriving) {
            units += 1 + units_of(batch.messages);
        }
        if (!peer.open.empty()) {
            units += 1 + units_of(peer.open);
        }
        if (units > c_.request_share + c_.reply_share + 1) {
            return std::string("the ring of ") + name(i) + " would hold " + std::to_string(units) +
                   " units";
        }
        if (side.receives_posted < 0) {
            return std::string("a batch finds no receive at ") + name(i);
        }
        if (sum(side.owed) > c_.reply_share) {
            return std::string(1, name(i)) + " owes more than its caller's ring has room for";
        }
    }
    return "";
}

// ---- Steps --------------------------------------------------------------------------------------

void RpcModel::steps(const State &state, const Sink &sink) const
{
    auto checked = [&](const std::string &step, const State &after, Duty duty,
                       const std::string &) { sink(step, after, duty, broken(after)); };
    for (int i = 0; i < 2; i++) {
        call_steps(state, i, checked);
        reply_steps(state, i, checked);
        flush_step(state, i, checked);
        poll_steps(state, i, checked);
        read_steps(state, i, checked);
        leave_steps(state, i, checked);
    }
}

void RpcModel::call_steps(const State &state, int i, const Sink &sink) const
{
    const Side &side = state[i];
    int open_calls = static_cast<int>(side.live.size() + side.zombies.size());
    for (int size : c_.requests) {
        for (int allowance : c_.allowances) {
            if (makes_calls(i) && open_calls < c_.calls_max && may_call(side, size, allowance)) {
                State after = state;
                after[i].request_produced += charge(size);
                after[i].reply_outstanding += allowance;
                after[i].live.push_back(allowance);
                after[i].open.push_back({true, size, allowance});
                sink(std::string(1, name(i)) + " calls with " + std::to_string(size) + ", allows " +
                         std::to_string(allowance),
                     after, Duty::optional, "");
            }
        }
    }
    for (std::size_t k = 0; c_.may_time_out && k < side.live.size(); k++) {
        State after = state;
        int allowance = side.live[k];
        after[i].live.erase(after[i].live.begin() + static_cast<long>(k));
        if (c_.mutations.cancel_frees) {
            after[i].reply_outstanding -= allowance;
        }
        after[i].zombies.push_back(allowance);
        sink(std::string(1, name(i)) + " gives a call up", after, Duty::optional, "");
    }
}

// In any order, with the shortest and the longest reply.
void RpcModel::reply_steps(const State &state, int i, const Sink &sink) const
{
    for (std::size_t k = 0; k < state[i].owed.size(); k++) {
        int allowance = state[i].owed[k];
        int longest =
            allowance - (c_.mutations.header_not_charged ? 0 : 1) + c_.mutations.reply_unbounded;
        for (int size : {1, longest}) {
            State after = state;
            after[i].owed.erase(after[i].owed.begin() + static_cast<long>(k));
            after[i].open.push_back({false, size, allowance});
            sink(std::string(1, name(i)) + " replies with " + std::to_string(size), after,
                 Duty::obligatory, "");
        }
    }
}

void RpcModel::flush_step(const State &state, int i, const Sink &sink) const
{
    const Side &side = state[i];
    bool fin = side.fin_wanted && !side.fin_sent;
    if ((side.open.empty() && !fin) || side.batches_sent >= side.batch_limit) {
        return;
    }
    State after = state;
    after[i].open.clear();
    after[i].fin_sent |= fin;
    after[i].batches_sent++;
    after[1 - i].arriving.push_back(
        {side.open, fin, side.published_requests, side.published_batches});
    after[1 - i].receives_posted--;
    sink(std::string(1, name(i)) + " sends a batch of " + std::to_string(side.open.size()) +
             (fin ? " with FIN" : ""),
         after, Duty::obligatory, "");
}

// Ends the views of the poll before; then receives; then limits.
void RpcModel::release(Side &side) const
{
    bool any = side.held_units > 0 || side.held_batches > 0;
    side.request_consumed += side.held_charge;
    side.batches_consumed += side.held_batches;
    if (!c_.mutations.free_at_delivery) {
        side.reply_outstanding -= side.held_allowance;
    }
    if (any) {
        side.header_unreleased = side.header_unreleased && side.held_units == 0;
    }
    side.held_units = side.held_charge = side.held_allowance = side.held_batches = 0;
    auto refill = [&] {
        int low_mark = c_.mutations.refill_too_late ? 1 : c_.receives - c_.receives / 3;
        if (side.receives_posted < low_mark) {
            side.receives_posted = c_.receives;
        }
    };
    if (!c_.mutations.publish_before_refill) {
        refill();
    }
    side.published_requests =
        side.request_consumed + c_.request_share + (c_.mutations.limit_too_high ? 4 : 0);
    side.published_batches = side.batches_consumed + c_.window;
}

// Hands out up to `count` messages of the first batch that has some.
void RpcModel::deliver(Side &side, int count) const
{
    if (side.parsing.empty() && !side.arriving.empty()) {
        Batch batch = side.arriving.front();
        side.arriving.erase(side.arriving.begin());
        side.request_limit = std::max(side.request_limit, batch.request_limit);
        side.batch_limit = std::max(side.batch_limit, batch.batch_limit);
        side.parsing = batch.messages;
        side.header_unreleased = true;
        if (batch.fin) {
            side.fin_received = true;
            side.fin_wanted = true;
        }
        side.held_batches += batch.messages.empty() || c_.mutations.consumed_at_first;
        side.held_units += batch.messages.empty(); // the header of FIN alone
        side.header_unreleased = !batch.messages.empty();
    }
    for (; count > 0 && !side.parsing.empty(); count--) {
        Message message = side.parsing.front();
        side.parsing.erase(side.parsing.begin());
        side.held_units += message.size;
        if (message.request) {
            side.held_charge += charge(message.size);
            side.owed.push_back(message.allowance);
        } else {
            side.held_allowance += message.allowance;
            auto &from =
                std::find(side.live.begin(), side.live.end(), message.allowance) != side.live.end()
                    ? side.live
                    : side.zombies;
            bool zombie = &from == &side.zombies;
            from.erase(std::find(from.begin(), from.end(), message.allowance));
            if (c_.mutations.free_at_delivery) {
                side.reply_outstanding -= message.allowance;
            }
            if (zombie && c_.mutations.cancel_frees) {
                side.held_allowance -= message.allowance; // it was given back before
            }
        }
        if (side.parsing.empty() && !c_.mutations.consumed_at_first) {
            side.held_batches++;
        }
    }
}

void RpcModel::poll_steps(const State &state, int i, const Sink &sink) const
{
    const Side &side = state[i];
    bool news = side.held_units > 0 || side.held_batches > 0 || !side.parsing.empty() ||
                !side.arriving.empty();
    for (int count : {1, 1000}) {
        if (!news || (count == 1 && !c_.partial_polls)) {
            continue;
        }
        State after = state;
        release(after[i]);
        deliver(after[i], count);
        if (c_.mutations.publish_before_refill &&
            after[i].receives_posted < c_.receives - c_.receives / 3) {
            State between = after; // what has been published is seen before the receives are there
            sink(std::string(1, name(i)) + " polls and has not posted receives yet", between,
                 Duty::optional, "");
            after[i].receives_posted = c_.receives;
        }
        sink(std::string(1, name(i)) + (count == 1 ? " polls one message" : " polls"), after,
             Duty::obligatory, "");
    }
}

// Field by field: nothing is assumed about what is written together.
void RpcModel::read_steps(const State &state, int i, const Sink &sink) const
{
    const Side &peer = state[1 - i];
    if (c_.mutations.no_read) {
        return;
    }
    Duty duty = blocked(state, i) ? Duty::obligatory : Duty::optional;
    if (peer.published_requests > state[i].request_limit) {
        State after = state;
        after[i].request_limit = peer.published_requests;
        sink(std::string(1, name(i)) + " reads the request limit", after, duty, "");
    }
    if (peer.published_batches > state[i].batch_limit) {
        State after = state;
        after[i].batch_limit = peer.published_batches;
        sink(std::string(1, name(i)) + " reads the batch limit", after, duty, "");
    }
}

void RpcModel::leave_steps(const State &state, int i, const Sink &sink) const
{
    if (c_.may_leave && !state[i].fin_wanted) {
        State after = state;
        after[i].fin_wanted = true;
        sink(std::string(1, name(i)) + " takes leave", after, Duty::optional, "");
    }
}

// ---- The end of duties --------------------------------------------------------------------------

std::string RpcModel::wedged(const State &state) const
{
    for (int i = 0; i < 2; i++) {
        const Side &side = state[i];
        if (!side.open.empty() || (side.fin_wanted && !side.fin_sent)) {
            return std::string(1, name(i)) + " has something to send and never can";
        }
        if (!side.live.empty() || !side.zombies.empty()) {
            return std::string(1, name(i)) + " waits for a response that never comes";
        }
        if (side.fin_sent != state[1 - i].fin_received || (side.fin_sent && !side.fin_received)) {
            return std::string(1, name(i)) + " took leave, and the peer does not";
        }
        for (int size : c_.requests) {
            for (int allowance : c_.allowances) {
                if (makes_calls(i) && !side.fin_wanted && !may_call(side, size, allowance)) {
                    return std::string(1, name(i)) + " can never call with " +
                           std::to_string(size) + ", allowing " + std::to_string(allowance) +
                           ", again";
                }
            }
        }
    }
    return "";
}

// ---- Call slots ---------------------------------------------------------------------------------

std::string SlotModel::encode(const State &state) const
{
    std::string bytes = {static_cast<char>(state.used), static_cast<char>(state.zombie)};
    // Numbers matter relative to the newest call only.
    bytes.push_back(static_cast<char>(state.calls - state.call));
    for (int response : state.responses) {
        bytes.push_back(static_cast<char>(state.calls - response));
    }
    return bytes;
}

void SlotModel::steps(const State &state, const Sink &sink) const
{
    const int modulus = 1 << c_.generation_bits;
    if (!state.used && state.responses.size() < 6 && state.calls < 40) {
        State after = state;
        after.used = true;
        after.zombie = false;
        after.call = ++after.calls;
        after.responses.push_back(after.call);
        sink("call " + std::to_string(after.call), after, Duty::optional, "");
    }
    if (state.used && !state.zombie) {
        State after = state;
        after.zombie = c_.zombies;
        after.used = c_.zombies;
        sink("call " + std::to_string(state.call) + " times out", after, Duty::optional, "");
    }
    if (!state.responses.empty()) {
        State after = state;
        int response = state.responses.front();
        after.responses.erase(after.responses.begin());
        bool taken = state.used && response % modulus == state.call % modulus;
        if (taken) {
            after.used = after.zombie = false;
        }
        sink("the response to call " + std::to_string(response) + " arrives", after, Duty::optional,
             taken && response != state.call
                 ? "it is taken for that of call " + std::to_string(state.call)
                 : "");
    }
}
