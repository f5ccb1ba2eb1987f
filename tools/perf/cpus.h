/* cpus.h: processors that threads are pinned to (--cpu), and how far these are from the device. */
#ifndef TOOLS_PERF_CPUS_H
#define TOOLS_PERF_CPUS_H

#include <stdbool.h>
#include <stdint.h>

#define CPUS_MAX 1024

struct cpus {
    char text[256]; /* as given; "" = threads run where they like */
    uint32_t count;
    uint16_t list[CPUS_MAX];
};

/* Takes a list such as "0-3,8". Returns NULL, or why it is none, in a static buffer. */
const char *cpus_parse(const char *text, struct cpus *cpus);
/* Pins the calling thread to the list's processor number `turn`, from the beginning again behind its end. Prints what fails. */
bool cpus_pin(const struct cpus *cpus, uint32_t turn);
/* Prints a line on where threads and the device are, if there is a list. */
void cpus_print(const struct cpus *cpus, const char *device);
/* Returns the NUMA node of a device; -1 if it is not known. */
int32_t cpus_device_node(const char *device);

#endif
