/* json.c: the report for programs; see show.h. What is not known is null. */
#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>

#include "../common/text.h"
#include "../common/version.h"
#include "show.h"

static json_t *text_or_null(const char *text)
{
    return text && text[0] ? json_string(text) : json_null();
}

static json_t *number_or_null(uint64_t number)
{
    return number ? json_integer((json_int_t)number) : json_null();
}

static json_t *drivers_of(const crpc_device_info *info)
{
    json_t *drivers = json_array();
    for (uint32_t driver = CRPC_DRIVER_VERBS; driver <= CRPC_DRIVER_MLX5; driver++) {
        if (info->drivers & 1u << driver) {
            json_array_append_new(drivers, json_string(text_of_driver(driver)));
        }
    }
    return drivers;
}

static json_t *gids_of(const struct report_port *of)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < of->port.gid_count; i++) {
        const struct gid_entry *gid = &of->port.gids[i];
        json_array_append_new(array, json_pack("{s:i, s:s, s:s, s:b}", "index", (int)gid->index,
                                               "type", gid->type, "gid", gid->text, "default",
                                               gid->index == of->info.gid_index));
    }
    return array;
}

/* Text, since not every reader of JSON has integers of 64 bits. */
static json_t *guid_of(const crpc_device_info *info)
{
    return info->system_image_guid ? json_sprintf("%016" PRIx64, info->system_image_guid)
                                   : json_null();
}

/* null: nothing is left out. */
static json_t *left_out_of(const struct left_out *found)
{
    char text[LEFT_OUT_TEXT_BYTES];
    return found->features ? json_pack("{s:s, s:s}", "what", left_out_text(found->features, text),
                                       "file", found->path)
                           : json_null();
}

static json_t *link_of(const struct pcie_link *link)
{
    uint32_t mbps = pcie_link_mbps(link);
    return mbps ? json_pack("{s:f, s:i, s:i}", "gigatransfers_per_s",
                            link->megatransfers_per_s / 1000.0, "lanes", (int)link->lanes, "mbps",
                            (int)mbps)
                : json_null();
}

static json_t *pcie_of(const struct card *card)
{
    json_t *ordering = card->relaxed_ordering == CARD_UNKNOWN
                           ? json_null()
                           : json_boolean(card->relaxed_ordering == CARD_YES);
    if (card->pci_address[0] == '\0') {
        json_decref(ordering);
        return json_null();
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "address", card->pci_address, "link",
                     link_of(&card->link), "link_max", link_of(&card->most), "slot_max",
                     link_of(&card->slot), "relaxed_ordering", ordering);
}

static json_t *interfaces_of(const struct card *card)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < card->interface_count; i++) {
        const struct card_interface *interface = &card->interfaces[i];
        json_array_append_new(array, json_pack("{s:s, s:o}", "name", interface->name, "mtu_bytes",
                                               number_or_null(interface->mtu_bytes)));
    }
    return array;
}

static json_t *choice_of(const struct choice *choice)
{
    const crpc_context_info *context = &choice->context;
    if (!choice->made) {
        return json_null();
    }
    return json_pack("{s:s, s:s, s:i, s:s, s:o, s:s, s:b, s:i, s:i}", "driver",
                     text_of_driver(context->driver), "driver_why", choice->driver_why, "gid_index",
                     (int)context->gid_index, "gid_why", choice->gid_why, "partition_key",
                     number_or_null(context->partition_key), "partition_key_why",
                     choice->partition_key_why, "blueflame",
                     (context->features & CRPC_FEATURE_BLUEFLAME) != 0, "traffic_class",
                     (int)context->traffic_class, "service_level", (int)context->service_level);
}

static json_t *port_of(const struct report_port *of)
{
    static const char *const near[] = {[CARD_NEAR_UNKNOWN] = NULL,
                                       [CARD_NEAR_NONE] = "none",
                                       [CARD_NEAR_SOME] = "some",
                                       [CARD_NEAR_ALL] = "all"};
    const crpc_device_info *info = &of->info;
    const struct card *card = &of->card;
    json_t *node =
        card->numa_node == CARD_NODE_UNKNOWN ? json_null() : json_integer(card->numa_node);
    json_t *port = json_pack(
        "{s:s, s:i, s:s, s:s, s:i, s:o, s:i, s:i, s:i, s:i, s:o, s:i, s:o, s:i, s:b, s:i, s:o}",
        "device", info->name, "port", (int)info->port, "link", report_link_name(info), "state",
        report_state_name(info), "mtu_bytes", (int)info->mtu_bytes, "drivers", drivers_of(info),
        "endpoints_max", (int)info->endpoints_max, "receive_depth_max",
        (int)info->receive_depth_max, "vendor_id", (int)info->vendor_id, "vendor_part_id",
        (int)info->vendor_part_id, "gids", gids_of(of), "link_mbps", (int)info->link_mbps,
        "system_image_guid", guid_of(info), "partition_key", (int)info->partition_key,
        "grh_required", (info->flags & CRPC_GRH_REQUIRED) != 0, "completion_vectors",
        (int)info->completion_vectors, "left_out", left_out_of(&of->left_out));
    json_object_set_new(port, "ece_options", json_integer(of->port.ece_options));
    json_object_update_new(port, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                                           "mtu_bytes_max", number_or_null(of->port.mtu_bytes_max),
                                           "firmware", text_or_null(card->firmware), "pcie",
                                           pcie_of(card), "numa_node", node, "processors",
                                           text_or_null(card->processors), "processors_usable",
                                           text_or_null(near[card->near]), "interfaces",
                                           interfaces_of(card), "chosen", choice_of(&of->choice)));
    return port;
}

static json_t *rails_of(const struct rails *rails)
{
    json_t *used = json_array(), *left_out = json_array();
    for (uint32_t i = 0; i < rails->count; i++) {
        const crpc_rail_info *rail = &rails->rails[i];
        json_array_append_new(used,
                              json_pack("{s:s, s:i, s:s, s:I, s:s}", "device", rail->device, "port",
                                        (int)rail->port, "driver", text_of_driver(rail->driver),
                                        "message_bytes_max", (json_int_t)rail->message_bytes_max,
                                        "why", show_rail_why(i)));
    }
    for (uint32_t i = 0; i < rails->left_out_count; i++) {
        const struct port_left_out *port = &rails->left_out[i];
        json_array_append_new(left_out, json_pack("{s:s, s:i, s:s}", "device", port->device, "port",
                                                  (int)port->port, "why", port->why));
    }
    return json_pack("{s:o, s:o, s:o}", "used", used, "left_out", left_out, "error",
                     rails->count > 0 ? json_null() : json_string(rails->error.message));
}

static json_t *advice_of(const struct advice_list *list, enum advice_kind kind)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < list->count; i++) {
        const struct advice *advice = &list->advices[i];
        if (advice->kind == kind) {
            json_array_append_new(
                array, json_pack("{s:s, s:o, s:o, s:s, s:s}", "code", advice->code, "device",
                                 text_or_null(advice->device), "port", number_or_null(advice->port),
                                 "what", advice->what, "do", advice->action));
        }
    }
    return array;
}

void show_json(const struct report *report, const struct advice_list *advice)
{
    char version[32];
    const struct machine *machine = &report->machine;
    json_t *ports = json_array();
    for (uint32_t i = 0; i < report->port_count; i++) {
        json_array_append_new(ports, port_of(&report->ports[i]));
    }
    json_t *root = json_pack(
        "{s:i, s:s, s:o, s:b, s:o, s:o, s:b, s:o, s:o, s:o, s:o}", "format", SHOW_JSON_FORMAT,
        "version", version_text(version, sizeof(version)), "memlock_bytes",
        machine->memlock_bytes == UINT64_MAX ? json_null()
                                             : json_integer((json_int_t)machine->memlock_bytes),
        "memlock_exempt", machine->may_lock, "processor", text_or_null(machine->processor), "epyc",
        text_or_null(machine->epyc), "relaxed_ordering", !machine->relaxed_ordering_off, "devices",
        ports, "rails", rails_of(&report->rails), "warnings", advice_of(advice, ADVICE_WARNING),
        "notes", advice_of(advice, ADVICE_NOTE));
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}
