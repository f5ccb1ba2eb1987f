/* show.h: what copyrpc-top prints. */
#ifndef TOOLS_TOP_SHOW_H
#define TOOLS_TOP_SHOW_H

#include "source.h"

enum sort { SORT_RATE, SORT_BYTES, SORT_OPEN, SORT_AGE };

/* Both compare with what was asked before, which may be empty: then there are no rates. */
void show_table(const struct sources *now, const struct sources *before, enum sort sort,
                uint32_t lines_max);
/* One line. */
void show_json(const struct sources *now, const struct sources *before, enum sort sort);

#endif
