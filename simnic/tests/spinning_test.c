/* spinning_test.c: that the service thread polls while one thread of the program spins on two
 * processors, and does not while two do; to be run under `simnic run --private`.
 *
 * Judged by the service thread's processor time and the program's. That it polls can only be told
 * while nobody else wants the two processors: such a time is waited for. */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "simnic/tests/pair.h"

#define WINDOW_S 0.4
#define LIMIT_S 40.0 /* to find the processors free */

static struct pair pairs[2];
static atomic_bool second_spins, ending;
static atomic_long trips[2];
static int processors[2];
static char service_path[300];

struct window {
    double service, program, others; /* of one processor, 0 to 1 or 2 */
    double trip_us;                  /* of the first thread */
};

/* Keeps this process on two of its processors. Returns false if it has but one. */
static bool take_two_processors(void)
{
    cpu_set_t all, two;
    CPU_ZERO(&two);
    if (sched_getaffinity(0, sizeof(all), &all) != 0 || CPU_COUNT(&all) < 2) {
        return false;
    }
    int found = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &two);
            processors[found++] = cpu;
        }
    }
    return sched_setaffinity(0, sizeof(two), &two) == 0;
}

static bool find_service_thread(void)
{
    DIR *tasks = opendir("/proc/self/task");
    bool found = false;
    for (struct dirent *task; tasks && !found && (task = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "re");
        found = file && fgets(name, sizeof(name), file) && strcmp(name, "simnic\n") == 0;
        if (file) {
            fclose(file);
        }
        snprintf(service_path, sizeof(service_path), "/proc/self/task/%s/schedstat", task->d_name);
    }
    if (tasks) {
        closedir(tasks);
    }
    return found;
}

static double service_seconds(void)
{
    unsigned long long ns = 0;
    FILE *file = fopen(service_path, "re");
    if (!file || fscanf(file, "%llu", &ns) != 1) {
        fail(service_path);
    }
    fclose(file);
    return (double)ns * 1e-9;
}

static double own_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What all have used of the two processors, but for idling. */
static double busy_seconds(void)
{
    char line[256];
    double ticks = 0;
    FILE *file = fopen("/proc/stat", "re");
    while (file && fgets(line, sizeof(line), file)) {
        int cpu;
        double user, nice, system, idle, wait, interrupts, soft, stolen;
        if (sscanf(line, "cpu%d %lf %lf %lf %lf %lf %lf %lf %lf", &cpu, &user, &nice, &system,
                   &idle, &wait, &interrupts, &soft, &stolen) == 9 &&
            (cpu == processors[0] || cpu == processors[1])) {
            ticks += user + nice + system + interrupts + soft + stolen;
        }
    }
    if (file) {
        fclose(file);
    }
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

static struct window look(void)
{
    double start = now(), service = service_seconds(), own = own_seconds(), busy = busy_seconds();
    long done = atomic_load(&trips[0]);
    while (now() - start < WINDOW_S) {
        usleep(10000);
    }
    double seconds = now() - start;
    struct window window = {.service = service_seconds() - service, .program = own_seconds() - own};
    window.others = (busy_seconds() - busy - window.program) / seconds;
    window.program = (window.program - window.service) / seconds;
    window.service /= seconds;
    window.trip_us = seconds * 1e6 / (double)(atomic_load(&trips[0]) - done + 1);
    return window;
}

static void print(const char *what, const struct window *window)
{
    printf("# %s: service thread %.2f, program %.2f, others %.2f, round trip %.1f us\n", what,
           window->service, window->program, window->others, window->trip_us);
}

static void *spin(void *argument)
{
    int number = argument == &pairs[1];
    while (!ending) {
        if (number == 1 && !second_spins) {
            usleep(1000);
            continue;
        }
        pair_round_trip(&pairs[number]);
        atomic_fetch_add_explicit(&trips[number], 1, memory_order_relaxed);
    }
    return NULL;
}

/* Whatever both get of the processors, one that polls gets as much as a thread that spins. */
static bool is_silent(const struct window *window)
{
    return window->service < 0.15 * (window->service + window->program);
}

/* Waits until the service thread polls, or does not, in a time in which that is to be expected.
 * Returns 1 if it did, 0 if not, -1 if there was no such time. */
static int find(const char *what, bool polling)
{
    double start = now();
    int expected = 0;
    struct window window;
    do {
        window = look();
        bool free = window.others < 0.1;
        if (polling ? window.service > 0.7 : is_silent(&window)) {
            print(what, &window);
            return 1;
        }
        /* The longest pause is some windows long. */
        expected = free || !polling ? expected + 1 : 0;
    } while (expected < 10 && now() - start < LIMIT_S);
    print(what, &window);
    return expected < 10 ? -1 : 0;
}

/* Once it does not, it stays so: while the two get their processors. Where others take them, what
 * two threads get looks like one, and the service thread tries now and then. Returns as find(). */
static int stays_silent(void)
{
    struct window sum = {0};
    for (int i = 0; i < 5; i++) {
        struct window window = look();
        sum.service += window.service / 5;
        sum.program += window.program / 5;
        sum.others += window.others / 5;
        sum.trip_us += window.trip_us / 5;
    }
    print("two threads, later", &sum);
    return is_silent(&sum) ? 1 : sum.others < 0.5 ? 0 : -1;
}

static void report(int number, int result, const char *what)
{
    printf("%sok %d - %s%s\n", result ? "" : "not ", number, what,
           result < 0 ? " # SKIP others keep the processors busy" : "");
}

int main(void)
{
    pthread_t threads[2];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!take_two_processors()) {
        printf("1..0 # SKIP there is but one processor\n");
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        pair_open(&pairs[i]);
    }
    /* It has its name once it has run. */
    for (double start = now(); !find_service_thread();) {
        if (now() - start > LIMIT_S) {
            fail("no service thread: is this run under simnic?");
        }
    }
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, spin, &pairs[i]) != 0) {
            fail("thread");
        }
    }
    printf("1..4\n");
    report(1, find("one thread", true), "one thread spins: the service thread polls");
    second_spins = true;
    report(2, find("two threads", false), "two threads spin: it does not");
    report(3, stays_silent(), "it stays so");
    second_spins = false;
    report(4, find("one thread again", true), "one thread spins again: it polls");
    ending = true;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    return 0;
}
