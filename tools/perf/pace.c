/* pace.c: see pace.h. */
#include "pace.h"

void pace_begin(struct pace *pace, uint64_t now_ns, uint64_t calls)
{
    pace->begun_ns = now_ns;
    pace->calls = calls;
    pace->seen = 0;
    pace->report = (struct pace_report){.held = 0};
}

uint64_t pace_due_ns(const struct pace *pace, uint64_t call)
{
    return pace->begun_ns +
           (uint64_t)((double)(call * pace->threads + pace->thread) * pace->interval_ns);
}

uint64_t pace_count(const struct pace *pace, uint64_t now_ns)
{
    const double turns = (double)(now_ns - pace->begun_ns) / pace->interval_ns - pace->thread;
    const uint64_t due = turns < 0 ? 0 : (uint64_t)(turns / pace->threads) + 1;
    return due < pace->calls ? due : pace->calls;
}

void pace_note(struct pace *pace, uint64_t now_ns, uint64_t due, uint64_t first, uint64_t sent)
{
    const uint64_t due_ns = pace_due_ns(pace, first);
    if (sent > first && now_ns > due_ns && now_ns - due_ns > pace->report.late_most_ns) {
        pace->report.late_most_ns = now_ns - due_ns;
    }
    if (due > pace->seen) {
        const uint64_t seen = sent > pace->seen ? sent : pace->seen;
        pace->report.held += due - seen;
        pace->seen = due;
    }
}

void pace_end(struct pace *pace, uint64_t now_ns, uint64_t sent)
{
    const uint64_t due = pace_count(pace, now_ns);
    if (due > sent) {
        pace_note(pace, now_ns, due, sent, sent);
        pace->report.unsent = due - sent;
    }
}

void pace_add(struct pace_report *sum, const struct pace_report *more)
{
    sum->held += more->held;
    sum->unsent += more->unsent;
    sum->late_most_ns =
        more->late_most_ns > sum->late_most_ns ? more->late_most_ns : sum->late_most_ns;
}
