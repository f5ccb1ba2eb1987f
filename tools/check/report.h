/* report.h: what was checked, and what came of it, as JSON to attach to an issue. */
#ifndef TOOLS_CHECK_REPORT_H
#define TOOLS_CHECK_REPORT_H

#include <jansson.h>

#include "check.h"
#include "speed.h"

/* Nothing in it tells where the device is: no address, GUID, serial number or name of a host. The caller owns what is returned. */
json_t *report_begin(const struct subject *subject, const struct left_out_subject *versions);
void report_add(json_t *report, const struct check *check, const struct outcome *outcome,
                uint64_t took_ns);
void report_add_speed(json_t *report, const struct figure figures[FIGURES]);
/* Writes it. Returns false, with errno, if it cannot be. */
bool report_write(json_t *report, const char *path);

const char *report_verdict(enum verdict verdict);

#endif
