/* mlx5_capabilities.c: QUERY_HCA_CAP: what the adapter can do (PRM, "HCA Capabilities"). Only what programs ask for is filled in; the
 * bits of what the NIC does not do stay clear. An adapter refuses a kind of capabilities that it does not know, and so does this one. */
#include <endian.h>
#include <rdma/mlx5-abi.h>

#include "simnic/nic/nic.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/device_memory.h"
#include "simnic/shim/kernel/mlx5_devx.h"
#include "simnic/shim/kernel/paging.h"

/* The modifier: bit 0 says whether those are asked for that are set, or those that could be. Here they are the same. */
#define GENERAL 0x00u
#define PAGING 0x02u
#define FLOW_TABLES 0x07u
#define DEVICE_MEMORY 0x0fu
#define GENERAL_MORE 0x20u

struct answer {
    uint32_t status, syndrome, reserved[2];
    uint32_t capability[1024];
};

static uint32_t log_of(uint32_t power)
{
    return (uint32_t)__builtin_ctz(power);
}

/* log_max_msg stays 0: with 30, UCX would make all its queues by DevX, and some of these are not here (RMPs, DCTs, DCIs). */
static void general(uint32_t *c)
{
    devx_set_field(c, 0x20, 1, 1);  /* hca_cap_2 */
    devx_set_field(c, 0x88, 8, 15); /* log_max_qp_sz */
    devx_set_field(c, 0x9b, 5, log_of(NIC_MAX_QUEUE_PAIRS));
    devx_set_field(c, 0xc8, 8, 22);                  /* log_max_cq_sz */
    devx_set_field(c, 0x122, 1, 1);                  /* qpc_extension: DCI streams can be reset */
    devx_set_field(c, 0x151, 1, 1);                  /* rts2rts_qp_udp_sport */
    devx_set_field(c, 0x1a8, 1, 1);                  /* device_memory */
    devx_set_field(c, 0x21a, 1, 1);                  /* dct */
    devx_set_field(c, 0x21d, 1, 1);                  /* roce */
    devx_set_field(c, 0x21e, 1, 1);                  /* atomic */
    devx_set_field(c, 0x227, 1, 1);                  /* pg: on-demand paging */
    devx_set_field(c, 0x1fc, 4, 1);                  /* cqe_version */
    devx_set_field(c, 0x23f, 1, 1);                  /* rc */
    devx_set_field(c, 0x5b0, 1, 1);                  /* enhanced_cqe_compression */
    devx_set_field(c, 0x5be, 1, 1);                  /* cqe_compression_128b */
    devx_set_field(c, 0x5bf, 1, 1);                  /* cqe_compression */
    devx_set_field(c, 0x5d0, 16, NIC_MAX_MINI_CQES); /* cqe_compression_max_num */
    const uint64_t objects = 1ull << DEVX_OBJECT_RESERVED_QPN | 1ull << DEVX_OBJECT_AV_QP_MAPPING;
    devx_set_field(c, 0x400, 32, (uint32_t)(objects >> 32)); /* general_obj_types */
    devx_set_field(c, 0x420, 32, (uint32_t)objects);
}

static void general_more(uint32_t *c)
{
    devx_set_field(c, 0x93, 5, NIC_LOG_RESERVED_NUMBERS); /* log_reserved_qpn_granularity */
}

/* The verbs' bits are the PRM's, in the other order. */
static void paging_of(uint32_t *c, uint32_t at, uint32_t supported)
{
    for (uint32_t bit = 0; bit < 6; bit++) {
        devx_set_field(c, at + bit, 1, supported >> bit & 1);
    }
}

static void paging(uint32_t *c)
{
    paging_of(c, 0x080, PAGING_RC);
    paging_of(c, 0x0a0, PAGING_UC);
    paging_of(c, 0x0c0, PAGING_UD);
    paging_of(c, 0x0e0, PAGING_XRC);
    paging_of(c, 0x100, PAGING_DC);
}

static void device_memory(uint32_t *c)
{
    devx_set_field(c, 0x00, 1, 1);                                    /* memic */
    devx_set_field(c, 0x2b, 5, 6);                                    /* log_min_memic_alloc_size */
    devx_set_field(c, 0x38, 8, DEVICE_MEMORY_LOG_ALIGNMENT_MOST - 6); /* in units of 64 bytes */
    devx_set_field(c, 0x80, 32,
                   DEVICE_MEMORY_BYTES / DEVICE_MEMORY_PAGE_BYTES); /* memic_bar_size */
    devx_set_field(c, 0xa0, 32, DEVICE_MEMORY_BYTES);               /* max_memic_size */
}

int devx_query_capabilities(const struct devx_command *command)
{
    struct answer answer = {0};
    switch (command->modifier >> 1) {
    case GENERAL:
        general(answer.capability);
        break;
    case GENERAL_MORE:
        general_more(answer.capability);
        break;
    case FLOW_TABLES: /* none */
        break;
    case PAGING:
        paging(answer.capability);
        break;
    case DEVICE_MEMORY:
        device_memory(answer.capability);
        break;
    default:
        return devx_refuse(command, DEVX_BAD_PARAMETER);
    }
    return devx_answer(command, &answer, sizeof(answer));
}
