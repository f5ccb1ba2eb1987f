/* descriptors.h: which file descriptors of the process are virtual. Each is a real descriptor, too,
 * of a memfd or an eventfd. So the real kernel does poll, epoll, select, dup and flags. */
#ifndef SIMNIC_SHIM_KERNEL_DESCRIPTORS_H
#define SIMNIC_SHIM_KERNEL_DESCRIPTORS_H

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

/* `copy` is a duplicate of `fd`. Returns false if `fd` is virtual and the table has no place for
 * `copy`. */
bool descriptors_duplicate(int fd, int copy);

/* The program closes `fd`. With the last descriptor of a file, what it stands for is closed. */
void descriptors_remove(int fd);
bool descriptors_is_virtual(int fd);

/* The real kernel has just given this descriptor (or -1) to the program. If it is virtual, it was
 * closed past the C library. Then it is virtual no more. Returns the descriptor. */
int descriptors_fresh(int fd);

/* Forgets all virtual descriptors that were closed past the C library. */
void descriptors_sweep(void);

/* In a forked child. */
void descriptors_inherit(void);

void descriptors_lock(void);
void descriptors_unlock(void);

#endif
