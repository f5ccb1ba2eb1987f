/* remember.h: what a failed check has programs leave out (nic/device/left_out.h). */
#ifndef TOOLS_CHECK_REMEMBER_H
#define TOOLS_CHECK_REMEMBER_H

#include <stdio.h>

#include "check.h"

/* Writes what is to be left out of each device of the subject, and says where on `out`. `whole`: all checks have run, so what
 * an earlier run has found is out of date; otherwise it stays. Returns false, and says why on stderr, if it cannot be
 * written. */
bool remember(const struct subject *subject, uint32_t features, bool whole, FILE *out);

#endif
