/* probe.h: static probes (USDT) of the provider "copyrpc", for bpftrace, perf, gdb and SystemTap. docs/observability.md lists them, and
 * a test compares its list with what is in the library.
 *
 * A probe is one nop, and a note in the file that says where its arguments are. So they are registers or memory that the code has
 * anyway: nothing may be computed for a probe alone on the path of a call. Without <sys/sdt.h>, which is in the package
 * systemtap-sdt-dev, there are none.
 */
#ifndef CORE_BASE_PROBE_H
#define CORE_BASE_PROBE_H

#ifdef COPYRPC_PROBES

#include <sys/sdt.h>

#define probe2(name, a, b) STAP_PROBE2(copyrpc, name, a, b)
#define probe3(name, a, b, c) STAP_PROBE3(copyrpc, name, a, b, c)
#define probe4(name, a, b, c, d) STAP_PROBE4(copyrpc, name, a, b, c, d)

#else

#define probe2(name, a, b) ((void)0)
#define probe3(name, a, b, c) ((void)0)
#define probe4(name, a, b, c, d) ((void)0)

#endif

#endif
