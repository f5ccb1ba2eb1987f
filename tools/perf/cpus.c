/* cpus.c: see cpus.h. */
#include "cpus.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

/* Takes a number from *text, and moves behind it. */
static bool take_number(const char **text, uint32_t *number)
{
    char *end;
    const unsigned long value = strtoul(*text, &end, 10);
    if (end == *text || **text < '0' || **text > '9' || value >= CPU_SETSIZE) {
        return false;
    }
    *number = (uint32_t)value;
    *text = end;
    return true;
}

const char *cpus_parse(const char *text, struct cpus *cpus)
{
    static char why[128];
    cpu_set_t allowed;
    const char *at = text;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    snprintf(cpus->text, sizeof(cpus->text), "%s", text);
    cpus->count = 0;
    snprintf(why, sizeof(why), "--cpu is a list of processors such as 0-3,8");
    for (;;) {
        uint32_t first, last;
        if (!take_number(&at, &first)) {
            return why;
        }
        last = first;
        if (*at == '-' && (at++, !take_number(&at, &last))) {
            return why;
        }
        for (uint32_t cpu = first; cpu <= last; cpu++) {
            if (!CPU_ISSET(cpu, &allowed)) {
                snprintf(why, sizeof(why), "this process may not run on processor %u", cpu);
                return why;
            }
            if (cpus->count == CPUS_MAX) {
                return why;
            }
            cpus->list[cpus->count++] = (uint16_t)cpu;
        }
        if (last < first || (*at && *at != ',')) {
            return why;
        }
        if (!*at++) {
            return NULL;
        }
    }
}

bool cpus_pin(const struct cpus *cpus, uint32_t turn)
{
    cpu_set_t one;
    if (cpus->count == 0) {
        return true;
    }
    CPU_ZERO(&one);
    CPU_SET(cpus->list[turn % cpus->count], &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) {
        perf_failed("--cpu", strerror(errno));
        return false;
    }
    return true;
}

int32_t cpus_device_node(const char *device)
{
    char path[256];
    int node = -1;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/numa_node", device);
    FILE *file = fopen(path, "r");
    if (file) {
        node = fscanf(file, "%d", &node) == 1 ? node : -1;
        fclose(file);
    }
    return node;
}

/* Returns -1 if it is not known. */
static int32_t node_of(uint32_t cpu)
{
    char path[64];
    int node = -1;
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u", cpu);
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory && node < 0 && (entry = readdir(directory))) {
        if (sscanf(entry->d_name, "node%d", &node) != 1) {
            node = -1;
        }
    }
    if (directory) {
        closedir(directory);
    }
    return node;
}

void cpus_print(const struct cpus *cpus, const char *device)
{
    const int32_t here = cpus_device_node(device);
    uint32_t elsewhere = 0, first = 0;
    if (cpus->count == 0) {
        return;
    }
    for (uint32_t i = 0; i < cpus->count && here >= 0; i++) {
        if (node_of(cpus->list[i]) != here) {
            first = elsewhere++ ? first : cpus->list[i];
        }
    }
    printf("  threads  on processors %s, in turn", cpus->text);
    if (here < 0) {
        printf("; nobody knows the NUMA node of %s\n", device);
    } else if (elsewhere == 0) {
        printf("; NUMA node %d, as %s\n", here, device);
    } else {
        printf("; %s is on NUMA node %d, and %u of them are not, such as %u\n", device, here,
               elsewhere, first);
    }
}
