/* ordering.c: the choices of a context about its nics. How payloads may reach memory: relaxed ordering of PCIe, and adaptive routing of
 * the fabric (docs/design.md, "What may be late"). And whether connections negotiate ECE ("What both devices add"). */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "private/context.h"

#define ADAPTIVE_ROUTING_BYTES_DEFAULT 8192u

/* As driver_of_environment: for programs that do not say it themselves. */
static int32_t choice_of_environment(const char *name, uint32_t *choice, crpc_error *error)
{
    static const char *const words[] = {
        [CRPC_CHOICE_AUTO] = "auto", [CRPC_CHOICE_ON] = "on", [CRPC_CHOICE_OFF] = "off"};
    const char *wanted = getenv(name);
    if (*choice != CRPC_CHOICE_AUTO || !wanted) {
        return CRPC_OK;
    }
    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(wanted, words[i]) == 0) {
            *choice = i;
            return CRPC_OK;
        }
    }
    return error_set(error, CRPC_E_INVALID, 0, "%s=%.32s is none of auto, on and off", name,
                     wanted);
}

int32_t ordering_choose(crpc_context_options *options, crpc_error *error)
{
    if (options->relaxed_ordering > CRPC_CHOICE_OFF ||
        options->adaptive_routing > CRPC_CHOICE_OFF || options->ece > CRPC_CHOICE_OFF) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "relaxed_ordering %u, adaptive_routing %u and ece %u must be CRPC_CHOICE_*",
            options->relaxed_ordering, options->adaptive_routing, options->ece);
    }
    if (options->adaptive_routing_bytes == 0) {
        options->adaptive_routing_bytes = ADAPTIVE_ROUTING_BYTES_DEFAULT;
    }
    int32_t status =
        choice_of_environment("COPYRPC_RELAXED_ORDERING", &options->relaxed_ordering, error);
    if (status == CRPC_OK) {
        status = choice_of_environment("COPYRPC_ECE", &options->ece, error);
    }
    return status == CRPC_OK ? choice_of_environment("COPYRPC_ADAPTIVE_ROUTING",
                                                     &options->adaptive_routing, error)
                             : status;
}

/* A device without relaxed ordering ignores it, so nobody has to ask whether it has any. Ethernet fabrics that spread packets over
 * several ways are rare, and there the second WRITE would buy nothing. */
void ordering_apply(const crpc_context_options *options, struct nic *nic)
{
    const uint32_t routing = options->adaptive_routing;
    nic->relaxed = options->relaxed_ordering != CRPC_CHOICE_OFF;
    nic->ece = nic->rdma_cm && options->ece != CRPC_CHOICE_OFF;
    if (routing == CRPC_CHOICE_ON ||
        (routing == CRPC_CHOICE_AUTO && nic->link == CRPC_LINK_INFINIBAND)) {
        nic->straight_bytes = options->adaptive_routing_bytes;
    }
}
