/* late.c: data that land in memory later than they came, and in any order.
 *
 * The fault `placement=P:US` has the data of some packets land late that go to memory with relaxed ordering, piece by piece: as with
 * writes of PCIe that have the attribute RO, and with adapters that place packets where they belong in the order in which they come
 * (adaptive routing). What such memory has is told by completions alone (ibv_reg_mr(3), "Ordering semantics"): a completion of the
 * queue pair's receives brings all that its peer has written before, and one of its sends all that its READs and atomics have. The device
 * itself reads what was written (read after write), atomics of a peer keep their place, and what ends a right ends lateness. All else may
 * overtake, also what the same queue pair writes elsewhere.
 *
 * Quirks break that: their data land after what says that they have, or late in memory that has an order. */
#include "simnic/nic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "simnic/nic/dma.h"

#define PIECES 2048u
#define PIECE_BYTES 256u /* of memory, aligned: a write of PCIe is in one */
#define CUT_ONE_IN 4u
#define QUIRK_NS 300000u    /* long enough for a program to look */
#define QUIRK_SHARE 500000u /* of a million pieces */

struct late_piece {
    const struct queue_pair *qp; /* NULL: no completion brings it */
    uint8_t *to;
    uint64_t due_ns;
    uint16_t bytes;
    bool of_requester;
};

struct late_pieces {
    uint16_t order
        [PIECES]; /* all pieces: first those that are held, in the order in which they land, then the others */
    struct late_piece piece[PIECES];
    uint8_t held[PIECES][PIECE_BYTES];
};

/* A bit for some queue pairs, so that a completion of one that has nothing late costs little. */
static uint64_t owner_bit(const struct queue_pair *qp, bool of_requester)
{
    return 1ull << (((uintptr_t)qp / sizeof(*qp) * 2 + of_requester) % 64);
}

static struct late_piece *at(const struct nic *nic, uint32_t position)
{
    struct late_pieces *pieces = nic->late.pieces;
    return &pieces->piece[pieces->order[position]];
}

static void exchange(struct late_pieces *pieces, uint32_t one, uint32_t other)
{
    const uint16_t which = pieces->order[one];
    pieces->order[one] = pieces->order[other];
    pieces->order[other] = which;
}

static void land(struct nic *nic, uint32_t position)
{
    struct late_data *late = &nic->late;
    const struct late_piece *piece = at(nic, position);
    dma_copy(piece->to, late->pieces->held[late->pieces->order[position]], piece->bytes);
    exchange(late->pieces, position, --late->count);
}

static bool make_pieces(struct late_data *late)
{
    if (late->pieces) {
        return true;
    }
    late->pieces = calloc(1, sizeof(*late->pieces));
    for (uint32_t i = 0; late->pieces && i < PIECES; i++) {
        late->pieces->order[i] = (uint16_t)i;
    }
    return late->pieces;
}

/* What is known of all that are held. */
static void note(struct late_data *late, const struct late_piece *piece)
{
    if (late->count == 0) {
        late->next_ns = UINT64_MAX;
        late->low = UINTPTR_MAX;
        late->high = 0;
        late->owners = 0;
    }
    const uintptr_t start = (uintptr_t)piece->to, end = start + piece->bytes;
    late->next_ns = piece->due_ns < late->next_ns ? piece->due_ns : late->next_ns;
    late->low = start < late->low ? start : late->low;
    late->high = end > late->high ? end : late->high;
    late->owners |= owner_bit(piece->qp, piece->of_requester);
}

/* Returns false if the piece cannot wait: then it is written now, or fails now. */
static bool hold(struct nic *nic, const struct late_piece *piece, const uint8_t *from)
{
    struct late_data *late = &nic->late;
    uint32_t there;
    /* It is in one page. */
    const uintptr_t word = (uintptr_t)piece->to & ~(uintptr_t)3;
    if (!make_pieces(late) || !dma_load32((const void *)word, &there)) {
        return false;
    }
    const uint64_t chance = fault_roll(&nic->fabric->late_dice);
    if (late->count == PIECES) {
        land(nic, (uint32_t)(chance % PIECES));
    }
    note(late, piece);
    const uint16_t which = late->pieces->order[late->count];
    late->pieces->piece[which] = *piece;
    memcpy(late->pieces->held[which], from, piece->bytes);
    exchange(late->pieces, late->count, (uint32_t)(chance % (late->count + 1)));
    late->count++;
    return true;
}

static uint32_t piece_bytes(const uint8_t *to, uint64_t bytes)
{
    uint64_t left = PIECE_BYTES - ((uintptr_t)to & (PIECE_BYTES - 1));
    return (uint32_t)(bytes < left ? bytes : left);
}

/* Some are cut between two words, so that who polls the last one of a line does not always find the rest. */
static uint32_t some_piece_bytes(struct nic *nic, const uint8_t *to, uint64_t bytes)
{
    const uint32_t whole = piece_bytes(to, bytes);
    const uint64_t chance = fault_roll(&nic->fabric->late_dice);
    const uint32_t words = (whole - 1) / 8; /* places to cut, at most */
    if (words == 0 || chance % CUT_ONE_IN != 0) {
        return whole;
    }
    const uint32_t cut = 8 + (uint32_t)(chance / CUT_ONE_IN % words) * 8;
    return cut - (uint32_t)((uintptr_t)to & 7);
}

bool late_write_unordered(struct nic *nic, const struct queue_pair *qp, bool of_requester,
                          bool relaxed, uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    if (!relaxed) { /* write after write */
        late_land_range(nic, to, bytes);
    }
    const struct fabric_fault *fault = &nic->fabric->fault;
    const bool broken = nic_has_quirk(nic, relaxed ? QUIRK_ORDER_RELAXED : QUIRK_ORDER_FLAG);
    const uint32_t share = broken ? QUIRK_SHARE : relaxed ? fault->placement_per_million : 0;
    const uint64_t most_ns = broken ? QUIRK_NS : fault->placement_us * 1000ull;
    const bool told_by_none = broken && relaxed;
    while (bytes) {
        const uint32_t part = relaxed ? some_piece_bytes(nic, to, bytes) : piece_bytes(to, bytes);
        const bool waits = fault_happens(&nic->fabric->late_dice, share);
        const uint64_t wait_ns =
            waits && !broken ? fault_roll(&nic->fabric->late_dice) % (most_ns + 1) : most_ns;
        const struct late_piece piece = {.qp = told_by_none ? NULL : qp,
                                         .of_requester = of_requester,
                                         .to = to,
                                         .bytes = (uint16_t)part,
                                         .due_ns = nic->now_ns + wait_ns};
        if (!(waits && hold(nic, &piece, from)) && !dma_copy(to, from, part)) {
            return false;
        }
        to += part;
        from += part;
        bytes -= part;
    }
    return true;
}

void late_write(struct nic *nic, uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    while (bytes) {
        const uint32_t part = piece_bytes(to, bytes);
        late_land_range(nic, to, part);
        const struct late_piece piece = {
            .to = to, .bytes = (uint16_t)part, .due_ns = nic->now_ns + QUIRK_NS};
        if (!hold(nic, &piece, from)) {
            dma_copy(to, from, part);
        }
        to += part;
        from += part;
        bytes -= part;
    }
}

void late_land(struct nic *nic, const struct queue_pair *qp, bool of_requester)
{
    if (nic->late.count == 0 || !(nic->late.owners & owner_bit(qp, of_requester))) {
        return;
    }
    for (uint32_t i = nic->late.count; i-- > 0;) {
        const struct late_piece *piece = at(nic, i);
        if (piece->qp == qp && piece->of_requester == of_requester) {
            land(nic, i);
        }
    }
}

void late_land_all(struct nic *nic, const struct queue_pair *qp)
{
    late_land(nic, qp, false);
    late_land(nic, qp, true);
}

void late_land_range(struct nic *nic, const uint8_t *start, uint64_t bytes)
{
    const struct late_data *late = &nic->late;
    const uintptr_t from = (uintptr_t)start;
    if (late->count == 0 || from >= late->high || (from < late->low && bytes <= late->low - from)) {
        return;
    }
    for (uint32_t i = late->count; i-- > 0;) {
        const struct late_piece *piece = at(nic, i);
        if ((uint64_t)(piece->to - start) < bytes || (uint64_t)(start - piece->to) < piece->bytes) {
            land(nic, i);
        }
    }
}

void late_end_right(struct nic *nic, const struct memory_key *key)
{
    if (key->kind == KEY_INDIRECT) { /* its pieces are anywhere */
        late_land_range(nic, NULL, UINT64_MAX);
    } else {
        late_land_range(nic, (const uint8_t *)(uintptr_t)key->start, key->bytes);
    }
}

void late_run(struct nic *nic)
{
    struct late_data *late = &nic->late;
    if (late->count == 0 || nic->now_ns < late->next_ns) {
        return;
    }
    late->next_ns = UINT64_MAX;
    for (uint32_t i = late->count; i-- > 0;) {
        const uint64_t due_ns = at(nic, i)->due_ns;
        if (due_ns <= nic->now_ns) {
            land(nic, i);
        } else if (due_ns < late->next_ns) {
            late->next_ns = due_ns;
        }
    }
}

uint64_t late_due_ns(const struct nic *nic)
{
    return nic->late.count ? nic->late.next_ns : UINT64_MAX;
}

void late_forget(struct nic *nic)
{
    free(nic->late.pieces);
    nic->late = (struct late_data){0};
}
