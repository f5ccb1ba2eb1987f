/* link.c: see link.h. */
#include "simnic/session/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "grh" is both ports; on reading it comes first, and on writing too. */
static const struct {
    const char *word;
    uint32_t flags;
} words_known[] = {
    {"grh", LINK_GRH(0) | LINK_GRH(1)}, {"grh0", LINK_GRH(0)},     {"grh1", LINK_GRH(1)},
    {"subnets", LINK_SUBNETS},          {"limited", LINK_LIMITED},
};
#define WORDS_KNOWN (sizeof(words_known) / sizeof(words_known[0]))

static bool read_word(const char *word, uint32_t *link)
{
    for (size_t i = 0; i < WORDS_KNOWN; i++) {
        if (strcmp(word, words_known[i].word) == 0) {
            *link |= words_known[i].flags;
            return true;
        }
    }
    if (strncmp(word, "sl=", 3) == 0 && word[3] >= '0' && word[3] <= '9') {
        char *end;
        unsigned long level = strtoul(word + 3, &end, 10);
        *link = (*link & ~(15u << LINK_SERVICE_LEVEL_SHIFT)) | (uint32_t)(level & 15)
                                                                   << LINK_SERVICE_LEVEL_SHIFT;
        return *end == '\0' && level <= 15;
    }
    return false;
}

bool link_parse(const char *words, uint32_t *link, char *error, size_t error_bytes)
{
    char copy[128];
    snprintf(copy, sizeof(copy), "%s", words);
    char *rest = copy, *word = strsep(&rest, ",");
    *link = strcmp(word, "ib") == 0 ? LINK_INFINIBAND : 0;
    if (!*link && strcmp(word, "ethernet") != 0) {
        snprintf(error, error_bytes, "%s is neither ethernet nor ib", *word ? word : "nothing");
        return false;
    }
    if (!*link && rest) {
        snprintf(error, error_bytes, "ethernet takes no further words");
        return false;
    }
    while (rest) {
        word = strsep(&rest, ",");
        if (!read_word(word, link)) {
            snprintf(error, error_bytes,
                     "%s is not one of grh, grh0, grh1, subnets, limited, sl=0 to sl=15",
                     *word ? word : "an empty word");
            return false;
        }
    }
    return true;
}

void link_describe(uint32_t link, char text[LINK_TEXT_BYTES])
{
    size_t used = (size_t)snprintf(text, LINK_TEXT_BYTES, "%s", link ? "ib" : "ethernet");
    uint32_t told = 0;
    for (size_t i = 0; i < WORDS_KNOWN; i++) {
        uint32_t flags = words_known[i].flags;
        if ((link & flags) == flags && (told & flags) != flags) {
            told |= flags;
            used +=
                (size_t)snprintf(text + used, LINK_TEXT_BYTES - used, ",%s", words_known[i].word);
        }
    }
    if (link_service_level(link)) {
        snprintf(text + used, LINK_TEXT_BYTES - used, ",sl=%u", link_service_level(link));
    }
}
