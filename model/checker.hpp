// checker.hpp: searches all states of a small model, breadth first, so that the first violation
// found has a shortest trace. States are kept whole, as byte strings: no fingerprints, so
// "complete" means complete.
//
// A Model has:
//   State                       copyable
//   State initial()
//   std::string encode(State)   equal for states that behave alike, and for no others
//   void steps(State, Sink)     every step: what it is, the state after it, whether the parties are
//                               obliged to take it,
//                               and, if it breaks a rule, which
//   std::string wedged(State)   for a state without obligatory steps: empty, or who is stuck, how
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

enum class Duty { optional, obligatory };

struct Outcome {
    std::string violation; // empty: none
    std::vector<std::string> trace;
    std::size_t states = 0;
    bool complete = true;
};

template <typename Model> class Checker
{
  public:
    Checker(Model model, std::size_t states_max) : model_(std::move(model)), states_max_(states_max)
    {
    }

    Outcome run()
    {
        add(model_.initial(), 0, "");
        for (std::uint32_t at = 0; at < states_.size() && outcome_.violation.empty(); at++) {
            if (states_.size() > states_max_) {
                outcome_.complete = false;
                break;
            }
            expand(at);
        }
        outcome_.states = states_.size();
        if (outcome_.violation.empty() && outcome_.complete) {
            find_cycle();
        }
        return outcome_;
    }

  private:
    using State = typename Model::State;

    struct Node {
        State state;
        std::uint32_t parent;
        std::string step;
        std::vector<std::uint32_t> duties; // states that obligatory steps lead to
    };

    std::uint32_t add(const State &state, std::uint32_t parent, const std::string &step)
    {
        auto found =
            seen_.emplace(model_.encode(state), static_cast<std::uint32_t>(states_.size()));
        if (found.second) {
            states_.push_back({state, parent, step, {}});
        }
        return found.first->second;
    }

    void expand(std::uint32_t at)
    {
        const State state = states_[at].state; // the vector moves as it grows
        model_.steps(state, [&](const std::string &step, const State &after, Duty duty,
                                const std::string &violation) {
            if (!outcome_.violation.empty()) {
                return;
            }
            if (!violation.empty()) {
                fail(at, step, violation);
                return;
            }
            std::uint32_t to = add(after, at, step);
            if (duty == Duty::obligatory) {
                states_[at].duties.push_back(to);
            }
        });
        if (outcome_.violation.empty() && states_[at].duties.empty()) {
            std::string why = model_.wedged(state);
            if (!why.empty()) {
                fail(at, "", why);
            }
        }
    }

    void fail(std::uint32_t at, const std::string &last, const std::string &violation)
    {
        outcome_.violation = violation;
        if (!last.empty()) {
            outcome_.trace.push_back(last);
        }
        for (; at != 0; at = states_[at].parent) {
            outcome_.trace.insert(outcome_.trace.begin(), states_[at].step);
        }
    }

    // If obligatory steps can go round for ever, parties that do their duty need not ever come
    // to an end.
    void find_cycle()
    {
        enum Colour : std::uint8_t { white, grey, black };
        std::vector<Colour> colour(states_.size(), white);
        for (std::uint32_t root = 0; root < states_.size(); root++) {
            std::vector<std::pair<std::uint32_t, std::size_t>> path;
            if (colour[root] == white) {
                path.emplace_back(root, 0);
                colour[root] = grey;
            }
            while (!path.empty()) {
                auto &[node, next] = path.back();
                if (next == states_[node].duties.size()) {
                    colour[node] = black;
                    path.pop_back();
                    continue;
                }
                std::uint32_t to = states_[node].duties[next++];
                if (colour[to] == grey) {
                    fail(to, "", "obligatory steps can go round for ever");
                    return;
                }
                if (colour[to] == white) {
                    colour[to] = grey;
                    path.emplace_back(to, 0);
                }
            }
        }
    }

    Model model_;
    std::size_t states_max_;
    std::unordered_map<std::string, std::uint32_t> seen_;
    std::vector<Node> states_;
    Outcome outcome_;
};
