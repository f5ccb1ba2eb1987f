/* xrc.c: XRC domains. All contexts of the process that open a domain through the same file get the
 * same domain. It cannot be shared with other processes, since their memory is not here. */
#include "simnic/shim/kernel/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <sys/stat.h>

#include "simnic/nic/dma.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/process/process.h"

static uint32_t next_number = 1;

/* The domain that a context of this process has opened through a file; 0: none. */
static uint32_t number_of_file(uint64_t device, uint64_t inode)
{
    for (struct list *l = contexts.next; l != &contexts; l = l->next) {
        const struct context *context = container_of(l, struct context, all);
        for (uint32_t handle = 0; handle < context->object_count; handle++) {
            const struct object *object = context->objects[handle];
            if (object && object->type == UVERBS_OBJECT_XRCD && object->file_device == device &&
                object->file_inode == inode) {
                return (uint32_t)object->number;
            }
        }
    }
    return 0;
}

int verb_open_xrcd(const struct call *call)
{
    struct ib_uverbs_open_xrcd request;
    struct stat status = {0};
    uint32_t number = 0;
    int result = attribute_command(call, &request, sizeof(request));
    if (result) {
        return result;
    }
    if ((int)request.fd >= 0) {
        if (fstat((int)request.fd, &status) != 0) {
            return EBADF;
        }
        number = number_of_file(status.st_dev, status.st_ino);
        if (number ? (request.oflags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)
                   : !(request.oflags & O_CREAT)) {
            return number ? EINVAL : EAGAIN;
        }
    }
    struct object *object = object_create(call->context, UVERBS_OBJECT_XRCD);
    if (!object) {
        return ENOMEM;
    }
    object->number = number ? number : next_number++;
    object->file_device = status.st_dev;
    object->file_inode = status.st_ino;
    struct ib_uverbs_open_xrcd_resp response = {.xrcd_handle = object->handle};
    return attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
}
