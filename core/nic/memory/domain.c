/* domain.c: protection domains: whose memory a queue pair and its peer may use. */
#include "nic/memory/internal.h"

#include <stdlib.h>

int32_t memory_domain_create(struct nic *base, struct nic_domain **created, crpc_error *error)
{
    struct memory_nic *nic = memory_nic(base);
    struct memory_domain *domain;
    int32_t status;

    if (memory_planned_failure(nic->fabric, MEMORY_FAIL_DOMAIN, &status, error)) {
        return status;
    }
    domain = memory_allocate(1, sizeof(*domain));
    domain->base.nic = base;
    domain->next = nic->domains;
    nic->domains = domain;
    nic->fabric->counters.domains++;
    *created = &domain->base;
    return CRPC_OK;
}

void memory_domain_free(struct memory_nic *nic, struct memory_domain *domain)
{
    struct memory_domain **link = &nic->domains;

    while (*link != domain) {
        link = &(*link)->next;
    }
    *link = domain->next;
    nic->fabric->counters.domains--;
    free(domain);
}

void memory_domain_destroy(struct nic_domain *base)
{
    struct memory_domain *domain = memory_domain(base);

    /* A device refuses, and the domain stays for ever. */
    memory_require(domain->users == 0, "%u registrations or queue pairs are in the domain",
                   domain->users);
    memory_domain_free(memory_nic(base->nic), domain);
}

struct memory_domain *memory_domain_use(struct nic *nic, struct nic_domain *base)
{
    struct memory_domain *domain = memory_domain(base);

    memory_require(!domain || base->nic == nic, "the domain belongs to another nic");
    if (domain) {
        domain->users++;
    }
    return domain;
}

void memory_domain_leave(struct memory_domain *domain)
{
    if (domain) {
        domain->users--;
    }
}
