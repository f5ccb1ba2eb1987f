/* gid_test.c: which GID a context uses by default. Runs without RDMA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "nic/device/device.h"

static const struct ibv_gid_entry *table;
static uint32_t table_count;

int __wrap__ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                             struct ibv_gid_entry *entry, uint32_t flags, size_t bytes);
int __wrap__ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                             struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
    (void)context;
    (void)flags;
    assert_int_equal(port, 1);
    assert_int_equal(bytes, sizeof(*entry));
    if (index >= table_count) {
        return ENODATA;
    }
    *entry = table[index];
    entry->gid_index = index;
    return 0;
}

/* UINT32_MAX = none. */
static uint32_t chosen(uint8_t link_layer, const struct ibv_gid_entry *entries, uint32_t count)
{
    const struct ibv_port_attr attributes = {.link_layer = link_layer, .gid_tbl_len = 16};
    struct device_gid gid;
    table = entries;
    table_count = count;
    if (!device_gid_choose(NULL, 1, &attributes, &gid)) {
        return UINT32_MAX;
    }
    assert_memory_equal(gid.value.raw, entries[gid.index].gid.raw, 16);
    return gid.index;
}

#define GUID 0, 2, 0xc9, 3, 0, 1, 2, 3
#define ENTRY(kind, ...)                                                                           \
    {                                                                                              \
        .gid.raw = {__VA_ARGS__}, .gid_type = (kind)                                               \
    }

/* 0 is the one that every port has. 1 may be one for routers that know FLIDs: it leads here from other subnets, too. */
static void infiniband_prefers_one_that_routers_know(void **state)
{
    (void)state;
    static const struct ibv_gid_entry plain[] = {
        ENTRY(IBV_GID_TYPE_IB, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, GUID)};
    static const struct ibv_gid_entry routed[] = {
        ENTRY(IBV_GID_TYPE_IB, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, GUID),
        ENTRY(IBV_GID_TYPE_IB, 0xfe, 0xc0, 0, 0, 0x12, 0x34, 0, 7, GUID)};
    static const struct ibv_gid_entry without[] = {
        ENTRY(IBV_GID_TYPE_IB, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, GUID),
        ENTRY(IBV_GID_TYPE_IB, 0xfe, 0xc0, 0, 0, 0, 0, 0, 7, GUID)};
    static const struct ibv_gid_entry other[] = {
        ENTRY(IBV_GID_TYPE_IB, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, GUID),
        ENTRY(IBV_GID_TYPE_IB, 0x20, 0x01, 0x0d, 0xb8, 0x12, 0x34, 0, 7, GUID),
        ENTRY(IBV_GID_TYPE_IB, 0xfe, 0xc0, 0, 0, 0x12, 0x34, 0, 7, GUID)};
    assert_int_equal(chosen(IBV_LINK_LAYER_INFINIBAND, plain, 1), 0);
    assert_int_equal(chosen(IBV_LINK_LAYER_INFINIBAND, routed, 2), 1);
    assert_int_equal(chosen(IBV_LINK_LAYER_INFINIBAND, without, 2), 0);
    assert_int_equal(chosen(IBV_LINK_LAYER_INFINIBAND, other, 3), 0); /* by an option only */
    assert_int_equal(chosen(IBV_LINK_LAYER_INFINIBAND, NULL, 0), UINT32_MAX);
}

static void ethernet_prefers_what_is_most_likely_to_be_reached(void **state)
{
    (void)state;
    static const struct ibv_gid_entry entries[] = {
        ENTRY(IBV_GID_TYPE_ROCE_V1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1),
        ENTRY(IBV_GID_TYPE_ROCE_V2, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, GUID),
        ENTRY(IBV_GID_TYPE_ROCE_V2, 0xfe, 0xc0, 0, 0, 0x12, 0x34, 0, 7, GUID),
        ENTRY(IBV_GID_TYPE_ROCE_V2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1)};
    for (uint32_t count = 1; count <= 4; count++) {
        assert_int_equal(chosen(IBV_LINK_LAYER_ETHERNET, entries, count), count - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infiniband_prefers_one_that_routers_know),
        cmocka_unit_test(ethernet_prefers_what_is_most_likely_to_be_reached),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
