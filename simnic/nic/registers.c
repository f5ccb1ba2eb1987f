/* registers.c: doorbell pages (PRM, "UAR page format"): the registers of SQ doorbells, which
 * BlueFlame WQEs are pushed to as well, and that of CQ doorbells. */
#include "simnic/nic/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CQ_DOORBELL 0x20u

/* With more QPs on a page, not all of them are looked at with each doorbell: that would take as long as the rest
 * of a call with 10,000 QPs, which libmlx5 gives 16 registers. */
#define CROWD 64u
#define SEARCH_NS_EACH 100u /* for each QP until all are looked at, which takes a tenth of that */
#define SEARCH_LATE_NS 10000000u /* likewise, if no doorbell should have been missed */

static const uint32_t register_offset[NIC_REGISTERS] = {0x800, 0x900, 0xa00, 0xb00};

bool nic_add_page(struct nic *nic, uint32_t page, uint8_t *memory)
{
    struct doorbell_page *p = calloc(1, sizeof(*p));
    if (!p) {
        return false;
    }
    memset(memory, 0, NIC_UAR_BYTES);
    p->memory = memory;
    list_init(&p->queue_pairs);
    nic->pages[page] = p;
    if (page >= nic->page_end) {
        nic->page_end = page + 1;
    }
    return true;
}

void nic_remove_page(struct nic *nic, uint32_t page)
{
    struct doorbell_page *p = nic->pages[page];
    if (!p) {
        return;
    }
    while (!list_empty(&p->queue_pairs)) {
        container_of(p->queue_pairs.next, struct queue_pair, on_page)->push.bytes = 0;
        list_remove(p->queue_pairs.next);
    }
    nic->searches -= p->search;
    nic->pages[page] = NULL;
    free(p);
    while (nic->page_end && !nic->pages[nic->page_end - 1]) {
        nic->page_end--;
    }
}

static void ring(struct nic *nic, struct queue_pair *qp)
{
    qp->rings = true;
    qp_activate(nic, qp);
}

void nic_forget_pushes(struct nic *nic, uint32_t page)
{
    struct doorbell_page *p = page < NIC_MAX_PAGES ? nic->pages[page] : NULL;
    for (uint32_t which = 0; p && which < NIC_REGISTERS; which++) {
        memcpy(p->seen[which] + 8, p->memory + register_offset[which] + 8, NIC_BLUEFLAME_BYTES - 8);
    }
}

/* All QPs of the page look at their doorbell records; in a crowd, only those that have something new there begin. */
static void look_at_all(struct nic *nic, struct doorbell_page *page)
{
    const bool crowded = page->crowd > CROWD;
    nic->searches -= page->search;
    page->search = false;
    page->crowd = 0;
    for (struct list *l = page->queue_pairs.next; l != &page->queue_pairs; l = l->next) {
        struct queue_pair *qp = container_of(l, struct queue_pair, on_page);
        page->crowd++;
        if (!crowded || send_queue_has_more(qp)) {
            ring(nic, qp);
        }
    }
}

static void search_later(struct nic *nic, struct doorbell_page *page)
{
    if (!page->search) {
        page->search = true;
        page->search_due_ns = 0;
        nic->searches++;
    } else if (!nic->sees_each_store && page->search_due_ns > nic->now_ns) {
        const uint64_t due_ns = nic->now_ns + page->crowd * SEARCH_NS_EACH;
        page->search_due_ns = due_ns < page->search_due_ns ? due_ns : page->search_due_ns;
    }
}

bool nic_search(struct nic *nic)
{
    bool any = false;
    for (uint32_t i = 0; nic->searches && i < nic->page_end; i++) {
        struct doorbell_page *page = nic->pages[i];
        if (!page || !page->search) {
            continue;
        }
        if (page->search_due_ns == 0) {
            page->search_due_ns =
                nic->now_ns +
                (nic->sees_each_store ? SEARCH_LATE_NS : page->crowd * SEARCH_NS_EACH);
        } else if (nic->now_ns >= page->search_due_ns) {
            look_at_all(nic, page);
            any = true;
        }
    }
    return any;
}

uint64_t nic_search_due_ns(const struct nic *nic)
{
    uint64_t due_ns = UINT64_MAX;
    for (uint32_t i = 0; nic->searches && i < nic->page_end; i++) {
        const struct doorbell_page *page = nic->pages[i];
        if (page && page->search && page->search_due_ns < due_ns) {
            due_ns = page->search_due_ns;
        }
    }
    return due_ns;
}

/* Several QPs may have written to a register since the last look, and it shows only the last one's
 * doorbell. So the others of its page look at their doorbell records, too: at once, or in a crowd soon after. */
static void look_at_register(struct nic *nic, struct doorbell_page *page, uint32_t which)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(page->memory + register_offset[which]);
    uint64_t first = atomic_exchange_explicit(word, 0, memory_order_acq_rel);
    uint32_t qpn_size;
    memcpy(&qpn_size, (uint8_t *)&first + 4, sizeof(qpn_size));
    page->rung[which]++;
    struct queue_pair *qp = qp_find(nic, be32toh(qpn_size) >> 8);
    const uint32_t number_before = page->last_number[which / 2];
    page->last_number[which / 2] = be32toh(qpn_size) >> 8;
    if (nic_has_quirk(nic, QUIRK_DOORBELL_SHARED) && number_before != 0 &&
        number_before != page->last_number[which / 2]) {
        return;
    }
    if (qp && list_linked(&qp->on_page) && nic->pages[qp->page] == page) {
        qp->statistics->doorbells++;
        blueflame_note(qp, page, which, page->memory + register_offset[which], first);
        ring(nic, qp);
    }
    if (page->crowd > CROWD) {
        search_later(nic, page);
    } else {
        look_at_all(nic, page);
    }
}

bool nic_look_at_doorbells(struct nic *nic)
{
    bool any = false;
    for (uint32_t i = 0; i < nic->page_end; i++) {
        struct doorbell_page *page = nic->pages[i];
        if (!page) {
            continue;
        }
        for (uint32_t which = 0; which < NIC_REGISTERS; which++) {
            const _Atomic uint64_t *word =
                (_Atomic uint64_t *)(void *)(page->memory + register_offset[which]);
            if (atomic_load_explicit(word, memory_order_relaxed)) {
                look_at_register(nic, page, which);
                any = true;
            }
        }
        _Atomic uint64_t *arm = (_Atomic uint64_t *)(void *)(page->memory + CQ_DOORBELL);
        if (atomic_load_explicit(arm, memory_order_relaxed)) {
            atomic_exchange_explicit(arm, 0, memory_order_acq_rel);
            cq_look_at_arms(nic);
            any = true;
        }
    }
    return any;
}

void nic_ring_page(struct nic *nic, uint32_t index)
{
    struct doorbell_page *page = index < nic->page_end ? nic->pages[index] : NULL;
    if (!page) {
        return;
    }
    for (struct list *l = page->queue_pairs.next; l != &page->queue_pairs; l = l->next) {
        ring(nic, container_of(l, struct queue_pair, on_page));
    }
    cq_look_at_arms(nic);
}
