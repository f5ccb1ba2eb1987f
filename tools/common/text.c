/* text.c: see text.h. */
#include "text.h"

#include <stdio.h>

#include <copyrpc.h>

const char *text_of_time(uint64_t ns, char *text, size_t bytes)
{
    if (ns < 1000) {
        snprintf(text, bytes, "%uns", (unsigned)ns);
    } else if (ns < 1000000) {
        snprintf(text, bytes, "%.1fus", (double)ns / 1e3);
    } else if (ns < 1000000000) {
        snprintf(text, bytes, "%.2fms", (double)ns / 1e6);
    } else {
        snprintf(text, bytes, "%.2fs", (double)ns / 1e9);
    }
    return text;
}

const char *text_of_count(double count, char *text, size_t bytes)
{
    if (count < 1e3) {
        snprintf(text, bytes, "%.0f", count);
    } else if (count < 1e6) {
        snprintf(text, bytes, "%.1fk", count / 1e3);
    } else {
        snprintf(text, bytes, "%.2fM", count / 1e6);
    }
    return text;
}

const char *text_of_bytes(double bytes_counted, char *text, size_t bytes)
{
    if (bytes_counted < 1e3) {
        snprintf(text, bytes, "%.0f B", bytes_counted);
    } else if (bytes_counted < 1e6) {
        snprintf(text, bytes, "%.1f kB", bytes_counted / 1e3);
    } else if (bytes_counted < 1e9) {
        snprintf(text, bytes, "%.2f MB", bytes_counted / 1e6);
    } else {
        snprintf(text, bytes, "%.2f GB", bytes_counted / 1e9);
    }
    return text;
}

const char *text_of_driver(uint32_t driver)
{
    static const char *const names[] = {
        [CRPC_DRIVER_AUTO] = "auto", [CRPC_DRIVER_VERBS] = "verbs", [CRPC_DRIVER_MLX5] = "mlx5"};
    return driver < sizeof(names) / sizeof(names[0]) ? names[driver] : "unknown";
}
