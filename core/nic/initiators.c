/* initiators.c: see initiators.h. */
#include "nic/initiators.h"

void nic_initiators_init(struct nic_initiators *initiators, uint32_t depth)
{
    struct list *lists[] = {&initiators->idle, &initiators->busy, &initiators->waiting,
                            &initiators->granted};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        list_init(lists[i]);
    }
    initiators->depth = depth;
    initiators->count = 0;
}

void nic_initiators_add(struct nic_initiators *initiators, struct nic_initiator *initiator)
{
    initiator->user = NULL;
    list_init(&initiator->link);
    initiators->count++;
    nic_initiators_rest(initiators, initiator);
}

void nic_dynamic_init(struct nic_dynamic *dynamic, struct nic_queue_pair *pair)
{
    dynamic->pair = pair;
    list_init(&dynamic->link);
    pair->depth = 0;
}

/* No room is left to its user, if it has one. */
static void take_back(struct nic_initiator *initiator)
{
    if (initiator->user) {
        struct nic_queue_pair *pair = initiator->user->pair;
        pair->depth = pair->posted - pair->completed;
        initiator->user->initiator = NULL;
        initiator->user = NULL;
    }
}

static void lend(struct nic_initiators *initiators, struct nic_initiator *initiator,
                 struct nic_dynamic *dynamic)
{
    take_back(initiator);
    initiator->user = dynamic;
    dynamic->initiator = initiator;
    dynamic->pair->depth = initiators->depth;
}

static void wait(struct nic_initiators *initiators, struct nic_dynamic *dynamic)
{
    dynamic->waits = true;
    list_append(&initiators->waiting, &dynamic->link);
    initiators->waiting_count++;
    if (!list_empty(&initiators->busy) && initiators->called_count < initiators->waiting_count) {
        nic_initiators_call(initiators,
                            list_entry(initiators->busy.next, struct nic_initiator, link));
    }
}

static void wait_no_more(struct nic_initiators *initiators, struct nic_dynamic *dynamic)
{
    initiators->waiting_count -= dynamic->waits;
    dynamic->waits = false;
    list_remove(&dynamic->link);
}

static void call_off(struct nic_initiators *initiators, struct nic_initiator *initiator)
{
    initiator->called = false;
    initiators->called_count--;
    initiator->user->pair->depth = initiators->depth;
    list_append(&initiators->busy, &initiator->link);
}

bool nic_initiators_take(struct nic_initiators *initiators, struct nic_dynamic *dynamic)
{
    struct nic_initiator *held = dynamic->initiator;
    if (held && held->called && initiators->waiting_count < initiators->called_count) {
        call_off(initiators, held); /* who waited has got another */
    }
    if (held && !held->called) {
        return nic_send_room(dynamic->pair) > 0;
    }
    if (!held && !list_empty(&initiators->idle)) {
        struct nic_initiator *initiator =
            list_entry(initiators->idle.next, struct nic_initiator, link);
        lend(initiators, initiator, dynamic);
        list_remove(&initiator->link);
        list_append(&initiators->idle, &initiator->link);
        return true;
    }
    if (!list_linked(&dynamic->link)) {
        wait(initiators, dynamic);
    }
    return false;
}

/* Who waits first, of those that may have this one: who has WQEs under way with another waits for that. */
static struct nic_dynamic *next_for(const struct nic_initiators *initiators,
                                    const struct nic_initiator *initiator)
{
    const struct list *at;
    for (at = initiators->waiting.next; at != &initiators->waiting; at = at->next) {
        struct nic_dynamic *one = list_entry(at, struct nic_dynamic, link);
        if (!one->initiator || one->initiator == initiator) {
            return one;
        }
    }
    return NULL;
}

/* It is idle, busy or called no more. */
static void take_off(struct nic_initiators *initiators, struct nic_initiator *initiator)
{
    list_remove(&initiator->link);
    initiators->called_count -= initiator->called;
    initiator->called = false;
}

void nic_initiators_rest(struct nic_initiators *initiators, struct nic_initiator *initiator)
{
    struct nic_dynamic *next = next_for(initiators, initiator);
    assert(!initiator->failed);
    take_off(initiators, initiator);
    if (next) {
        lend(initiators, initiator, next);
        wait_no_more(initiators, next);
        list_append(&initiators->granted, &next->link);
        return;
    }
    if (initiator->user) {
        initiator->user->pair->depth = initiators->depth; /* also if it was called */
    }
    list_append(&initiators->idle, &initiator->link);
}

void nic_initiators_fail(struct nic_initiators *initiators, struct nic_initiator *initiator)
{
    take_off(initiators, initiator);
    initiator->failed = true;
}

struct nic_initiator *nic_initiators_leave(struct nic_initiators *initiators,
                                           struct nic_dynamic *dynamic)
{
    struct nic_initiator *initiator = dynamic->initiator;
    wait_no_more(initiators, dynamic);
    initiators->told = initiators->told == dynamic ? NULL : initiators->told;
    if (!initiator) {
        return NULL;
    }
    if (dynamic->pair->posted != dynamic->pair->completed && !initiator->failed) {
        nic_initiators_fail(initiators, initiator);
    }
    take_back(initiator);
    if (initiator->failed) {
        return initiator;
    }
    nic_initiators_rest(initiators, initiator);
    return NULL;
}

struct nic_queue_pair *nic_initiators_granted(struct nic_initiators *initiators)
{
    const struct nic_dynamic *last = initiators->told;
    initiators->told = NULL;
    if (last && last->initiator && last->pair->posted == last->pair->completed &&
        !last->pair->failed) {
        nic_initiators_rest(initiators, last->initiator);
    }
    if (list_empty(&initiators->granted)) {
        return NULL;
    }
    struct nic_dynamic *dynamic = list_entry(initiators->granted.next, struct nic_dynamic, link);
    list_remove(&dynamic->link);
    initiators->told = dynamic;
    if (dynamic->initiator && dynamic->pair->posted == dynamic->pair->completed &&
        !dynamic->initiator->failed) {
        list_append_once(&initiators->idle, &dynamic->initiator->link);
    }
    return dynamic->pair;
}
