/* hold.c: see hold.h. */
#include "hold.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

#include "place.h"

#define HELD_MAX 32u
#define PATIENCE_S 60

/* The library finds these before libibverbs'. */
#define EXPORTED __attribute__((visibility("default")))

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t poller;
    int rail;
    uint32_t skip, left; /* of those to come */
    int os_error;
    bool released;
    uint32_t held;
    struct {
        void *object; /* a queue pair; or the address of a DCT, NULL until it is made */
        bool inside;  /* of the call that connects it */
        bool destroyed;
    } all[HELD_MAX];
    const char *complaint;
} hold = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The version is that of all programs: without it, dlsym could find the first one. */
static void *real(const char *name)
{
    return dlvsym(RTLD_NEXT, name, "IBVERBS_1.1");
}

/* The mutex is held, here and below. */
static bool is_chosen(const struct ibv_context *device)
{
    if (hold.left == 0 ||
        strcmp(ibv_get_device_name(device->device), place_device(hold.rail)) != 0) {
        return false;
    }
    if (hold.skip > 0) {
        hold.skip--;
        return false;
    }
    hold.left--;
    return true;
}

/* Returns once it is released, with its number. */
static uint32_t held_until_released(void *object)
{
    const uint32_t index = hold.held++;
    hold.all[index].object = object;
    hold.all[index].inside = true;
    pthread_cond_broadcast(&hold.changed);
    if (pthread_equal(pthread_self(), hold.poller)) {
        hold.complaint = "a queue pair is connected by the thread that polls";
    } else {
        while (!hold.released) {
            pthread_cond_wait(&hold.changed, &hold.mutex);
        }
    }
    return index;
}

/* The kernel works on one thing at a time with a queue pair. */
static void check_use(const void *object, bool destroys)
{
    for (uint32_t i = 0; i < hold.held; i++) {
        if (hold.all[i].object != object || hold.all[i].destroyed) {
            continue;
        }
        if (hold.all[i].inside) {
            hold.complaint = "a queue pair is used while it is being connected";
        }
        hold.all[i].destroyed = destroys;
    }
}

int EXPORTED ibv_modify_qp(struct ibv_qp *queue_pair, struct ibv_qp_attr *attributes, int mask)
{
    int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int);
    void *found = real("ibv_modify_qp");
    memcpy(&modify, &found, sizeof(modify));
    pthread_mutex_lock(&hold.mutex);
    check_use(queue_pair, false);
    if (mask & IBV_QP_STATE && attributes->qp_state == IBV_QPS_RTR &&
        is_chosen(queue_pair->context)) {
        const uint32_t index = held_until_released(queue_pair);
        int os_error = hold.os_error;
        pthread_mutex_unlock(&hold.mutex);
        if (os_error == 0) {
            os_error = modify(queue_pair, attributes, mask);
        }
        pthread_mutex_lock(&hold.mutex);
        hold.all[index].inside = false;
        pthread_mutex_unlock(&hold.mutex);
        return os_error;
    }
    pthread_mutex_unlock(&hold.mutex);
    return modify(queue_pair, attributes, mask);
}

int EXPORTED ibv_destroy_qp(struct ibv_qp *queue_pair)
{
    int (*destroy)(struct ibv_qp *);
    void *found = real("ibv_destroy_qp");
    memcpy(&destroy, &found, sizeof(destroy));
    pthread_mutex_lock(&hold.mutex);
    check_use(queue_pair, true);
    pthread_mutex_unlock(&hold.mutex);
    return destroy(queue_pair);
}

/* By DC, the peer's address is looked for when a DCI is to send to its DCT. */
struct ibv_ah EXPORTED *ibv_create_ah(struct ibv_pd *domain, struct ibv_ah_attr *attributes)
{
    struct ibv_ah *(*create)(struct ibv_pd *, struct ibv_ah_attr *);
    void *found = real("ibv_create_ah");
    memcpy(&create, &found, sizeof(create));
    pthread_mutex_lock(&hold.mutex);
    if (is_chosen(domain->context)) {
        const uint32_t index = held_until_released(NULL);
        const int os_error = hold.os_error;
        pthread_mutex_unlock(&hold.mutex);
        struct ibv_ah *address = os_error ? NULL : create(domain, attributes);
        pthread_mutex_lock(&hold.mutex);
        hold.all[index].object = address;
        hold.all[index].inside = false;
        hold.all[index].destroyed = !address;
        pthread_mutex_unlock(&hold.mutex);
        errno = os_error ? os_error : errno;
        return address;
    }
    pthread_mutex_unlock(&hold.mutex);
    return create(domain, attributes);
}

int EXPORTED ibv_destroy_ah(struct ibv_ah *address)
{
    int (*destroy)(struct ibv_ah *);
    void *found = real("ibv_destroy_ah");
    memcpy(&destroy, &found, sizeof(destroy));
    pthread_mutex_lock(&hold.mutex);
    check_use(address, true);
    pthread_mutex_unlock(&hold.mutex);
    return destroy(address);
}

void hold_next(int rail, uint32_t skip, uint32_t count, int os_error)
{
    pthread_mutex_lock(&hold.mutex);
    hold.poller = pthread_self();
    hold.rail = rail;
    hold.skip = skip;
    hold.left = count < HELD_MAX ? count : HELD_MAX;
    hold.os_error = os_error;
    hold.released = false;
    hold.held = 0;
    hold.complaint = count > HELD_MAX ? "the test holds too many" : NULL;
    memset(hold.all, 0, sizeof(hold.all));
    pthread_mutex_unlock(&hold.mutex);
}

uint32_t hold_count(void)
{
    pthread_mutex_lock(&hold.mutex);
    uint32_t count = hold.held;
    pthread_mutex_unlock(&hold.mutex);
    return count;
}

bool hold_wait(uint32_t count)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    int os_error = 0;
    pthread_mutex_lock(&hold.mutex);
    while (hold.held < count && os_error == 0) {
        os_error = pthread_cond_timedwait(&hold.changed, &hold.mutex, &end);
    }
    bool good = hold.held >= count;
    pthread_mutex_unlock(&hold.mutex);
    return good;
}

void hold_release(void)
{
    pthread_mutex_lock(&hold.mutex);
    hold.released = true;
    hold.left = 0;
    pthread_cond_broadcast(&hold.changed);
    pthread_mutex_unlock(&hold.mutex);
}

uint32_t hold_left(void)
{
    uint32_t left = 0;
    pthread_mutex_lock(&hold.mutex);
    for (uint32_t i = 0; i < hold.held; i++) {
        left += !hold.all[i].destroyed;
    }
    pthread_mutex_unlock(&hold.mutex);
    return left;
}

const char *hold_complaint(void)
{
    pthread_mutex_lock(&hold.mutex);
    const char *complaint = hold.complaint;
    pthread_mutex_unlock(&hold.mutex);
    return complaint;
}
