/* fuzz.h: the fuzz target (fuzz_nic.c), as libFuzzer or fuzz_main.c calls it. */
#ifndef SIMNIC_NIC_TESTS_FUZZ_H
#define SIMNIC_NIC_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Frees what the inputs had in common. */
void fuzz_end(void);

#endif
