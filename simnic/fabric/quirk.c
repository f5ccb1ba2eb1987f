/* quirk.c: the names of quirks. */
#include "simnic/fabric/quirk.h"

#include <string.h>

static const char *const names[QUIRK_COUNT] = {
#define QUIRK(id, name) [QUIRK_##id] = (name),
    QUIRKS(QUIRK) LASTING_QUIRKS(QUIRK)
#undef QUIRK
};

_Static_assert(QUIRK_COUNT <= 64, "a bit of a word each");

bool quirk_find(const char *name, enum quirk *quirk)
{
    for (int i = 0; i < QUIRK_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *quirk = (enum quirk)i;
            return true;
        }
    }
    return false;
}

const char *quirk_name(enum quirk quirk)
{
    return names[quirk];
}
