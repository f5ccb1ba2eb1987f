/* page.h: the page that an emulated instruction may access. The thread that was stopped cannot. */
#ifndef SIMNIC_SHIM_EMULATE_PAGE_H
#define SIMNIC_SHIM_EMULATE_PAGE_H

#include "simnic/shim/emulate/emulate.h"

/* Whether all of these bytes are on the page, as the program addresses it. */
bool page_has(const struct emulate_page *page, uintptr_t address, size_t bytes);

/* Both only for what the page has. Aligned pieces of up to 8 bytes are stored whole, as the
 * processor stores them. Wider stores are made of such pieces, upwards. */
void page_load(const struct emulate_page *page, uintptr_t address, void *to, size_t bytes);
void page_store(const struct emulate_page *page, uintptr_t address, const void *from, size_t bytes);

#endif
