# shellcheck shell=bash
# shellcheck disable=SC2034 # its readers are other files
# library_copies.sh: what GLIBC_TUNABLES must be for each copy that the C library has for x86-64: of AVX-512, AVX with and without
# AVX-512's registers, SSE2 and SSSE3, by rep movs or not. The first is the machine's own.
no_avx512=-AVX512F,-AVX512VL
no_avx=$no_avx512,-AVX_Fast_Unaligned_Load
library_copies=("")
if [ "$(uname -m)" = x86_64 ]; then
    for words in -ERMS -AVX512VL -AVX512F -AVX512F,-ERMS $no_avx512 $no_avx512,-ERMS $no_avx $no_avx,-ERMS \
        $no_avx,-Fast_Unaligned_Copy $no_avx,-Fast_Unaligned_Copy,-SSSE3 Prefer_ERMS Prefer_FSRM; do
        library_copies+=("glibc.cpu.hwcaps=$words")
    done
fi
