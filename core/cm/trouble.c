/* trouble.c: what went wrong, said to a person: rdma_cm's statuses and rejections in words.
 *
 * A rejection by this library's own cm (not by the application above it) carries a refusal of 8
 * bytes: "CRCM", then the reason, little-endian. Whoever connects gets the reason in words.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "cm/internal.h"

static const uint8_t refusal_magic[4] = {'C', 'R', 'C', 'M'};

/* The InfiniBand specification's reasons of a REJ, volume 1, 12.6.7.2. */
#define REASON_TIMEOUT 4
#define REASON_INVALID_SERVICE_ID 8
#define REASON_STALE_CONNECTION 10
#define REASON_CONSUMER 28

void cm_refusal_write(uint8_t bytes[REFUSAL_BYTES], uint32_t reason)
{
    memcpy(bytes, refusal_magic, sizeof(refusal_magic));
    for (uint32_t i = 0; i < 4; i++) {
        bytes[4 + i] = (uint8_t)(reason >> (8 * i));
    }
}

int32_t cm_resolve_error(const char *target, int os_error, crpc_error *error)
{
    switch (os_error) {
    case ENODEV:
    case EADDRNOTAVAIL:
        return error_set(error, CRPC_E_UNREACHABLE, os_error,
                         "%s: the route to this address does not lead through an RDMA device: "
                         "compare `ip route get` with `rdma link`",
                         target);
    case ENETUNREACH:
    case EHOSTUNREACH:
        return error_set(error, CRPC_E_UNREACHABLE, os_error,
                         "%s: there is no route to this address, or nobody answers there: is the "
                         "host up?",
                         target);
    case ETIMEDOUT:
        return error_set(error, CRPC_E_UNREACHABLE, os_error,
                         "%s: nobody answers at this address: is the host up?", target);
    default:
        return error_set(error, CRPC_E_SYSTEM, os_error, "%s: cannot resolve the route: %s", target,
                         strerror(os_error));
    }
}

int32_t cm_other_device_error(const char *target, const struct nic *nic,
                              const struct rdma_cm_id *id, crpc_error *error)
{
    const char *other = id->verbs ? ibv_get_device_name(id->verbs->device) : "another device";
    return error_set(error, CRPC_E_NO_DEVICE, 0,
                     "%.100s belongs to %s port %u, but this context is on %s port %u: open a "
                     "context on %s, or take an address of %s",
                     target, other, id->port_num, nic->device, nic->port, other, nic->device);
}

int32_t cm_connect_error(const char *target, int os_error, crpc_error *error)
{
    switch (os_error) {
    case ETIMEDOUT:
        return error_set(error, CRPC_E_TIMEOUT, os_error,
                         "%.100s: no answer to the connection request", target);
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENODEV:
        return error_set(error, CRPC_E_UNREACHABLE, os_error, "%.100s: not reachable: %s", target,
                         strerror(os_error));
    case ECONNREFUSED:
        return error_set(error, CRPC_E_REFUSED, os_error, "%.100s: nobody listens there", target);
    case ECONNRESET:
    case ENOTCONN:
    case EINVAL:
        return error_set(error, CRPC_E_DISCONNECTED, os_error,
                         "%.100s: the peer gave up before the connection was made", target);
    default:
        return error_set(error, CRPC_E_SYSTEM, os_error, "%.100s: cannot connect: %s", target,
                         strerror(os_error));
    }
}

/* The reason of our own kind of rejection, 0 if it is not one. */
static uint32_t refusal_read(const uint8_t *data, uint32_t bytes)
{
    if (bytes < REFUSAL_BYTES || memcmp(data, refusal_magic, sizeof(refusal_magic)) != 0) {
        return 0;
    }
    return (uint32_t)data[4] | (uint32_t)data[5] << 8 | (uint32_t)data[6] << 16 |
           (uint32_t)data[7] << 24;
}

/* InfiniBand's private data is always of full length. So refuses the kernel where the port has a listener at other addresses, and where
 * the application that listens ends. */
static bool is_empty(const uint8_t *private_data, uint32_t private_bytes)
{
    uint8_t any = 0;
    for (uint32_t i = 0; i < private_bytes; i++) {
        any |= private_data[i];
    }
    return any == 0;
}

static bool consumer_reject_error(const char *target, const uint8_t *private_data,
                                  uint32_t private_bytes, crpc_error *error)
{
    switch (refusal_read(private_data, private_bytes)) {
    case 0:
        error_set(error, CRPC_E_REFUSED, 0,
                  "%.100s: the application there refused the connection%s", target,
                  is_empty(private_data, private_bytes)
                      ? ", or listens at another address of its host"
                      : "");
        return true;
    case REFUSAL_OTHER_DEVICE:
        error_set(error, CRPC_E_REFUSED, 0,
                  "%.100s: this address belongs to an RDMA device that the listener there does not "
                  "use: take an address of its device",
                  target);
        return false;
    case REFUSAL_BACKLOG_FULL:
        error_set(error, CRPC_E_REFUSED, 0,
                  "%.100s: too many connections wait to be accepted there: try again later",
                  target);
        return false;
    default:
        error_set(error, CRPC_E_REFUSED, 0, "%.100s: the library there refused the connection",
                  target);
        return false;
    }
}

bool cm_reject_of_address(int reason, const uint8_t *private_data, uint32_t private_bytes)
{
    return reason == REASON_INVALID_SERVICE_ID ||
           ((reason == REASON_CONSUMER || reason == -ECONNREFUSED) &&
            (is_empty(private_data, private_bytes) ||
             refusal_read(private_data, private_bytes) == REFUSAL_OTHER_DEVICE));
}

bool cm_reject_error(const char *target, int reason, const uint8_t *private_data,
                     uint32_t private_bytes, crpc_error *error)
{
    switch (reason) {
    case REASON_CONSUMER:
    case -ECONNREFUSED: /* where the transport has no reasons */
        return consumer_reject_error(target, private_data, private_bytes, error);
    case REASON_INVALID_SERVICE_ID:
        error_set(error, CRPC_E_REFUSED, ECONNREFUSED,
                  "%.100s: nobody listens there: is the server running, and is this its port?",
                  target);
        return false;
    case REASON_STALE_CONNECTION:
        error_set(error, CRPC_E_REFUSED, 0,
                  "%.100s: the host there still remembers an earlier connection: try again",
                  target);
        return false;
    case REASON_TIMEOUT:
        error_set(error, CRPC_E_TIMEOUT, ETIMEDOUT,
                  "%.100s: the handshake took too long and was given up", target);
        return false;
    default:
        error_set(error, CRPC_E_REFUSED, 0,
                  "%.100s: refused for reason %d of the InfiniBand "
                  "specification (12.6.7.2)",
                  target, reason);
        return false;
    }
}
