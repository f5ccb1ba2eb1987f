/* chain.h: an intrusive, singly linked list, whose members are mostly taken all at once: half the stores of list.h. A member
 * that is on no chain has no next one. */
#ifndef CORE_BASE_CHAIN_H
#define CORE_BASE_CHAIN_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

struct chain {
    struct chain *next; /* the last one's is the chain's head; NULL = on no chain */
};

static inline void chain_init(struct chain *head)
{
    head->next = head;
}

static inline bool chain_empty(const struct chain *head)
{
    return head->next == head;
}

static inline bool chain_linked(const struct chain *member)
{
    return member->next != NULL;
}

/* The member becomes the first one. It must be on no chain. */
static inline void chain_push(struct chain *head, struct chain *member)
{
    assert(!chain_linked(member));
    member->next = head->next;
    head->next = member;
}

/* Takes the first one. There must be one. */
static inline struct chain *chain_take(struct chain *head)
{
    struct chain *first = head->next;
    assert(!chain_empty(head));
    head->next = first->next;
    first->next = NULL;
    return first;
}

/* Walks the chain. Does nothing if the member is on none. */
static inline void chain_remove(struct chain *head, struct chain *member)
{
    if (chain_linked(member)) {
        struct chain *before = head;
        while (before->next != member) {
            before = before->next;
        }
        before->next = member->next;
        member->next = NULL;
    }
}

#endif
