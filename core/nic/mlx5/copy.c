/* copy.c: see copy.h. One function for each kind, since each is compiled for other instructions. */
#include "nic/mlx5/copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static void copy_words(void *to, const void *from, uint32_t bytes)
{
    volatile uint64_t *out = to;
    const uint64_t *in = from;
    for (uint32_t i = 0; i < bytes / sizeof(*in); i++) {
        out[i] = in[i];
    }
}

#if defined(__x86_64__)

static void copy_sse2(void *to, const void *from, uint32_t bytes)
{
    __m128i *out = to;
    const __m128i *in = from;
    for (uint32_t i = 0; i < bytes / sizeof(*in); i += 4) {
        __m128i a = _mm_load_si128(in + i);
        __m128i b = _mm_load_si128(in + i + 1);
        __m128i c = _mm_load_si128(in + i + 2);
        __m128i d = _mm_load_si128(in + i + 3);
        _mm_stream_si128(out + i, a);
        _mm_stream_si128(out + i + 1, b);
        _mm_stream_si128(out + i + 2, c);
        _mm_stream_si128(out + i + 3, d);
    }
}

__attribute__((target("avx"))) static inline void copy_block_avx(__m256i *out, const __m256i *in)
{
    __m256i a = _mm256_load_si256(in);
    __m256i b = _mm256_load_si256(in + 1);
    _mm256_stream_si256(out, a);
    _mm256_stream_si256(out + 1, b);
}

/* Four blocks are all that a register takes of ConnectX. Block by block, as an index takes 6 instructions more for three. */
__attribute__((target("avx"))) static void copy_avx(void *to, const void *from, uint32_t bytes)
{
    __m256i *out = to;
    const __m256i *in = from;
    for (;; bytes -= 4 * COPY_BLOCK_BYTES, out += 8, in += 8) {
        copy_block_avx(out, in);
        if (bytes == COPY_BLOCK_BYTES) {
            return;
        }
        copy_block_avx(out + 2, in + 2);
        if (bytes == 2 * COPY_BLOCK_BYTES) {
            return;
        }
        copy_block_avx(out + 4, in + 4);
        if (bytes == 3 * COPY_BLOCK_BYTES) {
            return;
        }
        copy_block_avx(out + 6, in + 6);
        if (bytes == 4 * COPY_BLOCK_BYTES) {
            return;
        }
    }
}

__attribute__((target("avx512f"))) static void copy_avx512(void *to, const void *from,
                                                           uint32_t bytes)
{
    __m512i *out = to;
    const __m512i *in = from;
    for (uint32_t i = 0; i < bytes / sizeof(*in); i++) {
        _mm512_stream_si512(out + i, _mm512_load_si512(in + i));
    }
}

#elif defined(__aarch64__)

static void copy_neon(void *to, const void *from, uint32_t bytes)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    for (uint32_t i = 0; i < bytes; i += COPY_BLOCK_BYTES) {
        uint8x16_t a = vld1q_u8(in + i);
        uint8x16_t b = vld1q_u8(in + i + 16);
        uint8x16_t c = vld1q_u8(in + i + 32);
        uint8x16_t d = vld1q_u8(in + i + 48);
        /* C has no non-temporal store of a pair. */
        __asm__ volatile("stnp %q1, %q2, [%0]\n\tstnp %q3, %q4, [%0, #32]"
                         :
                         : "r"(out + i), "w"(a), "w"(b), "w"(c), "w"(d)
                         : "memory");
    }
}

#endif

int copy_possible(enum copy_kind kind)
{
    switch (kind) {
#if defined(__x86_64__)
    case COPY_AVX512:
        return __builtin_cpu_supports("avx512f") != 0;
    case COPY_AVX:
        return __builtin_cpu_supports("avx") != 0;
    case COPY_SSE2: /* part of x86-64 */
#elif defined(__aarch64__)
    case COPY_NEON: /* part of arm64 */
#endif
    case COPY_WORDS:
        return 1;
    default:
        return 0;
    }
}

enum copy_kind copy_choose(void)
{
    static const enum copy_kind best_first[] = {COPY_AVX512, COPY_AVX, COPY_NEON, COPY_SSE2};
    for (unsigned i = 0; i < sizeof(best_first) / sizeof(best_first[0]); i++) {
        if (copy_possible(best_first[i])) {
            return best_first[i];
        }
    }
    return COPY_WORDS;
}

copy_function *copy_function_of(enum copy_kind kind)
{
    switch (kind) {
#if defined(__x86_64__)
    case COPY_SSE2:
        return copy_sse2;
    case COPY_AVX:
        return copy_avx;
    case COPY_AVX512:
        return copy_avx512;
#elif defined(__aarch64__)
    case COPY_NEON:
        return copy_neon;
#endif
    default:
        return copy_words;
    }
}
