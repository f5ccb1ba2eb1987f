/* show.h: the report for people and, as one JSON object, for programs. manual/copyrpc-info.1.md has the keys: more may come, and none goes. */
#ifndef TOOLS_INFO_SHOW_H
#define TOOLS_INFO_SHOW_H

#include "advice.h"

#define SHOW_JSON_FORMAT 1 /* changes when a key goes, or means something else */

void show_text(const struct report *report, const struct advice_list *advice);
void show_json(const struct report *report, const struct advice_list *advice);

/* Why a rail is what it is, unless a program names others. */
const char *show_rail_why(uint32_t index);

#endif
