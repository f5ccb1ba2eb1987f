/* page.c: see page.h. */
#include "simnic/shim/emulate/page.h"

#include <string.h>

bool page_has(const struct emulate_page *page, uintptr_t address, size_t bytes)
{
    return address >= page->address && bytes <= page->bytes &&
           address - page->address <= page->bytes - bytes;
}

void page_load(const struct emulate_page *page, uintptr_t address, void *to, size_t bytes)
{
    memcpy(to, page->memory + (address - page->address), bytes);
}

void page_store(const struct emulate_page *page, uintptr_t address, const void *from, size_t bytes)
{
    uint8_t *to = page->memory + (address - page->address);
    const uint8_t *value = from;
    for (size_t piece; bytes; to += piece, value += piece, bytes -= piece) {
        uint64_t word = 0;
        for (piece = 8; piece > bytes || (uintptr_t)to % piece; piece /= 2) {
        }
        memcpy(&word, value, piece);
        if (piece == 8) {
            __atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELEASE);
        } else if (piece == 4) {
            __atomic_store_n((uint32_t *)(void *)to, (uint32_t)word, __ATOMIC_RELEASE);
        } else if (piece == 2) {
            __atomic_store_n((uint16_t *)(void *)to, (uint16_t)word, __ATOMIC_RELEASE);
        } else {
            __atomic_store_n(to, (uint8_t)word, __ATOMIC_RELEASE);
        }
    }
}
