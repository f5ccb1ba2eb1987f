/* mlx5_general_objects.c: objects of the adapter for which there are no verbs (PRM, "General Objects"): blocks of QPNs that no queue pair
 * gets, and the queue pair whose congestion control an address takes over. */
#include <endian.h>
#include <errno.h>

#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/mlx5_devx.h"
#include "simnic/shim/process/process.h"

struct creation {
    uint16_t opcode, uid, reserved, type;
    uint32_t number;
    uint32_t range; /* log_obj_range: bits 0x63 to 0x67 */
};

struct answer {
    uint32_t status, syndrome;
    uint32_t number;
    uint32_t reserved;
};

static int answer_with(const struct devx_command *command, uint32_t number)
{
    struct answer answer = {.number = htobe32(number)};
    return devx_answer(command, &answer, sizeof(answer));
}

/* ---- reserved QPNs ---- Connections of the connection manager need a number that is no queue pair's, if they are not by one. */

static void release_numbers(const struct object *object)
{
    qp_release_numbers(&process.nic, (uint32_t)object->number);
}

static int reserve_numbers(const struct devx_command *command)
{
    struct creation creation;
    int result = devx_read(command, &creation, sizeof(creation), sizeof(creation));
    if (result) {
        return result;
    }
    if (devx_field(&creation.range, 3, 5) != NIC_LOG_RESERVED_NUMBERS) {
        return devx_refuse(command, DEVX_BAD_PARAMETER);
    }
    uint32_t first = qp_reserve_numbers(&process.nic);
    if (!first) {
        return devx_refuse(command, DEVX_NO_RESOURCES);
    }
    struct object *object = devx_create_object(command);
    if (!object) {
        qp_release_numbers(&process.nic, first);
        return ENOMEM;
    }
    object->number = first;
    object->release = release_numbers;
    return answer_with(command, first);
}

/* ---- addresses and queue pairs ---- There is no congestion on this fabric, so nothing follows from the mapping. */

struct mapping {
    struct creation header;
    uint32_t modified[2];
    uint32_t reserved;
    uint32_t qpn;
    uint32_t address[12]; /* as in the WQE of a datagram */
};
#define ADDRESS_SOURCE_INDEX 0x0e4u /* 8 bits */
#define ADDRESS_GID_WORD 8u

static int map_address(const struct devx_command *command)
{
    struct mapping mapping;
    int result = devx_read(command, &mapping, sizeof(mapping), sizeof(mapping));
    if (result) {
        return result;
    }
    const uint32_t source = devx_field(mapping.address, ADDRESS_SOURCE_INDEX, 8);
    const struct rail_gid gid =
        rail_gid(process.fabric.link, command->call->context->rail, source % RAIL_GID_COUNT);
    if (!qp_find(&process.nic, be32toh(mapping.qpn) & 0xffffff)) {
        return devx_refuse(command, DEVX_BAD_RESOURCE);
    }
    if (source >= RAIL_GID_COUNT || gid.type == RAIL_GID_NONE ||
        rail_of_gid(process.fabric.link, (const uint8_t *)&mapping.address[ADDRESS_GID_WORD]) < 0) {
        return devx_refuse(command, DEVX_BAD_PARAMETER);
    }
    struct object *object = devx_create_object(command);
    return object ? answer_with(command, object->handle + 1) : ENOMEM;
}

int devx_create_general_object(const struct devx_command *command)
{
    switch (command->modifier) {
    case DEVX_OBJECT_RESERVED_QPN:
        return reserve_numbers(command);
    case DEVX_OBJECT_AV_QP_MAPPING:
        return map_address(command);
    default:
        return devx_refuse(command, DEVX_BAD_PARAMETER);
    }
}
