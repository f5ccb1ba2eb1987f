/* text.c: see private/text.h. */
#include "private/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

void text_put_bytes(struct text *text, const char *bytes, size_t count)
{
    if (text->bytes < text->room) {
        memcpy(text->at + text->bytes, bytes, minimum(count, text->room - text->bytes));
    }
    text->bytes += count;
}

void text_put(struct text *text, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    const int count = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    text_put_bytes(text, line, minimum((uint64_t)count, sizeof(line) - 1));
}

int64_t text_end(const struct text *text)
{
    if (text->room > 0) {
        text->at[minimum(text->bytes, text->room - 1)] = '\0';
    }
    return (int64_t)text->bytes;
}
