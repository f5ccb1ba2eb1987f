/* outcome.c: how checks say what they saw. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static void say(struct outcome *outcome, enum verdict verdict, const char *format, va_list values)
{
    outcome->verdict = verdict;
    vsnprintf(outcome->seen, sizeof(outcome->seen), format, values);
}

void passes(struct outcome *outcome, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(outcome, VERDICT_OK, format, values);
    va_end(values);
}

bool fails(struct outcome *outcome, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(outcome, VERDICT_FAILED, format, values);
    va_end(values);
    return false;
}

bool fails_in(struct outcome *outcome, const char *format, ...)
{
    char seen[sizeof(outcome->seen)];
    va_list values;
    va_start(values, format);
    memcpy(seen, outcome->seen, sizeof(seen));
    vsnprintf(outcome->seen, sizeof(outcome->seen), format, values);
    va_end(values);
    const size_t end = strlen(outcome->seen);
    snprintf(outcome->seen + end, sizeof(outcome->seen) - end, ": %s", seen);
    return false;
}

bool refused(struct outcome *outcome, int32_t status, const char *message)
{
    const bool lacks = status == CRPC_E_MEMLOCK || status == CRPC_E_NO_MEMORY ||
                       status == CRPC_E_NO_RESOURCE || status == CRPC_E_NO_DEVICE ||
                       status == CRPC_E_UNSUPPORTED;
    outcome->setting_up = true;
    return lacks ? not_here(outcome, "%s", message) : fails(outcome, "%s", message);
}

bool not_here(struct outcome *outcome, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(outcome, VERDICT_NOT_HERE, format, values);
    va_end(values);
    return false;
}
