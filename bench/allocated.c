/* allocated.c: see allocated.h. Each block has a word more than was asked for, at its end, which says by whom.
 *
 * The functions of libc begin with __libc_: they are what its malloc is by another name.
 */
#include "allocated.h"

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

/* For all libraries. */
#define PUBLIC __attribute__((visibility("default")))

#define MARK UINT64_C(0x616c6c6f63617400) /* the lowest byte is who */

const char *const allocated_names[ALLOCATED_BY] = {"copyrpc", "ibverbs_and_mlx5", "rdmacm",
                                                   "simnic", "rest"};

static _Atomic uint64_t bytes_of[ALLOCATED_BY];
static _Atomic uint64_t bytes_registered;

static enum allocated_by who_is(const void *caller)
{
    static const struct {
        const char *library;
        enum allocated_by who;
    } known[] = {{"libcopyrpc", ALLOCATED_COPYRPC},
                 {"libmlx5", ALLOCATED_IBVERBS},
                 {"libibverbs", ALLOCATED_IBVERBS},
                 {"librdmacm", ALLOCATED_RDMACM},
                 {"libsimnic", ALLOCATED_SIMNIC}};
    Dl_info info;
    if (dladdr(caller, &info) == 0) {
        return ALLOCATED_REST;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strstr(info.dli_fname, known[i].library)) {
            return known[i].who;
        }
    }
    return ALLOCATED_REST;
}

static uint64_t *mark_of(void *block)
{
    return (uint64_t *)(void *)((uint8_t *)block + malloc_usable_size(block) - sizeof(uint64_t));
}

static void *note(void *block, const void *caller)
{
    if (block) {
        enum allocated_by who = who_is(caller);
        const uint64_t mark = MARK | who;
        memcpy(mark_of(block), &mark, sizeof(mark));
        bytes_of[who] += malloc_usable_size(block);
    }
    return block;
}

/* What was allocated before this file's functions were there has no mark. */
static void forget(void *block)
{
    uint64_t mark;
    memcpy(&mark, mark_of(block), sizeof(mark));
    if ((mark & ~UINT64_C(0xff)) == MARK && (mark & 0xff) < ALLOCATED_BY) {
        bytes_of[mark & 0xff] -= malloc_usable_size(block);
        memset(mark_of(block), 0, sizeof(mark));
    }
}

PUBLIC void *malloc(size_t bytes)
{
    return note(__libc_malloc(bytes + sizeof(uint64_t)), __builtin_return_address(0));
}

PUBLIC void *calloc(size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return note(__libc_calloc(1, total + sizeof(uint64_t)), __builtin_return_address(0));
}

PUBLIC void *realloc(void *block, size_t bytes)
{
    if (block) {
        forget(block);
    }
    return note(__libc_realloc(block, bytes + sizeof(uint64_t)), __builtin_return_address(0));
}

static void *aligned(size_t alignment, size_t bytes, const void *caller)
{
    return note(__libc_memalign(alignment, bytes + sizeof(uint64_t)), caller);
}

PUBLIC void *aligned_alloc(size_t alignment, size_t bytes)
{
    return aligned(alignment, bytes, __builtin_return_address(0));
}

PUBLIC void *memalign(size_t alignment, size_t bytes)
{
    return aligned(alignment, bytes, __builtin_return_address(0));
}

PUBLIC int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    *block = aligned(alignment, bytes, __builtin_return_address(0));
    return *block ? 0 : ENOMEM;
}

PUBLIC void free(void *block)
{
    if (block) {
        forget(block);
        __libc_free(block);
    }
}

uint64_t allocated_bytes(enum allocated_by who)
{
    return bytes_of[who];
}

/* ---- Pinned memory --------------------------------------------------------------------------- */

/* A device pins what is registered, so all of it is there. simnic does so with the first and the last page only. */
static void pin(void *address, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < bytes; at += page) {
        __atomic_fetch_add((uint8_t *)address + at, 0, __ATOMIC_RELAXED);
    }
}

/* verbs.h makes one of two functions of this name, by what is known of `access`. */
#undef ibv_reg_mr_iova
static void *next_function(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova,
                                      int access)
{
    struct ibv_mr *(*next)(struct ibv_pd *, void *, size_t, uint64_t, int);
    *(void **)&next = next_function("ibv_reg_mr_iova");
    pin(address, bytes);
    bytes_registered += bytes;
    return next(pd, address, bytes, iova, access);
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t bytes,
                                       uint64_t iova, unsigned int access)
{
    struct ibv_mr *(*next)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);
    *(void **)&next = next_function("ibv_reg_mr_iova2");
    pin(address, bytes);
    bytes_registered += bytes;
    return next(pd, address, bytes, iova, access);
}

uint64_t registered_bytes(void)
{
    return bytes_registered;
}
