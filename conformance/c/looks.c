/* looks.c: the verbs about devices, the log, errors, the registration cache and dma-bufs. */
#include "runner.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "line.h"

/* The ports of a device. */
static int32_t tell_device(void)
{
    crpc_device_info info = {.struct_size = sizeof(info)};
    json_t *drivers = json_array();
    uint32_t ports = 0, active = 0;
    for (uint32_t i = 0; crpc_device_query(i, &info, NULL) != CRPC_E_NO_DEVICE; i++) {
        if (strcmp(info.name, text("device")) == 0) {
            active += info.port_state == CRPC_PORT_ACTIVE;
            if (ports++ == 0 && info.drivers >> CRPC_DRIVER_VERBS & 1) {
                json_array_append_new(drivers, json_string("verbs"));
            }
            if (ports == 1 && info.drivers >> CRPC_DRIVER_MLX5 & 1) {
                json_array_append_new(drivers, json_string("mlx5"));
            }
        }
        info = (crpc_device_info){.struct_size = sizeof(info)};
    }
    put_number(answer(), "ports", ports);
    json_object_set_new(answer(), "active", json_boolean(active > 0));
    json_object_set_new(answer(), "drivers", drivers);
    return CRPC_OK;
}

static int32_t tell_log(void)
{
    static crpc_log_entry entries[256];
    int32_t count = crpc_context_log(context, entries, 256);
    put_number(answer(), "entries", count > 0 ? (uint64_t)count : 0);
    return count < 0 ? count : CRPC_OK;
}

static int32_t tell_status_text(void)
{
    int32_t status = 0;
    while (status > -100 && strcmp(crpc_status_name(status), text("status")) != 0) {
        status--;
    }
    const char *explained = crpc_status_text(status);
    json_object_set_new(answer(), "explained", json_boolean(status > -100 && *explained));
    return status > -100 ? CRPC_OK : CRPC_E_NOT_FOUND;
}

static int32_t tell_error(const struct thing *it)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status =
        has("channel") ? crpc_channel_get_error(context, (crpc_channel){it->bits}, &error)
        : has("queue") ? crpc_queue_get_error(context, (crpc_queue){it->bits}, &error)
                       : crpc_endpoint_get_error(context, (crpc_endpoint){it->bits}, &error);
    json_object_set_new(answer(), "reason", status_value(error.status));
    json_object_set_new(answer(), "explained", json_boolean(*error.message));
    return status;
}

static int32_t tell_cache(void)
{
    crpc_cache_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_cache_get_info(context, &info);
    put_number(answer(), "registrations", info.registrations);
    put_number(answer(), "registrations_max", info.registrations_max);
    put_number(answer(), "bytes", info.bytes);
    put_number(answer(), "bytes_max", info.bytes_max);
    put_number(answer(), "hits", info.hits);
    put_number(answer(), "misses", info.misses);
    put_number(answer(), "evictions", info.evictions);
    return status;
}

static int32_t do_cache_forget(void)
{
    int32_t count = crpc_cache_forget(context, NULL, 0);
    put_number(answer(), "forgotten", count > 0 ? (uint64_t)count : 0);
    return count < 0 ? count : CRPC_OK;
}

/* A file stands for the memory of another device: simnic takes any that can be mapped. */
static int32_t do_register_dmabuf(struct thing *made)
{
    const uint32_t offset = number("offset"), length = number("length");
    const uint32_t whole = offset + length;
    crpc_region handle = {0};
    const int file = memfd_create("dmabuf", 0);
    int32_t status = CRPC_E_SYSTEM;
    uint8_t *memory = MAP_FAILED;
    if (file >= 0 && ftruncate(file, whole) == 0) {
        memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (memory != MAP_FAILED) {
        made->memory = memory + offset;
        made->bytes = length;
        made->mapped = whole;
        status = crpc_region_register_dmabuf(context, file, offset, length, (uintptr_t)made->memory,
                                             number("access"), &handle, NULL);
    }
    close(file);
    made->bits = handle.bits;
    return status;
}

int32_t looks_run(const char *verb, const struct thing *it, struct thing *made)
{
#define IS(name) (strcmp(verb, name) == 0)
    if (IS("device")) {
        return tell_device();
    } else if (IS("log")) {
        return tell_log();
    } else if (IS("wait")) {
        return crpc_wait(context, nanoseconds("timeout_ms"));
    } else if (IS("status_text")) {
        return tell_status_text();
    } else if (it && IS("error")) {
        return tell_error(it);
    } else if (IS("cache_info")) {
        return tell_cache();
    } else if (IS("cache_forget")) {
        return do_cache_forget();
    } else if (made && IS("register_dmabuf")) {
        return do_register_dmabuf(made);
    }
    return VERB_UNKNOWN;
#undef IS
}
