/* fault.h: faults on demand. A specification is a list of words, as in
 * `lose=0.01,seed=7,rail0=down`. Its parsed form is in shared memory. Each process makes its own
 * decisions, from the seed and its slot. */
#ifndef SIMNIC_FABRIC_FAULT_H
#define SIMNIC_FABRIC_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FABRIC_RAILS 2u /* ports of a session */

/* Ways in which an adapter may differ from the one that simnic is otherwise: what it lacks, or does as others do not. A program asks
 * for most of it once, so a session begins with them. */
enum fabric_quirk {
    FABRIC_QUIRK_NO_SRQ, /* there are no SRQs, as with irdma before E830, erdma and mana */
    /* completions of receives share a CQE although their mini CQEs do not tell their immediates, nor where their receives are */
    FABRIC_QUIRK_BLIND_MINIS,
    FABRIC_QUIRKS
};

struct fabric_fault {
    uint64_t seed;
    uint64_t broken;                /* bit q: the devices break what enum quirk q is about */
    uint32_t lose_per_million;      /* packets that vanish */
    uint32_t duplicate_per_million; /* packets that come twice */
    uint32_t delay_per_million;     /* packets that come late */
    uint32_t delay_us;              /* by how much */
    uint32_t rails_down;            /* bit r: rail r carries nothing */
    uint32_t rails_unplugged;       /* bit r: the device of rail r is not there */
    uint32_t
        rail_kbps[FABRIC_RAILS]; /* what each rail's port sends in a second, kbit; 0: no limit */
    uint32_t kill_qpn;           /* this QP goes to the error state; 0: none */
    uint32_t stall_us;           /* no NIC does anything for so long, once */
    uint32_t fill_cqn;           /* this CQ overruns; 0: none */
    uint32_t taken_count;        /* a QP that fails has taken so many WQEs of its SRQ, ... */
    uint32_t taken_us;           /* ... and gives them back so much later */
    uint32_t quirks;             /* bit n: enum fabric_quirk n */
    bool quirks_said;            /* the specification has a word of them: else they stay */
    uint32_t
        serial; /* changes with each specification: kill, stall and fill happen once for each */
};

/* Parses `spec` into *fault. Returns true, or false with one line in `error` that says which word
 * is wrong and why. */
bool fault_parse(const char *spec, struct fabric_fault *fault, char *error, size_t error_bytes);

/* Returns the name of a quirk, as in `quirk=no-srq`. */
const char *fault_quirk_name(enum fabric_quirk quirk);

/* A generator of decisions (SplitMix64): the same seed gives the same sequence. */
struct fault_dice {
    uint64_t state;
};
uint64_t fault_roll(struct fault_dice *dice);
bool fault_happens(struct fault_dice *dice, uint32_t per_million);

#endif
