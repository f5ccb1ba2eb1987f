/* inject.c: see inject.h. */
#include "inject.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <link.h>
#include <netdb.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCKS_MAX 65536u /* a power of two */

static uintptr_t library_start, library_end;
static _Atomic uint64_t left;       /* calls until one fails; 0: none will */
static const char *_Atomic *failed; /* the name of the one that did */

/* ---- Who calls, and whether it fails --------------------------------------------------------- */

static bool is_library(const void *caller)
{
    return (uintptr_t)caller >= library_start && (uintptr_t)caller < library_end;
}

static bool fails(const void *caller, const char *name)
{
    if (left == 0 || !is_library(caller) || --left != 0) {
        return false;
    }
    *failed = name;
    return true;
}

static int find_library(struct dl_phdr_info *info, size_t bytes, void *within)
{
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && start <= (uintptr_t)within &&
            (uintptr_t)within < start + part->p_memsz) {
            library_start = start;
            library_end = start + part->p_memsz;
            return 1;
        }
    }
    return 0;
}

void inject_init(const char *_Atomic *name)
{
    failed = name;
    /* The code is all in one part. */
    if (!dl_iterate_phdr(find_library, dlsym(RTLD_DEFAULT, "crpc_context_open"))) {
        abort();
    }
}

void inject_arm(uint64_t number)
{
    *failed = NULL;
    left = number;
}

void inject_disarm(void)
{
    left = 0;
}

const char *inject_failed(void)
{
    return *failed;
}

/* ---- What is held ---------------------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct inject_held held;
static void
    *blocks[BLOCKS_MAX]; /* of the library: others may free them, and it frees what others made */
static void *const removed = (void *)1;

static void hold(int64_t *counter, int64_t more)
{
    pthread_mutex_lock(&mutex);
    *counter += more;
    pthread_mutex_unlock(&mutex);
}

static uint32_t place_of(const void *block)
{
    return (uint32_t)(((uintptr_t)block >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40) % BLOCKS_MAX;
}

static void hold_block(const void *caller, void *block)
{
    if (!block || !is_library(caller)) {
        return;
    }
    pthread_mutex_lock(&mutex);
    uint32_t place = place_of(block);
    while (blocks[place] && blocks[place] != removed) {
        place = (place + 1) % BLOCKS_MAX;
    }
    blocks[place] = block;
    held.blocks++;
    pthread_mutex_unlock(&mutex);
}

static void release_block(void *block)
{
    pthread_mutex_lock(&mutex);
    for (uint32_t place = place_of(block); block && blocks[place];
         place = (place + 1) % BLOCKS_MAX) {
        if (blocks[place] == block) {
            blocks[place] = removed;
            held.blocks--;
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
}

static int64_t entries(const char *path)
{
    int64_t count = -3; /* the two dots, and the folder itself */
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) {
        count++;
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

void inject_count(struct inject_held *now)
{
    pthread_mutex_lock(&mutex);
    *now = held;
    pthread_mutex_unlock(&mutex);
    now->descriptors = entries("/proc/self/fd");
    now->threads = entries("/proc/self/task");
}

const char *inject_leak(const struct inject_held *before, const struct inject_held *now,
                        int64_t *more)
{
    static const struct {
        const char *name;
        size_t offset;
    } kinds[] = {
#define KIND(name) {#name, offsetof(struct inject_held, name)}
        KIND(blocks),         KIND(mapped),      KIND(contexts),
        KIND(domains),        KIND(regions),     KIND(completion_queues),
        KIND(receive_queues), KIND(queue_pairs), KIND(channels),
        KIND(event_channels), KIND(identifiers), KIND(descriptors),
        KIND(threads),        KIND(windows),
#undef KIND
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        *more = *(const int64_t *)((const char *)now + kinds[i].offset) -
                *(const int64_t *)((const char *)before + kinds[i].offset);
        if (*more > 0) {
            return kinds[i].name;
        }
    }
    return NULL;
}

/* ---- The allocator --------------------------------------------------------------------------- */

#define EXPORT __attribute__((visibility("default")))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

/* The names are given apart from the functions: the compiler knows these names too well. */
EXPORT void *wrap_malloc(size_t bytes) __asm__("malloc");
EXPORT void *wrap_calloc(size_t count, size_t bytes) __asm__("calloc");
EXPORT void *wrap_realloc(void *block, size_t bytes) __asm__("realloc");
EXPORT void *wrap_aligned_alloc(size_t alignment, size_t bytes) __asm__("aligned_alloc");
EXPORT void wrap_free(void *block) __asm__("free");

#define ALLOCATE(name, real)                                                                       \
    do {                                                                                           \
        const void *caller = __builtin_return_address(0);                                          \
        if (fails(caller, name)) {                                                                 \
            errno = ENOMEM;                                                                        \
            return NULL;                                                                           \
        }                                                                                          \
        void *made = real;                                                                         \
        hold_block(caller, made);                                                                  \
        return made;                                                                               \
    } while (0)

void *wrap_malloc(size_t bytes)
{
    ALLOCATE("malloc", __libc_malloc(bytes));
}

void *wrap_calloc(size_t count, size_t bytes)
{
    ALLOCATE("calloc", __libc_calloc(count, bytes));
}

void *wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    ALLOCATE("aligned_alloc", __libc_memalign(alignment, bytes));
}

void *wrap_realloc(void *block, size_t bytes)
{
    const void *caller = __builtin_return_address(0);
    if (fails(caller, "realloc")) {
        errno = ENOMEM;
        return NULL;
    }
    void *made = __libc_realloc(block, bytes);
    if (made || bytes == 0) {
        release_block(block);
        hold_block(caller, made);
    }
    return made;
}

void wrap_free(void *block)
{
    release_block(block);
    __libc_free(block);
}

/* ---- All else -------------------------------------------------------------------------------- */

/* All arguments are numbers or addresses, and at most six: they are passed on as they are. */
#define SIX long a, long b, long c, long d, long e, long f

/* A function that returns `failure`, with errno, if `failing`. `good` says what is held by its
 * success, where `made` is what it returned. */
#define FORWARD(name, failing, failure, number, good)                                              \
    EXPORT long wrap_##name(SIX) __asm__(#name);                                                   \
    long wrap_##name(SIX)                                                                          \
    {                                                                                              \
        static long (*real)(SIX);                                                                  \
        const void *caller = __builtin_return_address(0);                                          \
        if (!real) {                                                                               \
            real = (long (*)(SIX))dlsym(RTLD_NEXT, #name);                                         \
        }                                                                                          \
        if (failing) {                                                                             \
            errno = number;                                                                        \
            return (long)(failure);                                                                \
        }                                                                                          \
        long made = real(a, b, c, d, e, f);                                                        \
        if (is_library(caller)) {                                                                  \
            good;                                                                                  \
        }                                                                                          \
        return made;                                                                               \
    }

#define WRAP(name, failure, number, good) FORWARD(name, fails(caller, #name), failure, number, good)
#define PLAIN(name, failure, number) WRAP(name, failure, number, (void)0)
#define MAKES(name, counter) WRAP(name, 0, ENOMEM, hold(&held.counter, made != 0))
/* What ends something never fails: nobody could do anything about it. */
#define ENDS(name, counter) FORWARD(name, false, 0, 0, hold(&held.counter, -1))

/* The system. */
EXPORT int wrap_munmap(void *address, size_t bytes) __asm__("munmap");
int wrap_munmap(void *address, size_t bytes)
{
    static int (*real)(void *, size_t);
    if (!real) {
        real = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap");
    }
    if (is_library(__builtin_return_address(0))) {
        hold(&held.mapped, -(int64_t)bytes);
    }
    return real(address, bytes);
}

WRAP(mmap64, -1, ENOMEM, hold(&held.mapped, made == -1 || (d & MAP_FIXED) ? 0 : b))

PLAIN(memfd_create, -1, EMFILE)
PLAIN(ftruncate64, -1, ENOSPC)
PLAIN(madvise, -1, EINVAL)
PLAIN(epoll_create1, -1, EMFILE)
PLAIN(epoll_ctl, -1, ENOSPC)
PLAIN(eventfd, -1, EMFILE)
PLAIN(timerfd_create, -1, EMFILE)
PLAIN(timerfd_settime, -1, EINVAL)
PLAIN(fcntl64, -1, EINVAL)
PLAIN(socket, -1, EMFILE)
PLAIN(bind, -1, EADDRNOTAVAIL)
PLAIN(shm_open, -1, EMFILE)
PLAIN(fopen64, 0, EMFILE)
PLAIN(getrandom, -1, EINTR)
PLAIN(poll, -1, EINTR)
PLAIN(ppoll, -1, EINTR)
PLAIN(read, -1, EAGAIN)
PLAIN(getaddrinfo, EAI_MEMORY, ENOMEM)
PLAIN(getrlimit64, -1, EINVAL)
PLAIN(pthread_create, EAGAIN, EAGAIN)
PLAIN(pthread_mutex_init, ENOMEM, ENOMEM)
PLAIN(pthread_cond_init, ENOMEM, ENOMEM)

/* Verbs. */
PLAIN(ibv_fork_init, ENOSYS, ENOSYS)
PLAIN(ibv_get_device_list, 0, ENOMEM)
PLAIN(ibv_query_device, ENODEV, ENODEV)
PLAIN(ibv_query_port, ENODEV, ENODEV)
PLAIN(_ibv_query_gid_ex, ENODATA, ENODATA)
PLAIN(ibv_modify_qp, EINVAL, EINVAL)
PLAIN(ibv_modify_srq, EINVAL, EINVAL)
PLAIN(ibv_get_cq_event, -1, EAGAIN)
PLAIN(ibv_get_async_event, -1, EAGAIN)
PLAIN(mlx5dv_init_obj, EINVAL, EINVAL)
PLAIN(mlx5dv_query_device, EINVAL, EINVAL)
MAKES(ibv_alloc_pd, domains)
ENDS(ibv_dealloc_pd, domains)
MAKES(ibv_reg_mr_iova2, regions)
ENDS(ibv_dereg_mr, regions)
MAKES(ibv_create_comp_channel, channels)
ENDS(ibv_destroy_comp_channel, channels)
MAKES(ibv_create_cq, completion_queues)
MAKES(mlx5dv_create_cq, completion_queues)
ENDS(ibv_destroy_cq, completion_queues)
MAKES(ibv_create_srq, receive_queues)
ENDS(ibv_destroy_srq, receive_queues)
MAKES(ibv_create_qp, queue_pairs)
MAKES(mlx5dv_create_qp, queue_pairs)
ENDS(ibv_destroy_qp, queue_pairs)
ENDS(ibv_close_device, contexts)

/* rdma_cm. */
PLAIN(rdma_bind_addr, -1, EADDRINUSE)
PLAIN(rdma_resolve_addr, -1, ENODEV)
PLAIN(rdma_resolve_route, -1, ENOMEM)
PLAIN(rdma_listen, -1, EADDRINUSE)
PLAIN(rdma_accept, -1, EINVAL)
PLAIN(rdma_connect, -1, EINVAL)
PLAIN(rdma_establish, -1, EINVAL)
PLAIN(rdma_reject, -1, EINVAL)
PLAIN(rdma_migrate_id, -1, ENOMEM)
PLAIN(rdma_disconnect, -1, EINVAL)
PLAIN(rdma_init_qp_attr, -1, EINVAL)
PLAIN(rdma_set_option, -1, ENOSYS)
WRAP(rdma_get_cm_event, -1, EAGAIN,
     hold(&held.identifiers,
          (int)made == 0 && (*(struct rdma_cm_event **)b)->event == RDMA_CM_EVENT_CONNECT_REQUEST))
WRAP(rdma_create_id, -1, ENOMEM, hold(&held.identifiers, (int)made == 0))
ENDS(rdma_destroy_id, identifiers)
MAKES(rdma_create_event_channel, event_channels)
ENDS(rdma_destroy_event_channel, event_channels)

/* ---- What is called through a table of the context ------------------------------------------- */

static struct ibv_context_ops real_ops;

static int inject_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    if (fails(__builtin_return_address(0), "ibv_post_send")) {
        *bad = wr;
        return ENOMEM;
    }
    return real_ops.post_send(qp, wr, bad);
}

static int inject_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                                struct ibv_recv_wr **bad)
{
    if (fails(__builtin_return_address(0), "ibv_post_srq_recv")) {
        *bad = wr;
        return ENOMEM;
    }
    return real_ops.post_srq_recv(srq, wr, bad);
}

static int inject_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *entries_out)
{
    return fails(__builtin_return_address(0), "ibv_poll_cq")
               ? -1
               : real_ops.poll_cq(cq, count, entries_out);
}

static int inject_req_notify_cq(struct ibv_cq *cq, int solicited)
{
    return fails(__builtin_return_address(0), "ibv_req_notify_cq")
               ? EINVAL
               : real_ops.req_notify_cq(cq, solicited);
}

static struct ibv_mw *inject_alloc_mw(struct ibv_pd *domain, enum ibv_mw_type type)
{
    if (fails(__builtin_return_address(0), "ibv_alloc_mw")) {
        errno = ENOMEM;
        return NULL;
    }
    struct ibv_mw *window = real_ops.alloc_mw(domain, type);
    hold(&held.windows, window != NULL);
    return window;
}

static int inject_dealloc_mw(struct ibv_mw *window)
{
    hold(&held.windows, -1);
    return real_ops.dealloc_mw(window);
}

static void replace_table(struct ibv_context *context)
{
    if (!real_ops.post_send) {
        real_ops = context->ops;
    }
    context->ops.post_send = inject_post_send;
    context->ops.post_srq_recv = inject_post_srq_recv;
    context->ops.poll_cq = inject_poll_cq;
    context->ops.req_notify_cq = inject_req_notify_cq;
    context->ops.alloc_mw = inject_alloc_mw;
    context->ops.dealloc_mw = inject_dealloc_mw;
}

static void opened(struct ibv_context *context)
{
    if (context) {
        hold(&held.contexts, 1);
        replace_table(context);
    }
}

WRAP(ibv_open_device, 0, ENOMEM, opened((struct ibv_context *)made))
