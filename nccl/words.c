/* words.c: NCCL_IB_HCA, as NCCL understands it; see ports.h. */
#include "ports.h"

#include <stdlib.h>
#include <string.h>

/* One entry: "mlx5_0", "mlx5_0:1" or "mlx5_0:1:rail:plane", `bytes` long. */
static bool entry_names(const char *entry, size_t bytes, bool whole, const char *device,
                        uint32_t number)
{
    const char *colon = memchr(entry, ':', bytes);
    size_t name_bytes = colon != NULL ? (size_t)(colon - entry) : bytes;
    if (name_bytes == 0 || strncmp(device, entry, name_bytes) != 0 ||
        (whole && device[name_bytes] != '\0')) {
        return false;
    }
    /* An empty port is any, as no port is. */
    bool any = colon == NULL || colon + 1 == entry + bytes || colon[1] == ':';
    return any || number == 0 || strtoul(colon + 1, NULL, 10) == number;
}

bool ports_named(const char *words, const char *device, uint32_t number)
{
    if (words == NULL) {
        return true;
    }
    bool others = *words == '^';
    words += others;
    bool whole = *words == '=';
    words += whole;
    bool empty = true, named = false;
    while (*words != '\0') {
        size_t bytes = strcspn(words, ",");
        empty = empty && bytes == 0;
        named = named || entry_names(words, bytes, whole, device, number);
        words += bytes;
        words += *words == ',';
    }
    return (empty || named) != others;
}
