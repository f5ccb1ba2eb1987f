/* mlx5_key_commands.c: CREATE_MKEY (PRM, "Memory Key Context"), as mlx5dv_create_mkey sends it: an indirect key, which UMR WQEs lead to other
 * keys' memory. Keys with pages of their own come from the verbs. Signatures and encryption are refused. */
#include <endian.h>
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>

#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/mlx5_devx.h"
#include "simnic/shim/process/process.h"

#define CONTEXT_WORDS 16u
#define MOST_OCTOWORDS 256u

/* Fields of the key's context, by their first bit. */
#define CONTEXT_FREE 0x001u      /* 1 */
#define CONTEXT_MODE_HIGH 0x003u /* 3: access_mode_4_2 */
#define CONTEXT_UMR 0x010u       /* 1: umr_en */
#define CONTEXT_ACCESS 0x011u    /* 5: atomic, remote write, remote read, local write, local read */
#define CONTEXT_MODE 0x016u      /* 2: access_mode_1_0 */
#define CONTEXT_QPN 0x020u       /* 24 */
#define CONTEXT_VARIANT 0x038u   /* 8: mkey_7_0 */
#define CONTEXT_SIGNATURE 0x061u /* 1: bsf_en */
#define CONTEXT_REMOTE_INVALIDATION 0x067u /* 1: en_rinval */
#define CONTEXT_DOMAIN 0x068u              /* 24 */
#define CONTEXT_OCTOWORDS 0x1a0u           /* 32: translations_octword_size */
#define CONTEXT_ENCRYPTION 0x1e3u          /* 2: crypto_en */
#define MODE_KLMS 2u

struct creation {
    uint16_t opcode, uid, reserved, modifier;
    uint32_t reserved2;
    uint32_t flags; /* pg_access, mkey_umem_valid */
    uint32_t context[CONTEXT_WORDS];
};

struct answer {
    uint32_t status, syndrome;
    uint32_t index;
    uint32_t reserved;
};

static void destroy(const struct object *object)
{
    key_destroy(&process.nic, object->thing);
}

/* Returns 0 or the status with which it is refused. */
static uint32_t check(const struct devx_command *command, const struct creation *creation)
{
    const uint32_t *c = creation->context;
    const uint32_t octowords = devx_field(c, CONTEXT_OCTOWORDS, 32);
    if (creation->flags || devx_field(c, CONTEXT_MODE, 2) != MODE_KLMS ||
        devx_field(c, CONTEXT_MODE_HIGH, 3) || !devx_field(c, CONTEXT_FREE, 1) ||
        !devx_field(c, CONTEXT_UMR, 1) || devx_field(c, CONTEXT_QPN, 24) != 0xffffff ||
        devx_field(c, CONTEXT_SIGNATURE, 1) || devx_field(c, CONTEXT_ENCRYPTION, 2) ||
        octowords == 0 || octowords > MOST_OCTOWORDS) {
        return DEVX_BAD_PARAMETER;
    }
    return object_find_number(command->call->context, UVERBS_OBJECT_PD,
                              devx_field(c, CONTEXT_DOMAIN, 24))
               ? 0
               : DEVX_BAD_RESOURCE;
}

int devx_create_key(const struct devx_command *command)
{
    struct creation creation;
    int result = devx_read(command, &creation, sizeof(creation), sizeof(creation));
    if (result) {
        return result;
    }
    uint32_t status = check(command, &creation);
    if (status) {
        return devx_refuse(command, status);
    }
    const uint32_t *c = creation.context;
    struct memory_key *key = key_create_indirect(&process.nic, devx_field(c, CONTEXT_DOMAIN, 24),
                                                 devx_field(c, CONTEXT_OCTOWORDS, 32),
                                                 (uint8_t)devx_field(c, CONTEXT_VARIANT, 8));
    struct object *object = key ? devx_create_object(command) : NULL;
    if (!object) {
        if (key) {
            key_destroy(&process.nic, key);
        }
        return ENOMEM;
    }
    object->thing = key;
    object->release = destroy;
    key->access = key_access_of((uint8_t)(devx_field(c, CONTEXT_ACCESS, 5) << 2));
    key->remote_invalidation = devx_field(c, CONTEXT_REMOTE_INVALIDATION, 1);
    struct answer answer = {.index = htobe32(key->key >> 8)};
    return devx_answer(command, &answer, sizeof(answer));
}
