/* plugin.c: what lasts from the first init to the last finalize. */
#include "plugin.h"

#include <string.h>

net_logger log_to;
struct settings settings;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t inits;
static struct device devices[DEVICES_MAX];
static uint32_t device_count;

int net_result(int32_t status)
{
    switch (status) {
    case CRPC_E_TIMEOUT:
    case CRPC_E_CLOSING:
    case CRPC_E_DISCONNECTED:
    case CRPC_E_REFUSED:
    case CRPC_E_UNREACHABLE:
    case CRPC_E_VERSION:
    case CRPC_E_PROTOCOL:
    case CRPC_E_DROPPED:
        return NET_REMOTE_ERROR;
    case CRPC_E_UNSUPPORTED:
    case CRPC_E_NO_MEMORY:
    case CRPC_E_NO_DEVICE:
    case CRPC_E_NO_RESOURCE:
    case CRPC_E_MEMLOCK:
    case CRPC_E_SYSTEM:
        return NET_SYSTEM_ERROR;
    case CRPC_E_INVALID:
    case CRPC_E_TOO_BIG:
    case CRPC_E_TRUNCATED:
        return NET_INVALID_USAGE;
    default:
        return status >= 0 ? NET_SUCCESS : NET_INTERNAL_ERROR;
    }
}

/* Holds the lock. NCCL keeps to the devices that it saw first, so they are found once. */
static int find_devices(void)
{
    return settings_read(&settings) ? devices_find(&settings, devices, &device_count)
                                    : NET_INVALID_USAGE;
}

int plugin_init(net_logger logger)
{
    pthread_mutex_lock(&lock);
    log_to = logger;
    int result = device_count == 0 ? find_devices() : NET_SUCCESS;
    inits += result == NET_SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

void plugin_finalize(void)
{
    pthread_mutex_lock(&lock);
    if (inits > 0 && --inits == 0) {
        net_forget_connects();
    }
    pthread_mutex_unlock(&lock);
}

struct device *plugin_device(int index)
{
    return index >= 0 && (uint32_t)index < device_count ? &devices[index] : NULL;
}

uint32_t plugin_device_count(void)
{
    return device_count;
}
