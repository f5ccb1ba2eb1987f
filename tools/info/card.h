/* card.h: what Linux tells of a device in sysfs: where it is on PCIe and in the machine, and the network interfaces of a port. A file that
 * is not there, or says nothing, is never a failure: each member has a value for "not known". */
#ifndef TOOLS_INFO_CARD_H
#define TOOLS_INFO_CARD_H

#include <stdint.h>

#define CARD_INTERFACES_MAX 8
#define CARD_NODE_UNKNOWN (-1)

/* Either member is 0 if it is not known. */
struct pcie_link {
    uint32_t megatransfers_per_s; /* of a lane */
    uint32_t lanes;
};

enum card_answer { CARD_UNKNOWN, CARD_YES, CARD_NO };

/* Of the processors that this process may use, which are near the card. */
enum card_near { CARD_NEAR_UNKNOWN, CARD_NEAR_NONE, CARD_NEAR_SOME, CARD_NEAR_ALL };

struct card_interface {
    char name[32];
    uint32_t mtu_bytes; /* 0: not known */
};

struct card {
    char firmware[64];           /* "": not known */
    char pci_address[16];        /* "0000:01:00.0"; "": not known, or not on PCI */
    struct pcie_link link, most; /* now, and the most that the card can */
    struct pcie_link slot;       /* the most that what it is plugged into can */
    int32_t numa_node;           /* CARD_NODE_UNKNOWN: not known, or the machine has but one */
    char processors[256];        /* of that node, such as "0-15,32-47"; "": not known */
    enum card_near near;
    enum card_answer
        relaxed_ordering; /* whether PCIe's configuration allows it to the card; it takes root to read that */
    uint32_t interface_count;
    /* Of the port; first that of the GID that was asked for. */
    struct card_interface interfaces[CARD_INTERFACES_MAX];
};

/* `sysfs` is where sysfs is mounted. `gid_index` is of the GID that contexts use. */
void card_read(const char *sysfs, const char *device, uint32_t port, uint32_t gid_index,
               struct card *card);

/* What a link carries in each direction, without the coding of its bits; 0: not known. */
uint32_t pcie_link_mbps(const struct pcie_link *link);

/* For card_read, and for tests: compares a list such as "0-15,32-47" with the processors that this process may use. */
enum card_near card_near_of(const char *processors);

#endif
