/* show.c: the report for people; see show.h. */
#include "show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../common/text.h"

static void show_drivers(const crpc_device_info *info)
{
    printf("  drivers  ");
    for (uint32_t driver = CRPC_DRIVER_VERBS; driver <= CRPC_DRIVER_MLX5; driver++) {
        if (info->drivers & 1u << driver) {
            printf("%s ", text_of_driver(driver));
        }
    }
    printf("\n");
}

static void show_choice(const struct choice *choice)
{
    if (!choice->made) {
        return;
    }
    const crpc_context_info *context = &choice->context;
    printf("  chosen   driver %s: %s\n", text_of_driver(context->driver), choice->driver_why);
    printf("           GID %u: %s\n", context->gid_index, choice->gid_why);
    if (context->partition_key) {
        printf("           P_Key 0x%04x: %s\n", context->partition_key, choice->partition_key_why);
    }
    printf("           BlueFlame %s; traffic class %u, service level %u\n",
           context->features & CRPC_FEATURE_BLUEFLAME ? "in use" : "not in use",
           context->traffic_class, context->service_level);
}

static void show_pcie(const struct card *card)
{
    char now[64], most[64];
    if (card->pci_address[0] == '\0') {
        printf("  PCIe     not known, or not on PCI\n");
        return;
    }
    printf("  PCIe     %s, ", card->pci_address);
    if (pcie_link_mbps(&card->link) == 0) {
        printf("link not known");
    } else if (pcie_link_mbps(&card->most) == 0) {
        printf("%s", advice_link_text(&card->link, now, sizeof(now)));
    } else {
        printf("%s of %s", advice_link_text(&card->link, now, sizeof(now)),
               advice_link_text(&card->most, most, sizeof(most)));
    }
    static const char *const ordering[] = {
        [CARD_UNKNOWN] = "not known", [CARD_YES] = "allowed", [CARD_NO] = "not allowed"};
    printf("; relaxed ordering %s\n", ordering[card->relaxed_ordering]);
}

static void show_node(const struct card *card)
{
    static const char *const near[] = {
        [CARD_NEAR_UNKNOWN] = "not known whether this process is there",
        [CARD_NEAR_NONE] = "this process may use none of them",
        [CARD_NEAR_SOME] = "this process may run elsewhere, too",
        [CARD_NEAR_ALL] = "this process runs there",
    };
    if (card->numa_node == CARD_NODE_UNKNOWN) {
        printf("  NUMA     node not known, or there is one only");
    } else {
        printf("  NUMA     node %d", card->numa_node);
    }
    if (card->processors[0]) {
        printf(", processors %s: %s", card->processors, near[card->near]);
    }
    printf("\n");
}

static void show_interfaces(const struct card *card)
{
    printf("  network  ");
    for (uint32_t i = 0; i < card->interface_count; i++) {
        printf("%s%s, MTU ", i > 0 ? "; " : "", card->interfaces[i].name);
        if (card->interfaces[i].mtu_bytes) {
            printf("%u", card->interfaces[i].mtu_bytes);
        } else {
            printf("not known");
        }
    }
    printf("%s\n", card->interface_count == 0 ? "interface not known" : "");
}

static void show_left_out(const struct left_out *found)
{
    char text[LEFT_OUT_TEXT_BYTES];
    if (found->features) {
        printf("  left out %s: copyrpc-check found it to fail; delete %s to use it\n",
               left_out_text(found->features, text), found->path);
    } else if (found->ignored[0]) {
        printf("  left out nothing: %s\n", found->ignored);
    }
}

static void show_port(const struct report_port *of)
{
    const crpc_device_info *info = &of->info;
    printf("%s port %u: %s, %s, MTU %u", info->name, info->port, report_link_name(info),
           report_state_name(info), info->mtu_bytes);
    printf(of->port.mtu_bytes_max > info->mtu_bytes ? " of %u\n" : "\n", of->port.mtu_bytes_max);
    show_drivers(info);
    show_choice(&of->choice);
    printf("  limits   %u endpoints, %u receives a context, %u completion vectors\n",
           info->endpoints_max, info->receive_depth_max, info->completion_vectors);
    if (info->link_mbps) {
        printf("  speed    %g Gbit/s\n", info->link_mbps / 1000.0);
    }
    if (info->system_image_guid) {
        printf("  card     %016" PRIx64 "\n", info->system_image_guid);
    }
    printf("  firmware %s\n", of->card.firmware[0] ? of->card.firmware : "not known");
    show_pcie(&of->card);
    show_node(&of->card);
    show_interfaces(&of->card);
    if (info->partition_key) {
        printf("  P_Key    0x%04x  (default)%s\n", info->partition_key,
               info->flags & CRPC_GRH_REQUIRED ? "; GRH required" : "");
    }
    if (of->port.ece_options) {
        printf("  ECE      options 0x%08x\n", of->port.ece_options);
    }
    show_left_out(&of->left_out);
    for (uint32_t i = 0; i < of->port.gid_count; i++) {
        const struct gid_entry *gid = &of->port.gids[i];
        printf("  GID %-4u %s %s%s\n", gid->index, gid->type, gid->text,
               gid->index == info->gid_index ? "  (default)" : "");
    }
}

const char *show_rail_why(uint32_t index)
{
    return index == 0
               ? "the first active port that a driver can open"
               : "the first active port of another card with rail 0's kind of link and driver";
}

static void show_rails(const struct rails *rails)
{
    printf("rails of channels, unless others are named:\n");
    for (uint32_t i = 0; i < rails->count; i++) {
        const crpc_rail_info *rail = &rails->rails[i];
        printf("  rail %u   %s port %u, %s, buffers up to %" PRIu64 " bytes: %s\n", i, rail->device,
               rail->port, text_of_driver(rail->driver), rail->message_bytes_max, show_rail_why(i));
    }
    if (rails->count == 0) {
        printf("  none     %s\n", rails->error.message);
    } else if (rails->count == 1) {
        printf("  rail 1   none: no other card has an active port with the same link\n");
    }
    for (uint32_t i = 0; i < rails->left_out_count; i++) {
        const struct port_left_out *port = &rails->left_out[i];
        printf("  not used %s port %u: %s\n", port->device, port->port, port->why);
    }
}

static void show_machine(const struct machine *machine)
{
    printf("processor: %s%s\n", machine->processor[0] ? machine->processor : "not known",
           machine->epyc ? ", which relaxed ordering suits" : "");
    printf("relaxed ordering of payloads: %s\n", machine->relaxed_ordering_off
                                                     ? "off, by COPYRPC_RELAXED_ORDERING"
                                                     : "on, where a device has it");
    if (machine->memlock_bytes == UINT64_MAX) {
        printf("memory that may be registered (ulimit -l): unlimited\n");
    } else {
        printf("memory that may be registered (ulimit -l): %" PRIu64 " KiB%s\n",
               machine->memlock_bytes / 1024,
               machine->may_lock ? ", but not for this process, which has CAP_IPC_LOCK" : "");
    }
    printf("huge pages: not needed\n");
}

static void show_advice(const struct advice_list *list, enum advice_kind kind, const char *title)
{
    bool any = false;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct advice *advice = &list->advices[i];
        if (advice->kind != kind) {
            continue;
        }
        printf("%s", any ? "" : title);
        any = true;
        if (advice->device) {
            printf("  %s port %u: %s\n", advice->device, advice->port, advice->what);
        } else {
            printf("  %s\n", advice->what);
        }
        printf("    do: %s\n", advice->action);
    }
}

void show_text(const struct report *report, const struct advice_list *advice)
{
    for (uint32_t i = 0; i < report->port_count; i++) {
        show_port(&report->ports[i]);
    }
    if (report->port_count > 0) {
        show_rails(&report->rails);
        show_machine(&report->machine);
        show_advice(advice, ADVICE_WARNING, "warnings:\n");
        show_advice(advice, ADVICE_NOTE, "for you to look at:\n");
    }
}
