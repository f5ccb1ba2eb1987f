/* target.c: the parts of a target that have to do with no device, and where datagrams come from. */
#include <string.h>

#include "nic/queue.h"

#define IPV4_AT 20u /* in the header of a datagram */
#define IPV4_BYTES 20u
#define IPV4_SOURCE_AT 12u
#define GRH_SOURCE_AT 8u

void nic_target_init(struct nic_target *target, struct nic *nic,
                     const struct nic_target_options *options)
{
    assert(options->service_level < 16 &&
           (options->kind == NIC_QUEUE_DCI ||
            (options->kind == NIC_QUEUE_UD && options->queue_key < NIC_QUEUE_KEYS)));
    assert(nic_address_valid(&options->address) && options->address.link == nic->link);
    target->nic = nic;
    target->kind = options->kind;
    target->queue_pair_number = options->address.queue_pair_number;
    target->queue_key = options->queue_key;
    target->access_key = options->access_key;
}

static bool is_ipv6(const uint8_t *header)
{
    return header[0] >> 4 == 6;
}

static bool checksum_right(const uint8_t *ipv4)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < IPV4_BYTES; i += 2) {
        sum += (uint32_t)ipv4[i] << 8 | ipv4[i + 1];
    }
    while (sum > UINT16_MAX) {
        sum = (sum & UINT16_MAX) + (sum >> 16);
    }
    return sum == UINT16_MAX;
}

/* What precedes an IPv4 header is undefined, and may look like the beginning of a GRH. Then the checksum
 * says which it is, as in libibverbs. (Soft-RoCE has none in what goes from a device to itself.) */
static bool is_ipv4(const uint8_t *header)
{
    const uint8_t *ipv4 = header + IPV4_AT;
    return ipv4[0] == 0x45 && /* version 4, without options */
           (!is_ipv6(header) || checksum_right(ipv4));
}

static bool source_gid(const struct nic *nic, const uint8_t *header, uint8_t gid[16])
{
    if (nic->link == CRPC_LINK_ETHERNET && is_ipv4(header)) {
        memset(gid, 0, 10);
        memset(gid + 10, 0xff, 2);
        memcpy(gid + 12, header + IPV4_AT + IPV4_SOURCE_AT, 4);
        return true;
    }
    if (!is_ipv6(header)) {
        return false;
    }
    memcpy(gid, header + GRH_SOURCE_AT, 16);
    return true;
}

bool nic_datagram_source(const struct nic *nic, const crpc_completion *completion,
                         const uint8_t header[NIC_DATAGRAM_HEADER_BYTES],
                         struct nic_target_options *source)
{
    const bool has_grh = completion->flags & NIC_DONE_GRH;
    const bool ethernet = nic->link == CRPC_LINK_ETHERNET;
    const uint16_t lid = (uint16_t)(completion->token >> 32);
    *source = (struct nic_target_options){
        .kind = NIC_QUEUE_UD,
        .service_level = ethernet ? 0 : completion->token >> 48 & 0xf,
        .address = {.queue_pair_number = (uint32_t)completion->token & 0xffffffu,
                    .lid = ethernet ? 0 : lid,
                    .link = (uint8_t)nic->link,
                    .mtu_code = (uint8_t)__builtin_ctz(nic->mtu_bytes / 128)}};
    if (has_grh && !source_gid(nic, header, source->address.gid)) {
        return false;
    }
    source->address.grh_required = has_grh && !ethernet; /* as it came, so it gets an answer */
    return nic_address_valid(&source->address) && (has_grh || (!ethernet && lid != 0));
}
