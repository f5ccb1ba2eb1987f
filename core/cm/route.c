/* route.c: from a name to a route that leads to this nic: the addresses are tried in the order in
 * which the resolver gives them, each with an rdma_cm_id of its own. Where the route leads through another NIC
 * in the same subnet, the address is tried once more, from the nic's own address. The route to the next address is taken
 * also when nobody answers at the one before. Runs in the cm thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cm/internal.h"

bool cm_same_port(const struct cm *cm, const struct rdma_cm_id *id)
{
    return id->verbs && id->port_num == cm->nic->port &&
           strcmp(ibv_get_device_name(id->verbs->device), cm->nic->device) == 0;
}

/* Of several addresses that failed, one that refuses tells the most, and then one behind another device. */
static int worth_telling(const crpc_error *error)
{
    return error->status == CRPC_E_REFUSED ? 2 : error->status == CRPC_E_NO_DEVICE;
}

static void note_error(struct cm_identifier *identifier, const crpc_error *error)
{
    if (worth_telling(error) >= worth_telling(&identifier->search->best_error)) {
        identifier->search->best_error = *error;
    }
}

/* "10.99.0.1:7471", and for a name "rail0:7471 (10.99.0.1:7471)". */
static void note_address(struct cm_identifier *identifier, const struct sockaddr *address)
{
    char text[ADDRESS_TEXT_BYTES];
    address_format(address, text, sizeof(text));
    if (strcmp(text, identifier->target) == 0) {
        snprintf(identifier->search->trying, sizeof(identifier->search->trying), "%s", text);
    } else {
        snprintf(identifier->search->trying, sizeof(identifier->search->trying), "%.100s (%s)",
                 identifier->target, text);
    }
}

/* The route is for it: on Ethernet, the priority follows from it, and on InfiniBand, the subnet manager may choose another service level. */
static int ask_for_traffic_class(const struct cm_identifier *identifier)
{
    uint8_t traffic_class = identifier->cm->nic->network.traffic_class;
    return traffic_class == 0 ? 0
                              : rdma_set_option(identifier->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
                                                &traffic_class, sizeof(traffic_class));
}

/* Starts with one address; false if that failed at once. source: NULL = any of the machine's. */
static bool try_address(struct cm_identifier *identifier, struct addrinfo *address,
                        struct sockaddr *source)
{
    struct cm *cm = identifier->cm;
    crpc_error error = {.struct_size = sizeof(error)};
    note_address(identifier, address->ai_addr);
    identifier->search->address = address;
    identifier->search->from_source = source != NULL;
    if (identifier->id) {
        rdma_destroy_id(identifier->id);
        identifier->id = NULL;
    }
    if (rdma_create_id(cm->channel, &identifier->id, identifier, RDMA_PS_TCP)) {
        identifier->id = NULL;
        error_set(&error, CRPC_E_SYSTEM, errno, "%s: rdma_create_id: %s",
                  identifier->search->trying, strerror(errno));
        note_error(identifier, &error);
        return false;
    }
    if (ask_for_traffic_class(identifier)) {
        error_set(&error, CRPC_E_SYSTEM, errno, "%s: rdma_cm refuses a traffic class: %s",
                  identifier->search->trying, strerror(errno));
        note_error(identifier, &error);
        return false;
    }
    if (rdma_resolve_addr(identifier->id, source, address->ai_addr, RESOLVE_TIMEOUT_MS)) {
        cm_resolve_error(identifier->search->trying, errno, &error);
        note_error(identifier, &error);
        return false;
    }
    return true;
}

static void fail(struct cm_identifier *identifier)
{
    cm_spare_event(identifier->cm, CM_EVENT_FAILED, identifier)->error =
        identifier->search->best_error;
    cm_queue_spare(identifier->cm, identifier);
}

static void take_lookup(struct cm_identifier *identifier)
{
    int result = cm_lookup_take(identifier, &identifier->search->addresses);
    identifier->search->next_address = identifier->search->addresses;
    if (result) {
        error_set(&identifier->search->best_error, CRPC_E_UNREACHABLE, 0,
                  "%.100s: cannot resolve this host name: %s", identifier->target,
                  gai_strerror(result));
    }
}

void cm_route_next(struct cm_identifier *identifier)
{
    if (identifier->search->lookup) {
        take_lookup(identifier);
    }
    while (identifier->search->next_address &&
           identifier->search->addresses_tried < ADDRESSES_TRIED_MAX) {
        struct addrinfo *address = identifier->search->next_address;
        identifier->search->next_address = address->ai_next;
        identifier->search->addresses_tried++;
        if (try_address(identifier, address, NULL)) {
            return;
        }
    }
    fail(identifier);
}

/* The system's choice among NICs in one subnet was another. */
static bool try_from_here(struct cm_identifier *identifier)
{
    struct sockaddr_storage source;
    return !identifier->search->from_source &&
           cm_source_for(identifier->cm->nic, identifier->search->address->ai_addr, &source) &&
           try_address(identifier, identifier->search->address, (struct sockaddr *)&source);
}

/* The address is known, and with it the device that leads there. */
static void resolve_route(struct cm_identifier *identifier)
{
    crpc_error error = {.struct_size = sizeof(error)};
    if (!cm_same_port(identifier->cm, identifier->id)) {
        cm_other_device_error(identifier->search->trying, identifier->cm->nic, identifier->id,
                              &error);
        note_error(identifier, &error);
        if (try_from_here(identifier)) {
            return;
        }
    } else if (rdma_resolve_route(identifier->id, RESOLVE_TIMEOUT_MS)) {
        cm_resolve_error(identifier->search->trying, errno, &error);
    } else {
        return;
    }
    note_error(identifier, &error);
    cm_route_next(identifier);
}

/* The first one that leads there is the owner's to ask; the owner has asked it before the others are. */
static void take_route(struct cm_identifier *identifier)
{
    crpc_error error = {.struct_size = sizeof(error)};
    cm_note_addresses(identifier);
    if (!identifier->search->requested) {
        cm_spare_event(identifier->cm, CM_EVENT_ROUTED, identifier);
        cm_queue_spare(identifier->cm, identifier);
    } else if (cm_request_send(identifier, &error) != CRPC_OK) {
        note_error(identifier, &error);
        cm_route_next(identifier);
    }
}

/* The answer may be here before the owner has left rdma_connect. */
static void wait_for_request(struct cm_identifier *identifier)
{
    struct cm *cm = identifier->cm;
    pthread_mutex_lock(&cm->mutex);
    while (identifier->requesting) {
        pthread_cond_wait(&cm->idle, &cm->mutex);
    }
    pthread_mutex_unlock(&cm->mutex);
}

bool cm_route_nobody_here(struct cm_identifier *identifier, const crpc_error *error)
{
    if (!identifier->search->addresses->ai_next) {
        return false;
    }
    wait_for_request(identifier);
    note_error(identifier, error);
    cm_route_next(identifier);
    return true;
}

void cm_route_event(struct cm_identifier *identifier, enum rdma_cm_event_type type, int status)
{
    crpc_error error = {.struct_size = sizeof(error)};
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        resolve_route(identifier);
        return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        take_route(identifier);
        return;
    default: /* ADDR_ERROR, ROUTE_ERROR */
        cm_resolve_error(identifier->search->trying, status < 0 ? -status : status, &error);
        note_error(identifier, &error);
        cm_route_next(identifier);
        return;
    }
}
