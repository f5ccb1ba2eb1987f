/* lookup.c: getaddrinfo without waiting for it.
 *
 * It may take minutes and cannot be interrupted, so it runs in a thread that nobody waits for. What
 * that thread may touch is reference-counted and outlives the identifier, and the cm, if need be.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cm/internal.h"

struct cm_lookup {
    pthread_mutex_t mutex; /* taken before cm.mutex, never after it */
    uint32_t references;
    struct cm_identifier *identifier; /* NULL: nobody wants the result any more */
    struct address_name name;
    struct addrinfo *addresses;
    int result; /* EAI_* */
};

static void release(struct cm_lookup *lookup)
{
    pthread_mutex_lock(&lookup->mutex);
    bool last = --lookup->references == 0;
    pthread_mutex_unlock(&lookup->mutex);
    if (last) {
        if (lookup->addresses) {
            freeaddrinfo(lookup->addresses);
        }
        pthread_mutex_destroy(&lookup->mutex);
        free(lookup);
    }
}

static void *run(void *argument)
{
    struct cm_lookup *lookup = argument;
    struct addrinfo *addresses = NULL;
    pthread_setname_np(pthread_self(), "crpc-lookup");
    int result = address_look_up(&lookup->name, &addresses);
    pthread_mutex_lock(&lookup->mutex);
    lookup->result = result;
    lookup->addresses = addresses;
    if (lookup->identifier) {
        cm_work_add(lookup->identifier);
    }
    pthread_mutex_unlock(&lookup->mutex);
    release(lookup);
    return NULL;
}

/* Signals are the application's: its threads get them, ours do not. */
static int start_detached(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int os_error = pthread_create(&thread, &attributes, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return os_error;
}

int32_t cm_lookup_start(struct cm_identifier *identifier, crpc_error *error)
{
    struct cm_lookup *lookup = calloc(1, sizeof(*lookup));
    if (!lookup) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory to look up a host name");
    }
    pthread_mutex_init(&lookup->mutex, NULL);
    lookup->references = 2; /* the identifier's and the thread's */
    lookup->identifier = identifier;
    lookup->name = identifier->search->name;
    identifier->search->lookup = lookup;
    int os_error = start_detached(run, lookup);
    if (os_error) {
        identifier->search->lookup = NULL;
        pthread_mutex_destroy(&lookup->mutex);
        free(lookup);
        return error_set(error, CRPC_E_SYSTEM, os_error,
                         "cannot start a thread to look up a host name: %s", strerror(os_error));
    }
    return CRPC_OK;
}

int cm_lookup_take(struct cm_identifier *identifier, struct addrinfo **addresses)
{
    struct cm_lookup *lookup = identifier->search->lookup;
    identifier->search->lookup = NULL;
    pthread_mutex_lock(&lookup->mutex);
    int result = lookup->result;
    *addresses = lookup->addresses;
    lookup->addresses = NULL;
    lookup->identifier = NULL;
    pthread_mutex_unlock(&lookup->mutex);
    release(lookup);
    return result;
}

void cm_lookup_cancel(struct cm_identifier *identifier)
{
    struct cm_lookup *lookup = identifier->search ? identifier->search->lookup : NULL;
    if (!lookup) {
        return;
    }
    identifier->search->lookup = NULL;
    pthread_mutex_lock(&lookup->mutex);
    lookup->identifier = NULL;
    pthread_mutex_unlock(&lookup->mutex);
    release(lookup);
}
