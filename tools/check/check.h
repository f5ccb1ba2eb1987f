/* check.h: what a check is, and what it is about.
 *
 * A check proves one assumption of the drivers (core/nic) on the user's own device: it does what the assumption
 * speaks of, with the drivers' own code, and looks at what came of it. simnic has a quirk with the name of each check
 * (simnic/fabric/quirk.h): a device that breaks this assumption, and nothing else, which the check has to find.
 */
#ifndef TOOLS_CHECK_CHECK_H
#define TOOLS_CHECK_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "nic/device/left_out.h"
#include "nic/nic.h"

enum verdict {
    VERDICT_OK,
    VERDICT_FAILED,
    VERDICT_NOT_HERE, /* the device, the machine or an option has not what it takes */
    VERDICTS
};

/* What was seen. Made with the functions below: one line of text for a person. */
struct outcome {
    enum verdict verdict;
    bool
        setting_up; /* it failed before the device was asked anything: that tells nothing of what it assumes */
    char seen[320];
};

/* What is checked, and how thoroughly. */
struct subject {
    char device[2][64]; /* the second: "" = there is none */
    uint32_t devices;
    bool direct;         /* the mlx5 driver can open the device */
    bool quick;          /* within seconds: fewer rounds, and nothing that takes millions of them */
    double hunt_seconds; /* of each hunt for what is out of order */
    const char
        *peer; /* HOST or HOST:PORT, where copyrpc-check --listen runs; NULL = there is none */
    uint32_t patience_ms; /* after which what has not come never will */
};

struct station; /* station.h */

struct check {
    const char *name;    /* also of the quirk of simnic that breaks it */
    const char *assumed; /* what has to be true, in one line */
    bool direct;         /* it is about the mlx5 driver */
    bool fabric;         /* with a peer, it is about the way there */
    uint32_t feature;    /* LEFT_OUT_*: what can be left out if it fails; 0 = nothing */
    /* What checks it: with a station that is open, or from scratch. */
    void (*body)(struct station *station, struct outcome *outcome);
    void (*run)(const struct subject *subject, struct outcome *outcome);
};

/* Runs one, if the subject has what it takes. */
void check_run(const struct check *check, const struct subject *subject, struct outcome *outcome);

/* All of them, in the order in which they run: what later ones stand on comes first. */
extern const struct check checks[];
extern const uint32_t check_count;

/* Each sets the verdict and says what was seen. `fails` and `not_here` return false, for functions that go on only if
 * they may. */
__attribute__((format(printf, 2, 3))) void passes(struct outcome *outcome, const char *format, ...);
__attribute__((format(printf, 2, 3))) bool fails(struct outcome *outcome, const char *format, ...);
__attribute__((format(printf, 2, 3))) bool not_here(struct outcome *outcome, const char *format,
                                                    ...);

/* Says, before what a failure says, in what it happened: "CONTEXT: ...". Returns false. */
__attribute__((format(printf, 2, 3))) bool fails_in(struct outcome *outcome, const char *format,
                                                    ...);

/* Something was not opened, made or connected: not here if the machine has too little, or forbids it; otherwise a failure, of which
 * nothing is remembered. Returns false. */
bool refused(struct outcome *outcome, int32_t status, const char *message);

/* ---- The checks that make what they need: others have a station (station.h) ------------------- */

/* wqes.c */
void check_wqe_write(const struct subject *subject, struct outcome *outcome);
void check_wqe_read(const struct subject *subject, struct outcome *outcome);
void check_wqe_pieces(const struct subject *subject, struct outcome *outcome);
void check_wqe_atomic(const struct subject *subject, struct outcome *outcome);
void check_wqe_window(const struct subject *subject, struct outcome *outcome);

/* rings.c */
void check_completion_ring(const struct subject *subject, struct outcome *outcome);

/* completions.c */
void check_flush_room(const struct subject *subject, struct outcome *outcome);
void check_compressed_receives(const struct subject *subject, struct outcome *outcome);
void check_compressed_sends(const struct subject *subject, struct outcome *outcome);
void check_enhanced_receives(const struct subject *subject, struct outcome *outcome);
void check_enhanced_sends(const struct subject *subject, struct outcome *outcome);
void check_compressed_alone(const struct subject *subject, struct outcome *outcome);
void check_vectors(const struct subject *subject, struct outcome *outcome);

/* devx.c */
void check_devx(const struct subject *subject, struct outcome *outcome);

/* receives.c */
void check_shared_receives(const struct subject *subject, struct outcome *outcome);
void check_not_ready(const struct subject *subject, struct outcome *outcome);

/* queues.c */
void check_wqe_send(const struct subject *subject, struct outcome *outcome);
void check_wqe_datagram(const struct subject *subject, struct outcome *outcome);
void check_scatter_to_cqe(const struct subject *subject, struct outcome *outcome);

/* ways.c */
void check_header(const struct subject *subject, struct outcome *outcome);
void check_path(const struct subject *subject, struct outcome *outcome);
void check_partition(const struct subject *subject, struct outcome *outcome);
void check_datagram_mtu(const struct subject *subject, struct outcome *outcome);

/* invalidate.c, streams.c, tags.c */
void check_invalidate(const struct subject *subject, struct outcome *outcome);
void check_wqe_dc(const struct subject *subject, struct outcome *outcome);
void check_tags(const struct subject *subject, struct outcome *outcome);

/* dynamic.c */
void check_dynamic(const struct subject *subject, struct outcome *outcome);

/* services.c */
void check_calls(const struct subject *subject, struct outcome *outcome);
void check_channels(const struct subject *subject, struct outcome *outcome);
void check_rails(const struct subject *subject, struct outcome *outcome);

#endif
