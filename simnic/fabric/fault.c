/* fault.c: reads fault specifications and rolls the dice. */
#include "simnic/fabric/fault.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simnic/fabric/quirk.h"

static bool probability(const char *text, uint32_t *per_million)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0 && value <= 1)) {
        return false;
    }
    *per_million = (uint32_t)lround(value * 1e6);
    return true;
}

static bool number(const char *text, uint64_t highest, uint64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    *value = strtoull(text, &end, 0);
    return errno == 0 && *end == '\0' && *value <= highest;
}

static bool number32(const char *text, uint32_t highest, uint32_t *value)
{
    uint64_t wide;
    if (!number(text, highest, &wide)) {
        return false;
    }
    *value = (uint32_t)wide;
    return true;
}

/* "P" or "P:MICROSECONDS"; *us is the default. */
static bool late(const char *text, uint32_t *per_million, uint32_t *us)
{
    char copy[64];
    snprintf(copy, sizeof(copy), "%s", text);
    char *colon = strchr(copy, ':');
    if (colon) {
        *colon = '\0';
        if (!number32(colon + 1, 10 * 1000 * 1000, us)) {
            return false;
        }
    }
    return probability(copy, per_million);
}

/* "N" or "N:MICROSECONDS". */
static bool taken(const char *text, struct fabric_fault *fault)
{
    char copy[64];
    snprintf(copy, sizeof(copy), "%s", text);
    char *colon = strchr(copy, ':');
    fault->taken_us = 1000;
    if (colon) {
        *colon = '\0';
        if (!number32(colon + 1, 60 * 1000 * 1000, &fault->taken_us)) {
            return false;
        }
    }
    return number32(copy, 65535, &fault->taken_count);
}

/* Gbit/s, of which there is at least one kbit/s. */
static bool rate(const char *text, uint32_t *kbps)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 1e-6 && value <= 1000)) {
        return false;
    }
    *kbps = (uint32_t)lround(value * 1e6);
    return true;
}

static bool rail_state(const char *text, uint32_t rail, struct fabric_fault *fault)
{
    if (strncmp(text, "rate:", 5) == 0) {
        return rate(text + 5, &fault->rail_kbps[rail]);
    }
    if (strncmp(text, "latency:", 8) == 0) {
        return number32(text + 8, 1000 * 1000, &fault->rail_latency_us[rail]);
    }
    if (strncmp(text, "ece:", 4) == 0) {
        fault->rails_ece_said |= 1u << rail;
        return number32(text + 4, UINT32_MAX, &fault->rail_ece[rail]);
    }
    if (strcmp(text, "down") == 0) {
        fault->rails_down |= 1u << rail;
    } else if (strcmp(text, "up") == 0) {
        fault->rails_down &= ~(1u << rail);
        fault->rails_unplugged &= ~(1u << rail);
    } else if (strcmp(text, "unplugged") == 0) {
        fault->rails_unplugged |= 1u << rail;
    } else {
        return false;
    }
    return true;
}

/* Several words add up. */
static bool quirk(const char *name, struct fabric_fault *fault)
{
    enum quirk found = QUIRK_FIRST_LASTING;
    const bool none = strcmp(name, "none") == 0;
    if (!none && !quirk_find(name, &found)) {
        return false;
    }
    fault->lasting_said = fault->lasting_said || found >= QUIRK_FIRST_LASTING;
    fault->quirks = none ? fault->quirks & ~QUIRKS_LASTING : fault->quirks | 1ull << found;
    return true;
}

static bool word(const char *name, const char *value, struct fabric_fault *fault,
                 const char **expected)
{
    if (strcmp(name, "lose") == 0) {
        *expected = "a probability, as in lose=0.01";
        return probability(value, &fault->lose_per_million);
    }
    if (strcmp(name, "duplicate") == 0) {
        *expected = "a probability, as in duplicate=0.01";
        return probability(value, &fault->duplicate_per_million);
    }
    if (strcmp(name, "delay") == 0) {
        *expected = "a probability and microseconds, as in delay=0.01:200";
        fault->delay_us = 100;
        return late(value, &fault->delay_per_million, &fault->delay_us);
    }
    if (strcmp(name, "placement") == 0) {
        *expected = "a probability and microseconds, as in placement=0.5:1000";
        fault->placement_said = true;
        fault->placement_us = 1000;
        return late(value, &fault->placement_per_million, &fault->placement_us);
    }
    if (strcmp(name, "seed") == 0) {
        *expected = "a number";
        return number(value, UINT64_MAX, &fault->seed);
    }
    if (strcmp(name, "rail0") == 0 || strcmp(name, "rail1") == 0) {
        *expected = "down, unplugged, up, rate: and Gbit/s, at most 1000, as in rail1=rate:0.5, "
                    "latency: and microseconds, at most 1000000, or ece: and options, as in "
                    "rail1=ece:0x20000001";
        return rail_state(value, (uint32_t)(name[4] - '0'), fault);
    }
    if (strcmp(name, "kill") == 0) {
        *expected = "a QP's number, as `simnic ctl stats` shows it";
        return number32(value, 0xffffff, &fault->kill_qpn);
    }
    if (strcmp(name, "fill") == 0) {
        *expected = "a CQ's number";
        return number32(value, 0xffffff, &fault->fill_cqn);
    }
    if (strcmp(name, "taken") == 0) {
        *expected = "a number and microseconds, as in taken=8:1000";
        return taken(value, fault);
    }
    if (strcmp(name, "stall") == 0) {
        *expected = "microseconds, at most 60000000";
        return number32(value, 60 * 1000 * 1000, &fault->stall_us);
    }
    if (strcmp(name, "quirk") == 0) {
        *expected =
            "a quirk that simnic's README lists, as in quirk=no-srq, or the name of a check of "
            "copyrpc-check";
        return quirk(value, fault);
    }
    *expected = NULL;
    return false;
}

bool fault_parse(const char *spec, struct fabric_fault *fault, char *error, size_t error_bytes)
{
    struct fabric_fault parsed = {.seed = 1};
    char copy[512];
    if (strlen(spec) >= sizeof(copy)) {
        snprintf(error, error_bytes, "longer than %zu characters", sizeof(copy) - 1);
        return false;
    }
    snprintf(copy, sizeof(copy), "%s", spec);
    char *rest = copy;
    for (char *part; (part = strsep(&rest, ","));) {
        if (strcmp(part, "none") == 0 || *part == '\0') {
            continue;
        }
        char *equals = strchr(part, '=');
        if (equals) {
            *equals = '\0';
        }
        const char *expected = NULL;
        if (equals && word(part, equals + 1, &parsed, &expected)) {
            continue;
        }
        if (expected) {
            snprintf(error, error_bytes, "%s=%s: expected %s", part, equals + 1, expected);
        } else {
            snprintf(error, error_bytes,
                     "%s is not one of lose, duplicate, delay, seed, rail0, rail1, kill, stall, "
                     "fill, taken, placement, quirk, none (as in "
                     "lose=0.01,seed=7)",
                     *part ? part : "an empty word");
        }
        return false;
    }
    *fault = parsed;
    return true;
}

uint64_t fault_roll(struct fault_dice *dice)
{
    uint64_t z = dice->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

bool fault_happens(struct fault_dice *dice, uint32_t per_million)
{
    return per_million && fault_roll(dice) % 1000000 < per_million;
}
