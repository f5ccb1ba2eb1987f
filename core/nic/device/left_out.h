/* left_out.h: what copyrpc-check has found to fail on a device of this machine. Contexts that do not name their driver leave
 * it alone. It is in a file for each device, which the user can delete:
 *
 *   /var/lib/copyrpc/DEVICE.leave-out           root's, for all users
 *   $XDG_STATE_HOME/copyrpc/DEVICE.leave-out    the user's own; without XDG_STATE_HOME, in ~/.local/state
 *
 * A file counts for the firmware, the Linux, the libmlx5 and the copyrpc that were checked: an upgrade of any may have mended what
 * failed. It also counts only if nobody but its owner could have written it, and the owner is root or, of the user's own, the
 * user: a program must not do as another user likes. Whatever a file has in it, at worst it is ignored.
 *
 * Each line is a word, a space and the rest; lines that begin with # are for people:
 *
 *   device mlx5_0           and likewise card, firmware, linux, libmlx5 and copyrpc: once each
 *   leave-out blueflame     or mlx5, cqe-compression, dc, ece; any number
 *
 * Cold path: all of this opens files. */
#ifndef CORE_NIC_DEVICE_LEFT_OUT_H
#define CORE_NIC_DEVICE_LEFT_OUT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEFT_OUT_MLX5 0x1u            /* the mlx5 driver: the device is used by libibverbs */
#define LEFT_OUT_BLUEFLAME 0x2u       /* WQEs are not pushed */
#define LEFT_OUT_CQE_COMPRESSION 0x4u /* completions are not compressed, though it was asked for */
#define LEFT_OUT_DC 0x8u              /* there are no dynamic queue pairs, DCIs and DCTs */
#define LEFT_OUT_ECE 0x10u            /* connections negotiate no options */

#define LEFT_OUT_PATH_BYTES 512u
#define LEFT_OUT_TEXT_BYTES 64u /* room for the names of all */

/* A device, and the versions of all that is between it and us. */
struct left_out_subject {
    char device[64];
    char card[20]; /* its system image GUID */
    char firmware[64];
    char kernel[80];  /* release of Linux, whose drivers have no versions of their own */
    char libmlx5[80]; /* the file of libmlx5, which has its version in its name */
    char copyrpc[20];
};

struct left_out {
    uint32_t features;              /* LEFT_OUT_* */
    char path[LEFT_OUT_PATH_BYTES]; /* of the last file that says so; "" = none does */
    char ignored[256]; /* which file was there and does not count, and why; "" = none */
};

/* `attributes` are those of the device that `context` is of. */
void left_out_describe(struct ibv_context *context, const struct ibv_device_attr *attributes,
                       struct left_out_subject *subject);

/* Reads root's file and the user's. */
void left_out_read(const struct left_out_subject *subject, struct left_out *left_out);
/* For tests and for the two functions below: one file, which counts if its owner is `owner` or root. Adds to *left_out. */
void left_out_read_file(const char *path, uint32_t owner, const struct left_out_subject *subject,
                        struct left_out *left_out);

/* Where this user's file of a device belongs: root's is that for all users, unless XDG_STATE_HOME says otherwise. Returns false if
 * there is no such place, as without HOME. */
bool left_out_own_path(const char *device, char *path, size_t bytes);
/* Writes that file, and makes its folder; with no features, removes it. Returns 0, or an errno value. */
int left_out_write(const struct left_out_subject *subject, uint32_t features);

/* "BlueFlame, CQE compression" */
const char *left_out_text(uint32_t features, char text[LEFT_OUT_TEXT_BYTES]);

#endif
