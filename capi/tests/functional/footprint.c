/* footprint.c: see footprint.h. */
#include "footprint.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SLACK_KIB 700

static uint32_t entries(const char *path, bool (*counts)(const char *name))
{
    uint32_t count = 0;
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder)) != NULL) {
        count += entry->d_name[0] != '.' && counts(entry->d_name);
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

static bool always(const char *name)
{
    (void)name;
    return true;
}

/* core/cm/task.c keeps the threads that it made, up to a bound. How many tasks were ever under way at
 * once depends on how the threads were scheduled, so one more of these is no leak. */
static bool is_no_task_thread(const char *id)
{
    char path[300];
    char name[32] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%s/comm", id);
    FILE *file = fopen(path, "re");
    if (file) {
        if (!fgets(name, sizeof(name), file)) {
            name[0] = '\0';
        }
        fclose(file);
    }
    return strcmp(name, "crpc-task\n") != 0;
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
                              .descriptors = entries("/proc/self/fd", always),
                              .threads = entries("/proc/self/task", is_no_task_thread)};
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
    bool good = !more_is_open(before, &after) && (!with_memory || memory_is_back(before, &after));
    fprintf(good ? stdout : stderr, "# %ld and %ld KiB, %u and %u descriptors, %u and %u threads\n",
            before->resident_kib, after.resident_kib, before->descriptors, after.descriptors,
            before->threads, after.threads);
    return good;
}

bool footprint_is_back(const struct footprint *before)
{
    return compare(before, true);
}

bool footprint_no_more_is_open(const struct footprint *before)
{
    return compare(before, false);
}
