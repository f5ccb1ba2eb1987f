/* text.h: formats numbers for people. */
#ifndef TOOLS_COMMON_TEXT_H
#define TOOLS_COMMON_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Writes "850ns", "12.3us", "4.56ms" or "1.20s". Returns text. */
const char *text_of_time(uint64_t ns, char *text, size_t bytes);
/* Writes "950", "12.3k" or "4.56M". Returns text. */
const char *text_of_count(double count, char *text, size_t bytes);
/* Writes "950 B", "12.3 kB", "4.56 MB" or "1.20 GB". Returns text. */
const char *text_of_bytes(double bytes_counted, char *text, size_t bytes);
/* Returns the name of a driver, CRPC_DRIVER_*. The string is static. */
const char *text_of_driver(uint32_t driver);

#endif
