/* abi.h: how core includes the public header.
 *
 * Core uses the ABI's own types for ops, completions and status codes. The engine writes
 * completions directly into the caller's array, so there is one definition and no conversion.
 * (Kernels include their uapi headers for the same reason.) Core never calls a crpc_ function, so
 * that it can be linked and tested without capi.
 */
#ifndef CORE_BASE_ABI_H
#define CORE_BASE_ABI_H

#include "copyrpc.h"

#endif
