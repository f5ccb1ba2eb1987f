/* error.h: fills a crpc_error; used on cold paths only. */
#ifndef CORE_BASE_ERROR_H
#define CORE_BASE_ERROR_H

#include "base/abi.h"

/* Fills *error, if it is not NULL, and returns status, so that a caller can `return
 * error_set(...)`. It does not touch struct_size, because inside the library a crpc_error is always
 * complete. */
int32_t error_set(crpc_error *error, int32_t status, int os_error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
