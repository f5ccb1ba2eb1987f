/* not_inlined.h: for what callgrind has to find. */
#ifndef BENCH_NOT_INLINED_H
#define BENCH_NOT_INLINED_H

/* Kept as a function of its own name, by which callgrind finds it. */
#if defined(__clang__)
#define NOT_INLINED __attribute__((noinline))
#else
#define NOT_INLINED __attribute__((noinline, noclone))
#endif

#endif
