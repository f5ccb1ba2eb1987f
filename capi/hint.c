/* hint.c: hints for channels of other programs. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "channel/hint_write.h"
#include "channel/split.h"
#include "private/copyin.h"

#define NAME_BYTES_MAX 64u /* of crpc_channel_options.hint */
#define LIFETIME_DEFAULT_NS UINT64_C(1000000000)
#define LIFETIME_MAX_NS UINT64_C(60000000000)

struct crpc_hint {
    struct hint_writer *writer;
};

static int32_t open_hint(const char *name, crpc_hint **hint, crpc_error *error)
{
    if (!name || !hint) {
        return error_set(error, CRPC_E_INVALID, 0, "name and hint must not be NULL");
    }
    if (strnlen(name, NAME_BYTES_MAX) == NAME_BYTES_MAX || name[0] != '/' || name[1] == '\0' ||
        strchr(name + 1, '/')) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "the name of a hint is that of POSIX shared memory: \"/name\", without "
                         "another slash, at most %u "
                         "bytes",
                         NAME_BYTES_MAX - 1);
    }
    crpc_hint *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        return error_set(error, CRPC_E_NO_MEMORY, 0, "no memory for a hint");
    }
    int32_t status = hint_writer_open(name, &opened->writer, error);
    if (status != CRPC_OK) {
        free(opened);
        return status;
    }
    *hint = opened;
    return CRPC_OK;
}

int32_t crpc_hint_open(const char *name, crpc_hint **hint, crpc_error *error)
{
    crpc_error ours = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    return give_error(error, &ours, open_hint(name, hint, &ours));
}

int32_t crpc_hint_publish(crpc_hint *hint, uint32_t rail0_share, uint64_t lifetime_ns)
{
    if (!hint || rail0_share > SPLIT_WHOLE || lifetime_ns > LIFETIME_MAX_NS) {
        return CRPC_E_INVALID;
    }
    uint64_t lasts_ns = lifetime_ns ? lifetime_ns : LIFETIME_DEFAULT_NS;
    hint_writer_publish(hint->writer, rail0_share, clock_now_ns() + lasts_ns);
    return CRPC_OK;
}

int32_t crpc_hint_close(crpc_hint *hint)
{
    if (hint) {
        hint_writer_close(hint->writer);
        free(hint);
    }
    return CRPC_OK;
}
