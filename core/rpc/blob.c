/* blob.c: connecting without rdma_cm: the application carries 104 bytes each way. Layout:
 * docs/wire.md.
 */
#include "rpc/engine.h"

#include <string.h>

#include "base/checksum.h"
#include "base/error.h"

#define BLOB_MAGIC 0x42505243u /* "CRPB" */

struct wire_blob {
    uint32_t magic;
    uint16_t bytes; /* of the whole blob */
    uint16_t zero;
    uint32_t queue_pair_number;
    uint32_t packet_sequence_number;
    uint16_t lid;
    uint8_t link;
    uint8_t mtu_code;
    uint8_t gid[16];
    uint32_t zero2;
    struct wire_handshake handshake;
    uint32_t zero3;
    uint32_t checksum; /* FNV-1a of all before it: against damage, not against malice */
};
static_assert(sizeof(struct wire_blob) == RPC_BLOB_BYTES, "blob");
static_assert(RPC_BLOB_BYTES <= CRPC_BLOB_BYTES_MAX, "blob");

static uint32_t checksum(const struct wire_blob *blob)
{
    return checksum_of(blob, offsetof(struct wire_blob, checksum));
}

int32_t rpc_endpoint_blob(struct rpc_engine *engine, const crpc_endpoint_options *options,
                          struct rpc_endpoint **out, uint8_t *bytes, uint32_t *blob_bytes,
                          crpc_error *error)
{
    struct rpc_endpoint *endpoint;
    int32_t status = endpoint_create(engine, &endpoint, error);
    if (status != CRPC_OK) {
        return status;
    }
    status = endpoint_prepare(endpoint, options, error);
    if (status != CRPC_OK) {
        rpc_endpoint_close(endpoint);
        return status;
    }
    endpoint->state = CRPC_STATE_NEW;
    struct nic_address address;
    engine->operations->queue_pair_address(endpoint->queue_pair, &address);
    struct wire_blob blob = {.magic = BLOB_MAGIC,
                             .bytes = sizeof(blob),
                             .queue_pair_number = address.queue_pair_number,
                             .packet_sequence_number = address.packet_sequence_number,
                             .lid = address.lid,
                             .link = address.link,
                             .mtu_code = address.mtu_code};
    memcpy(blob.gid, address.gid, sizeof(blob.gid));
    endpoint_fill_handshake(endpoint, &blob.handshake);
    blob.checksum = checksum(&blob);
    memcpy(bytes, &blob, sizeof(blob));
    *blob_bytes = sizeof(blob);
    *out = endpoint;
    return CRPC_OK;
}

static int32_t check_blob(const struct rpc_endpoint *endpoint, const void *bytes,
                          uint32_t blob_bytes, struct wire_blob *blob, crpc_error *error)
{
    if (blob_bytes != sizeof(*blob)) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "a blob has %zu bytes, this one %u",
                         sizeof(*blob), blob_bytes);
    }
    memcpy(blob, bytes, sizeof(*blob));
    if (blob->magic != BLOB_MAGIC || blob->bytes != sizeof(*blob)) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "these bytes are no blob of copyrpc");
    }
    if (blob->checksum != checksum(blob)) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the blob was damaged on its way: bad checksum");
    }
    if (blob->link != endpoint->engine->nic->link) {
        return error_set(error, CRPC_E_UNREACHABLE, 0,
                         "one side is on InfiniBand and the other on Ethernet");
    }
    if (blob->queue_pair_number > 0xffffff || blob->packet_sequence_number > 0xffffff ||
        blob->mtu_code < 1 || blob->mtu_code > 5 || blob->zero || blob->zero2 || blob->zero3) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "the blob's fields are out of range");
    }
    return CRPC_OK;
}

int32_t rpc_endpoint_join(struct rpc_endpoint *endpoint, const void *bytes, uint32_t blob_bytes,
                          crpc_error *error)
{
    struct rpc_engine *engine = endpoint->engine;
    struct wire_blob blob;
    struct handshake_peer peer;
    struct wire_reject reject;
    if (endpoint->state != CRPC_STATE_NEW) {
        return error_set(error, CRPC_E_STATE, 0,
                         "only an endpoint of crpc_endpoint_blob can join, and once");
    }
    int32_t status = check_blob(endpoint, bytes, blob_bytes, &blob, error);
    if (status == CRPC_OK) {
        status =
            handshake_check_request(&blob.handshake, sizeof(blob.handshake), &peer, &reject, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    struct nic_address address = {.queue_pair_number = blob.queue_pair_number,
                                  .packet_sequence_number = blob.packet_sequence_number,
                                  .lid = blob.lid,
                                  .link = blob.link,
                                  .mtu_code = blob.mtu_code};
    memcpy(address.gid, blob.gid, sizeof(address.gid));
    struct nic_transport transport = {.retry_timeout = endpoint->options.retry_timeout,
                                      .retry_count = endpoint->options.retry_count};
    endpoint->peer = peer;
    status = endpoint_attach(endpoint, error);
    if (status == CRPC_OK) {
        status = engine->operations->queue_pair_connect(endpoint->queue_pair, &address, &transport,
                                                        error);
    }
    if (status != CRPC_OK) {
        endpoint_detach(endpoint);
        return status;
    }
    endpoint_connected(endpoint);
    return CRPC_OK;
}
