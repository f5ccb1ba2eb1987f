/* remember.c: see remember.h. */
#include "remember.h"

#include <string.h>
#include <unistd.h>

#include "../common/device.h"

static bool remember_one(const char *device, uint32_t features, bool whole, FILE *out)
{
    struct left_out_subject versions;
    struct left_out before = {0};
    char path[LEFT_OUT_PATH_BYTES], text[LEFT_OUT_TEXT_BYTES];
    if (!device_describe(device, &versions) || !left_out_own_path(device, path, sizeof(path))) {
        fprintf(stderr, "copyrpc-check: there is no place to remember what failed: set HOME or "
                        "XDG_STATE_HOME\n");
        return features == 0;
    }
    left_out_read_file(path, geteuid(), &versions, &before);
    if (!whole) {
        features |= before.features;
    }
    int status = left_out_write(&versions, features);
    if (status != 0) {
        fprintf(stderr, "copyrpc-check: cannot write '%s': %s\n", path, strerror(status));
        return false;
    }
    if (features != 0) {
        fprintf(out,
                "programs that name no driver leave out of %s: %s; delete %s to have them use it "
                "again\n",
                device, left_out_text(features, text), path);
    } else if (before.features != 0) {
        fprintf(out, "%s works as it should again: removed %s\n", device, path);
    }
    return true;
}

bool remember(const struct subject *subject, uint32_t features, bool whole, FILE *out)
{
    bool good = true;
    for (uint32_t i = 0; i < subject->devices; i++) {
        good &= remember_one(subject->device[i], features, whole, out);
    }
    return good;
}
