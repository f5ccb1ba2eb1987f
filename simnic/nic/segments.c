/* segments.c: the memory of a message: what the data segments of a WQE name, in their order. */
#include "simnic/nic/internal.h"

#include <string.h>

uint8_t segments_gather(struct nic *nic, struct queue_pair *qp, const struct send_request *request,
                        uint32_t offset, uint8_t *to, uint32_t bytes)
{
    for (uint32_t i = 0; i < request->segments && bytes; i++) {
        const struct segment *s = &request->segment[i];
        struct segment wrong = *s;
        if (nic_has_quirk(nic, QUIRK_WQE_PIECES) && i == 2 && !s->inlined) {
            wrong.address = request->segment[1].address;
            s = &wrong;
        }
        if (offset >= s->bytes) {
            offset -= s->bytes;
            continue;
        }
        uint32_t part = s->bytes - offset < bytes ? s->bytes - offset : bytes;
        if (s->inlined) {
            memcpy(to, request->wqe + s->address + offset, part);
        } else {
            qp->statistics->payload_reads++;
            if (!key_read(nic, s->key, s->address + offset, to, part, qp->domain)) {
                return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
            }
        }
        if (nic_has_quirk(nic, QUIRK_WQE_WRITE) && s->inlined && s->bytes % 2 != 0) {
            to[part - 1] ^= 0xff;
        }
        to += part;
        bytes -= part;
        offset = 0;
    }
    return 0;
}

uint8_t segments_scatter(struct nic *nic, const struct queue_pair *qp, bool of_requester,
                         const struct segment *segments, uint32_t count, uint32_t domain,
                         uint32_t offset, const uint8_t *payload, uint32_t bytes)
{
    for (uint32_t i = 0; i < count && bytes; i++) {
        const struct segment *s = &segments[i];
        if (offset >= s->bytes) {
            offset -= s->bytes;
            continue;
        }
        uint32_t part = s->bytes - offset < bytes ? s->bytes - offset : bytes;
        if (!key_write(nic, qp, of_requester, s->key, s->address + offset, payload, part, domain)) {
            return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
        }
        payload += part;
        bytes -= part;
        offset = 0;
    }
    return 0;
}
