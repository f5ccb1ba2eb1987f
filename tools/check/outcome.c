/* outcome.c: how checks say what they saw. */
#include <stdarg.h>
#include <stdio.h>

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

bool not_here(struct outcome *outcome, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(outcome, VERDICT_NOT_HERE, format, values);
    va_end(values);
    return false;
}
