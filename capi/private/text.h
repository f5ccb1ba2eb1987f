/* text.h: text that is written to a caller's buffer, as far as there is room, and counted whole. */
#ifndef CAPI_TEXT_H
#define CAPI_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
    char *at;
    uint64_t room;
    uint64_t bytes; /* of all, also of what does not fit */
};

void text_put_bytes(struct text *text, const char *bytes, size_t count);
/* At most 255 bytes at a time. */
void text_put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends it with a zero, if there is any room. Returns its length without that. */
int64_t text_end(const struct text *text);

#endif
