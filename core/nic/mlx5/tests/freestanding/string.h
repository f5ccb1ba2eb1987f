/* string.h: for arm64_test.sh, which has no C library for arm64. */
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t bytes);
