/* list.h: an intrusive, doubly linked list. A member that is on no list points at itself. */
#ifndef CORE_BASE_LIST_H
#define CORE_BASE_LIST_H

#include <assert.h>
#include <stdbool.h>

#include "base/compiler.h"

struct list {
    struct list *next;
    struct list *previous;
};

static inline void list_init(struct list *list)
{
    list->next = list;
    list->previous = list;
}

static inline bool list_empty(const struct list *list)
{
    return list->next == list;
}

static inline bool list_linked(const struct list *member)
{
    return member->next != member;
}

/* The member must be on no list: either initialised, or all zeros. */
static inline void list_append(struct list *list, struct list *member)
{
    assert(member->next == member || !member->next);
    member->next = list;
    member->previous = list->previous;
    list->previous->next = member;
    list->previous = member;
}

/* The member may be on no list, but it must be initialised. */
static inline void list_remove(struct list *member)
{
    member->next->previous = member->previous;
    member->previous->next = member->next;
    list_init(member);
}

/* Appends the member unless it is on the list already. A member is only ever on one list. */
static inline void list_append_once(struct list *list, struct list *member)
{
    if (!list_linked(member)) {
        list_append(list, member);
    }
}

/* Moves all members of `from` to `to`, which must be empty and need not be initialised. */
static inline void list_move_all(struct list *to, struct list *from)
{
    if (list_empty(from)) {
        list_init(to);
        return;
    }
    *to = *from;
    to->next->previous = to;
    to->previous->next = to;
    list_init(from);
}

#define list_entry(member_pointer, type, member) container_of(member_pointer, type, member)

#endif
