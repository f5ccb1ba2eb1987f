/* status.c: what the status codes are called and what they mean. */
#include <stddef.h>

#include "copyrpc.h"

static const struct {
    const char *name;
    const char *text;
} statuses[] = {
    [-CRPC_OK] = {"CRPC_OK", "all is well"},
    [-CRPC_E_INVALID] = {"CRPC_E_INVALID", "an argument is wrong; nothing was changed"},
    [-CRPC_E_UNSUPPORTED] = {"CRPC_E_UNSUPPORTED",
                             "this version, driver or device cannot do that; see "
                             "crpc_context_get_info"},
    [-CRPC_E_STALE] = {"CRPC_E_STALE",
                       "the handle or token was closed, used up, or belongs elsewhere"},
    [-CRPC_E_AGAIN] = {"CRPC_E_AGAIN", "there is no room now; poll, then try again"},
    [-CRPC_E_TOO_BIG] = {"CRPC_E_TOO_BIG",
                         "it can never fit; crpc_endpoint_get_info tells the limits"},
    [-CRPC_E_NO_MEMORY] = {"CRPC_E_NO_MEMORY", "the system has no memory left"},
    [-CRPC_E_NO_DEVICE] = {"CRPC_E_NO_DEVICE",
                           "no such RDMA device; run copyrpc-info to see what there is"},
    [-CRPC_E_NO_RESOURCE] = {"CRPC_E_NO_RESOURCE",
                             "the device or the context has no more of that; close something or "
                             "open with larger limits"},
    [-CRPC_E_MEMLOCK] = {"CRPC_E_MEMLOCK",
                         "RLIMIT_MEMLOCK is too low to register the memory; raise it with "
                         "'ulimit -l unlimited'"},
    [-CRPC_E_SYSTEM] = {"CRPC_E_SYSTEM", "a system call failed; see os_error"},
    [-CRPC_E_TIMEOUT] = {"CRPC_E_TIMEOUT", "the time limit has passed"},
    [-CRPC_E_CANCELED] = {"CRPC_E_CANCELED", "the op was canceled"},
    [-CRPC_E_CLOSING] = {"CRPC_E_CLOSING", "the connection is being closed; no new calls"},
    [-CRPC_E_DISCONNECTED] = {"CRPC_E_DISCONNECTED",
                              "the connection is gone; whether the peer acted is not known; close "
                              "the endpoint and connect again"},
    [-CRPC_E_CLOSED] = {"CRPC_E_CLOSED", "this side closed the endpoint while the op was pending"},
    [-CRPC_E_REFUSED] = {"CRPC_E_REFUSED", "the peer refused the connection; is its program "
                                           "running and listening there?"},
    [-CRPC_E_UNREACHABLE] = {"CRPC_E_UNREACHABLE",
                             "there is no RDMA route to that address, or no such name"},
    [-CRPC_E_VERSION] =
        {"CRPC_E_VERSION",
         "the peers have no version of the wire protocol in common; update the older side"},
    [-CRPC_E_PROTOCOL] = {"CRPC_E_PROTOCOL", "the peer violated the wire protocol"},
    [-CRPC_E_DROPPED] = {"CRPC_E_DROPPED", "the peer dropped the request without an answer"},
    [-CRPC_E_BUSY] = {"CRPC_E_BUSY", "it is still in use; finish what uses it, then try again"},
    [-CRPC_E_NOT_FOUND] = {"CRPC_E_NOT_FOUND", "nothing matches"},
    [-CRPC_E_INTERRUPTED] = {"CRPC_E_INTERRUPTED", "a signal arrived while waiting"},
    [-CRPC_E_STATE] = {"CRPC_E_STATE", "that is not possible in the present state of the handle"},
    [-CRPC_E_TRUNCATED] = {"CRPC_E_TRUNCATED",
                           "the message is longer than the buffer that was to receive it; post "
                           "larger receives"},
    [-CRPC_E_KEY] = {"CRPC_E_KEY",
                     "the peer has another key, or one side has none; give both the same"},
    [-CRPC_E_ACCESS] = {"CRPC_E_ACCESS",
                        "the peer's device refused the address, length, key or right; the peer's "
                        "region needs the right, and CRPC_CONTEXT_QUEUES"},
    [-CRPC_E_NOT_READY] =
        {"CRPC_E_NOT_READY",
         "the peer had no receive for the message; it has to submit more of them"},
    [-CRPC_E_FLUSHED] = {"CRPC_E_FLUSHED",
                         "the queue or lane failed before the op was known to be done; "
                         "crpc_queue_get_error or the log tells why"},
    [-CRPC_E_DEVICE] = {"CRPC_E_DEVICE", "this device refused the op: was its region deregistered? "
                                         "reply_bytes_max is the vendor's syndrome"},
    [-CRPC_E_NOT_STARTED] = {"CRPC_E_NOT_STARTED",
                             "the peer did nothing of the request, as it is about to stop; it is "
                             "safe to send it again, there or elsewhere"},
};

static size_t index_of(int32_t status)
{
    const size_t count = sizeof(statuses) / sizeof(statuses[0]);
    if (status >= 0) {
        return 0;
    }
    size_t index = (size_t)(-(int64_t)status);
    return index < count && statuses[index].name ? index : count;
}

static int known(size_t index)
{
    return index < sizeof(statuses) / sizeof(statuses[0]);
}

const char *crpc_status_name(int32_t status)
{
    size_t index = index_of(status);
    return known(index) ? statuses[index].name : "CRPC_E_?";
}

const char *crpc_status_text(int32_t status)
{
    size_t index = index_of(status);
    return known(index) ? statuses[index].text : "unknown status: this library is older";
}

uint32_t crpc_version(void)
{
    return (uint32_t)CRPC_VERSION_MAJOR << 16 | (uint32_t)CRPC_VERSION_MINOR << 8 |
           (uint32_t)CRPC_VERSION_PATCH;
}
