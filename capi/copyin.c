/* copyin.c: see private/copyin.h. */
#include <stdbool.h>
#include <string.h>

#include "private/copyin.h"
#include "base/error.h"

static uint32_t size_of(const void *theirs)
{
    uint32_t size;
    memcpy(&size, theirs, sizeof(size));
    return size;
}

static bool all_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

int32_t copyin(void *ours, size_t our_bytes, size_t version1_bytes, const void *theirs,
               const char *name, crpc_error *error)
{
    uint32_t size = (uint32_t)our_bytes;
    memset(ours, 0, our_bytes);
    memcpy(ours, &size, sizeof(size));
    if (!theirs) {
        return CRPC_OK;
    }
    size = size_of(theirs);
    if (size < version1_bytes) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "%s.struct_size is %u, less than any version's %zu; set it to sizeof(%s)",
                         name, size, version1_bytes, name);
    }
    if (size > COPYIN_BYTES_MAX) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0,
                         "%s.struct_size is %u, more than any version's; set it to sizeof(%s)",
                         name, size, name);
    }
    if (size > our_bytes && !all_zero((const uint8_t *)theirs + our_bytes, size - our_bytes)) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0,
                         "%s uses fields that this version of the library (%d.%d.%d) does not have",
                         name, CRPC_VERSION_MAJOR, CRPC_VERSION_MINOR, CRPC_VERSION_PATCH);
    }
    memcpy(ours, theirs, size < our_bytes ? size : our_bytes);
    return CRPC_OK;
}

int32_t copyout_check(const void *theirs, size_t version1_bytes)
{
    return theirs && size_of(theirs) >= version1_bytes ? CRPC_OK : CRPC_E_INVALID;
}

void copyout(void *theirs, const void *ours, size_t our_bytes)
{
    uint32_t size = size_of(theirs);
    uint32_t written = size < our_bytes ? size : (uint32_t)our_bytes;
    memcpy(theirs, ours, written);
    memcpy(theirs, &written, sizeof(written));
}

bool error_usable(const crpc_error *theirs)
{
    return !theirs || COPYOUT_CHECK(theirs, error) == CRPC_OK;
}

int32_t give_error(crpc_error *theirs, const crpc_error *ours, int32_t status)
{
    if (theirs && status < 0) {
        crpc_error whole = *ours;
        whole.status = status;
        if (whole.message[0] == '\0') {
            error_set(&whole, status, whole.os_error, "%s", crpc_status_text(status));
        }
        COPYOUT(theirs, &whole, error);
    }
    return status;
}
