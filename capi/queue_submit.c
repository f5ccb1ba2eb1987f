/* queue_submit.c: the data path of queues. Each op is checked here, once: what its opcode does not name,
 * its limits, and the memory that it names. The ops themselves go to the driver as they are: beside
 * them lie the local keys of their regions.
 */
#include <string.h>

#include "base/compiler.h"
#include "private/queue_batch.h"

/* ---- An op is what a driver posts ------------------------------------------------------------ */

#define SAME(ours, theirs)                                                                         \
    static_assert(offsetof(crpc_queue_op, ours) == offsetof(struct nic_work, theirs) &&            \
                      sizeof(((crpc_queue_op *)0)->ours) ==                                        \
                          sizeof(((struct nic_work *)0)->theirs),                                  \
                  "an op of the caller is one of the driver")

SAME(opcode, opcode);
SAME(flags, flags);
SAME(stream, stream);
SAME(immediate, immediate);
SAME(user_data, user_data);
SAME(region, region);
SAME(address, address);
SAME(bytes, bytes);
SAME(remote_key, remote_key);
SAME(remote_address, remote_address);
SAME(operand, operand);
SAME(target, target);
static_assert(sizeof(crpc_queue_op) == sizeof(struct nic_work), "an op is one cache line");
static_assert((uint32_t)CRPC_QUEUE_SEND == NIC_SEND &&
                  (uint32_t)CRPC_QUEUE_SEND_IMMEDIATE == NIC_SEND_IMMEDIATE &&
                  (uint32_t)CRPC_QUEUE_SEND_INVALIDATE == NIC_SEND_INVALIDATE &&
                  (uint32_t)CRPC_QUEUE_WRITE == NIC_WRITE &&
                  (uint32_t)CRPC_QUEUE_WRITE_IMMEDIATE == NIC_WRITE_IMMEDIATE &&
                  (uint32_t)CRPC_QUEUE_READ == NIC_READ &&
                  (uint32_t)CRPC_QUEUE_COMPARE_SWAP == NIC_COMPARE_SWAP &&
                  (uint32_t)CRPC_QUEUE_FETCH_ADD == NIC_FETCH_ADD &&
                  (uint32_t)CRPC_QUEUE_NOP == NIC_NOP &&
                  (uint32_t)CRPC_QUEUE_RECEIVE == NIC_RECEIVE &&
                  (uint32_t)CRPC_QUEUE_TAG_ADD == NIC_TAG_ADD &&
                  (uint32_t)CRPC_QUEUE_TAG_REMOVE == NIC_TAG_REMOVE &&
                  (uint32_t)CRPC_QUEUE_TAG_SYNC == NIC_TAG_SYNC,
              "a driver has the caller's opcodes");
static_assert(CRPC_QUEUE_SIGNAL == NIC_WORK_SIGNAL && CRPC_QUEUE_FENCE == NIC_WORK_FENCE &&
                  CRPC_QUEUE_SOLICITED == NIC_WORK_SOLICITED &&
                  CRPC_QUEUE_INLINE == NIC_WORK_INLINE && CRPC_QUEUE_PIECES == NIC_WORK_PIECES,
              "a driver has the caller's flags");
static_assert(
    CRPC_COMPLETION_WORK == NIC_COMPLETION_WORK && CRPC_COMPLETION_OF_QUEUE == NIC_DONE_OF_QUEUE &&
        CRPC_COMPLETION_IMMEDIATE == NIC_DONE_IMMEDIATE &&
        CRPC_COMPLETION_INVALIDATED == NIC_DONE_INVALIDATED &&
        CRPC_COMPLETION_DETAIL == NIC_DONE_DETAIL && CRPC_COMPLETION_GRH == NIC_DONE_GRH &&
        CRPC_COMPLETION_OF_DCT == NIC_DONE_OF_DCT && CRPC_COMPLETION_MATCHED == NIC_DONE_MATCHED &&
        CRPC_COMPLETION_RENDEZVOUS == NIC_DONE_RENDEZVOUS && CRPC_COMPLETION_SYNC == NIC_DONE_SYNC,
    "a driver completes as the caller expects");

/* ---- What an opcode names -------------------------------------------------------------------- */

#define NAMES_PAYLOAD 0x1u /* region, address, bytes */
#define NAMES_ADDRESS 0x2u /* address alone: what is compared */
#define NAMES_REMOTE 0x4u  /* remote_key, remote_address */
#define NAMES_OPERAND 0x8u
#define NAMES_IMMEDIATE 0x10u
#define FILLS_PAYLOAD 0x20u /* the device writes to it */
#define IS_ATOMIC 0x40u
#define NAMES_TAG 0x80u /* remote_address alone */

struct rule {
    uint8_t flags; /* CRPC_QUEUE_* that it may have */
    uint8_t names;
};

#define FLAGS_ANY (CRPC_QUEUE_SIGNAL | CRPC_QUEUE_FENCE)
#define FLAGS_READ (FLAGS_ANY | CRPC_QUEUE_PIECES)
#define FLAGS_WRITE (FLAGS_READ | CRPC_QUEUE_INLINE)
#define FLAGS_MESSAGE (FLAGS_WRITE | CRPC_QUEUE_SOLICITED)

static const struct rule rules[NIC_OPCODES] = {
    [CRPC_QUEUE_SEND] = {FLAGS_MESSAGE, NAMES_PAYLOAD},
    [CRPC_QUEUE_SEND_IMMEDIATE] = {FLAGS_MESSAGE, NAMES_PAYLOAD | NAMES_IMMEDIATE},
    [CRPC_QUEUE_SEND_INVALIDATE] = {FLAGS_MESSAGE, NAMES_PAYLOAD | NAMES_IMMEDIATE},
    [CRPC_QUEUE_WRITE] = {FLAGS_WRITE, NAMES_PAYLOAD | NAMES_REMOTE},
    [CRPC_QUEUE_WRITE_IMMEDIATE] = {FLAGS_MESSAGE, NAMES_PAYLOAD | NAMES_REMOTE | NAMES_IMMEDIATE},
    [CRPC_QUEUE_READ] = {FLAGS_READ, NAMES_PAYLOAD | NAMES_REMOTE | FILLS_PAYLOAD},
    [CRPC_QUEUE_COMPARE_SWAP] = {FLAGS_ANY,
                                 NAMES_ADDRESS | NAMES_REMOTE | NAMES_OPERAND | IS_ATOMIC},
    [CRPC_QUEUE_FETCH_ADD] = {FLAGS_ANY, NAMES_REMOTE | NAMES_OPERAND | IS_ATOMIC},
    [CRPC_QUEUE_NOP] = {FLAGS_ANY, 0},
    [CRPC_QUEUE_RECEIVE] = {CRPC_QUEUE_SIGNAL | CRPC_QUEUE_PIECES, NAMES_PAYLOAD | FILLS_PAYLOAD},
    [CRPC_QUEUE_TAG_ADD] = {CRPC_QUEUE_SIGNAL,
                            NAMES_PAYLOAD | NAMES_TAG | NAMES_OPERAND | FILLS_PAYLOAD},
    [CRPC_QUEUE_TAG_REMOVE] = {CRPC_QUEUE_SIGNAL, NAMES_OPERAND},
    [CRPC_QUEUE_TAG_SYNC] = {CRPC_QUEUE_SIGNAL, 0},
};

/* Where ops go. It is a constant of each loop below, so that ops to a peer do not pay for what others need. */
enum way {
    TO_PEER,
    TO_ANYONE, /* datagrams: one packet each, to a target */
    TO_DCT,    /* of a stream, to a target */
};

/* Datagrams may not wait for READs: there are none. */
static inline __attribute__((always_inline)) struct rule rule_of(const uint8_t opcode,
                                                                 const enum way way)
{
    struct rule rule = rules[opcode];
    if (way == TO_ANYONE) {
        rule.flags &= (uint8_t)~CRPC_QUEUE_FENCE;
    }
    return rule;
}

/* What the first 8 bytes of an op are. */
union head {
    struct {
        uint8_t opcode;
        uint8_t flags;
        uint16_t stream;
        uint32_t immediate;
    } of;
    uint64_t bits;
};
static_assert(sizeof(union head) == 8 && offsetof(crpc_queue_op, user_data) == 8,
              "an op begins with a head");

static inline uint64_t head_of(const crpc_queue_op *op)
{
    uint64_t bits;
    memcpy(&bits, op, sizeof(bits));
    return bits;
}

/* The bits of a head that are the same in all ops with this opcode, but for CRPC_QUEUE_INLINE and
 * _PIECES. */
static inline __attribute__((always_inline)) uint64_t head_mask(struct rule rule,
                                                                const enum way way)
{
    const uint32_t free =
        rule.flags & (CRPC_QUEUE_SIGNAL | CRPC_QUEUE_FENCE | CRPC_QUEUE_SOLICITED);
    const union head mask = {.of = {.opcode = UINT8_MAX,
                                    .flags = (uint8_t)~free,
                                    .stream = way == TO_DCT ? 0 : UINT16_MAX,
                                    .immediate = rule.names & NAMES_IMMEDIATE ? 0 : UINT32_MAX}};
    return mask.bits;
}

static inline __attribute__((always_inline)) uint64_t head_with(uint8_t opcode, uint8_t flags)
{
    const union head head = {.of = {.opcode = opcode, .flags = flags}};
    return head.bits;
}

/* Not 0 if a member behind the head, but the target, is set that the opcode does not name. */
static inline __attribute__((always_inline)) uint64_t beyond(const crpc_queue_op *op,
                                                             struct rule rule)
{
    uint64_t set = 0;
    if (!(rule.names & NAMES_PAYLOAD)) {
        set |= op->region.bits | op->bytes;
    }
    if (!(rule.names & (NAMES_PAYLOAD | NAMES_ADDRESS))) {
        set |= op->address;
    }
    if (!(rule.names & NAMES_REMOTE)) {
        set |= op->remote_key | (rule.names & NAMES_TAG ? 0 : op->remote_address);
    }
    if (!(rule.names & NAMES_OPERAND)) {
        set |= op->operand;
    }
    return set;
}

/* Likewise; also the target, if ops of this queue have none, and a stream that the queue has not. */
static inline __attribute__((always_inline)) uint64_t
too_much(const crpc_queue_op *op, struct rule rule, const enum way way, const uint32_t streams)
{
    const uint64_t target = way == TO_PEER ? op->target.bits : 0;
    const uint64_t stream = way == TO_DCT ? op->stream >= streams : 0;
    return target | stream | beyond(op, rule);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static bool find_region(crpc_context *context, crpc_region handle)
{
    const struct region *region = region_of(context, handle);
    if (!region) {
        return false;
    }
    context->queue_memory = (struct queue_memory){.handle = handle.bits,
                                                  .address = region->address,
                                                  .bytes = region->bytes,
                                                  .access = region->access,
                                                  .local_key = region->calls.keys[0].local_key};
    return true;
}

/* Returns false if bytes at an address are not all within the memory. */
static inline __attribute__((always_inline)) bool contains(const struct queue_memory *memory,
                                                           uint64_t address, uint32_t bytes)
{
    uint64_t end; /* huge, or past all, if it begins before the memory */
    return !__builtin_add_overflow(address - memory->address, bytes, &end) && end <= memory->bytes;
}

/* Where `bytes` at `address` lie in a region: its local key. No bytes lie anywhere. */
static int32_t find_memory(crpc_context *context, crpc_region region, uint64_t address,
                           uint32_t bytes, uint32_t access, uint32_t *local_key)
{
    *local_key = 0;
    if (region.bits == 0) {
        return bytes == 0 ? CRPC_OK : CRPC_E_INVALID;
    }
    const struct queue_memory *memory = &context->queue_memory;
    if (region.bits != memory->handle && !find_region(context, region)) {
        return CRPC_E_STALE;
    }
    if ((bytes > 0 && !contains(memory, address, bytes)) || (memory->access & access) != access) {
        return CRPC_E_INVALID;
    }
    *local_key = memory->local_key;
    return CRPC_OK;
}

/* ---- Checks of any op ------------------------------------------------------------------------ */

/* The pieces of an op keep their places in the array, which the op names. */
static int32_t check_pieces(struct batch *batch, const crpc_queue_op *op, uint32_t access)
{
    const bool copied = op->flags & CRPC_QUEUE_INLINE;
    const uint32_t count_max = op->opcode == CRPC_QUEUE_RECEIVE ? batch->limits->receive_pieces
                                                                : batch->limits->send_pieces;
    const uint64_t bytes_max =
        copied ? batch->limits->inline_bytes : batch->context->nic->message_bytes_max;
    uint64_t bytes = 0;
    if (op->bytes > count_max) {
        return CRPC_E_TOO_BIG;
    }
    if (op->region.bits != 0 || op->bytes == 0 || op->address > batch->piece_count ||
        op->bytes > batch->piece_count - op->address) {
        return CRPC_E_INVALID;
    }
    for (uint64_t i = op->address; i < op->address + op->bytes; i++) {
        const crpc_piece *piece = &batch->pieces[i];
        uint32_t local_key = 0;
        int32_t status = CRPC_OK;
        if (piece->zero != 0 ||
            (copied && (piece->region.bits != 0 || (piece->address == 0 && piece->bytes > 0)))) {
            return CRPC_E_INVALID;
        }
        if (!copied) {
            status = find_memory(batch->context, piece->region, piece->address, piece->bytes,
                                 access, &local_key);
        }
        if (status != CRPC_OK) {
            return status;
        }
        bytes += piece->bytes;
        batch->context->queue_pieces[i] = (struct nic_piece){
            .address = piece->address, .bytes = piece->bytes, .local_key = local_key};
    }
    return bytes > bytes_max ? CRPC_E_TOO_BIG : CRPC_OK;
}

static int32_t check_inline(const struct batch *batch, const crpc_queue_op *op)
{
    if (op->bytes > batch->limits->inline_bytes) {
        return CRPC_E_TOO_BIG;
    }
    return op->region.bits == 0 && (op->address != 0 || op->bytes == 0) ? CRPC_OK : CRPC_E_INVALID;
}

int32_t queue_check_op(struct batch *batch, const crpc_queue_op *op, uint32_t *local_key)
{
    const struct rule rule = rules[op->opcode];
    const uint32_t access = rule.names & FILLS_PAYLOAD ? CRPC_ACCESS_LOCAL_WRITE : 0;
    const uint64_t choices = head_with(0, rule.flags & (CRPC_QUEUE_INLINE | CRPC_QUEUE_PIECES));
    if ((head_of(op) & head_mask(rule, TO_PEER) & ~choices) != head_with(op->opcode, 0) ||
        beyond(op, rule) != 0) {
        return CRPC_E_INVALID;
    }
    if (rule.names & IS_ATOMIC) {
        return op->remote_address % 8 != 0     ? CRPC_E_INVALID
               : !batch->context->nic->atomics ? CRPC_E_UNSUPPORTED
                                               : CRPC_OK;
    }
    if (!(rule.names & NAMES_PAYLOAD)) {
        return CRPC_OK;
    }
    if (op->flags & CRPC_QUEUE_PIECES) {
        return check_pieces(batch, op, access);
    }
    if (op->flags & CRPC_QUEUE_INLINE) {
        return check_inline(batch, op);
    }
    if (op->bytes > batch->context->nic->message_bytes_max) {
        return CRPC_E_TOO_BIG;
    }
    return find_memory(batch->context, op->region, op->address, op->bytes, access, local_key);
}

/* The same of a queue whose ops have no target. */
static __attribute__((noinline)) int32_t check_op(struct batch *batch, const crpc_queue_op *op,
                                                  uint32_t *local_key)
{
    return op->target.bits != 0 ? CRPC_E_INVALID : queue_check_op(batch, op, local_key);
}

/* ---- Checks of usual ops --------------------------------------------------------------------- */

/* What was named last, if these rights are there; otherwise none, in which nothing lies. */
static inline __attribute__((always_inline)) struct queue_memory
memory_with(const crpc_context *context, uint32_t access)
{
    return (context->queue_memory.access & access) == access ? context->queue_memory
                                                             : (struct queue_memory){0};
}

/* The target that was named last, if ops of this queue may name it; otherwise none. */
static inline __attribute__((always_inline)) struct queue_aim aim_of(const struct batch *batch)
{
    const struct queue_aim *aim = &batch->context->queue_aim;
    return aim->kind == batch->limits->kind ? *aim : (struct queue_aim){0};
}

/* Has *aim, which is not none, be what the op names. Returns false if that is no target. */
static inline __attribute__((always_inline)) bool
take_aim(const struct batch *batch, const crpc_queue_op *op, struct queue_aim *aim)
{
    if (unlikely(op->target.bits != aim->handle)) {
        const struct queue_target *found = target_of(batch->context, op->target);
        if (!found || queue_target_nic(found)->kind != aim->kind) {
            return false;
        }
        aim->handle = op->target.bits;
        aim->target = queue_target_nic(found);
    }
    return true;
}

/* Returns how many ops have this opcode and no other payload than one in `memory`. */
static inline __attribute__((always_inline)) uint32_t
plain_run(const struct batch *batch, const struct queue_memory *memory, uint32_t bytes_max,
          const crpc_queue_op *ops, uint32_t count, const uint8_t opcode, uint32_t *local_keys,
          struct nic_target **targets, const enum way way, const uint32_t streams)
{
    const struct rule rule = rule_of(opcode, way);
    const bool to_targets = way != TO_PEER;
    const uint64_t bytes_here = memory->bytes;
    const uint64_t longest = bytes_here < bytes_max ? bytes_here : bytes_max;
    struct queue_aim aim = to_targets ? aim_of(batch) : (struct queue_aim){0};
    const crpc_queue_op *op = ops;
    const crpc_queue_op *const end = to_targets && aim.handle == 0 ? ops : ops + count;
    while (op != end) {
        uint64_t wrong = ((head_of(op) & head_mask(rule, way)) ^ head_with(opcode, 0)) |
                         too_much(op, rule, way, streams);
        if (unlikely(wrong != 0) || unlikely(op->region.bits != memory->handle) ||
            unlikely(op->bytes > longest) ||
            unlikely(op->address - memory->address > bytes_here - op->bytes)) {
            break;
        }
        if (to_targets) {
            if (!take_aim(batch, op, &aim)) {
                break;
            }
            *targets++ = aim.target;
        }
        *local_keys++ = memory->local_key;
        op++;
    }
    if (to_targets && aim.handle != 0) {
        batch->context->queue_aim = aim;
    }
    return (uint32_t)(op - ops);
}

/* Returns how many ops have this opcode and an inline payload in one piece. */
static inline __attribute__((always_inline)) uint32_t
inline_run(const struct batch *batch, uint32_t bytes_max, const crpc_queue_op *ops, uint32_t count,
           const uint8_t opcode, struct nic_target **targets, const enum way way,
           const uint32_t streams)
{
    const struct rule rule = rule_of(opcode, way);
    const bool to_targets = way != TO_PEER;
    struct queue_aim aim = to_targets ? aim_of(batch) : (struct queue_aim){0};
    const crpc_queue_op *op = ops;
    const crpc_queue_op *const end = to_targets && aim.handle == 0 ? ops : ops + count;
    while (op != end) {
        uint64_t wrong =
            ((head_of(op) & head_mask(rule, way)) ^ head_with(opcode, CRPC_QUEUE_INLINE)) |
            too_much(op, rule, way, streams) | op->region.bits;
        if (unlikely(wrong != 0) || unlikely(op->bytes > bytes_max) || unlikely(op->address == 0)) {
            break;
        }
        if (to_targets) {
            if (!take_aim(batch, op, &aim)) {
                break;
            }
            *targets++ = aim.target;
        }
        op++;
    }
    if (to_targets && aim.handle != 0) {
        batch->context->queue_aim = aim;
    }
    return (uint32_t)(op - ops);
}

/* Checks ops as long as they have this opcode, which is a constant, so that only what concerns it is left.
 * Returns how many are good. Most have their payload in the region of the one before, or inline like
 * it; what has not, is looked at in full. */
static inline __attribute__((always_inline)) uint32_t
check_run(struct batch *batch, const crpc_queue_op *ops, uint32_t count, const uint8_t opcode,
          uint32_t *local_keys, struct nic_target **targets, int32_t *status, const enum way way)
{
    const struct rule rule = rule_of(opcode, way);
    const struct nic *nic = batch->context->nic;
    const uint32_t streams = way == TO_DCT ? queue_streams(batch) : 0;
    uint32_t good = 0;
    while (good < count && ops[good].opcode == opcode) {
        struct nic_target **to = way == TO_PEER ? NULL : targets + good;
        uint32_t usual = 0;
        if (rule.flags & CRPC_QUEUE_INLINE && ops[good].flags & CRPC_QUEUE_INLINE) {
            const uint32_t longest =
                way == TO_ANYONE ? (uint32_t)minimum(batch->limits->inline_bytes, nic->mtu_bytes)
                                 : batch->limits->inline_bytes;
            usual = inline_run(batch, longest, ops + good, count - good, opcode, to, way, streams);
        } else if (rule.names & NAMES_PAYLOAD) {
            const struct queue_memory memory = memory_with(
                batch->context, rule.names & FILLS_PAYLOAD ? CRPC_ACCESS_LOCAL_WRITE : 0);
            usual = plain_run(
                batch, &memory, way == TO_ANYONE ? nic->mtu_bytes : nic->message_bytes_max,
                ops + good, count - good, opcode, local_keys + good, to, way, streams);
        }
        good += usual;
        if (usual == 0) {
            *status = way == TO_PEER
                          ? check_op(batch, &ops[good], &local_keys[good])
                          : queue_check_op_to_target(batch, &ops[good], &local_keys[good], to);
            if (unlikely(*status != CRPC_OK)) {
                break;
            }
            good++;
        }
    }
    return good;
}

#define CHECK_RUN(opcode)                                                                          \
    case opcode:                                                                                   \
        return check_run(batch, ops, count, opcode, local_keys, NULL, status, TO_PEER)

/* One loop for each opcode. At least one op is good, or *status says why not. */
static uint32_t check_alike(struct batch *batch, const crpc_queue_op *ops, uint32_t count,
                            uint32_t *local_keys, int32_t *status)
{
    switch (ops->opcode) {
        CHECK_RUN(CRPC_QUEUE_SEND);
        CHECK_RUN(CRPC_QUEUE_SEND_IMMEDIATE);
        CHECK_RUN(CRPC_QUEUE_SEND_INVALIDATE);
        CHECK_RUN(CRPC_QUEUE_WRITE);
        CHECK_RUN(CRPC_QUEUE_WRITE_IMMEDIATE);
        CHECK_RUN(CRPC_QUEUE_READ);
        CHECK_RUN(CRPC_QUEUE_COMPARE_SWAP);
        CHECK_RUN(CRPC_QUEUE_FETCH_ADD);
        CHECK_RUN(CRPC_QUEUE_NOP);
        CHECK_RUN(CRPC_QUEUE_RECEIVE);
    default:
        *status = CRPC_E_UNSUPPORTED;
        return 0;
    }
}

#define CHECK_RUN_TO(opcode, way)                                                                  \
    case opcode:                                                                                   \
        return check_run(batch, ops, count, opcode, local_keys, targets, status, way)

static uint32_t check_datagrams(struct batch *batch, const crpc_queue_op *ops, uint32_t count,
                                uint32_t *local_keys, struct nic_target **targets, int32_t *status)
{
    switch (ops->opcode) {
        CHECK_RUN_TO(CRPC_QUEUE_SEND, TO_ANYONE);
        CHECK_RUN_TO(CRPC_QUEUE_SEND_IMMEDIATE, TO_ANYONE);
    default:
        *status = CRPC_E_UNSUPPORTED;
        return 0;
    }
}

static uint32_t check_to_dcts(struct batch *batch, const crpc_queue_op *ops, uint32_t count,
                              uint32_t *local_keys, struct nic_target **targets, int32_t *status)
{
    switch (ops->opcode) {
        CHECK_RUN_TO(CRPC_QUEUE_SEND, TO_DCT);
        CHECK_RUN_TO(CRPC_QUEUE_SEND_IMMEDIATE, TO_DCT);
        CHECK_RUN_TO(CRPC_QUEUE_WRITE, TO_DCT);
        CHECK_RUN_TO(CRPC_QUEUE_WRITE_IMMEDIATE, TO_DCT);
        CHECK_RUN_TO(CRPC_QUEUE_READ, TO_DCT);
        CHECK_RUN_TO(CRPC_QUEUE_COMPARE_SWAP, TO_DCT);
        CHECK_RUN_TO(CRPC_QUEUE_FETCH_ADD, TO_DCT);
        CHECK_RUN_TO(CRPC_QUEUE_NOP, TO_DCT);
    default:
        *status = CRPC_E_UNSUPPORTED;
        return 0;
    }
}

uint32_t queue_check_to_targets(struct batch *batch, const crpc_queue_op *ops, uint32_t count,
                                uint32_t *local_keys, struct nic_target **targets, int32_t *status)
{
    return batch->limits->kind == NIC_QUEUE_UD
               ? check_datagrams(batch, ops, count, local_keys, targets, status)
               : check_to_dcts(batch, ops, count, local_keys, targets, status);
}

/* Checks a chunk of ops that send, or of receives: the series ends where the other begins. Returns 0 and
 * CRPC_OK if they send to targets, or concern tags. */
static uint32_t check_chunk(struct batch *batch, const crpc_queue_op *ops, uint32_t count,
                            uint32_t *local_keys, int32_t *status)
{
    const bool receives = ops->opcode == CRPC_QUEUE_RECEIVE;
    const uint32_t limit = count < CHUNK ? count : CHUNK;
    uint32_t good = 0;
    if (unlikely(receives ? batch->limits->receives == 0 : batch->limits->peer_sends == 0)) {
        *status = !receives && (batch->limits->sends | batch->limits->tags) > 0 ? CRPC_OK
                  : batch->limits->kind == 0                                    ? CRPC_E_STATE
                                             : CRPC_E_UNSUPPORTED;
        return 0;
    }
    do {
        good += check_alike(batch, ops + good, limit - good, local_keys + good, status);
    } while (good < limit && *status == CRPC_OK &&
             (ops[good].opcode == CRPC_QUEUE_RECEIVE) == receives);
    return good;
}

/* ---- Submit ---------------------------------------------------------------------------------- */

/* Accepts ops up to the first that cannot be, and returns how many. */
static uint32_t accept_ops(struct batch *batch, struct queue *queue, const crpc_queue_op *ops,
                           uint32_t count, int32_t *status)
{
    uint32_t local_keys[CHUNK];
    uint32_t taken = 0;
    *status = CRPC_OK;
    while (taken < count && *status == CRPC_OK) {
        const struct nic_work *works = (const struct nic_work *)&ops[taken];
        const bool receives = works->opcode == NIC_RECEIVE;
        int32_t refusal = CRPC_OK;
        uint32_t good = check_chunk(batch, &ops[taken], count - taken, local_keys, status);
        uint32_t accepted = 0;
        if (likely(good > 0)) {
            accepted = receives ? queue_receive(queue, works, local_keys,
                                                batch->context->queue_pieces, good, &refusal)
                                : queue_submit(queue, works, local_keys,
                                               batch->context->queue_pieces, good, &refusal);
        } else if (*status == CRPC_OK) {
            accepted = good =
                batch->limits->tags > 0
                    ? queue_submit_tags(batch, queue, &ops[taken], count - taken, status)
                    : queue_submit_to_targets(batch, queue, &ops[taken], count - taken, status);
        }
        taken += accepted;
        if (unlikely(accepted < good)) {
            *status = refusal;
        }
    }
    return taken;
}

int32_t crpc_queue_submit(crpc_context *context, crpc_queue queue, const crpc_queue_op *ops,
                          uint32_t count, const crpc_piece *pieces, uint32_t piece_count,
                          int32_t *reason)
{
    int32_t unused;
    reason = reason ? reason : &unused;
    if (unlikely(!context || (!ops && count > 0) || (!pieces && piece_count > 0) ||
                 count > INT32_MAX || piece_count > CRPC_QUEUE_SUBMIT_PIECES_MAX)) {
        *reason = CRPC_E_INVALID;
        return CRPC_E_INVALID;
    }
    struct queue *object = queue_of(context, queue);
    if (unlikely(!object)) {
        *reason = CRPC_E_STALE;
        return 0;
    }
    struct batch batch = {.context = context,
                          .limits = queue_limits(object),
                          .pieces = pieces,
                          .piece_count = piece_count};
    uint32_t taken = accept_ops(&batch, object, ops, count, reason);
    queue_submit_end(object);
    return (int32_t)taken;
}
