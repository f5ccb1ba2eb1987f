/* left_out.c: see left_out.h. */
#include "nic/device/left_out.h"

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/abi.h"

#define SYSTEM_FOLDER "/var/lib/copyrpc"
#define FILE_BYTES_MAX 4096

static const struct {
    uint32_t feature;
    const char *word; /* in the file */
    const char *text; /* for people */
} features_known[] = {
    {LEFT_OUT_MLX5, "mlx5", "the mlx5 driver"},
    {LEFT_OUT_BLUEFLAME, "blueflame", "BlueFlame"},
    {LEFT_OUT_CQE_COMPRESSION, "cqe-compression", "CQE compression"},
    {LEFT_OUT_DC, "dc", "DC"},
    {LEFT_OUT_ECE, "ece", "ECE"},
};
#define FEATURES_KNOWN (sizeof(features_known) / sizeof(features_known[0]))

const char *left_out_text(uint32_t features, char text[LEFT_OUT_TEXT_BYTES])
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < FEATURES_KNOWN; i++) {
        if (features & features_known[i].feature) {
            length += (size_t)snprintf(text + length, LEFT_OUT_TEXT_BYTES - length, "%s%s",
                                       length ? ", " : "", features_known[i].text);
        }
    }
    return text;
}

/* ---- What it is about ------------------------------------------------------------------------ */

/* The library says nothing of its version but in the name of its file. */
static void find_libmlx5(char *name, size_t bytes)
{
    Dl_info found;
    int (*function)(struct mlx5dv_obj *, uint64_t) = mlx5dv_init_obj;
    void *address;
    memcpy(&address, &function, sizeof(address));
    if (dladdr(address, &found) && found.dli_fname) {
        char *path = realpath(found.dli_fname, NULL);
        const char *slash = path ? strrchr(path, '/') : NULL;
        snprintf(name, bytes, "%s", slash ? slash + 1 : "");
        free(path);
    }
}

/* A value is one line, whatever the device or the system says. */
static void keep_printable(char *text)
{
    for (; *text; text++) {
        if (*text < ' ' || *text > '~') {
            *text = '?';
        }
    }
}

void left_out_describe(struct ibv_context *context, const struct ibv_device_attr *attributes,
                       struct left_out_subject *subject)
{
    struct utsname kernel;
    *subject = (struct left_out_subject){0};
    snprintf(subject->device, sizeof(subject->device), "%s", ibv_get_device_name(context->device));
    snprintf(subject->card, sizeof(subject->card), "%016" PRIx64,
             be64toh(attributes->sys_image_guid));
    snprintf(subject->firmware, sizeof(subject->firmware), "%.63s", attributes->fw_ver);
    if (uname(&kernel) == 0) {
        snprintf(subject->kernel, sizeof(subject->kernel), "%.79s", kernel.release);
    }
    find_libmlx5(subject->libmlx5, sizeof(subject->libmlx5));
    snprintf(subject->copyrpc, sizeof(subject->copyrpc), "%u.%u.%u", CRPC_VERSION_MAJOR,
             CRPC_VERSION_MINOR, CRPC_VERSION_PATCH);
    keep_printable(subject->device);
    keep_printable(subject->firmware);
    keep_printable(subject->kernel);
    keep_printable(subject->libmlx5);
}

/* ---- Reading --------------------------------------------------------------------------------- */

struct value {
    const char *word;
    const char *expected;
    bool seen;
};

__attribute__((format(printf, 3, 4))) static void ignore(struct left_out *left_out,
                                                         const char *path, const char *format, ...)
{
    va_list values;
    int length = snprintf(left_out->ignored, sizeof(left_out->ignored), "%.120s ", path);
    va_start(values, format);
    vsnprintf(left_out->ignored + length, sizeof(left_out->ignored) - (size_t)length, format,
              values);
    va_end(values);
}

static bool take_feature(const char *word, uint32_t *features)
{
    for (size_t i = 0; i < FEATURES_KNOWN; i++) {
        if (strcmp(word, features_known[i].word) == 0) {
            *features |= features_known[i].feature;
            return true;
        }
    }
    return false;
}

/* Reads the lines of `text`, which it changes. Returns true if all are understood and what they are about is here. */
static bool take_lines(char *text, const char *path, const struct left_out_subject *subject,
                       uint32_t *features, struct left_out *left_out)
{
    struct value values[] = {
        {"device", subject->device, false},     {"card", subject->card, false},
        {"firmware", subject->firmware, false}, {"linux", subject->kernel, false},
        {"libmlx5", subject->libmlx5, false},   {"copyrpc", subject->copyrpc, false},
    };
    const size_t count = sizeof(values) / sizeof(values[0]);
    unsigned int number = 0;
    for (char *line; (line = strsep(&text, "\n"));) {
        number++;
        if (*line == '#' || *line == '\0') {
            continue;
        }
        char *rest = strchr(line, ' ');
        if (rest) {
            *rest++ = '\0';
        }
        bool understood = rest && strcmp(line, "leave-out") == 0 && take_feature(rest, features);
        for (size_t i = 0; rest && !understood && i < count; i++) {
            if (strcmp(line, values[i].word) == 0 && !values[i].seen) {
                values[i].seen = understood = true;
                if (strcmp(rest, values[i].expected) != 0) {
                    ignore(left_out, path, "was written for another %s", values[i].word);
                    return false;
                }
            }
        }
        if (!understood) {
            ignore(left_out, path, "is not understood: line %u", number);
            return false;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (!values[i].seen) {
            ignore(left_out, path, "does not say of which %s it is", values[i].word);
            return false;
        }
    }
    return true;
}

/* Whether nobody but root and `owner` can have written a file or a folder. */
static bool is_safe(const struct stat *found, uint32_t owner)
{
    return (found->st_uid == 0 || found->st_uid == owner) &&
           !(found->st_mode & (S_IWGRP | S_IWOTH));
}

/* Opens a file in a folder of which nobody else can have put another in its place. Returns -1 if there is none, or it does not
 * count. Never waits, for instance for the other end of a FIFO. */
static int open_safely(const char *path, uint32_t owner, struct left_out *left_out)
{
    char folder[LEFT_OUT_PATH_BYTES];
    struct stat found;
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) {
        return -1;
    }
    *slash = '\0';
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0) {
        return -1;
    }
    int fd =
        openat(folder_fd, slash + 1, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT) {
            ignore(left_out, path, "cannot be read: %s", strerror(errno));
        }
    } else if (fstat(folder_fd, &found) != 0 || !is_safe(&found, owner)) {
        ignore(left_out, path, "is in a folder that others can write to");
        close(fd);
        fd = -1;
    } else if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || !is_safe(&found, owner)) {
        ignore(left_out, path, "is no plain file that only its user can write to");
        close(fd);
        fd = -1;
    }
    close(folder_fd);
    return fd;
}

static ssize_t read_all(int fd, char *text, size_t bytes)
{
    size_t length = 0;
    ssize_t got = 1;
    while (got > 0 && length < bytes) {
        got = read(fd, text + length, bytes - length);
        if (got < 0 && errno == EINTR) {
            got = 1;
        } else if (got > 0) {
            length += (size_t)got;
        }
    }
    return got < 0 ? -1 : (ssize_t)length;
}

void left_out_read_file(const char *path, uint32_t owner, const struct left_out_subject *subject,
                        struct left_out *left_out)
{
    char text[FILE_BYTES_MAX + 1];
    uint32_t features = 0;
    int fd = open_safely(path, owner, left_out);
    if (fd < 0) {
        return;
    }
    ssize_t length = read_all(fd, text, sizeof(text));
    close(fd);
    if (length < 0 || length > FILE_BYTES_MAX) {
        ignore(left_out, path, "%s", length < 0 ? "cannot be read" : "is too long");
        return;
    }
    text[length] = '\0';
    if (memchr(text, '\0', (size_t)length)) {
        ignore(left_out, path, "is not understood: it is no text");
        return;
    }
    if (take_lines(text, path, subject, &features, left_out) && features != 0) {
        left_out->features |= features;
        snprintf(left_out->path, sizeof(left_out->path), "%s", path);
    }
}

/* ---- Places ---------------------------------------------------------------------------------- */

/* Names of devices come from the system; one that leads elsewhere has no file. */
static bool has_name(const char *device)
{
    return *device && *device != '.' && !strchr(device, '/');
}

/* Programs with more rights than their user do not take the user's word for places. */
static bool user_path(const char *device, char *path, size_t bytes)
{
    const char *state = secure_getenv("XDG_STATE_HOME"), *home = secure_getenv("HOME");
    int length = -1;
    if (state && *state == '/') {
        length = snprintf(path, bytes, "%s/copyrpc/%s.leave-out", state, device);
    } else if (home && *home == '/') {
        length = snprintf(path, bytes, "%s/.local/state/copyrpc/%s.leave-out", home, device);
    }
    return length > 0 && (size_t)length < bytes;
}

static bool system_path(const char *device, char *path, size_t bytes)
{
    int length = snprintf(path, bytes, SYSTEM_FOLDER "/%s.leave-out", device);
    return length > 0 && (size_t)length < bytes;
}

bool left_out_own_path(const char *device, char *path, size_t bytes)
{
    const char *state = secure_getenv("XDG_STATE_HOME");
    if (!has_name(device)) {
        return false;
    }
    return geteuid() == 0 && !(state && *state == '/') ? system_path(device, path, bytes)
                                                       : user_path(device, path, bytes);
}

void left_out_read(const struct left_out_subject *subject, struct left_out *left_out)
{
    char path[LEFT_OUT_PATH_BYTES];
    *left_out = (struct left_out){0};
    if (!has_name(subject->device)) {
        return;
    }
    if (system_path(subject->device, path, sizeof(path))) {
        left_out_read_file(path, 0, subject, left_out);
    }
    if (user_path(subject->device, path, sizeof(path))) {
        left_out_read_file(path, geteuid(), subject, left_out);
    }
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Makes the folders of a path that are not there. */
static int make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int status = mkdir(path, 0755);
        *slash = '/';
        if (status != 0 && errno != EEXIST) {
            return errno;
        }
    }
    return 0;
}

static int write_text(const char *path, const char *text)
{
    char fresh[LEFT_OUT_PATH_BYTES + 16];
    snprintf(fresh, sizeof(fresh), "%s.XXXXXX", path);
    int fd = mkostemp(fresh, O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    const size_t length = strlen(text);
    int status = write(fd, text, length) == (ssize_t)length && fchmod(fd, 0644) == 0 ? 0 : errno;
    if (close(fd) != 0 && status == 0) {
        status = errno;
    }
    if (status == 0 && rename(fresh, path) != 0) { /* readers see the old one or the new one */
        status = errno;
    }
    if (status != 0) {
        unlink(fresh);
    }
    return status;
}

int left_out_write(const struct left_out_subject *subject, uint32_t features)
{
    char path[LEFT_OUT_PATH_BYTES], text[FILE_BYTES_MAX];
    if (!left_out_own_path(subject->device, path, sizeof(path))) {
        return ENOENT;
    }
    if (features == 0) {
        return unlink(path) == 0 || errno == ENOENT ? 0 : errno;
    }
    int length = snprintf(text, sizeof(text),
                          "# copyrpc-check found that what is left out here does not work on this "
                          "device as copyrpc assumes.\n# Programs that do not name a driver "
                          "(COPYRPC_DRIVER=auto) do without it, as long as the device and the\n"
                          "# versions are these. Delete this file to have them use it again.\n"
                          "device %s\ncard %s\nfirmware %s\nlinux %s\nlibmlx5 %s\ncopyrpc %s\n",
                          subject->device, subject->card, subject->firmware, subject->kernel,
                          subject->libmlx5, subject->copyrpc);
    for (size_t i = 0; i < FEATURES_KNOWN; i++) {
        if (features & features_known[i].feature) {
            length += snprintf(text + length, sizeof(text) - (size_t)length, "leave-out %s\n",
                               features_known[i].word);
        }
    }
    int status = make_folders(path);
    return status ? status : write_text(path, text);
}
