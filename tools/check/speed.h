/* speed.h: how fast the device is by our drivers, and by libmlx5. No check: what is fast enough, the reader knows. */
#ifndef TOOLS_CHECK_SPEED_H
#define TOOLS_CHECK_SPEED_H

#include <stdio.h>

#include "check.h"

enum figure_kind { FIGURE_LATENCY, FIGURE_READ_LATENCY, FIGURE_RATE, FIGURE_BANDWIDTH, FIGURES };

struct figure {
    const char *name;
    const char *unit;
    double ours; /* by the mlx5 driver; 0 = this device has none */
    double
        theirs; /* by libibverbs, which is libmlx5 on such a device; 0 = it could not be measured */
};

/* Measures in turns, for some tenths of a second each. Returns false, and says why in the outcome, if nothing could be
 * measured. */
bool speed_measure(const struct subject *subject, struct figure figures[FIGURES],
                   struct outcome *outcome);

#endif
