/* record.h: a measurement as a document: what was measured, where and how, and a row of results for each size. It is printed as JSON or as CSV.
 * tools/README.md lists its keys. */
#ifndef TOOLS_PERF_RECORD_H
#define TOOLS_PERF_RECORD_H

#include <jansson.h>

#include "perf.h"

#define RECORD_FORMAT 1 /* `format` in the document: a reader of another one should not guess */

/* Returns what all documents have, with an empty array `results`; the caller owns it. NULL if there is no memory, which
 * was printed. */
json_t *record_create(const struct perf_options *options, const crpc_context_info *context);
/* Adds a row, which it takes; so is `more`, keys for the document itself, if it is not NULL. Prints what fails. */
void record_add(json_t *record, json_t *row, json_t *more);
/* Prints the document as the options want it, and frees it. */
void record_print(const struct perf_options *options, json_t *record);
/* Returns the document that such a file has; the caller frees it. NULL if it has none, and has printed why. */
json_t *record_load(const char *path);

#endif
