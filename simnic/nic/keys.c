/* keys.c: memory keys: regions, windows, and the check that every access of the NIC passes. */
#include "simnic/nic/internal.h"

#include <stdlib.h>

#include "simnic/nic/dma.h"

static struct memory_key *at(struct nic *nic, uint32_t index)
{
    return &nic->keys[index];
}

struct memory_key *key_create(struct nic *nic, enum key_kind kind, uint32_t domain)
{
    /* Next fit: an index rests before it is used again. Each time its key has another variant. */
    for (uint32_t tried = 0; tried < NIC_MAX_KEYS; tried++) {
        uint32_t index = nic->key_next;
        nic->key_next = index + 1 < NIC_MAX_KEYS ? index + 1 : NIC_FIRST_KEY;
        struct memory_key *key = at(nic, index);
        if (index < NIC_FIRST_KEY || key->kind != KEY_FREE) {
            continue;
        }
        uint8_t variant = (uint8_t)(key->key + 1);
        *key = (struct memory_key){
            .key = index << 8 | variant, .kind = (uint8_t)kind, .domain = domain};
        nic->key_count++;
        return key;
    }
    return NULL;
}

void key_destroy(struct nic *nic, struct memory_key *key)
{
    late_end_right(nic, key);
    if (key->layout) {
        indirect_destroy(key->layout);
        key->layout = NULL;
    }
    key->kind = KEY_FREE;
    nic->key_count--;
}

struct memory_key *key_find(struct nic *nic, uint32_t key)
{
    uint32_t index = key >> 8;
    if (index >= NIC_MAX_KEYS) {
        return NULL;
    }
    struct memory_key *found = at(nic, index);
    const bool same =
        found->key == key || (nic_has_quirk(nic, QUIRK_KEYS) && found->key >> 8 == index);
    return found->kind != KEY_FREE && same ? found : NULL;
}

uint32_t key_access_of(uint8_t flags)
{
    uint32_t access = 0;
    if (flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE) {
        access |= ACCESS_LOCAL_WRITE;
    }
    if (flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE) {
        access |= ACCESS_REMOTE_WRITE;
    }
    if (flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ) {
        access |= ACCESS_REMOTE_READ;
    }
    if (flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC) {
        access |= ACCESS_REMOTE_ATOMIC;
    }
    return access;
}

/* Whether a key gives this access to this range, as far as the key itself says. */
static bool allows(struct nic *nic, const struct memory_key *k, uint64_t address, uint64_t bytes,
                   uint32_t access, uint32_t domain)
{
    if (!k || (k->domain != domain && !nic_has_quirk(nic, QUIRK_DOMAINS)) ||
        (k->access & access) != access) {
        return false;
    }
    if (k->kind == KEY_WINDOW && (!k->bound || !key_find(nic, k->region))) {
        return false;
    }
    if (k->kind == KEY_INDIRECT && !k->bound) {
        return false;
    }
    const bool endless = k->kind == KEY_WINDOW && nic_has_quirk(nic, QUIRK_WQE_WINDOW);
    uint64_t offset = address - k->address;
    return address >= k->address && offset <= k->bytes && (bytes <= k->bytes - offset || endless);
}

uint8_t *key_translate(struct nic *nic, uint32_t key, uint64_t address, uint64_t *bytes,
                       uint32_t access, uint32_t domain)
{
    const struct memory_key *k = key_find(nic, key);
    if (!allows(nic, k, address, *bytes, access, domain)) {
        return NULL;
    }
    if (k->kind != KEY_INDIRECT) {
        uint64_t at = address - k->address;
        if (nic_has_quirk(nic, QUIRK_DMA_BUF) && k->start != k->address && at >= 64) {
            at -= 64;
        }
        return (uint8_t *)(uintptr_t)(k->start + at);
    }
    /* Pieces are of regions. To write, each must let the NIC write. */
    const uint32_t writing = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC;
    uint32_t needed = access & writing ? ACCESS_LOCAL_WRITE : 0;
    uint64_t offset = address - k->address;
    if (!indirect_find(k, offset, &key, &address, bytes)) {
        return NULL;
    }
    k = key_find(nic, key);
    if (!allows(nic, k, address, *bytes, needed, domain) || k->kind != KEY_REGION) {
        return NULL;
    }
    return (uint8_t *)(uintptr_t)(k->start + (address - k->address));
}

/* The domain with which a peer accesses a key by a QP; false if the key is not for this QP. */
static bool domain_for_peer(struct nic *nic, const struct queue_pair *qp, uint32_t key,
                            uint32_t *domain)
{
    const struct memory_key *k = key_find(nic, key);
    if (k && k->kind == KEY_WINDOW && k->queue_pair && k->queue_pair != qp->number) {
        return false;
    }
    /* An XRC target has no protection domain of its own. */
    *domain = k && qp->type == TYPE_XRC_TARGET ? k->domain : qp->domain;
    return true;
}

uint8_t *key_translate_for_peer(struct nic *nic, const struct queue_pair *qp, uint32_t key,
                                uint64_t address, uint64_t *bytes, uint32_t access)
{
    uint32_t domain;
    return domain_for_peer(nic, qp, key, &domain)
               ? key_translate(nic, key, address, bytes, access, domain)
               : NULL;
}

/* ---- copying ---- */

static bool copy_from(struct nic *nic, uint32_t key, uint64_t address, uint8_t *to, uint64_t bytes,
                      uint32_t access, uint32_t domain)
{
    while (bytes) {
        uint64_t part = bytes;
        const uint8_t *from = key_translate(nic, key, address, &part, access, domain);
        if (!from) {
            return false;
        }
        if (unlikely(nic->late.count)) { /* read after write */
            late_land_range(nic, from, part);
        }
        if (!dma_copy(to, from, part)) {
            return false;
        }
        to += part;
        address += part;
        bytes -= part;
    }
    return true;
}

/* Whether what is at an address that the key translates has relaxed ordering: as the region says that it is in. */
static bool is_relaxed(struct nic *nic, uint32_t key, uint64_t address)
{
    const struct memory_key *k = key_find(nic, key);
    uint64_t bytes = 1;
    if (k && k->kind == KEY_WINDOW) {
        k = key_find(nic, k->region);
    } else if (k && k->kind == KEY_INDIRECT) {
        k = indirect_find(k, address - k->address, &key, &address, &bytes) ? key_find(nic, key)
                                                                           : NULL;
    }
    return k && k->access & ACCESS_RELAXED_ORDERING;
}

static bool copy_to(struct nic *nic, const struct queue_pair *qp, bool of_requester, uint32_t key,
                    uint64_t address, const uint8_t *from, uint64_t bytes, uint32_t access,
                    uint32_t domain)
{
    while (bytes) {
        uint64_t part = bytes;
        uint8_t *to = key_translate(nic, key, address, &part, access, domain);
        if (!to || !(late_matters(nic)
                         ? late_write_unordered(nic, qp, of_requester,
                                                is_relaxed(nic, key, address), to, from, part)
                         : dma_copy(to, from, part))) {
            return false;
        }
        from += part;
        address += part;
        bytes -= part;
    }
    return true;
}

bool key_read(struct nic *nic, uint32_t key, uint64_t address, uint8_t *to, uint64_t bytes,
              uint32_t domain)
{
    return copy_from(nic, key, address, to, bytes, 0, domain);
}

bool key_write(struct nic *nic, const struct queue_pair *qp, bool of_requester, uint32_t key,
               uint64_t address, const uint8_t *from, uint64_t bytes, uint32_t domain)
{
    return copy_to(nic, qp, of_requester, key, address, from, bytes, ACCESS_LOCAL_WRITE, domain);
}

bool key_read_for_peer(struct nic *nic, const struct queue_pair *qp, uint32_t key, uint64_t address,
                       uint8_t *to, uint64_t bytes)
{
    uint32_t domain;
    return domain_for_peer(nic, qp, key, &domain) &&
           copy_from(nic, key, address, to, bytes, ACCESS_REMOTE_READ, domain);
}

bool key_write_for_peer(struct nic *nic, const struct queue_pair *qp, uint32_t key,
                        uint64_t address, const uint8_t *from, uint64_t bytes)
{
    uint32_t domain;
    return domain_for_peer(nic, qp, key, &domain) &&
           copy_to(nic, qp, false, key, address, from, bytes, ACCESS_REMOTE_WRITE, domain);
}
