/* hello.c: see hello.h. Everything that is checked here comes from the peer. */
#include "link/hello.h"
#include "link/prove.h"

#include <string.h>

#include "base/error.h"

#define ROUTE_FEATURES (LINK_FEATURE_ROUTE_HEADERS | LINK_FEATURE_GRH)

static const char *name_of_service(uint32_t number)
{
    switch (number) {
    case LINK_SERVICE_CALLS:
        return "calls";
    case LINK_SERVICE_CHANNEL:
        return "channels";
    case LINK_SERVICE_QUEUE:
        return "queues";
    default:
        return "something that this library does not know";
    }
}

void hello_fill(const struct link *link, struct link_hello *hello)
{
    const struct link_service *service = link->group->service;
    const uint16_t dynamic = link->group->dynamic ? LINK_FEATURE_DYNAMIC : 0;
    *hello = (struct link_hello){
        .magic = LINK_MAGIC,
        .version_min = service->version_min,
        .version_max = service->version_max,
        .service = service->number,
        .features = (uint16_t)(service->features & ~link->options.features_left_out),
        .nonce = link->nonce};
    if (link->passive) {
        hello->version_min = hello->version_max = (uint8_t)link->peer.version;
        hello->features = (uint16_t)link->peer.features;
    } else {
        hello->token_bytes = (uint8_t)link->options.token_bytes;
        memcpy(hello->token, link->options.token, link->options.token_bytes);
    }
    hello->features |= dynamic;
    if (!link->passive || link->peer.hello.features & LINK_FEATURE_ROUTE_HEADERS) {
        hello->features |= link->group->route_features;
    }
    if (link->group->ece && (!link->passive || link->peer.hello.features & LINK_FEATURE_ECE)) {
        hello->features |= LINK_FEATURE_ECE;
    }
    hello->features_required = link->passive ? 0 : dynamic;
    if (link->proof) {
        hello->features |= LINK_FEATURE_PROOF;
        hello->features_required |= link->passive ? 0 : LINK_FEATURE_PROOF;
        link_prove_fill_body(link, hello->body);
    } else {
        service->fill_body(link, hello->body);
    }
}

void hello_fill_reject(const struct link_service *service, struct link_reject *reject,
                       uint16_t reason, uint32_t detail)
{
    *reject = (struct link_reject){.magic = LINK_MAGIC,
                                   .version_min = service->version_min,
                                   .version_max = service->version_max,
                                   .reason = reason,
                                   .detail = detail};
}

/* ---- Checks ---------------------------------------------------------------------------------- */

/* Copies what came, and checks the bytes that never change. */
static int32_t read_hello(const void *data, size_t bytes, struct link_hello *hello,
                          crpc_error *error)
{
    memset(hello, 0, sizeof(*hello));
    memcpy(hello, data, bytes < sizeof(*hello) ? bytes : sizeof(*hello));
    if (bytes <= offsetof(struct link_hello, service) || hello->magic != LINK_MAGIC) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the peer does not speak copyrpc (%zu bytes of private data); check the "
                         "address and port",
                         bytes);
    }
    return CRPC_OK;
}

static int32_t check_service(const struct link_service *service, const struct link_hello *hello,
                             crpc_error *error)
{
    if (hello->service == service->number) {
        return CRPC_OK;
    }
    return error_set(error, CRPC_E_PROTOCOL, 0, "the peer wants %s, and this side %s",
                     name_of_service(hello->service), name_of_service(service->number));
}

/* What both directions check alike. */
static int32_t check_rest(const struct link_service *service, const struct link_hello *hello,
                          size_t bytes, crpc_error *error)
{
    const char *fault = NULL;
    if (bytes < sizeof(*hello)) {
        fault = "it is too short";
    } else if (hello->token_bytes > LINK_TOKEN_BYTES) {
        fault = "its token is too long";
    } else if (hello->features & LINK_FEATURE_PROOF) {
        fault = link_prove_body_fault(hello->body);
    } else {
        fault = service->body_fault(hello->body);
    }
    return fault ? error_set(error, CRPC_E_PROTOCOL, 0, "the peer's hello is malformed: %s", fault)
                 : CRPC_OK;
}

static void take(struct link_peer *peer, const struct link_hello *hello, uint32_t version,
                 uint32_t features)
{
    *peer = (struct link_peer){.hello = *hello,
                               .proves = hello->features & LINK_FEATURE_PROOF,
                               .nonce = hello->nonce,
                               .version = version,
                               .features = features,
                               .grh_required = hello->features & LINK_FEATURE_GRH,
                               .token_bytes = hello->token_bytes};
    memcpy(peer->token, hello->token, hello->token_bytes);
    memcpy(peer->body, hello->body, sizeof(peer->body));
}

/* One side has initiators: this one, or the peer. */
static int32_t transports_differ(bool ours, crpc_error *error)
{
    return error_set(
        error, CRPC_E_VERSION, 0,
        "%s: with them endpoints connect by DC, and without by RC; set `initiators` of "
        "crpc_context_options on both sides or on neither",
        ours ? "this context has initiators, and the peer's has none"
             : "the peer's context has initiators, and this one has none");
}

/* `features` are those that a request requires, or a response selects. */
static bool same_transport(const struct link_group *group, uint16_t features)
{
    return group->dynamic == ((features & LINK_FEATURE_DYNAMIC) != 0);
}

int32_t hello_check_request(const struct link_group *group, const void *data, size_t bytes,
                            struct link_peer *peer, struct link_reject *reject, crpc_error *error)
{
    const struct link_service *service = group->service;
    struct link_hello hello;
    hello_fill_reject(service, reject, LINK_REJECT_MALFORMED, 0);
    int32_t status = read_hello(data, bytes, &hello, error);
    if (status != CRPC_OK) {
        return status;
    }
    status = check_service(service, &hello, error);
    if (status != CRPC_OK) {
        hello_fill_reject(service, reject, LINK_REJECT_SERVICE, service->number);
        return status;
    }
    if (hello.version_min > service->version_max || hello.version_max < service->version_min ||
        hello.version_min > hello.version_max) {
        hello_fill_reject(service, reject, LINK_REJECT_VERSION, 0);
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer speaks versions %u to %u of the protocol of %s, this library %u "
                         "to %u",
                         hello.version_min, hello.version_max, name_of_service(service->number),
                         service->version_min, service->version_max);
    }
    status = check_rest(service, &hello, bytes, error);
    if (status != CRPC_OK) {
        return status;
    }
    if ((hello.features ^ hello.features_required) & LINK_FEATURE_PROOF) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the peer's hello is malformed: it offers a key and does not ask for one, "
                         "or the reverse");
    }
    if (!same_transport(group, hello.features_required)) {
        hello_fill_reject(service, reject, LINK_REJECT_TRANSPORT, group->dynamic);
        return transports_differ(group->dynamic, error);
    }
    uint32_t unknown =
        hello.features_required & ~(service->features | LINK_FEATURE_PROOF | LINK_FEATURE_DYNAMIC);
    if (unknown) {
        hello_fill_reject(service, reject, LINK_REJECT_FEATURES, unknown);
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer requires features 0x%x that this library does not have",
                         unknown);
    }
    take(peer, &hello, (uint32_t)minimum(hello.version_max, service->version_max),
         hello.features & service->features);
    return CRPC_OK;
}

int32_t hello_check_response(const struct link_group *group, const void *data, size_t bytes,
                             struct link_peer *peer, crpc_error *error)
{
    const struct link_service *service = group->service;
    struct link_hello hello;
    int32_t status = read_hello(data, bytes, &hello, error);
    if (status == CRPC_OK) {
        status = check_service(service, &hello, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    if (hello.version_min != hello.version_max || hello.version_max < service->version_min ||
        hello.version_max > service->version_max) {
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer chose version %u of the protocol, which was not offered",
                         hello.version_max);
    }
    status = check_rest(service, &hello, bytes, error);
    const uint32_t known = service->features | LINK_FEATURE_PROOF | LINK_FEATURE_DYNAMIC |
                           (group->route_features ? ROUTE_FEATURES : 0) |
                           (group->ece ? LINK_FEATURE_ECE : 0);
    if (status == CRPC_OK && !same_transport(group, hello.features)) {
        status = transports_differ(group->dynamic, error);
    } else if (status == CRPC_OK && (hello.features & ~known)) {
        status = error_set(error, CRPC_E_PROTOCOL, 0,
                           "the peer's hello is malformed: it selects features that were not "
                           "offered");
    } else if (status == CRPC_OK && (hello.token_bytes != 0 || hello.features_required != 0)) {
        status = error_set(error, CRPC_E_PROTOCOL, 0,
                           "the peer's hello is malformed: an answer has no token, and requires "
                           "nothing");
    }
    if (status == CRPC_OK) {
        take(peer, &hello, hello.version_max, hello.features & service->features);
    }
    return status;
}

/* ---- Rejections ------------------------------------------------------------------------------ */

int32_t hello_explain_reject(const struct link_service *service, const void *data, size_t bytes,
                             crpc_error *error)
{
    struct link_reject reject = {0};
    memcpy(&reject, data, bytes < sizeof(reject) ? bytes : sizeof(reject));
    if (bytes < sizeof(reject) || reject.magic != LINK_MAGIC) {
        return error_set(error, CRPC_E_REFUSED, 0,
                         "the peer refused the connection; is its program running and listening on "
                         "this port?");
    }
    switch (reject.reason) {
    case LINK_REJECT_APPLICATION:
        return error_set(error, CRPC_E_REFUSED, 0,
                         "the peer's application refused the connection, reason %u", reject.detail);
    case LINK_REJECT_VERSION:
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer speaks versions %u to %u of the protocol of %s, this library %u "
                         "to %u; update the older side",
                         reject.version_min, reject.version_max, name_of_service(service->number),
                         service->version_min, service->version_max);
    case LINK_REJECT_FEATURES:
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer does not have the required features 0x%x", reject.detail);
    case LINK_REJECT_NO_ROOM:
        return error_set(error, CRPC_E_REFUSED, 0,
                         "the peer has no room for another connection; raise its %s",
                         service->no_room);
    case LINK_REJECT_TRANSPORT:
        return transports_differ(reject.detail == 0, error);
    case LINK_REJECT_KEY:
        return link_prove_missing(reject.detail == 0, error);
    case LINK_REJECT_SERVICE:
        return error_set(error, CRPC_E_REFUSED, 0,
                         "the peer's listener on this port is for %s, not for %s; is its flag "
                         "CRPC_LISTENER_CHANNELS as it should be?",
                         name_of_service(reject.detail), name_of_service(service->number));
    default:
        return error_set(error, CRPC_E_PROTOCOL, 0, "the peer could not read our hello (reason %u)",
                         reject.reason);
    }
}
