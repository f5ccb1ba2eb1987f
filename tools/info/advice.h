/* advice.h: what is worth changing on this machine, for copyrpc to work or to be fast. */
#ifndef TOOLS_INFO_ADVICE_H
#define TOOLS_INFO_ADVICE_H

#include "report.h"

#define ADVICE_MAX 512

/* ADVICE_NOTE: what nobody but the reader can find out. */
enum advice_kind { ADVICE_WARNING, ADVICE_NOTE };

struct advice {
    enum advice_kind kind;
    const char *code;   /* stays the same in later versions */
    const char *device; /* NULL: of the whole machine */
    uint32_t port;
    char what[320];
    char action[320];
};

struct advice_list {
    uint32_t count;
    struct advice advices[ADVICE_MAX];
};

/* Reads nothing but the report. */
void advice_find(const struct report *report, struct advice_list *list);

/* "16 GT/s x16 (252 Gbit/s)". Returns text. */
const char *advice_link_text(const struct pcie_link *link, char *text, size_t bytes);

#endif
