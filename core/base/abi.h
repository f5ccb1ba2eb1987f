/* abi.h: the one door through which core sees the public header.
 *
 * Ops, completions and status codes are the ABI's own types: the engine writes completions straight
 * into the caller's array, so there is one definition and no conversion (as kernels include their
 * uapi headers). Core never calls a crpc_ function; it is linked and tested without capi.
 */
#ifndef CORE_BASE_ABI_H
#define CORE_BASE_ABI_H

#include "copyrpc.h"

#endif
