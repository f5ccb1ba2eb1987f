/* stranger.h: peers that speak rdma_cm but not our version of copyrpc, made with librdmacm
 * directly. */
#ifndef FUNCTIONAL_STRANGER_H
#define FUNCTIONAL_STRANGER_H

#include <stdint.h>
#include <sys/types.h>

enum stranger_kind {
    STRANGER_SILENT,  /* listens, never answers */
    STRANGER_REJECTS, /* rejects with the private data given */
};

struct stranger {
    pid_t pid;
    char address[64];
};

void stranger_listen(struct stranger *stranger, const char *host, enum stranger_kind kind,
                     const void *private_data, uint8_t private_bytes);
void stranger_stop(struct stranger *stranger);

/* Asks `address` for a connection with this private data. Returns how many bytes of private data
 * came with the rejection; fails the test if it is accepted or nothing comes. */
uint32_t stranger_connect(const char *address, const void *private_data, uint8_t private_bytes,
                          uint8_t answer[196]);

#endif
