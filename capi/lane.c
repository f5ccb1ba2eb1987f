/* lane.c: one-sided ops of endpoints, and grants, for the caller. Each op is checked here, once. */
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "lane/lane.h"
#include "private/context.h"
#include "private/copyin.h"

/* Ops that core gets at once. */
#define CHUNK 64u

/* A call of crpc_lane_submit. */
struct lane_batch {
    crpc_context *context;
    struct rpc_endpoint *endpoint;
    const crpc_piece *pieces;
    uint32_t piece_count;
};

/* What the ops of a series have named last: the next one names it again, as a rule. Nothing of it can change
 * while a series is checked. */
struct named {
    uint64_t region; /* its handle; 0 = none */
    uint64_t address;
    uint64_t bytes;
    uint32_t local_key;
    uint32_t access;
    uint64_t grant; /* its handle; 0 = none */
    uint64_t remote_address;
    uint32_t remote_bytes;
    uint32_t remote_key;
    uint32_t rights;
};

/* The pieces of one op, with their keys. */
struct op_pieces {
    struct nic_piece list[CRPC_LANE_PIECES_MAX];
};

static_assert(CRPC_LANE_WRITE == LANE_WRITE && CRPC_LANE_READ == LANE_READ &&
                  CRPC_LANE_COMPARE_SWAP == LANE_COMPARE_SWAP &&
                  CRPC_LANE_FETCH_ADD == LANE_FETCH_ADD && CRPC_LANE_GRANT == LANE_GRANT &&
                  CRPC_LANE_REVOKE == LANE_REVOKE,
              "core has the caller's opcodes");
static_assert(CRPC_GRANT_BYTES == LANE_GRANT_BYTES, "core has the caller's grants");
static_assert(sizeof(crpc_lane_op) == 64, "an op is one cache line");
static_assert(CRPC_LANE_PIECES_MAX == NIC_PIECES_MAX, "core takes the caller's pieces");

#define REMOTE_ACCESS                                                                              \
    (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)

/* ---- Checks of an op: what its opcode does not name must be zero ----------------------------- */

#define NAMES_MEMORY 0x1u  /* region, address, bytes */
#define NAMES_GRANT 0x2u   /* grant */
#define NAMES_OFFSET 0x4u  /* offset, and the flag FENCE */
#define NAMES_COMPARE 0x8u /* compare */
#define NAMES_OPERAND 0x10u
#define NAMES_ACCESS 0x20u

static const struct {
    uint8_t names;
    uint8_t right; /* that the grant must give: CRPC_ACCESS_REMOTE_* */
} rules[] = {
    [CRPC_LANE_WRITE] = {NAMES_MEMORY | NAMES_GRANT | NAMES_OFFSET, CRPC_ACCESS_REMOTE_WRITE},
    [CRPC_LANE_READ] = {NAMES_MEMORY | NAMES_GRANT | NAMES_OFFSET, CRPC_ACCESS_REMOTE_READ},
    [CRPC_LANE_COMPARE_SWAP] = {NAMES_GRANT | NAMES_OFFSET | NAMES_COMPARE | NAMES_OPERAND,
                                CRPC_ACCESS_REMOTE_ATOMIC},
    [CRPC_LANE_FETCH_ADD] = {NAMES_GRANT | NAMES_OFFSET | NAMES_OPERAND, CRPC_ACCESS_REMOTE_ATOMIC},
    [CRPC_LANE_GRANT] = {NAMES_MEMORY | NAMES_ACCESS, 0},
    [CRPC_LANE_REVOKE] = {NAMES_GRANT | NAMES_OPERAND, 0},
};

static bool shape_valid(const crpc_lane_op *op)
{
    const uint8_t names = rules[op->opcode].names;
    const uint8_t flags = (names & NAMES_OFFSET ? CRPC_LANE_FENCE : 0) |
                          (op->opcode <= CRPC_LANE_READ ? CRPC_LANE_PIECES : 0) |
                          (op->opcode == CRPC_LANE_WRITE ? CRPC_LANE_INLINE : 0);
    uint64_t set = op->flags & (uint8_t)~flags;
    set |= names & NAMES_MEMORY ? 0 : op->region.bits | op->address | op->bytes;
    set |= names & NAMES_GRANT ? 0 : op->grant.bits;
    set |= names & NAMES_OFFSET ? 0 : op->offset;
    set |= names & NAMES_COMPARE ? 0 : op->compare;
    set |= names & NAMES_OPERAND ? 0 : op->operand;
    set |= names & NAMES_ACCESS ? 0 : op->access;
    return set == 0;
}

/* Finds the region of memory of this side; none if there are no bytes. */
static int32_t find_memory(const crpc_context *context, crpc_region handle, uint64_t address,
                           uint32_t bytes, uint32_t access, struct region **region)
{
    uint64_t end;
    *region = NULL;
    if (handle.bits == 0) {
        return bytes == 0 ? CRPC_OK : CRPC_E_INVALID;
    }
    *region = region_of(context, handle);
    if (!*region) {
        return CRPC_E_STALE;
    }
    if (((*region)->access & access) != access || address < (*region)->address ||
        __builtin_add_overflow(address - (*region)->address, bytes, &end) ||
        end > (*region)->bytes) {
        return CRPC_E_INVALID;
    }
    return CRPC_OK;
}

static struct lane_grant *grant_of(const crpc_context *context, crpc_grant grant)
{
    return handles_get(&context->handles, grant.bits, HANDLE_GRANT);
}

/* Finds the peer's grant that an op names, which contains its bytes. */
static int32_t find_grant(const struct lane_batch *batch, const crpc_lane_op *op, uint32_t bytes,
                          struct named *named, struct lane_op *ours)
{
    const uint32_t right = rules[op->opcode].right;
    const struct lane_grant *grant = grant_of(batch->context, op->grant);
    if (!grant) {
        return CRPC_E_STALE;
    }
    if (!rpc_lane_has(batch->endpoint, grant) || grant->given) {
        return CRPC_E_INVALID;
    }
    if (lane_grant_over(grant)) {
        return CRPC_E_STALE;
    }
    if ((grant->access & right) != right || op->offset > grant->bytes ||
        bytes > grant->bytes - op->offset) {
        return CRPC_E_INVALID;
    }
    ours->remote_key = grant->key;
    ours->remote_address = grant->address + op->offset;
    named->grant = op->grant.bits;
    named->remote_address = grant->address;
    named->remote_bytes = grant->bytes;
    named->remote_key = grant->key;
    named->rights = grant->access;
    return CRPC_OK;
}

/* ---- Memory of this side --------------------------------------------------------------------- */

static uint32_t access_of(const crpc_lane_op *op)
{
    return op->opcode == CRPC_LANE_READ ? CRPC_ACCESS_LOCAL_WRITE : 0;
}

static int32_t check_length(const struct lane_batch *batch, const crpc_lane_op *op, uint64_t bytes)
{
    const struct nic *nic = batch->context->nic;
    const uint32_t most =
        op->flags & CRPC_LANE_INLINE ? nic->inline_bytes_max : nic->message_bytes_max;
    return bytes <= most ? CRPC_OK : CRPC_E_TOO_BIG;
}

/* What is copied is somewhere, and in no region. */
static int32_t check_copied(crpc_region region, uint64_t address, uint32_t bytes)
{
    return region.bits == 0 && (address != 0 || bytes == 0) ? CRPC_OK : CRPC_E_INVALID;
}

static int32_t take_piece(const struct lane_batch *batch, const crpc_lane_op *op,
                          const crpc_piece *theirs, struct nic_piece *ours)
{
    struct region *region = NULL;
    int32_t status = theirs->zero != 0 ? CRPC_E_INVALID
                     : op->flags & CRPC_LANE_INLINE
                         ? check_copied(theirs->region, theirs->address, theirs->bytes)
                         : find_memory(batch->context, theirs->region, theirs->address,
                                       theirs->bytes, access_of(op), &region);
    *ours = (struct nic_piece){.address = theirs->address,
                               .bytes = theirs->bytes,
                               .local_key = region ? region->calls.keys[0].local_key : 0};
    return status;
}

static int32_t take_pieces(const struct lane_batch *batch, const crpc_lane_op *op,
                           struct op_pieces *pieces, struct lane_op *ours)
{
    uint64_t bytes = 0;
    if (op->region.bits != 0 || op->bytes == 0 || op->address > batch->piece_count ||
        op->bytes > batch->piece_count - op->address) {
        return CRPC_E_INVALID;
    }
    if (op->bytes > batch->context->nic->pieces_max) {
        return CRPC_E_TOO_BIG;
    }
    for (uint32_t i = 0; i < op->bytes; i++) {
        int32_t status = take_piece(batch, op, &batch->pieces[op->address + i], &pieces->list[i]);
        if (status != CRPC_OK) {
            return status;
        }
        bytes += pieces->list[i].bytes;
    }
    ours->pieces = pieces->list;
    ours->piece_count = (uint8_t)op->bytes;
    ours->bytes = (uint32_t)bytes;
    return check_length(batch, op, bytes);
}

/* Core has the processor copy a short WRITE into its WQE, but not one that has pieces. Memory of another
 * device may not allow it, so that is a piece. */
static int32_t take_range(const struct lane_batch *batch, const crpc_lane_op *op,
                          struct op_pieces *pieces, struct named *named, struct lane_op *ours)
{
    struct region *region = NULL;
    int32_t status = op->flags & CRPC_LANE_INLINE
                         ? check_copied(op->region, op->address, op->bytes)
                         : find_memory(batch->context, op->region, op->address, op->bytes,
                                       access_of(op), &region);
    if (status != CRPC_OK) {
        return status;
    }
    ours->bytes = op->bytes;
    ours->local_address = op->address;
    ours->local_key = region ? region->calls.keys[0].local_key : 0;
    if (region && region->foreign) {
        pieces->list[0] = (struct nic_piece){
            .address = op->address, .bytes = op->bytes, .local_key = ours->local_key};
        ours->pieces = pieces->list;
        ours->piece_count = 1;
    } else if (region) {
        named->region = op->region.bits;
        named->address = region->address;
        named->bytes = region->bytes;
        named->local_key = ours->local_key;
        named->access = region->access;
    }
    return check_length(batch, op, op->bytes);
}

/* ---- Transfers ------------------------------------------------------------------------------- */

static bool is_transfer(uint8_t opcode)
{
    return opcode >= CRPC_LANE_WRITE && opcode <= CRPC_LANE_FETCH_ADD;
}

static int32_t take_atomic(const struct lane_batch *batch, const crpc_lane_op *theirs,
                           struct lane_op *ours)
{
    if (!batch->context->nic->atomics) {
        return CRPC_E_UNSUPPORTED;
    }
    ours->compare = theirs->compare;
    ours->operand = theirs->operand;
    return ours->remote_address % sizeof(uint64_t) == 0 ? CRPC_OK : CRPC_E_INVALID;
}

/* Checks a transfer, and fills what core takes. */
static __attribute__((noinline)) int32_t take_transfer(const struct lane_batch *batch,
                                                       const crpc_lane_op *theirs,
                                                       struct op_pieces *pieces,
                                                       struct named *named, struct lane_op *ours)
{
    const bool atomic = rules[theirs->opcode].right == CRPC_ACCESS_REMOTE_ATOMIC;
    if (!shape_valid(theirs)) {
        return CRPC_E_INVALID;
    }
    *ours = (struct lane_op){.opcode = theirs->opcode,
                             .fence = theirs->flags & CRPC_LANE_FENCE,
                             .copied = theirs->flags & CRPC_LANE_INLINE,
                             .user_data = theirs->user_data};
    int32_t status = atomic ? CRPC_OK
                     : theirs->flags & CRPC_LANE_PIECES
                         ? take_pieces(batch, theirs, pieces, ours)
                         : take_range(batch, theirs, pieces, named, ours);
    if (status != CRPC_OK) {
        return status;
    }
    status =
        find_grant(batch, theirs, atomic ? (uint32_t)sizeof(uint64_t) : ours->bytes, named, ours);
    return status == CRPC_OK && atomic ? take_atomic(batch, theirs, ours) : status;
}

/* Takes ops as long as they have this opcode and one range in the region and the grant that were named last,
 * and returns how many. `opcode` is a constant at each call. */
static inline __attribute__((always_inline)) uint32_t
take_usual(const struct lane_batch *batch, const struct named *named, const crpc_lane_op *ops,
           uint32_t count, const uint8_t opcode, struct lane_op *ours)
{
    const uint32_t access = opcode == CRPC_LANE_READ ? CRPC_ACCESS_LOCAL_WRITE : 0;
    const uint32_t right =
        opcode == CRPC_LANE_READ ? CRPC_ACCESS_REMOTE_READ : CRPC_ACCESS_REMOTE_WRITE;
    const struct named here = *named;
    const uint64_t longest =
        minimum(minimum(here.bytes, here.remote_bytes), batch->context->nic->message_bytes_max);
    uint32_t taken = 0;
    if (here.region == 0 || here.grant == 0 || (here.access & access) != access ||
        (here.rights & right) == 0) {
        return 0;
    }
    for (; taken < count; taken++) {
        const crpc_lane_op *op = &ops[taken];
        const uint64_t other = (uint64_t)(op->opcode ^ opcode) | op->flags | op->access |
                               op->compare | op->operand | (op->region.bits ^ here.region) |
                               (op->grant.bits ^ here.grant);
        if (unlikely(other != 0) || unlikely(op->bytes > longest) ||
            unlikely(op->address - here.address > here.bytes - op->bytes) ||
            unlikely(op->offset > here.remote_bytes - op->bytes)) {
            break;
        }
        ours[taken] = (struct lane_op){.opcode = opcode,
                                       .bytes = op->bytes,
                                       .local_key = here.local_key,
                                       .remote_key = here.remote_key,
                                       .local_address = op->address,
                                       .remote_address = here.remote_address + op->offset,
                                       .user_data = op->user_data};
    }
    return taken;
}

/* ---- GRANT and REVOKE ------------------------------------------------------------------------ */

static int32_t submit_grant(crpc_context *context, struct rpc_endpoint *endpoint,
                            const crpc_lane_op *op)
{
    const uint32_t writes = CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_ATOMIC;
    struct region *region;
    if (!shape_valid(op) || op->bytes == 0 || op->access == 0 || (op->access & ~REMOTE_ACCESS)) {
        return CRPC_E_INVALID;
    }
    int32_t status = find_memory(context, op->region, op->address, op->bytes,
                                 op->access & writes ? CRPC_ACCESS_LOCAL_WRITE : 0, &region);
    if (status != CRPC_OK) {
        return status;
    }
    if (op->bytes > LANE_GRANT_LENGTH_MAX) {
        return CRPC_E_TOO_BIG;
    }
    if ((op->access & CRPC_ACCESS_REMOTE_ATOMIC) && !context->nic->atomics) {
        return CRPC_E_UNSUPPORTED;
    }
    const struct lane_memory memory = {.keys = &region->calls.keys[0],
                                       .users = &region->calls.users,
                                       .address = op->address,
                                       .bytes = op->bytes,
                                       .access = op->access};
    return rpc_lane_give(endpoint, &memory, op->user_data);
}

static int32_t submit_revoke(crpc_context *context, struct rpc_endpoint *endpoint,
                             const crpc_lane_op *op)
{
    if (!shape_valid(op)) {
        return CRPC_E_INVALID;
    }
    struct lane_grant *grant = grant_of(context, op->grant);
    if (!grant) {
        return CRPC_E_STALE;
    }
    return rpc_lane_has(endpoint, grant) && grant->given
               ? rpc_lane_revoke(endpoint, grant, op->user_data, op->operand)
               : CRPC_E_INVALID;
}

/* ---- Submit ---------------------------------------------------------------------------------- */

/* Accepts transfers up to the first that cannot be, or that is none, and returns how many. */
static uint32_t submit_transfers(const struct lane_batch *batch, const crpc_lane_op *ops,
                                 uint32_t count, int32_t *status)
{
    struct lane_op ours[CHUNK];
    struct op_pieces pieces[CHUNK];
    struct named named = {0};
    const uint32_t limit = count < CHUNK ? count : CHUNK;
    uint32_t good = 0;
    *status = CRPC_OK;
    while (good < limit && is_transfer(ops[good].opcode) && *status == CRPC_OK) {
        const uint32_t left = limit - good;
        const uint32_t usual =
            ops[good].opcode == CRPC_LANE_WRITE
                ? take_usual(batch, &named, &ops[good], left, CRPC_LANE_WRITE, &ours[good])
            : ops[good].opcode == CRPC_LANE_READ
                ? take_usual(batch, &named, &ops[good], left, CRPC_LANE_READ, &ours[good])
                : 0;
        good += usual;
        if (usual == 0) {
            *status = take_transfer(batch, &ops[good], &pieces[good], &named, &ours[good]);
            good += *status == CRPC_OK;
        }
    }
    if (good == 0) {
        return 0;
    }
    int32_t refusal;
    uint32_t accepted = rpc_lane_post(batch->endpoint, ours, good, &refusal);
    if (accepted < good) {
        *status = refusal;
    }
    return accepted;
}

static uint32_t submit_some(const struct lane_batch *batch, const crpc_lane_op *ops, uint32_t count,
                            int32_t *status)
{
    switch (ops->opcode) {
    case CRPC_LANE_WRITE:
    case CRPC_LANE_READ:
    case CRPC_LANE_COMPARE_SWAP:
    case CRPC_LANE_FETCH_ADD:
        return submit_transfers(batch, ops, count, status);
    case CRPC_LANE_GRANT:
        *status = submit_grant(batch->context, batch->endpoint, ops);
        return *status == CRPC_OK;
    case CRPC_LANE_REVOKE:
        *status = submit_revoke(batch->context, batch->endpoint, ops);
        return *status == CRPC_OK;
    default:
        *status = CRPC_E_UNSUPPORTED;
        return 0;
    }
}

int32_t crpc_lane_submit(crpc_context *context, crpc_endpoint endpoint, const crpc_lane_op *ops,
                         uint32_t count, const crpc_piece *pieces, uint32_t piece_count,
                         int32_t *reason)
{
    int32_t unused;
    uint32_t taken = 0;
    reason = reason ? reason : &unused;
    if (!context || (!ops && count > 0) || (!pieces && piece_count > 0) || count > INT32_MAX) {
        *reason = CRPC_E_INVALID;
        return CRPC_E_INVALID;
    }
    const struct lane_batch batch = {.context = context,
                                     .endpoint = endpoint_of(context, endpoint),
                                     .pieces = pieces,
                                     .piece_count = piece_count};
    *reason = batch.endpoint ? CRPC_OK : CRPC_E_STALE;
    if (batch.endpoint && count > 0) {
        *reason = rpc_lane_bar(batch.endpoint);
    }
    while (taken < count && *reason == CRPC_OK) {
        taken += submit_some(&batch, ops + taken, count - taken, reason);
    }
    return (int32_t)taken;
}

/* ---- Grants ---------------------------------------------------------------------------------- */

int32_t crpc_grant_get(crpc_context *context, crpc_grant grant, void *bytes)
{
    if (!context || !bytes) {
        return CRPC_E_INVALID;
    }
    const struct lane_grant *object = grant_of(context, grant);
    if (!object) {
        return CRPC_E_STALE;
    }
    if (!object->given) {
        return CRPC_E_STATE;
    }
    lane_grant_write(object, bytes);
    return CRPC_OK;
}

int32_t crpc_grant_open(crpc_context *context, crpc_endpoint endpoint, const void *bytes,
                        uint32_t byte_count, crpc_grant *grant, crpc_error *error)
{
    crpc_error failure = {0};
    struct lane_grant *object;
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    if (!context || (!bytes && byte_count > 0) || !grant) {
        return give_error(error, &failure, CRPC_E_INVALID);
    }
    struct rpc_endpoint *of = endpoint_of(context, endpoint);
    int32_t status = of ? rpc_lane_take(of, bytes, byte_count, &object, &failure) : CRPC_E_STALE;
    if (status == CRPC_OK) {
        grant->bits = object->handle;
    }
    return give_error(error, &failure, status);
}

int32_t crpc_grant_close(crpc_context *context, crpc_grant grant)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct lane_grant *object = grant_of(context, grant);
    if (!object) {
        return CRPC_E_STALE;
    }
    if (object->given) {
        return CRPC_E_STATE;
    }
    lane_forget(object);
    return CRPC_OK;
}

static void fill_info(const void *object, crpc_grant_info *info)
{
    const struct lane_grant *grant = object;
    info->access = grant->access;
    info->endpoint.bits = lane_handle(grant->lane);
    info->bytes = grant->bytes;
    info->of_peer = !grant->given;
    info->over = lane_grant_over(grant);
}

int32_t crpc_grant_get_info(crpc_context *context, crpc_grant grant, crpc_grant_info *info)
{
    return COPYOUT_OF(context, grant_of(context, grant), info, grant_info, fill_info);
}
