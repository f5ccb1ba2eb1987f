/* descriptors.h: which file descriptors of the process are virtual. Each stands on a real one (a
 * memfd or an eventfd), so that poll, epoll, select, dup and flags are the kernel's own work. */
#ifndef SIMNIC_DESCRIPTORS_H
#define SIMNIC_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

enum descriptor_kind { DESCRIPTOR_NONE, DESCRIPTOR_UVERBS, DESCRIPTOR_EVENTS, DESCRIPTOR_CM };

struct file {
    enum descriptor_kind kind;
    uint32_t references; /* descriptors, and users in the middle of a call */
    void *thing;         /* struct context, struct channel or struct cm_file */
};

/* Makes `fd` virtual. The file starts with one reference. Returns 0 or an errno. */
int descriptors_add(int fd, enum descriptor_kind kind, void *thing);

/* Returns the file of a virtual descriptor, with a reference that descriptors_put gives back; NULL
 * if it is not virtual. */
struct file *descriptors_get(int fd);
void descriptors_put(struct file *file);

/* `copy` is a duplicate of `fd`. Returns false if `fd` is virtual and there is no place for another. */
bool descriptors_duplicate(int fd, int copy);

/* The program closes `fd`. The last one of a file closes what it stands for. */
void descriptors_remove(int fd);
bool descriptors_is_virtual(int fd);

/* The kernel has just given this descriptor (or -1) to the program. Where it was virtual, it has been
 * closed past the C library: now it is not. Returns it. */
int descriptors_fresh(int fd);

/* Forgets all that have been closed so. */
void descriptors_sweep(void);

/* In a forked child. */
void descriptors_inherit(void);

void descriptors_lock(void);
void descriptors_unlock(void);

#endif
