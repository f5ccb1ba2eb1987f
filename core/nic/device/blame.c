/* blame.c: turns the errno of a verbs call into what a person can do about it.
 *
 * The kernel says ENOMEM for three things: RLIMIT_MEMLOCK, no memory, and a device that is full.
 * The first is by far the most frequent, and the only one that can be told apart from here.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "nic/device/device.h"

/* CAP_IPC_LOCK lifts the limit. */
static bool may_lock_anything(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
    return syscall(SYS_capget, &header, data) == 0 &&
           (data[0].effective & (1u << CAP_IPC_LOCK)) != 0;
}

/* What this process has pinned already, in KiB; 0 if unknown. */
static uint64_t pinned_kib(void)
{
    char line[128];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    if (!file) {
        return 0;
    }
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "VmPin: %" SCNu64, &kib) == 1) {
            break;
        }
    }
    fclose(file);
    return kib;
}

/* True if the limit is what stands in the way. With pinned_bytes 0, what the call wanted to pin is
 * not known (the queues of a device), and a limit is suspect enough. */
static bool limit_is_to_blame(size_t pinned_bytes, uint64_t *limit_kib)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        may_lock_anything()) {
        return false;
    }
    *limit_kib = limit.rlim_cur / 1024;
    return pinned_bytes == 0 || pinned_kib() + (pinned_bytes + 1023) / 1024 > *limit_kib;
}

int32_t device_blame(crpc_error *error, int os_error, size_t pinned_bytes, const char *device,
                     const char *what)
{
    uint64_t limit_kib;
    switch (os_error) {
    case ENOMEM:
    case EAGAIN:
        if (limit_is_to_blame(pinned_bytes, &limit_kib)) {
            return error_set(error, CRPC_E_MEMLOCK, os_error,
                             "%s: cannot %s: RLIMIT_MEMLOCK is %" PRIu64
                             " KiB: raise it with `ulimit -l unlimited`, LimitMEMLOCK=infinity in "
                             "a systemd unit, or a file in /etc/security/limits.d",
                             device, what, limit_kib);
        }
        return error_set(error, CRPC_E_NO_MEMORY, os_error,
                         "%s: cannot %s: the system or the device has no memory left", device,
                         what);
    case ENOSPC:
    case EMFILE:
        return error_set(error, CRPC_E_NO_RESOURCE, os_error,
                         "%s: cannot %s: the device has no more (%s): `rdma resource` shows who "
                         "uses it",
                         device, what, strerror(os_error));
    case EFAULT:
        return error_set(error, CRPC_E_INVALID, os_error,
                         "%s: cannot %s: not all of it is mapped with the access asked for", device,
                         what);
    case EINVAL:
        return error_set(error, CRPC_E_INVALID, os_error,
                         "%s: cannot %s: the device does not accept these arguments", device, what);
    case EOPNOTSUPP:
    case ENOSYS:
        return error_set(error, CRPC_E_UNSUPPORTED, os_error,
                         "%s: cannot %s: the device does not support it", device, what);
    default:
        return error_set(error, CRPC_E_SYSTEM, os_error, "%s: cannot %s: %s", device, what,
                         strerror(os_error));
    }
}
