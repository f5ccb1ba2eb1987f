/* keys.c: memory keys: regions, windows, and the check that every access of the NIC passes. */
#include "simnic/nic/internal.h"

#include <stdlib.h>

static struct memory_key *at(struct nic *nic, uint32_t index)
{
    return &nic->keys[index];
}

struct memory_key *key_create(struct nic *nic, enum key_kind kind, uint32_t domain)
{
    /* Next fit: an index rests before it is used again. Each time its key has another variant. */
    for (uint32_t tried = 0; tried < NIC_MAX_KEYS; tried++) {
        uint32_t index = nic->key_next;
        nic->key_next = index + 1 < NIC_MAX_KEYS ? index + 1 : 1;
        struct memory_key *key = at(nic, index);
        if (index == 0 || key->kind != KEY_FREE) {
            continue;
        }
        uint8_t variant = (uint8_t)(key->key + 1);
        if ((index << 8 | variant) == TERMINATOR_KEY) {
            variant++;
        }
        *key = (struct memory_key){
            .key = index << 8 | variant, .kind = (uint8_t)kind, .domain = domain};
        nic->key_count++;
        return key;
    }
    return NULL;
}

void key_destroy(struct nic *nic, struct memory_key *key)
{
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
    return found->kind != KEY_FREE && found->key == key ? found : NULL;
}

uint8_t *key_translate(struct nic *nic, uint32_t key, uint64_t address, uint64_t bytes,
                       uint32_t access, uint32_t domain)
{
    const struct memory_key *k = key_find(nic, key);
    if (!k || k->domain != domain || (k->access & access) != access) {
        return NULL;
    }
    if (k->kind == KEY_WINDOW && (!k->bound || !key_find(nic, k->region))) {
        return NULL;
    }
    uint64_t offset = address - k->address;
    if (address < k->address || offset > k->bytes || bytes > k->bytes - offset) {
        return NULL;
    }
    return (uint8_t *)(uintptr_t)(k->start + offset);
}

uint8_t *key_translate_for_peer(struct nic *nic, const struct queue_pair *qp, uint32_t key,
                                uint64_t address, uint64_t bytes, uint32_t access)
{
    const struct memory_key *k = key_find(nic, key);
    if (k && k->kind == KEY_WINDOW && k->queue_pair && k->queue_pair != qp->number) {
        return NULL;
    }
    /* An XRC target has no protection domain of its own. */
    uint32_t domain = k && qp->type == TYPE_XRC_TARGET ? k->domain : qp->domain;
    return key_translate(nic, key, address, bytes, access, domain);
}
