// channel_model.hpp: messages striped over two rails (docs/design.md section 12): one sender, one
// receiver, rails that fail and come back. States are plain bytes, so that many fit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "checker.hpp"

// Rules that can be taken away, to see the checker notice.
struct ChannelMutations {
    bool resend_at_once = false;     // by the sender, who does not wait for the report
    bool duplicates_ignored = false; // with it: by generation; is that enough instead of the fence?
    bool report_without_fence = false; // the receiver's queue pairs stay as they are
    bool report_not_heeded = false;    // all that is not acknowledged is sent again
    bool drain_forgotten = false;      // completions that wait at the fence are thrown away
    bool cts_not_renewed = false;      // open receives are not told over a rail that comes back
    bool cts_of_any_epoch = false;     // what a rail told before it was lost is heeded
    bool cts_read_late = false;    // the slot's next is written before the device has read the last
    bool probing_is_deaf = false;  // a rail is used by one side before the other is ready
    bool leader_is_rail_0 = false; // who writes the record
    bool record_at_learning = false;
    bool bye_overtakes = false;     // is heeded at once, whatever is still under way
    bool slot_needs_no_ack = false; // a clear-to-send alone frees the slot
};

struct ChannelConfiguration {
    int messages;
    int slots;         // 1 or 2
    int queue_pairs;   // 1 or 2
    int failures;      // of a rail while the other is up
    int returns;       // of a lost rail
    bool active_sends; // the side that comes up last is the sender
    ChannelMutations mutations;
};

class ChannelModel
{
  public:
    static constexpr int kSlots = 2, kPipe = 6, kControl = 4;
    enum Side { sender = 0, receiver = 1 };
    enum Rail : std::uint8_t { up, probing, fenced };

    // What one queue pair sends to the other end: what is not acknowledged, of which the first
    // `landed` have been executed there; and immediates that wait there to be polled.
    struct Pipe {
        std::uint8_t count, landed, arrived;
        std::uint8_t wqes[kPipe], arrivals[kPipe];
    };
    struct Report {
        std::uint8_t rail; // or bye
        std::uint8_t posted;
        std::uint8_t seen[kSlots];
    };
    struct Outgoing {
        std::uint8_t number; // of the message + 1
        std::uint8_t mask, done;
        std::uint8_t carrier[2];
    };
    struct Incoming {
        std::uint8_t number; // of the message + 1
        std::uint8_t open, mask, seen, record;
        // Masks of rails: the clear-to-send is posted; it is, and not acknowledged; it was executed,
        // and with it the bind before it.
        std::uint8_t posted, telling, granted;
    };
    struct State {
        Pipe pipes[2][2][2];                   // rail, side that sends, queue pair
        std::uint8_t rails[2][2], known[2][2]; // rail, side; known: the peer's report
        std::uint8_t controls[2];              // per side that receives them
        Report control[2][kControl];
        std::uint8_t next;               // message to be sent
        std::uint8_t cts[2][kSlots];     // per rail: the clear-to-sends that have landed
        std::uint8_t staging[2][kSlots]; // from where the receiver's devices read them
        Outgoing outgoing[kSlots];
        std::uint8_t posted; // next receive
        Incoming incoming[kSlots];
        std::uint8_t bye_sent, ended, failures, returns;
    };
    using Sink = std::function<void(const std::string &, const State &, Duty, const std::string &)>;

    explicit ChannelModel(ChannelConfiguration configuration) : c_(configuration)
    {
    }

    State initial() const;
    std::string encode(const State &state) const;
    void steps(const State &state, const Sink &sink) const;
    std::string wedged(const State &state) const;

  private:
    void post_steps(const State &state, const Sink &sink) const;
    void repeat_steps(const State &state, const Sink &sink) const;
    void receive_steps(const State &state, const Sink &sink) const;
    void pipe_steps(const State &state, int rail, int side, int queue, const Sink &sink) const;
    void control_steps(const State &state, const Sink &sink) const;
    void trouble_steps(const State &state, const Sink &sink) const;

    void push(Pipe &pipe, int packet) const;
    std::string land(State &state, int packet, int rail, bool alive) const;
    void line_steps(const State &state, const Sink &sink) const;
    // The rails over which the sender has heard of a message, and the mask of those announced.
    int heard(const State &state, int number, int *announced) const;
    int queue_of(int number) const
    {
        return number % c_.slots % c_.queue_pairs;
    }
    std::string take(State &state, int packet) const;
    void acknowledge(State &state, int packet, int rail) const;
    std::string fence(State &state, int rail, int side) const;
    std::string take_report(State &state, int side, const Report &report) const;
    bool complete(const Incoming &incoming) const
    {
        return incoming.mask != 0 && incoming.seen == incoming.mask;
    }

    ChannelConfiguration c_;
};
