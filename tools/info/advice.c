/* advice.c: see advice.h. Each function below has one thing to say, or nothing; what is not known is no reason for any. */
#include "advice.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What an interface must carry for packets of 4096 bytes: with the headers of RoCE, and whatever extended ones the kernel reckons with. */
#define PACKET_BYTES_MOST 4096u
#define INTERFACE_MTU_NEEDED (PACKET_BYTES_MOST + 96u)
/* What simnic's devices take for a context by default, without rails and with two, and what a busy endpoint may grow to. */
#define MEMLOCK_NEEDED (128ull << 20)

static struct advice *add(struct advice_list *list, enum advice_kind kind, const char *code,
                          const struct report_port *of)
{
    static struct advice spare;
    struct advice *advice = list->count < ADVICE_MAX ? &list->advices[list->count++] : &spare;
    *advice = (struct advice){.kind = kind, .code = code};
    if (of) {
        advice->device = of->info.name;
        advice->port = of->info.port;
    }
    return advice;
}

__attribute__((format(printf, 2, 3))) static void say_what(struct advice *advice,
                                                           const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(advice->what, sizeof(advice->what), format, values);
    va_end(values);
}

__attribute__((format(printf, 2, 3))) static void say_action(struct advice *advice,
                                                             const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(advice->action, sizeof(advice->action), format, values);
    va_end(values);
}

const char *advice_link_text(const struct pcie_link *link, char *text, size_t bytes)
{
    snprintf(text, bytes, "%g GT/s x%u (%.0f Gbit/s)", link->megatransfers_per_s / 1000.0,
             link->lanes, pcie_link_mbps(link) / 1000.0);
    return text;
}

static const char *interface_of(const struct report_port *port)
{
    return port->card.interface_count > 0 ? port->card.interfaces[0].name : "NAME";
}

static void about_state(const struct report_port *port, struct advice_list *list)
{
    if (port->info.port_state == CRPC_PORT_ACTIVE) {
        return;
    }
    struct advice *advice = add(list, ADVICE_WARNING, "port-down", port);
    say_what(advice, "the port is down, so it is not used");
    if (port->info.link == CRPC_LINK_ETHERNET) {
        say_action(advice, "plug in the cable, and `ip link set dev %s up`", interface_of(port));
    } else {
        say_action(advice,
                   "plug in the cable, and see that a subnet manager runs: `ibstat %s` "
                   "tells whether the port waits for one (Initializing)",
                   port->info.name);
    }
}

static void about_context(const struct report_port *port, struct advice_list *list)
{
    if (port->info.port_state == CRPC_PORT_ACTIVE && !port->choice.made) {
        struct advice *advice = add(list, ADVICE_WARNING, "no-context", port);
        say_what(advice, "no context can be opened: %.*s", 280, port->choice.error.message);
        say_action(advice, "what the message says; docs/errors.md tells more");
    }
}

static void about_mtu(const struct report_port *port, struct advice_list *list)
{
    const struct card_interface *interface = &port->card.interfaces[0];
    const bool ethernet = port->info.link == CRPC_LINK_ETHERNET;
    if (ethernet && port->card.interface_count > 0 && interface->mtu_bytes > 0 &&
        interface->mtu_bytes < INTERFACE_MTU_NEEDED) {
        struct advice *advice = add(list, ADVICE_WARNING, "interface-mtu", port);
        say_what(
            advice,
            "the MTU of its interface %s is %u, too low for packets of %u bytes; the port's is "
            "%u",
            interface->name, interface->mtu_bytes, PACKET_BYTES_MOST, port->info.mtu_bytes);
        say_action(advice,
                   "`ip link set dev %s mtu 4200`, or 9000 where the network is set up for that; "
                   "switches and peers need as much",
                   interface->name);
        return;
    }
    if (port->info.mtu_bytes == 0 || port->info.mtu_bytes >= port->port.mtu_bytes_max) {
        return;
    }
    struct advice *advice = add(list, ADVICE_WARNING, "port-mtu", port);
    say_what(advice, "the port's MTU is %u, and it could have %u", port->info.mtu_bytes,
             port->port.mtu_bytes_max);
    if (ethernet) {
        say_action(advice, "raise the MTU of its network interface to 4200 or more: `rdma link "
                           "show` tells which that is");
    } else {
        say_action(advice,
                   "the subnet manager sets it: for opensm, `mtu=5` in the partition's line "
                   "of partitions.conf");
    }
}

static void about_pcie(const struct report_port *port, struct advice_list *list)
{
    const struct card *card = &port->card;
    const uint32_t now = pcie_link_mbps(&card->link), most = pcie_link_mbps(&card->most);
    const uint32_t slot = pcie_link_mbps(&card->slot);
    char now_text[64], most_text[64], slot_text[64];
    if (now == 0) {
        return;
    }
    advice_link_text(&card->link, now_text, sizeof(now_text));
    if (now < most) {
        struct advice *advice = add(list, ADVICE_WARNING, "pcie-link", port);
        say_what(advice, "its PCIe link runs at %s, and the card could have %s", now_text,
                 advice_link_text(&card->most, most_text, sizeof(most_text)));
        if (slot > 0 && slot <= now) {
            say_action(advice, "the slot has no more than %s: move the card to a faster one",
                       advice_link_text(&card->slot, slot_text, sizeof(slot_text)));
        } else {
            say_action(advice,
                       "reseat the card, and look for limits in the firmware of the "
                       "machine; `lspci -vv -s %s` (LnkSta) and the kernel's log tell more",
                       card->pci_address);
        }
    }
    if (now < port->info.link_mbps) {
        struct advice *advice = add(list, ADVICE_WARNING, "pcie-below-port", port);
        say_what(advice, "the port has %g Gbit/s, more than its PCIe link, which runs at %s",
                 port->info.link_mbps / 1000.0, now_text);
        say_action(advice, "a faster slot; otherwise expect what PCIe has, less some percent");
    }
}

static void about_node(const struct report_port *port, struct advice_list *list)
{
    const struct card *card = &port->card;
    if (card->near != CARD_NEAR_NONE) {
        return;
    }
    struct advice *advice = add(list, ADVICE_WARNING, "numa-node", port);
    say_what(advice,
             "none of the processors that this process may use is near the card; those "
             "that are: %.160s",
             card->processors);
    if (card->numa_node == CARD_NODE_UNKNOWN) {
        say_action(advice, "run programs there: `taskset -c %.160s COMMAND`", card->processors);
    } else {
        say_action(advice, "run programs there: `numactl --cpunodebind=%d --membind=%d COMMAND`",
                   card->numa_node, card->numa_node);
    }
}

static void about_ordering(const struct machine *machine, const struct report_port *port,
                           struct advice_list *list)
{
    const bool forbidden = port->card.relaxed_ordering == CARD_NO;
    if (!machine->epyc || (!machine->relaxed_ordering_off && !forbidden)) {
        return;
    }
    struct advice *advice = add(list, ADVICE_WARNING, "relaxed-ordering", port);
    say_what(
        advice,
        "relaxed ordering is off (%s), and this processor, an EPYC (%s), takes payloads faster "
        "with it",
        machine->relaxed_ordering_off ? "COPYRPC_RELAXED_ORDERING"
                                      : "in the card's PCIe configuration",
        machine->epyc);
    if (machine->relaxed_ordering_off) {
        say_action(advice, "unset COPYRPC_RELAXED_ORDERING, unless a program looks into buffers "
                           "before their completions");
    } else {
        say_action(advice,
                   "`setpci -s %s CAP_EXP+8.w=10:10` until the next start; look for it in "
                   "the firmware of the machine",
                   port->card.pci_address);
    }
}

static void about_left_out(const struct report_port *port, struct advice_list *list)
{
    char text[LEFT_OUT_TEXT_BYTES];
    if (port->left_out.features == 0) {
        return;
    }
    struct advice *advice = add(list, ADVICE_WARNING, "left-out", port);
    say_what(advice, "programs do without %s, because copyrpc-check found it to fail",
             left_out_text(port->left_out.features, text));
    say_action(advice,
               "run copyrpc-check again after an upgrade of firmware or system; delete "
               "%.220s to use it all the same",
               port->left_out.path);
}

/* DCB is told by netlink alone, and ECN by files of drivers that are not in Linux. */
static void about_lossless(const struct report_port *port, struct advice_list *list)
{
    if (port->info.link != CRPC_LINK_ETHERNET || port->info.port_state != CRPC_PORT_ACTIVE) {
        return;
    }
    struct advice *advice = add(list, ADVICE_NOTE, "lossless-unknown", port);
    say_what(advice,
             "whether there is a lossless class (PFC) or marking (ECN) for it is not known");
    say_action(advice,
               "`dcb pfc show dev %s` and `dcb app show dev %s`, or `mlnx_qos -i %s`; ask the "
               "operator for the traffic class. Contexts have %u: COPYRPC_TRAFFIC_CLASS",
               interface_of(port), interface_of(port), interface_of(port),
               port->choice.context.traffic_class);
}

static void about_memlock(const struct machine *machine, struct advice_list *list)
{
    if (machine->may_lock || machine->memlock_bytes >= MEMLOCK_NEEDED) {
        return;
    }
    struct advice *advice = add(list, ADVICE_WARNING, "memlock", NULL);
    say_what(advice,
             "this user may register %llu KiB of memory. A context takes about 8 MiB, one with two "
             "rails 72 MiB, and a busy endpoint up to 4 MiB, with default options",
             (unsigned long long)(machine->memlock_bytes / 1024));
    say_action(advice, "`ulimit -l unlimited` in the shell (limits.conf has the most), "
                       "LimitMEMLOCK=infinity in a unit of systemd, `--ulimit memlock=-1` for a "
                       "container");
}

void advice_find(const struct report *report, struct advice_list *list)
{
    list->count = 0;
    for (uint32_t i = 0; i < report->port_count; i++) {
        const struct report_port *port = &report->ports[i];
        about_state(port, list);
        about_context(port, list);
        about_mtu(port, list);
        about_pcie(port, list);
        about_node(port, list);
        about_ordering(&report->machine, port, list);
        about_left_out(port, list);
        about_lossless(port, list);
    }
    about_memlock(&report->machine, list);
}
