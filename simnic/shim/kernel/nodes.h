/* nodes.h: the files of /dev/infiniband: what their paths are, what stat says of them, and opening
 * them. */
#ifndef SIMNIC_SHIM_KERNEL_NODES_H
#define SIMNIC_SHIM_KERNEL_NODES_H

#include <sys/stat.h>

enum { NODE_NONE = -1, NODE_RDMA_CM = 100 }; /* 0 and up: the rail of an uverbs file */

struct statx;

/* An ordinary device file. The kernel judges flags, modes and pointers of calls about it as it
 * would judge those of calls about our nodes. */
#define NODE_MODEL "/dev/null"

/* The path about which the kernel is asked instead of a node's: NODE_MODEL, or that of no file, if the device is unplugged. */
const char *node_model(int node);

/* The node that a path names, from `directory` as in openat(). NODE_NONE also if the pointer is
 * bad. Links are not followed. */
int node_of_path(int directory, const char *path);
int node_of_descriptor(int fd);
int node_open(int node, int flags, mode_t mode);
/* What stat says of a node. */
void node_stat(int node, struct stat *status);
void node_statx(int node, struct statx *status);

#endif
