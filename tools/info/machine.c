/* machine.c: see machine.h. */
#include "machine.h"

#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* AMD's numbers of what it sells to servers as EPYC, from the first on to that of 2024. */
static const struct {
    unsigned family, first_model, last_model;
    const char *name;
} epycs[] = {
    {0x17, 0x00, 0x0f, "Naples"}, {0x17, 0x30, 0x3f, "Rome"},    {0x19, 0x00, 0x0f, "Milan"},
    {0x19, 0x10, 0x1f, "Genoa"},  {0x19, 0xa0, 0xaf, "Bergamo"}, {0x1a, 0x00, 0x1f, "Turin"},
};

static const char *epyc_of(const char *vendor, const char *name, unsigned family, unsigned model)
{
    if (strcmp(vendor, "AuthenticAMD") != 0 || !strstr(name, "EPYC")) {
        return NULL; /* desktops have the same numbers */
    }
    for (size_t i = 0; i < sizeof(epycs) / sizeof(epycs[0]); i++) {
        if (family == epycs[i].family && model >= epycs[i].first_model &&
            model <= epycs[i].last_model) {
            return epycs[i].name;
        }
    }
    return NULL;
}

/* The first processor stands for all. Each line is a key, a tab or two, a colon and a value. */
static void read_processor(const char *cpuinfo, struct machine *machine)
{
    char line[256], vendor[32] = "";
    unsigned family = 0, model = 0;
    FILE *file = fopen(cpuinfo, "re");
    while (file && fgets(line, sizeof(line), file) && line[0] != '\n') {
        sscanf(line, "vendor_id : %31s", vendor);
        sscanf(line, "cpu family : %u", &family);
        sscanf(line, "model : %u", &model);
        sscanf(line, "model name : %63[^\n]", machine->processor);
    }
    if (file) {
        fclose(file);
    }
    machine->epyc = epyc_of(vendor, machine->processor, family, model);
}

/* The kernel asks for the capability where the machine's own users are, and not those of a container (a user namespace). */
static bool is_in_first_namespace(void)
{
    unsigned long inside = 1, outside = 1, count = 0;
    FILE *file = fopen("/proc/self/uid_map", "re");
    bool first = file && fscanf(file, "%lu %lu %lu", &inside, &outside, &count) == 3 &&
                 inside == 0 && outside == 0 && count == UINT32_MAX;
    if (file) {
        fclose(file);
    }
    return first;
}

/* The C library has no function for it. */
static bool has_capability(unsigned capability)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    return syscall(SYS_capget, &header, data) == 0 &&
           data[capability / 32].effective >> capability % 32 & 1;
}

void machine_read(const char *cpuinfo, struct machine *machine)
{
    struct rlimit limit;
    const char *relaxed = getenv("COPYRPC_RELAXED_ORDERING");
    *machine = (struct machine){
        .may_lock = has_capability(CAP_IPC_LOCK) && is_in_first_namespace(),
        .relaxed_ordering_off = relaxed && strcmp(relaxed, "off") == 0,
    };
    bool known = getrlimit(RLIMIT_MEMLOCK, &limit) == 0;
    machine->memlock_bytes =
        known && limit.rlim_cur != RLIM_INFINITY ? (uint64_t)limit.rlim_cur : UINT64_MAX;
    read_processor(cpuinfo, machine);
}
