/* text.h: how the tools write numbers for people. */
#ifndef TOOLS_COMMON_TEXT_H
#define TOOLS_COMMON_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* "850ns", "12.3us", "4.56ms", "1.20s". Returns text. */
const char *text_of_time(uint64_t ns, char *text, size_t bytes);
/* "950", "12.3k", "4.56M". Returns text. */
const char *text_of_count(double count, char *text, size_t bytes);
/* "950 B", "12.3 kB", "4.56 MB", "1.20 GB". Returns text. */
const char *text_of_bytes(double bytes_counted, char *text, size_t bytes);
/* What a driver is called: CRPC_DRIVER_*. */
const char *text_of_driver(uint32_t driver);

#endif
