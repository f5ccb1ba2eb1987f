/* quirk.h: what a device may do otherwise than a ConnectX as drivers expect it, on demand: the fault `quirk=NAME`.
 *
 * QUIRKS each break one assumption that the drivers of copyrpc make, as silicon or firmware might, and nothing else; the check of
 * copyrpc-check with the same name has to find it. LASTING_QUIRKS are what other adapters lack or do. A program asks for most of it
 * once, so a session begins with them, and they stay when other faults are set. */
#ifndef SIMNIC_FABRIC_QUIRK_H
#define SIMNIC_FABRIC_QUIRK_H

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
#define QUIRKS(Q)                                                                                                      \
    Q(DOORBELL, "doorbell")                       /* a WQE that was not pushed is not executed */                      \
    Q(DOORBELL_SEVERAL, "doorbell-several")       /* of several WQEs of a doorbell, the last waits */                  \
    Q(DOORBELL_SHARED, "doorbell-shared")         /* a doorbell after one of another QP is lost */                     \
    Q(BLUEFLAME, "blueflame")                     /* of a push, all but the first 64 bytes are stale */                \
    Q(BLUEFLAME_SEVERAL, "blueflame-several")     /* the second WQE of a push is dropped */                            \
    Q(WQE_WRITE, "wqe-write")                     /* of an odd number of bytes in a WQE, the last is wrong */          \
    Q(WQE_READ, "wqe-read")                       /* of an odd number of bytes, the last one is not written */         \
    Q(WQE_PIECES, "wqe-pieces")                   /* a third piece is taken for the second */                          \
    Q(WQE_ATOMIC, "wqe-atomic")                   /* COMPARE_SWAP looks at the lower half alone */                     \
    Q(WQE_WINDOW, "wqe-window")                   /* the end of a window is not minded */                              \
    Q(WQE_SEND, "wqe-send")                       /* a SEND loses its immediate */                                     \
    Q(WQE_DATAGRAM, "wqe-datagram")               /* nobody knows who has sent a datagram */                           \
    Q(INVALIDATE, "invalidate")                   /* a SEND that invalidates leaves the key as it is */                \
    Q(WQE_DC, "wqe-dc")                           /* a stream that fails takes the DCI with it */                      \
    Q(SEND_RING, "send-ring")                     /* a completion has 15 bits of a WQE's index */                      \
    Q(COMPLETION_RING, "completion-ring")         /* the owner bit stays as it was in the first round */               \
    Q(COMPLETION_COUNTER, "completion-counter")   /* 16 bits of the consumer index are taken */                        \
    Q(RECEIVE_RING, "receive-ring")               /* the counter of an SRQ is expected to grow for ever */             \
    Q(SEND_ORDER, "send-order")                   /* a WRITE behind a READ completes before it */                      \
    Q(ERROR_COMPLETION, "error-completion")       /* an error names the WQE behind */                                  \
    Q(FLUSH, "flush")                             /* WQEs that were not signaled are flushed in silence */             \
    Q(FLUSH_ROOM, "flush-room")                   /* flushed WQEs have two completions */                              \
    Q(COMPRESSED_RECEIVES, "compressed-receives") /* messages with other immediates are taken for alike */             \
    Q(COMPRESSED_SENDS, "compressed-sends")       /* all mini CQEs have the counter of the first */                    \
    Q(COMPRESSED_ALONE, "compressed-alone")       /* completions wait until their block is full */                     \
    Q(ENHANCED_RECEIVES, "enhanced-receives")     /* likewise in the enhanced layout */                                \
    Q(ENHANCED_SENDS, "enhanced-sends")           /* arrays of sends are as in the first round of their ring */        \
    Q(DEVX, "devx")                               /* QPs made by DevX do not say that their last receive is back */    \
    Q(ARM, "arm")                                 /* no queue is armed */                                              \
    Q(ARM_LATE, "arm-late")                       /* a completion before the arming is forgotten */                    \
    Q(VECTORS, "vectors")                         /* only the first completion vector has events */                    \
    Q(SHARED_RECEIVES, "shared-receives")         /* a QP that fails takes a receive of its SRQ with it */             \
    Q(NOT_READY, "not-ready")                     /* 7 tries without a receive are as finite as others */              \
    Q(SCATTER_TO_CQE, "scatter-to-cqe")           /* short messages go into completions, though they should not */     \
    Q(ORDER_OWN, "order-own")                     /* a message completes before its data has landed */                 \
    Q(ORDER_EARLIER, "order-earlier")             /* plain WRITEs land late */                                         \
    Q(ORDER_RELAXED, "order-relaxed")             /* with relaxed ordering, a message completes before its data */     \
    Q(ORDER_FLAG, "order-flag")                   /* WRITEs land in any order, whatever their memory */                \
    Q(ORDER_LINE, "order-line")                   /* the last 8 bytes of 64 land first */                              \
    Q(FENCE, "fence")                             /* fences are not minded */                                          \
    Q(MTU, "mtu")                                 /* a full packet that ends a message loses its last byte */          \
    Q(RETRY, "retry")                             /* nobody gives up */                                                \
    Q(RETRY_EARLY, "retry-early")                 /* there is one try, whatever was asked */                           \
    Q(HEADER, "header")                           /* headers have traffic class 0 */                                   \
    Q(PATH, "path")                               /* a connected QP forgets its traffic class */                       \
    Q(ECE, "ece")                                 /* a QP does not get ready with options that are set */              \
    Q(PARTITION, "partition")                     /* partitions are not minded */                                      \
    Q(DATAGRAM_MTU, "datagram-mtu")               /* datagrams of a full MTU are dropped */                            \
    Q(KEYS, "keys")                               /* the variant of a key is not minded */                             \
    Q(DOMAINS, "domains")                         /* the protection domain of a key is not minded */                   \
    Q(CLOSED, "closed")                           /* a QP in error goes on receiving */                                \
    Q(DYNAMIC, "dynamic")                         /* a DCI goes on with the key of its first target */                 \
    Q(TAGS, "tags")                               /* the masks of tags are not minded */                               \
    Q(DMA_BUF, "dma-buf")                         /* memory at another address than the program's is 64 bytes off */   \
    Q(CALLS, "calls")                             /* of a message with immediate of 1 KiB and more, a byte is wrong */ \
    Q(CHANNELS, "channels")                       /* in the middle of a WRITE of several packets, a byte is wrong */   \
    Q(RAILS, "rails")                             /* the same at rail 1 alone */

#define LASTING_QUIRKS(L)                                                                                              \
    L(NO_SRQ, "no-srq")           /* there are no SRQs, as with irdma before the E830, erdma and mana */               \
    L(BLIND_MINIS, "blind-minis") /* receives share a CQE although mini CQEs tell neither immediate nor place */
/* clang-format on */

enum quirk {
#define QUIRK(id, name) QUIRK_##id,
    QUIRKS(QUIRK) QUIRK_FIRST_LASTING,
    QUIRK_BEFORE_LASTING = QUIRK_FIRST_LASTING - 1,
    LASTING_QUIRKS(QUIRK)
#undef QUIRK
        QUIRK_COUNT
};
#define QUIRKS_LASTING (~0ull << QUIRK_FIRST_LASTING)

/* Returns false if there is no quirk with this name. */
bool quirk_find(const char *name, enum quirk *quirk);
const char *quirk_name(enum quirk quirk);

#endif
