/* gids.c: see gids.h. */
#include "gids.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/verbs.h>

#define TABLE_MAX 256

static void describe(const struct ibv_gid_entry *from, struct gid_entry *to)
{
    static const char *const types[] = {[IBV_GID_TYPE_IB] = "IB",
                                        [IBV_GID_TYPE_ROCE_V1] = "RoCE v1",
                                        [IBV_GID_TYPE_ROCE_V2] = "RoCE v2"};
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const char *type =
        from->gid_type < sizeof(types) / sizeof(types[0]) ? types[from->gid_type] : "?";
    to->index = from->gid_index;
    snprintf(to->type, sizeof(to->type), "%s", type);
    if (memcmp(from->gid.raw, mapped, sizeof(mapped)) == 0) {
        inet_ntop(AF_INET, from->gid.raw + 12, to->text, sizeof(to->text));
    } else {
        inet_ntop(AF_INET6, from->gid.raw, to->text, sizeof(to->text));
    }
}

static uint32_t list_of(struct ibv_context *context, uint32_t port, struct gid_entry *entries,
                        uint32_t capacity)
{
    struct ibv_gid_entry table[TABLE_MAX];
    uint32_t count = 0;
    ssize_t found = ibv_query_gid_table(context, table, TABLE_MAX, 0);
    for (ssize_t i = 0; i < found && count < capacity; i++) {
        if (table[i].port_num == port) {
            describe(&table[i], &entries[count++]);
        }
    }
    return count;
}

uint32_t gids_list(const char *device, uint32_t port, struct gid_entry *entries, uint32_t capacity)
{
    int device_count;
    uint32_t count = 0;
    struct ibv_device **devices = ibv_get_device_list(&device_count);
    for (int i = 0; devices && i < device_count; i++) {
        if (strcmp(ibv_get_device_name(devices[i]), device) == 0) {
            struct ibv_context *context = ibv_open_device(devices[i]);
            if (context) {
                count = list_of(context, port, entries, capacity);
                ibv_close_device(context);
            }
        }
    }
    if (devices) {
        ibv_free_device_list(devices);
    }
    return count;
}
