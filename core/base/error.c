#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

int32_t error_set(crpc_error *error, int32_t status, int os_error, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof(error->message), format, arguments);
        va_end(arguments);
        error->status = status;
        error->os_error = os_error;
        error->vendor_syndrome = 0;
    }
    return status;
}
