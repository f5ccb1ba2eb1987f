/* domain.c: protection domains beside the one that each nic has from its opening. */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "nic/device/device.h"

int32_t device_domain_create(struct nic *base, struct nic_domain **result, crpc_error *error)
{
    struct device_domain *domain = calloc(1, sizeof(*domain));
    if (!domain) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a protection domain");
    }
    domain->base.nic = base;
    domain->pd = ibv_alloc_pd(to_device_nic(base)->context);
    if (!domain->pd) {
        int os_error = errno;
        free(domain);
        return device_blame(error, os_error, 0, base->device, "create a protection domain");
    }
    *result = &domain->base;
    return CRPC_OK;
}

void device_domain_destroy(struct nic_domain *base)
{
    struct device_domain *domain = container_of(base, struct device_domain, base);
    ibv_dealloc_pd(domain->pd);
    free(domain);
}
