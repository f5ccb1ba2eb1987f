/* link.h: what links a session's ports have: Ethernet (RoCE), or InfiniBand, and what the InfiniBand
 * fabric is like. `simnic run --link WORDS` chooses, for the life of a session; the choice is one
 * number in the fabric file. rails.h says what follows from it for a port. */
#ifndef SIMNIC_SESSION_LINK_H
#define SIMNIC_SESSION_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0 is Ethernet. The other flags go with LINK_INFINIBAND only. */
#define LINK_INFINIBAND 1u
#define LINK_GRH(rail) (2u << (rail)) /* that rail's port takes no packet without a GRH */
#define LINK_SUBNETS 8u               /* each rail is in a subnet of its own; a router joins them */
#define LINK_LIMITED 16u              /* index 0 of the P_Key tables has a limited membership */
#define LINK_SERVICE_LEVEL_SHIFT 8    /* four bits: the SL in path records */

#define LINK_TEXT_BYTES 64          /* holds the words of any link */
#define LINK_VARIABLE "SIMNIC_LINK" /* the environment's words for sessions that are made */

/* Reads WORDS: "ethernet", or "ib" and any of grh, grh0, grh1, subnets, limited, sl=N after commas.
 * Returns false with one line in `error` that says which word is wrong. */
bool link_parse(const char *words, uint32_t *link, char *error, size_t error_bytes);

/* Writes a link as link_parse reads it. */
void link_describe(uint32_t link, char text[LINK_TEXT_BYTES]);

static inline uint8_t link_service_level(uint32_t link)
{
    return link >> LINK_SERVICE_LEVEL_SHIFT & 15;
}

#endif
