/* settings.c: COPYRPC_NCCL_*, and words of NCCL's own that mean the same; docs/nccl.md is their reference. */
#include "plugin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number from min to max; leaves *value alone if the variable is not set. */
static bool read_number(const char *name, uint64_t min, uint64_t max, uint64_t *value)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0') {
        return true;
    }
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || *text < '0' || *text > '9' || number < min || number > max) {
        WARN("%s=%s: it must be a number from %llu to %llu", name, text, (unsigned long long)min,
             (unsigned long long)max);
        return false;
    }
    *value = number;
    return true;
}

/* Copies what is before `separator`, and gives what is after it, NULL at the end. */
static const char *take_word(const char *text, char separator, char *word, size_t room, bool *fits)
{
    const char *end = strchr(text, separator);
    size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
    *fits = length < room;
    if (*fits) {
        memcpy(word, text, length);
        word[length] = '\0';
    }
    return end != NULL ? end + 1 : NULL;
}

/* "mlx5_0,mlx5_1:1;mlx5_2": a device of NCCL's for each ';', its rails between the commas. */
static bool read_rails(struct settings *into)
{
    const char *text = getenv("COPYRPC_NCCL_RAILS");
    if (text == NULL || *text == '\0') {
        return true;
    }
    const char *rest = text;
    while (rest != NULL) {
        char device[CRPC_RAILS_MAX * 64];
        bool fits = into->device_count < DEVICES_MAX;
        if (fits) {
            rest = take_word(rest, ';', device, sizeof(device), &fits);
        }
        const char *rail = device;
        for (uint32_t i = 0; fits && rail != NULL; i++) {
            fits = i < CRPC_RAILS_MAX;
            if (fits) {
                rail = take_word(rail, ',', into->rails[into->device_count][i], 64, &fits);
                fits = fits && into->rails[into->device_count][i][0] != '\0';
            }
        }
        if (!fits) {
            WARN(
                "COPYRPC_NCCL_RAILS=%s: it must be up to %d devices with ';' between them, each of "
                "one or two rails with ',' between them, each a name or name:port",
                text, DEVICES_MAX);
            return false;
        }
        into->device_count++;
    }
    return true;
}

static bool read_address(struct settings *into)
{
    const char *text = getenv("COPYRPC_NCCL_ADDRESS");
    uint8_t address[16];
    if (text == NULL || *text == '\0') {
        return true;
    }
    if (strlen(text) >= sizeof(into->address) ||
        (inet_pton(AF_INET, text, address) != 1 && inet_pton(AF_INET6, text, address) != 1)) {
        WARN("COPYRPC_NCCL_ADDRESS=%s: it must be one IP address of this machine, without a port",
             text);
        return false;
    }
    snprintf(into->address, sizeof(into->address), "%s", text);
    return true;
}

static bool read_split(struct settings *into)
{
    const char *hint = getenv("COPYRPC_NCCL_HINT");
    const char *split = getenv("COPYRPC_NCCL_SPLIT");
    uint64_t share = UINT64_MAX;
    if (!read_number("COPYRPC_NCCL_SHARE", 0, 1024, &share)) {
        return false;
    }
    if (hint != NULL && strlen(hint) >= sizeof(into->hint)) {
        WARN("COPYRPC_NCCL_HINT is longer than %zu characters", sizeof(into->hint) - 1);
        return false;
    }
    if (split == NULL || *split == '\0') { /* what is given says what is meant */
        split = hint != NULL && *hint != '\0' ? "hint" : share <= 1024 ? "fixed" : "measured";
    }
    if (strcmp(split, "measured") == 0) {
        into->split = CRPC_SPLIT_MEASURED;
    } else if (strcmp(split, "fixed") == 0 && share <= 1024) {
        into->split = CRPC_SPLIT_FIXED;
        into->share = (uint32_t)share;
    } else if (strcmp(split, "hint") == 0 && hint != NULL && *hint == '/') {
        into->split = CRPC_SPLIT_HINT;
        snprintf(into->hint, sizeof(into->hint), "%s", hint);
    } else {
        WARN("COPYRPC_NCCL_SPLIT=%s: it must be measured, fixed (with COPYRPC_NCCL_SHARE=0..1024) "
             "or "
             "hint (with COPYRPC_NCCL_HINT=/name)",
             split);
        return false;
    }
    return true;
}

/* ---- Words of NCCL's -------------------------------------------------------------------------- */

/* A number as NCCL reads it, in which -1 is none. What copyrpc itself reads, `ours`, goes before it; NULL = it reads nothing such. */
static bool read_word(const char *name, const char *ours, uint32_t min, uint32_t max,
                      uint32_t *value)
{
    const char *text = getenv(name), *other = ours != NULL ? getenv(ours) : NULL;
    *value = SETTING_NOT_GIVEN;
    if (text == NULL || *text == '\0') {
        return true;
    }
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 0);
    if (errno != 0 || *end != '\0' || (number != -1 && (number < min || number > max))) {
        WARN("%s=%s: it must be a number from %u to %u, or -1 for none", name, text, min, max);
        return false;
    }
    if (number == -1) {
        return true;
    }
    if (other != NULL && *other != '\0') {
        INFO("%s=%s is used, and not %s=%s", ours, other, name, text);
        return true;
    }
    *value = (uint32_t)number;
    return true;
}

static bool read_words(struct settings *into)
{
    into->hca = getenv("NCCL_IB_HCA");
    if (into->hca != NULL && *into->hca != '\0' && into->device_count > 0) {
        INFO("COPYRPC_NCCL_RAILS is used, and not NCCL_IB_HCA=%s", into->hca);
    }
    return read_word("NCCL_IB_TC", "COPYRPC_TRAFFIC_CLASS", 0, 255, &into->traffic_class) &&
           read_word("NCCL_IB_SL", "COPYRPC_SERVICE_LEVEL", 0, 15, &into->service_level) &&
           read_word("NCCL_IB_PKEY", "COPYRPC_PARTITION_KEY", 0, 65535, &into->partition_index) &&
           read_word("NCCL_IB_GID_INDEX", "COPYRPC_GID_INDEX", 0, 255, &into->gid_index) &&
           read_word("NCCL_IB_TIMEOUT", "COPYRPC_RETRY_TIMEOUT", 1, 31, &into->retry_timeout) &&
           read_word("NCCL_IB_RETRY_CNT", "COPYRPC_RETRY_COUNT", 1, 7, &into->retry_count) &&
           read_word("NCCL_IB_PCI_RELAXED_ORDERING", "COPYRPC_RELAXED_ORDERING", 0, 2,
                     &into->relaxed_ordering) &&
           read_word("NCCL_IB_ADAPTIVE_ROUTING", "COPYRPC_ADAPTIVE_ROUTING", 0, 1,
                     &into->adaptive_routing) &&
           read_word("NCCL_IB_ECE_ENABLE", "COPYRPC_ECE", 0, 1, &into->ece) &&
           read_word("NCCL_IB_AR_THRESHOLD", NULL, 0, 1u << 30, &into->adaptive_routing_bytes);
}

bool settings_read(struct settings *into)
{
    memset(into, 0, sizeof(*into));
    uint64_t queue_pairs = 1, stripe_bytes_min = 0, connect_seconds = 60, gpu_direct = 0;
    if (!read_rails(into) || !read_address(into) || !read_split(into) ||
        !read_number("COPYRPC_NCCL_QUEUE_PAIRS", 1, CRPC_CHANNEL_QUEUE_PAIRS_MAX, &queue_pairs) ||
        !read_number("COPYRPC_NCCL_STRIPE_BYTES", 1, 1u << 30, &stripe_bytes_min) ||
        !read_number("COPYRPC_NCCL_CONNECT_SECONDS", 1, 86400, &connect_seconds) ||
        !read_number("COPYRPC_NCCL_GDR", 0, 1, &gpu_direct) || !read_words(into)) {
        return false;
    }
    into->queue_pairs = (uint32_t)queue_pairs;
    into->stripe_bytes_min = (uint32_t)stripe_bytes_min;
    into->connect_timeout_ns = connect_seconds * 1000000000u;
    into->gpu_direct = gpu_direct != 0;
    return true;
}
