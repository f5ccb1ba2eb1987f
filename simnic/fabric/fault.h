/* fault.h: faults on demand. A specification is a list of words, as in
 * `lose=0.01,seed=7,rail0=down`. Its parsed form is in shared memory. Each process makes its own
 * decisions, from the seed and its slot. */
#ifndef SIMNIC_FABRIC_FAULT_H
#define SIMNIC_FABRIC_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAULT_ECE_CARD 0x30000007u /* what QPs offer of ECE (nic/ece.h) if nobody says anything */
#define FABRIC_RAILS 2u            /* ports of a session */
#define FAULT_VARIABLE "SIMNIC_FAULT" /* the environment's, for sessions that are made */

struct fabric_fault {
    uint64_t seed;
    uint64_t quirks;                /* bit q: enum quirk q */
    uint32_t lose_per_million;      /* packets that vanish */
    uint32_t duplicate_per_million; /* packets that come twice */
    uint32_t delay_per_million;     /* packets that come late */
    uint32_t delay_us;              /* by how much */
    uint32_t rails_down;            /* bit r: rail r carries nothing */
    uint32_t rails_unplugged;       /* bit r: the device of rail r is not there */
    uint32_t
        rail_kbps[FABRIC_RAILS]; /* what each rail's port sends in a second, kbit; 0: no limit */
    uint32_t rail_latency_us[FABRIC_RAILS]; /* of what leaves by each rail's port */
    uint32_t rail_ece[FABRIC_RAILS]; /* what QPs of each rail offer, if somebody has said so: ... */
    uint32_t rails_ece_said;         /* ... bit r. It stays, too */
    uint32_t kill_qpn;               /* this QP goes to the error state; 0: none */
    uint32_t stall_us;               /* no NIC does anything for so long, once */
    uint32_t fill_cqn;               /* this CQ overruns; 0: none */
    uint32_t taken_count;            /* a QP that fails has taken so many WQEs of its SRQ, ... */
    uint32_t taken_us;               /* ... and gives them back so much later */
    uint32_t placement_per_million;  /* data for memory with relaxed ordering that land late, ... */
    uint32_t placement_us; /* ... by so much at the most; both stay as lasting quirks do, */
    bool placement_said;   /* unless the specification has the word */
    bool lasting_said;     /* the specification has a word of lasting quirks: else they stay */
    uint32_t
        serial; /* changes with each specification: kill, stall and fill happen once for each */
};

/* Parses `spec` into *fault. Returns true, or false with one line in `error` that says which word
 * is wrong and why. */
bool fault_parse(const char *spec, struct fabric_fault *fault, char *error, size_t error_bytes);

/* A generator of decisions (SplitMix64): the same seed gives the same sequence. */
struct fault_dice {
    uint64_t state;
};
uint64_t fault_roll(struct fault_dice *dice);
bool fault_happens(struct fault_dice *dice, uint32_t per_million);

#endif
