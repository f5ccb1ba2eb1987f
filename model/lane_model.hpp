// lane_model.hpp: what the two sides of a lane say to each other (docs/wire.md, "Lanes"), between A
// and B: how they make their lane, lose it and make it again, and how B takes back what it has granted
// to A.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "checker.hpp"

// What travels in batches, in order. The bytes of a grant are in a message of B's application.
enum class Word { lane, ready, ended, revoke, revoked, grant, fin };

struct Said {
    Word word;
    int life = 0;   // lane, ready, ended, grant
    int serial = 0; // revoke, revoked, grant
};

// Rules that can be taken away, to see the checker notice.
struct LaneMutations {
    bool ready_not_awaited = false;     // a side uses the lane before it hears *ready*
    bool ready_not_said = false;        // or before it has said so itself
    bool any_ready_counts = false;      // *ready* of an earlier life counts, too
    bool life_not_counted = false;      // a lane that is made again has the same life
    bool end_not_said = false;          // a side does not tell that its lane has failed
    bool end_always_said = false;       // nor asks whether the peer has told it before
    bool again_at_once = false;         // a lane is made again before that was said
    bool waiting_fails = false;         // a lane that waits for the peer's address can fail
    bool answer_at_once = false;        // *revoked* does not wait for the ops that use the grant
    bool ops_after_revoke = false;      // ops are accepted for a grant that was revoked
    bool revokes_at_once = false;       // a *revoke* does not wait for the answer to the one before
    bool answer_ends_with_lane = false; // what was revoked in an earlier life is not answered
    bool asked_ends_with_lane = false;  // nor is that answer awaited
    bool serial_repeated = false;       // a place that is used again has the same serial
    bool leave_before_revoked = false;  // FIN does not wait for REVOKEs
    bool leave_says_nothing = false;    // after FIN not even *revoked* is said
    bool gate_ends_with_lane = false; // a message that waits for ops is sent when they have failed
};

struct LaneConfiguration {
    int failures;     // how often lanes or connects may fail of themselves
    int grants;       // how often B may grant
    int ops_max;      // of A, under way at a time
    bool time_limits; // REVOKEs have one
    bool may_leave;
    bool calls_after; // A may send a message behind its ops
    bool partial_polls;
    int room; // bytes of a ring for words, batch headers included
    LaneMutations mutations;
};

enum class Lane { waits, joining, joined, open, failed };
enum class Grant { none, bound, revoked };
enum class Leave { none, wanted, said };

struct LaneOp {
    int serial;
    bool before_revoke; // accepted before the *revoke* that is not answered
};

// The names are those of the engine (core/rpc/internal.h, core/lane/internal.h).
struct LaneSide {
    Lane state = Lane::waits;
    bool join_under_way = false;
    int life = 1, peer_life = 1, told_life = 0, ended_life = 0;
    bool due_address = true, due_ready = false, due_ended = false;
    bool heard_address = false, heard_ready = false, heard_ended = false;
    bool was_ready = false; // the peer has said so, of some life
    Leave leave = Leave::none;
    bool fin_heard = false;
    // Who gives.
    Grant grant = Grant::none;
    int serial = 0; // of the last one
    int tell = 0;   // a *revoke* to be said; 0 = none
    int told = 0;   // one that is not answered
    // Who takes.
    int taken = 0, taken_life = 0; // the grant that it knows
    std::vector<LaneOp> ops;
    int revoked = 0;         // serials up to this one
    int owed = 0;            // a *revoke* to be answered
    bool after = false;      // a message is to follow the ops
    bool after_lost = false; // of which one has failed
    // What has come, and what the last poll has parsed, which the next one releases.
    std::vector<Said> arriving;
    int held_bytes = 0;
    bool failed_lately = false; // in the last poll, or after it
};

class LaneModel
{
  public:
    struct State {
        std::array<LaneSide, 2> sides;
        int failures = 0;
        bool ended = false; // the connection
    };
    using Sink = std::function<void(const std::string &, const State &, Duty, const std::string &)>;

    explicit LaneModel(LaneConfiguration configuration) : c_(configuration)
    {
    }

    State initial() const
    {
        return {};
    }
    std::string encode(const State &state) const;
    void steps(const State &state, const Sink &sink) const;
    std::string wedged(const State &state) const;

  private:
    void say_step(const State &state, int i, const Sink &sink) const;
    void poll_steps(const State &state, int i, const Sink &sink) const;
    void join_steps(const State &state, int i, const Sink &sink) const;
    void again_step(const State &state, int i, const Sink &sink) const;
    void failure_steps(const State &state, int i, const Sink &sink) const;
    void op_steps(const State &state, const Sink &sink) const;
    void grant_steps(const State &state, const Sink &sink) const;
    void leave_steps(const State &state, int i, const Sink &sink) const;

    bool something_due(const LaneSide &side) const;
    bool answer_due(const LaneSide &side) const;
    bool revoke_due(const LaneSide &side) const;
    bool may_say_fin(const LaneSide &side) const;
    void say_due(State &state, int i) const;
    void stop(LaneSide &side) const;
    void fail(State &state, int i) const;
    void open_if_both(LaneSide &side) const;
    void join_if_both(LaneSide &side) const;
    std::string take(State &state, int i, const Said &said) const;
    std::string take_lane(LaneSide &side, int life) const;
    std::string take_ready(LaneSide &side, int life) const;
    std::string take_ended(State &state, int i, int life) const;
    std::string take_revoke(LaneSide &side, int serial) const;
    std::string take_revoked(State &state, int i, int serial) const;
    std::string broken(const State &state) const;

    LaneConfiguration c_;
};
