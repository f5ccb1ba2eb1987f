/* fuzz_hellos.c: hellos and rejections of any bytes, by themselves: as private data of rdma_cm's
 * requests, responses and rejections, for both services. What is taken is what docs/wire.md allows,
 * and what is not is refused with a reason.
 *
 * It is for libFuzzer (./dev fuzz hellos), or a test with fuzz_main.c.
 */
#include "link/hello.h"

#include "base/error.h"
#include "fuzz.h"
#include "link/prove.h"

extern const struct link_service rpc_service, channel_service;

/* Bodies that each service takes. */
static const uint8_t bodies[2][LINK_BODY_BYTES] = {
    {[0] = 0x40, [1] = 0x10, [16] = 64, [20] = 8, [22] = 12, [23] = 4},
    {[0] = 0x40, [1] = 0x10, [12] = 3, [13] = 1, [14] = 3},
};

static void check_error(const crpc_error *error, int32_t status)
{
    fuzz_check(status == CRPC_E_PROTOCOL || status == CRPC_E_VERSION || status == CRPC_E_REFUSED ||
                   status == CRPC_E_KEY,
               "refused with status %d", status);
    size_t length = strnlen(error->message, sizeof(error->message));
    fuzz_check(error->status == status && length > 10 && length < sizeof(error->message),
               "refused without a word");
}

/* What was taken of `hello`. */
static void check_peer(const struct link_group *group, const struct link_hello *hello, size_t bytes,
                       bool response, const struct link_peer *peer)
{
    const struct link_service *service = group->service;
    const uint32_t of_links = LINK_FEATURE_PROOF | LINK_FEATURE_DYNAMIC;
    fuzz_check(bytes >= sizeof(*hello) && hello->magic == LINK_MAGIC &&
                   hello->service == service->number,
               "a hello that is none was taken");
    fuzz_check(peer->version >= service->version_min && peer->version <= service->version_max &&
                   peer->version >= hello->version_min && peer->version <= hello->version_max,
               "version %u of %u to %u was chosen", peer->version, hello->version_min,
               hello->version_max);
    fuzz_check((peer->features & ~(uint32_t)(service->features & hello->features)) == 0 &&
                   (hello->features_required & ~(service->features | of_links)) == 0,
               "features 0x%x were chosen", peer->features);
    fuzz_check(peer->token_bytes <= LINK_TOKEN_BYTES && peer->token_bytes == hello->token_bytes &&
                   memcmp(peer->token, hello->token, peer->token_bytes) == 0,
               "the token is another");
    fuzz_check(
        peer->nonce == hello->nonce && memcmp(peer->body, hello->body, sizeof(peer->body)) == 0 &&
            (peer->proves ? !link_prove_body_fault(peer->body) : !service->body_fault(peer->body)),
        "the body is another, or malformed");
    fuzz_check(peer->proves == ((hello->features & LINK_FEATURE_PROOF) != 0),
               "a key was taken, or not");
    const uint16_t routes = LINK_FEATURE_ROUTE_HEADERS | LINK_FEATURE_GRH;
    fuzz_check(peer->grh_required == ((hello->features & LINK_FEATURE_GRH) != 0) &&
                   (!response || group->route_features || !(hello->features & routes)),
               "a GRH is required, or not");
    fuzz_check(!response || group->ece || !(hello->features & LINK_FEATURE_ECE),
               "ECE was selected, and not offered");
    const uint16_t said = response ? hello->features : hello->features_required;
    fuzz_check(group->dynamic == ((said & LINK_FEATURE_DYNAMIC) != 0),
               "one of another transport was taken");
}

static void try_hello(const struct link_group *group, const uint8_t *data, size_t bytes,
                      bool response)
{
    struct link_peer peer, untouched;
    struct link_reject reject;
    struct link_hello hello = {0};
    crpc_error error = {0}, theirs = {0};
    memset(&untouched, 0xaa, sizeof(untouched));
    peer = untouched;
    memcpy(&hello, data, bytes < sizeof(hello) ? bytes : sizeof(hello));
    int32_t status = response ? hello_check_response(group, data, bytes, &peer, &error)
                              : hello_check_request(group, data, bytes, &peer, &reject, &error);
    if (status == CRPC_OK) {
        check_peer(group, &hello, bytes, response, &peer);
        fuzz_check(!response || hello.version_min == hello.version_max,
                   "a response with a choice of versions was taken");
        return;
    }
    check_error(&error, status);
    fuzz_check(memcmp(&peer, &untouched, sizeof(peer)) == 0, "something was taken all the same");
    if (!response) { /* the peer can read why */
        check_error(&theirs,
                    hello_explain_reject(group->service, &reject, sizeof(reject), &theirs));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t good[256];
    struct fuzz_input input = {data, size};
    uint8_t choice = fuzz_byte(&input);
    const struct link_service *service = choice & 1 ? &channel_service : &rpc_service;
    const bool dynamic = !(choice & 1) && fuzz_below(&input, 4) == 0; /* of calls alone */
    const uint8_t *bytes = input.next;
    size_t count = input.left;
    if (choice & 8) { /* a good one, in which bytes change */
        struct link_hello hello = {.magic = LINK_MAGIC,
                                   .version_min = service->version_min,
                                   .version_max = service->version_max,
                                   .service = service->number};
        memcpy(hello.body, bodies[choice & 1], sizeof(hello.body));
        hello.features = dynamic ? LINK_FEATURE_DYNAMIC : 0;
        hello.features_required = dynamic && !(choice & 2) ? LINK_FEATURE_DYNAMIC : 0;
        if (fuzz_below(&input, 4) == 0) { /* of a side with a key */
            const struct link_proof_body words = {.address = 0x4000, .queue_pair_number = 7};
            hello.features |= LINK_FEATURE_PROOF;
            hello.features_required |= choice & 2 ? 0 : LINK_FEATURE_PROOF;
            memcpy(hello.body, &words, sizeof(words));
        }
        memcpy(good, &hello, sizeof(hello));
        while (input.left >= 2) {
            uint8_t place = fuzz_byte(&input);
            good[place % sizeof(hello)] = fuzz_byte(&input);
        }
        bytes = good; /* rdma_cm adds zeros, and others may leave out its end */
        count = choice & 16 ? choice & 128 ? sizeof(hello) - (choice >> 5 & 3) * 7u : sizeof(good)
                            : sizeof(hello);
    }
    if (choice & 4) {
        crpc_error error = {0};
        check_error(&error, hello_explain_reject(service, bytes, count, &error));
    } else {
        const struct link_group group = {
            .service = service,
            .dynamic = dynamic,
            .ece = size & 1,
            .route_features = choice & 64 ? LINK_FEATURE_ROUTE_HEADERS | LINK_FEATURE_GRH : 0};
        try_hello(&group, bytes, count, choice & 2);
    }
    return 0;
}
