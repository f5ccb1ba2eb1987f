/* decode.h: work requests and completions in words, as the mlx5 Programmer's Reference Manual (PRM)
 * names them. The bytes may be anything: nothing outside of them is read. */
#ifndef SIMNIC_RUN_DECODE_H
#define SIMNIC_RUN_DECODE_H

#include <stdint.h>
#include <stdio.h>

/* Prints a send WQE of a QP, without a line end. `type` is the QP's, of enum queue_pair_type, or 0
 * if it is not known. */
void decode_wqe(FILE *out, uint32_t qpn, uint8_t type, const uint8_t *bytes, uint32_t count);

/* The same for a CQE of 64 bytes, of a QP of that type. */
void decode_cqe(FILE *out, uint8_t type, const uint8_t *bytes, uint32_t count);

/* Returns the number of the QP that a CQE is about; UINT32_MAX if it does not say. */
uint32_t decode_cqe_qpn(const uint8_t *bytes, uint32_t count);

/* Prints the bytes in hex, 16 in a line. */
void decode_raw(FILE *out, const uint8_t *bytes, uint32_t count);

#endif
