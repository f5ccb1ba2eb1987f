/* content.c: see content.h. */
#include "content.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint8_t *table;

bool content_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    void *map = mmap(NULL, TABLE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    table = map == MAP_FAILED ? NULL : map;
    return table;
}

static const uint8_t *rest_of(uint64_t id)
{
    return table + (id * 0x9e3779b97f4a7c15u >> 48);
}

void content_fill(void *buffer, uint32_t bytes, uint64_t id)
{
    const uint64_t header[2] = {id, bytes};
    if (bytes < HEADER_BYTES) {
        return;
    }
    memcpy(buffer, header, HEADER_BYTES);
    memcpy((uint8_t *)buffer + HEADER_BYTES, rest_of(id), bytes - HEADER_BYTES);
}

enum verdict content_check(const void *buffer, uint32_t bytes, uint64_t *id)
{
    uint64_t header[2];
    *id = 0;
    if (bytes < HEADER_BYTES || bytes > MESSAGE_BYTES_MAX) {
        return WRONG_LENGTH;
    }
    memcpy(header, buffer, HEADER_BYTES);
    *id = header[0];
    if (header[1] != bytes) {
        return WRONG_LENGTH;
    }
    return memcmp((const uint8_t *)buffer + HEADER_BYTES, rest_of(*id), bytes - HEADER_BYTES) == 0
               ? RIGHT
               : WRONG_BYTES;
}

int32_t content_status(uint64_t id)
{
    return (int32_t)(id * 0x9e3779b97f4a7c15u >> 60);
}
