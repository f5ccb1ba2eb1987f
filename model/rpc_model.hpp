// rpc_model.hpp: the RPC flow control of docs/flow-control.md, between two endpoints A and B, in
// units of 32 bytes.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "checker.hpp"

struct Message {
    bool request;
    int size;      // units in the ring, its own header included, without the batch header
    int allowance; // units, batch header included
};

struct Batch {
    std::vector<Message> messages;
    bool fin = false;
    int request_limit = 0;
    int batch_limit = 0;
};

// Rules that can be taken away, to see the checker notice.
struct Mutations {
    bool no_read = false;            // a blocked sender reads no mailbox
    bool header_not_charged = false; // a message is charged without its batch header
    bool cancel_frees = false;       // a call that ends early gives its allowance back at once
    bool free_at_delivery = false;   // an allowance is given back when the response is delivered
    bool publish_before_refill = false;
    bool refill_too_late = false;   // receives are posted again only when none is left
    bool reply_unbounded = false;   // a reply may be one unit longer than was allowed
    bool consumed_at_first = false; // a batch counts as consumed with its first message
    bool limit_too_high = false;    // four units more are published than there are
};

struct Configuration {
    int request_share;           // Cq
    int reply_share;             // Cr; the ring is Cq + Cr + 1, the last unit for FIN
    int window;                  // W
    int receives;                // SRQ depth
    std::vector<int> requests;   // sizes that may be called with
    std::vector<int> allowances; // in units, batch header included
    int calls_max;               // open at a time on each side, zombies included
    bool client_only;            // B makes no calls
    bool may_leave;              // FIN
    bool may_time_out;
    bool partial_polls; // poll may take a single message
    Mutations mutations;
};

struct Side {
    // Sending. Totals, as in the engine.
    int request_produced = 0;
    int request_limit = 0; // the peer's, as known here
    int batches_sent = 0;
    int batch_limit = 0;
    std::vector<Message> open;
    bool fin_wanted = false, fin_sent = false, fin_received = false;
    int reply_outstanding = 0;
    std::vector<int> live, zombies; // allowances of this side's calls
    std::vector<int> owed;          // allowances of requests this side has to answer
    // Receiving.
    std::vector<Batch> arriving;    // landed, not begun
    std::vector<Message> parsing;   // rest of the batch being parsed
    bool header_unreleased = false; // of the batch being parsed, or of the one held
    int held_units = 0;             // in views of the last poll
    int held_charge = 0, held_allowance = 0, held_batches = 0;
    int request_consumed = 0, batches_consumed = 0;
    int published_requests = 0, published_batches = 0; // what the mailbox says
    int receives_posted = 0;
};

class RpcModel
{
  public:
    using State = std::array<Side, 2>;
    using Sink = std::function<void(const std::string &, const State &, Duty, const std::string &)>;

    explicit RpcModel(Configuration configuration) : c_(std::move(configuration))
    {
    }

    State initial() const;
    std::string encode(State state) const;
    void steps(const State &state, const Sink &sink) const;
    std::string wedged(const State &state) const;

  private:
    void call_steps(const State &state, int i, const Sink &sink) const;
    void reply_steps(const State &state, int i, const Sink &sink) const;
    void flush_step(const State &state, int i, const Sink &sink) const;
    void poll_steps(const State &state, int i, const Sink &sink) const;
    void read_steps(const State &state, int i, const Sink &sink) const;
    void leave_steps(const State &state, int i, const Sink &sink) const;

    int charge(int size) const;
    bool may_call(const Side &side, int size, int allowance) const;
    bool blocked(const State &state, int i) const;
    bool makes_calls(int i) const
    {
        return i == 0 || !c_.client_only;
    }
    void release(Side &side) const;
    void deliver(Side &side, int count) const;
    std::string broken(const State &state) const;

    Configuration c_;
};

// Call slots and generations: whether a late response can be taken for another call's.
struct SlotConfiguration {
    int generation_bits;
    bool zombies;
};

class SlotModel
{
  public:
    struct State {
        bool used = false, zombie = false;
        int call = 0;               // number of the call in the slot
        std::vector<int> responses; // numbers of calls whose response is under way, in order
        int calls = 0;              // made so far
    };
    using Sink = std::function<void(const std::string &, const State &, Duty, const std::string &)>;

    explicit SlotModel(SlotConfiguration configuration) : c_(configuration)
    {
    }

    State initial() const
    {
        return {};
    }
    std::string encode(const State &state) const;
    void steps(const State &state, const Sink &sink) const;
    std::string wedged(const State &) const
    {
        return "";
    }

  private:
    SlotConfiguration c_;
};
