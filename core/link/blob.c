/* blob.c: connecting without rdma_cm: the application carries 104 bytes each way. */
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "link/hello.h"
#include "link/internal.h"
#include "link/prove.h"

static_assert(sizeof(struct link_blob) == LINK_BLOB_BYTES, "blob");
static_assert(LINK_BLOB_BYTES <= CRPC_BLOB_BYTES_MAX, "blob");

/* ---- Addresses ------------------------------------------------------------------------------- */

void link_address_fill(struct link_address *wire, const struct nic_queue_pair *queue_pair)
{
    struct nic_address address;
    queue_pair->operations->queue_pair_address(queue_pair, &address);
    *wire = (struct link_address){.queue_pair_number = address.queue_pair_number,
                                  .packet_sequence_number = address.packet_sequence_number,
                                  .lid = address.lid,
                                  .link = address.link,
                                  .mtu_code = address.mtu_code};
    memcpy(wire->gid, address.gid, sizeof(wire->gid));
}

static int32_t check_address(const struct nic_address *address, const struct nic *nic,
                             crpc_error *error)
{
    if (!nic_address_valid(address)) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the address of the peer's queue pair is malformed");
    }
    if (address->link != nic->link) {
        bool ethernet = nic->link == CRPC_LINK_ETHERNET;
        return error_set(error, CRPC_E_UNREACHABLE, 0,
                         "%s is on %s and the peer is on %s: they cannot reach each other",
                         nic->device, ethernet ? "Ethernet" : "InfiniBand",
                         ethernet ? "InfiniBand" : "Ethernet");
    }
    return CRPC_OK;
}

int32_t link_address_take(struct nic_address *address, const struct link_address *wire,
                          bool grh_required, const struct nic *nic, crpc_error *error)
{
    *address = (struct nic_address){.queue_pair_number = wire->queue_pair_number,
                                    .packet_sequence_number = wire->packet_sequence_number,
                                    .lid = wire->lid,
                                    .link = wire->link,
                                    .mtu_code = wire->mtu_code,
                                    .grh_required = grh_required};
    memcpy(address->gid, wire->gid, sizeof(address->gid));
    if (wire->ece_options != 0) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the address of the peer's queue pair is malformed");
    }
    return check_address(address, nic, error);
}

void link_address_tell(struct link_address *wire, uint32_t *ece_vendor, const struct link *link,
                       const struct nic_queue_pair *queue_pair)
{
    struct nic_address address;
    link_address_fill(wire, queue_pair);
    queue_pair->operations->queue_pair_address(queue_pair, &address);
    if (link_tells_ece(link) && address.ece.options != 0) {
        wire->ece_options = address.ece.options;
        *ece_vendor = address.ece.vendor;
    }
}

int32_t link_address_take_told(struct nic_address *address, const struct link_address *wire,
                               uint32_t ece_vendor, const struct link *link, const struct nic *nic,
                               crpc_error *error)
{
    struct link_address plain = *wire;
    if (link_tells_ece(link)) {
        plain.ece_options = 0;
    }
    int32_t status = link_address_take(address, &plain, link->peer.grh_required, nic, error);
    address->ece = (struct nic_ece){.vendor = ece_vendor, .options = wire->ece_options};
    address->traffic_class = link->traffic_class;
    address->service_level = link->service_level;
    return status;
}

/* ---- Blobs ----------------------------------------------------------------------------------- */

static uint32_t checksum(const struct link_blob *blob)
{
    return checksum_of(blob, offsetof(struct link_blob, checksum));
}

/* What this side offers, where its token leaves room. A peer that knows nothing of it does not look there. */
static void fill_ece(const struct link *link, struct link_hello *hello)
{
    struct nic_address address;
    link->queue_pair->operations->queue_pair_address(link->queue_pair, &address);
    const struct link_ece ece = {.vendor = address.ece.vendor, .options = address.ece.options};
    if (hello->features & LINK_FEATURE_ECE && hello->token_bytes <= LINK_ECE_OFFSET) {
        memcpy(hello->token + LINK_ECE_OFFSET, &ece, sizeof(ece));
    }
}

/* Only what both sides have told is set, so that both set the same. The peer's may be anything: nic_ece_common takes of it what this side
 * has. */
static struct nic_ece take_ece(const struct link *link, const struct link_hello *hello)
{
    struct link_ece ece = {0};
    if (link->group->ece && link->options.token_bytes <= LINK_ECE_OFFSET &&
        hello->features & LINK_FEATURE_ECE && hello->token_bytes <= LINK_ECE_OFFSET) {
        memcpy(&ece, hello->token + LINK_ECE_OFFSET, sizeof(ece));
    }
    return (struct nic_ece){.vendor = ece.vendor, .options = ece.options};
}

static void fill(const struct link *link, struct link_blob *blob)
{
    *blob = (struct link_blob){.magic = LINK_BLOB_MAGIC, .bytes = sizeof(*blob)};
    link_address_fill(&blob->address, link->queue_pair);
    hello_fill(link, &blob->hello);
    fill_ece(link, &blob->hello);
    blob->checksum = checksum(blob);
}

int32_t link_blob(struct link_group *group, const void *options, struct link **out, uint8_t *bytes,
                  crpc_error *error)
{
    struct link_blob blob;
    struct link *link;
    int32_t status = link_make(group, options, &link, error);
    if (status != CRPC_OK) {
        return status;
    }
    link->state = CRPC_STATE_NEW;
    fill(link, &blob);
    memcpy(bytes, &blob, sizeof(blob));
    *out = link;
    return CRPC_OK;
}

/* Decides which side begins: the one whose blob is the lesser. Nobody's blob is like another's. */
static int32_t choose_side(struct link *link, const struct link_blob *theirs, crpc_error *error)
{
    struct link_blob ours;
    link->passive = false; /* as it was when its blob was made */
    fill(link, &ours);
    int order = memcmp(&ours, theirs, sizeof(ours));
    if (order == 0) {
        return error_set(error, CRPC_E_INVALID, 0, "this is the %s's own blob",
                         link->group->service->name);
    }
    link->passive = order > 0;
    link_prove_hello(link, &ours.hello);
    return CRPC_OK;
}

static int32_t check_blob(struct link *link, const void *bytes, uint32_t blob_bytes,
                          struct link_blob *blob, struct nic_address *address, crpc_error *error)
{
    if (blob_bytes != sizeof(*blob)) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "a blob has %zu bytes, this one %u",
                         sizeof(*blob), blob_bytes);
    }
    memcpy(blob, bytes, sizeof(*blob));
    if (blob->magic != LINK_BLOB_MAGIC || blob->bytes != sizeof(*blob)) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "these bytes are no blob of copyrpc");
    }
    if (blob->checksum != checksum(blob)) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the blob was damaged on its way: bad checksum");
    }
    if (blob->zero || blob->zero2) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "the blob's reserved bytes are set");
    }
    return link_address_take(address, &blob->address, blob->hello.features & LINK_FEATURE_GRH,
                             link->group->nic, error);
}

/* In a thread of cm, if there is one: the kernel may take long to find the address. */
static int32_t connect_queue_pair(struct link_task *task, crpc_error *error)
{
    struct link *link = container_of(task, struct link, join);
    return link->queue_pair->operations->queue_pair_connect(link->queue_pair, &link->join_address,
                                                            &link->options.transport, error);
}

static void joined(struct link_task *task, const crpc_error *error)
{
    struct link *link = container_of(task, struct link, join);
    if (link->failing) {
        link->group->service->abandoned(link);
    } else if (error->status != CRPC_OK) {
        link_fail(link, error);
    } else {
        link_open(link);
    }
}

static int32_t check_new(const struct link *link, crpc_error *error)
{
    const char *name = link->group->service->name;
    if (link->state == CRPC_STATE_NEW) {
        return CRPC_OK;
    }
    return error_set(error, CRPC_E_STATE, 0, "only what crpc_%s_blob made can join, and once",
                     name);
}

/* All that came from the peer is known to be good. */
static int32_t join(struct link *link, const struct nic_address *address, crpc_error *error)
{
    const struct link_service *service = link->group->service;
    int32_t status = link_attach(link, error);
    link->join_address = *address;
    if (status == CRPC_OK && !link->group->cm) {
        status = connect_queue_pair(&link->join, error);
    }
    if (status != CRPC_OK) {
        service->detach(link);
        return status;
    }
    link_begin(link);
    if (link->group->cm) {
        link_task_start(&link->join, link, connect_queue_pair, joined);
    } else {
        link_open(link);
    }
    return CRPC_OK;
}

int32_t link_join_address(struct link *link, const struct nic_address *address, crpc_error *error)
{
    assert(link->group->service->plain);
    int32_t status = check_new(link, error);
    if (status == CRPC_OK) {
        status = check_address(address, link->group->nic, error);
    }
    return status == CRPC_OK ? join(link, address, error) : status;
}

int32_t link_join(struct link *link, const void *bytes, uint32_t blob_bytes, crpc_error *error)
{
    struct link_blob blob;
    struct nic_address address;
    struct link_peer peer;
    struct link_reject reject;
    int32_t status = check_new(link, error);
    if (status == CRPC_OK) {
        status = check_blob(link, bytes, blob_bytes, &blob, &address, error);
    }
    if (status == CRPC_OK) {
        status = hello_check_request(link->group, &blob.hello, sizeof(blob.hello), &peer, &reject,
                                     error);
        address.ece = take_ece(link, &blob.hello);
    }
    if (status == CRPC_OK) {
        status = choose_side(link, &blob, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    struct link_peer before = link->peer;
    link->peer = peer;
    link->peer.features &= (uint32_t)~link->options.features_left_out;
    link->options.transport.access_key = peer.nonce;
    status = link_prove_check(link, error);
    if (status != CRPC_OK) {
        link->peer = before;
        return status;
    }
    return join(link, &address, error);
}
