/* quirk.h: what a device may do otherwise than drivers expect, on demand: the fault `quirk=NAME`. Each breaks one
 * assumption that the drivers of copyrpc make, as silicon or firmware might, and nothing else; the check of copyrpc-check
 * with the same name has to find it. Where it happens, the device asks quirk_has. */
#ifndef SIMNIC_FABRIC_QUIRK_H
#define SIMNIC_FABRIC_QUIRK_H

#include <stdbool.h>
#include <stdint.h>

#define QUIRKS(Q)                                                                                  \
    Q(DOORBELL, "doorbell")                 /* a WQE that was not pushed is not executed */        \
    Q(DOORBELL_SEVERAL, "doorbell-several") /* of several WQEs of a doorbell, the last waits */    \
    Q(DOORBELL_SHARED, "doorbell-shared")   /* a doorbell after one of another QP is lost */       \
    Q(BLUEFLAME, "blueflame")               /* of a push, all but the first 64 bytes are stale */  \
    Q(BLUEFLAME_SEVERAL, "blueflame-several") /* the second WQE of a push is dropped */            \
    Q(WQE_WRITE, "wqe-write")   /* of an odd number of bytes in a WQE, the last is wrong */        \
    Q(WQE_READ, "wqe-read")     /* of an odd number of bytes, the last one is not written */       \
    Q(WQE_PIECES, "wqe-pieces") /* a third piece is taken for the second */                        \
    Q(WQE_ATOMIC, "wqe-atomic") /* COMPARE_SWAP looks at the lower half alone */                   \
    Q(WQE_WINDOW, "wqe-window") /* the end of a window is not minded */

enum quirk {
#define QUIRK(id, name) QUIRK_##id,
    QUIRKS(QUIRK)
#undef QUIRK
        QUIRK_COUNT
};

/* Returns false if there is no quirk with this name. */
bool quirk_find(const char *name, enum quirk *quirk);
const char *quirk_name(enum quirk quirk);

/* `broken` is that of struct fabric_fault. */
static inline bool quirk_has(uint64_t broken, enum quirk quirk)
{
    return broken >> quirk & 1;
}

#endif
