/* footprint.c: see footprint.h. */
#include "footprint.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#define SLACK_KIB 700

static uint32_t entries(const char *path)
{
    uint32_t count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) {
        count++;
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

struct footprint footprint(void)
{
    malloc_trim(0);
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file) {
        if (fscanf(file, "%*s %ld", &pages) != 1) {
            pages = 0;
        }
        fclose(file);
    }
    return (struct footprint){.resident_kib = pages * (sysconf(_SC_PAGESIZE) / 1024),
                              .descriptors = entries("/proc/self/fd"),
                              .threads = entries("/proc/self/task")};
}

static bool memory_is_back(const struct footprint *before, const struct footprint *after)
{
#ifdef __SANITIZE_ADDRESS__ /* whose quarantine keeps what was freed */
    (void)before;
    (void)after;
    return true;
#else
    return before->resident_kib > 0 && after->resident_kib <= before->resident_kib + SLACK_KIB;
#endif
}

/* simnic's thread has a file open for a moment now and then, as a driver may, and a thread that was
 * joined may be listed for a moment longer: either count may have one too many, and the later one is
 * waited for. */
static bool more_is_open(const struct footprint *before, const struct footprint *after)
{
    return after->descriptors > before->descriptors || after->threads > before->threads;
}

static bool compare(const struct footprint *before, bool with_memory)
{
    struct footprint after = footprint();
    for (int tries = 0; tries < 1200 && more_is_open(before, &after); tries++) {
        usleep(50000);
        after = footprint();
    }
    printf("# %ld and %ld KiB, %u and %u descriptors, %u and %u threads\n", before->resident_kib,
           after.resident_kib, before->descriptors, after.descriptors, before->threads,
           after.threads);
    return !more_is_open(before, &after) && (!with_memory || memory_is_back(before, &after));
}

bool footprint_is_back(const struct footprint *before)
{
    return compare(before, true);
}

bool footprint_no_more_is_open(const struct footprint *before)
{
    return compare(before, false);
}
