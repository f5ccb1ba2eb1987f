/* service.c: what services agree on above the library: statuses of the application, and the numbers of methods that have names. */
#include <stddef.h>
#include <string.h>

#include "base/checksum.h"
#include "copyrpc.h"

/* What gRPC calls them; CRPC_STATUS_CANCELED is spelled as CRPC_E_CANCELED is. */
static const char *const names[] = {
    [CRPC_STATUS_OK] = "OK",
    [CRPC_STATUS_CANCELED] = "CANCELED",
    [CRPC_STATUS_UNKNOWN] = "UNKNOWN",
    [CRPC_STATUS_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [CRPC_STATUS_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [CRPC_STATUS_NOT_FOUND] = "NOT_FOUND",
    [CRPC_STATUS_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [CRPC_STATUS_PERMISSION_DENIED] = "PERMISSION_DENIED",
    [CRPC_STATUS_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [CRPC_STATUS_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [CRPC_STATUS_ABORTED] = "ABORTED",
    [CRPC_STATUS_OUT_OF_RANGE] = "OUT_OF_RANGE",
    [CRPC_STATUS_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [CRPC_STATUS_INTERNAL] = "INTERNAL",
    [CRPC_STATUS_UNAVAILABLE] = "UNAVAILABLE",
    [CRPC_STATUS_DATA_LOSS] = "DATA_LOSS",
    [CRPC_STATUS_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

/* docs/services.md has this table, too, and says what may be called again. */
static const uint8_t equivalents[] = {
    [-CRPC_OK] = CRPC_STATUS_OK,
    [-CRPC_E_INVALID] = CRPC_STATUS_INVALID_ARGUMENT,
    [-CRPC_E_UNSUPPORTED] = CRPC_STATUS_UNIMPLEMENTED,
    [-CRPC_E_STALE] = CRPC_STATUS_FAILED_PRECONDITION,
    [-CRPC_E_AGAIN] = CRPC_STATUS_UNAVAILABLE,
    [-CRPC_E_TOO_BIG] = CRPC_STATUS_RESOURCE_EXHAUSTED,
    [-CRPC_E_NO_MEMORY] = CRPC_STATUS_RESOURCE_EXHAUSTED,
    [-CRPC_E_NO_DEVICE] = CRPC_STATUS_FAILED_PRECONDITION,
    [-CRPC_E_NO_RESOURCE] = CRPC_STATUS_RESOURCE_EXHAUSTED,
    [-CRPC_E_MEMLOCK] = CRPC_STATUS_RESOURCE_EXHAUSTED,
    [-CRPC_E_SYSTEM] = CRPC_STATUS_INTERNAL,
    [-CRPC_E_TIMEOUT] = CRPC_STATUS_DEADLINE_EXCEEDED,
    [-CRPC_E_CANCELED] = CRPC_STATUS_CANCELED,
    [-CRPC_E_CLOSING] = CRPC_STATUS_UNAVAILABLE,
    [-CRPC_E_DISCONNECTED] = CRPC_STATUS_UNAVAILABLE,
    [-CRPC_E_CLOSED] = CRPC_STATUS_CANCELED,
    [-CRPC_E_REFUSED] = CRPC_STATUS_UNAVAILABLE,
    [-CRPC_E_UNREACHABLE] = CRPC_STATUS_UNAVAILABLE,
    [-CRPC_E_VERSION] = CRPC_STATUS_FAILED_PRECONDITION,
    [-CRPC_E_PROTOCOL] = CRPC_STATUS_INTERNAL,
    [-CRPC_E_DROPPED] = CRPC_STATUS_UNKNOWN,
    [-CRPC_E_BUSY] = CRPC_STATUS_FAILED_PRECONDITION,
    [-CRPC_E_NOT_FOUND] = CRPC_STATUS_NOT_FOUND,
    [-CRPC_E_INTERRUPTED] = CRPC_STATUS_UNAVAILABLE,
    [-CRPC_E_STATE] = CRPC_STATUS_FAILED_PRECONDITION,
    [-CRPC_E_TRUNCATED] = CRPC_STATUS_OUT_OF_RANGE,
    [-CRPC_E_KEY] = CRPC_STATUS_UNAUTHENTICATED,
    [-CRPC_E_ACCESS] = CRPC_STATUS_PERMISSION_DENIED,
    [-CRPC_E_NOT_READY] = CRPC_STATUS_UNAVAILABLE,
    [-CRPC_E_FLUSHED] = CRPC_STATUS_UNAVAILABLE,
    [-CRPC_E_DEVICE] = CRPC_STATUS_INTERNAL,
    [-CRPC_E_NOT_STARTED] = CRPC_STATUS_UNAVAILABLE,
};

const char *crpc_application_status_name(int32_t status)
{
    const int32_t count = (int32_t)(sizeof(names) / sizeof(names[0]));
    return status >= 0 && status < count ? names[status] : "?";
}

int32_t crpc_application_status(int32_t status)
{
    const int32_t count = (int32_t)(sizeof(equivalents) / sizeof(equivalents[0]));
    if (status >= 0) {
        return status;
    }
    return status > -count ? equivalents[-status] : CRPC_STATUS_UNKNOWN;
}

int32_t crpc_method_number(const char *name)
{
    if (!name || !*name) {
        return CRPC_E_INVALID;
    }
    const uint32_t hash = checksum_of(name, strlen(name));
    return CRPC_METHOD_NAMED | (int32_t)((hash >> 15 ^ hash) & 0x7fff);
}
