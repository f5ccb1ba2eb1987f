/* instructions.h: what instructions_test.c has executed by the processor and by the emulation.
 *
 * INSTRUCTION(feature, undefined flags, text). rdi points into the page, at a multiple of 64 and of
 * the vector's length; rsi at a source; rbx is below 64, rcx a count below 16; all other registers,
 * flags and masks are random. */

/* clang-format off */

/* Stores of general registers and immediates, of every width. */
STORE(BASE, 0, "movb %al, (%rdi)")
STORE(BASE, 0, "movb %ah, 3(%rdi)")
STORE(BASE, 0, "movb %r9b, 5(%rdi,%rbx)")
STORE(BASE, 0, "movb %sil, 128(%rdi)")
STORE(BASE, 0, "movw %r8w, 2(%rdi,%rbx,2)")
STORE(BASE, 0, "movl %edx, 1(%rdi,%rbx,4)")
STORE(BASE, 0, "movq %r15, (%rdi,%rbx,8)")
STORE(BASE, 0, "movq %rdx, 3(%rdi)")
STORE(BASE, 0, "movb $0x9c, 7(%rdi)")
STORE(BASE, 0, "movw $0x8765, 6(%rdi)")
STORE(BASE, 0, "movl $0x87654321, 12(%rdi)")
STORE(BASE, 0, "movq $-77, 8(%rdi)")
STORE(BASE, 0, "movnti %edx, 4(%rdi)")
STORE(BASE, 0, "movnti %r10, 8(%rdi)")
STORE(BASE, 0, "xchg %rdx, 8(%rdi)")
STORE(BASE, 0, "xchg %dl, 9(%rdi)")
STORE(BASE, 0, "setc (%rdi)")
STORE(BASE, 0, "addq %rdx, 8(%rdi)")
STORE(BASE, FLAG_ADJUST, "orb $0x41, 8(%rdi)")
STORE(BASE, 0, "notl 16(%rdi)")
STORE(BASE, 0, "incw 18(%rdi)")
STORE(MOVBE, 0, "movbe %rdx, (%rdi)")
STORE(MOVBE, 0, "movbe %r9d, 4(%rdi)")
STORE(MOVBE, 0, "movbe %dx, 2(%rdi)")
STORE(MOVDIRI, 0, "movdiri %r10, 8(%rdi)")
STORE(MOVDIRI, 0, "movdiri %edx, 4(%rdi)")
STORE(MOVDIR64B, 0, "movdir64b (%rsi), %rdi")

/* Strings, upwards and downwards. */
STORE(BASE, 0, "movsb")
STORE(BASE, 0, "movsw")
STORE(BASE, 0, "movsl")
STORE(BASE, 0, "movsq")
STORE(BASE, 0, "stosb")
STORE(BASE, 0, "stosw")
STORE(BASE, 0, "stosl")
STORE(BASE, 0, "stosq")
STRING(BASE, 0, "rep movsb")
STRING(BASE, 0, "lea (,%rcx,8), %ecx\n rep movsb")
STRING(BASE, 0, "rep movsw")
STRING(BASE, 0, "rep movsl")
STRING(BASE, 0, "rep movsq")
STRING(BASE, 0, "rep stosb")
STRING(BASE, 0, "lea (,%rcx,8), %ecx\n rep stosb")
STRING(BASE, 0, "rep stosw")
STRING(BASE, 0, "rep stosl")
STRING(BASE, 0, "rep stosq")
STRING(BASE, 0, "std\n add $256, %rdi\n add $256, %rsi\n rep movsb\n cld")
STRING(BASE, 0, "std\n add $256, %rdi\n add $256, %rsi\n rep movsq\n cld")

/* Loads, and what is calculated between stores. */
BETWEEN(BASE, 0, "movb 1(%rsi), %dl")
BETWEEN(BASE, 0, "movb 1(%rsi), %bh")
BETWEEN(BASE, 0, "movw (%rsi,%rbx), %dx")
BETWEEN(BASE, 0, "movl (%rsi,%rbx), %edx")
BETWEEN(BASE, 0, "movq (%rsi,%rbx,2), %r12")
BETWEEN(BASE, 0, "movzbl 3(%rsi), %edx")
BETWEEN(BASE, 0, "movzbl %ah, %edx")
BETWEEN(BASE, 0, "movzwl 3(%rsi), %r9d")
BETWEEN(BASE, 0, "movsbq 3(%rsi), %rdx")
BETWEEN(BASE, 0, "movsbw 3(%rsi), %dx")
BETWEEN(BASE, 0, "movswl 3(%rsi), %edx")
BETWEEN(BASE, 0, "movslq 3(%rsi), %rdx")
BETWEEN(BASE, 0, "movb $5, %dh\n movl $0x80000001, %eax\n movabs $0x123456789abcdef0, %r11")
BETWEEN(BASE, 0, "lea 5(%rsi,%rbx,8), %rdx\n lea -3(%rdx), %r9d\n lea 2(%rdx), %r10w")
BETWEEN(BASE, 0, "cbtw\n cwtl\n cltq")
BETWEEN(BASE, 0, "bswap %rdx\n bswap %r9d")
BETWEEN(BASE, 0, "xchg %rdx, %r9\n xchg %bl, %ah")
BETWEEN(BASE, 0, "nopw 0(%rax,%rax,1)\n nop\n pause\n endbr64\n prefetcht0 (%rsi)\n prefetchw (%rsi)")
BETWEEN(BASE, 0, "jmp 1f\n inc %rdx\n 1: .byte 0xe9, 0, 0, 0, 0")
BETWEEN(BASE, 0, "lea 1f(%rip), %rdx\n jmp *%rdx\n inc %r9\n 1: mov $0, %edx")
BETWEEN(MOVBE, 0, "movbe 2(%rsi), %rdx\n movbe (%rsi), %r9d\n movbe (%rsi), %r10w")

#define ARITHMETIC(operation, undefined)                                                          \
    BETWEEN(BASE, undefined, operation " %rdx, %r9")                                               \
    BETWEEN(BASE, undefined, operation " %edx, %r9d")                                              \
    BETWEEN(BASE, undefined, operation " %dx, %r9w")                                               \
    BETWEEN(BASE, undefined, operation " %dl, %bh")                                                \
    BETWEEN(BASE, undefined, operation " 4(%rsi), %rdx")                                           \
    BETWEEN(BASE, undefined, operation " (%rsi), %dl")                                             \
    BETWEEN(BASE, undefined, operation " $0x12345678, %rax")                                       \
    BETWEEN(BASE, undefined, operation " $-5, %al")                                                \
    BETWEEN(BASE, undefined, operation " $-5, %edx")                                               \
    BETWEEN(BASE, undefined, operation " $0x7654, %r10w")                                          \
    BETWEEN(BASE, undefined, operation " $0x71, %dh")
ARITHMETIC("add", 0)
ARITHMETIC("adc", 0)
ARITHMETIC("sub", 0)
ARITHMETIC("sbb", 0)
ARITHMETIC("cmp", 0)
ARITHMETIC("and", FLAG_ADJUST)
ARITHMETIC("or", FLAG_ADJUST)
ARITHMETIC("xor", FLAG_ADJUST)
#undef ARITHMETIC
BETWEEN(BASE, 0, "cmpb $0x40, (%rsi)")
BETWEEN(BASE, 0, "cmp %rdx, (%rsi)")
BETWEEN(BASE, FLAG_ADJUST, "test %rdx, %r9")
BETWEEN(BASE, FLAG_ADJUST, "test %dl, %bh")
BETWEEN(BASE, FLAG_ADJUST, "test $0x81, %al")
BETWEEN(BASE, FLAG_ADJUST, "test $0x12345678, %rax")
BETWEEN(BASE, FLAG_ADJUST, "testb $0x81, 3(%rsi)")
BETWEEN(BASE, FLAG_ADJUST, "testl $0x81001234, %r9d")
BETWEEN(BASE, 0, "inc %rdx")
BETWEEN(BASE, 0, "dec %r9d")
BETWEEN(BASE, 0, "inc %dl")
BETWEEN(BASE, 0, "dec %r9w")
BETWEEN(BASE, 0, "not %rdx\n not %bh\n not %r9w")
BETWEEN(BASE, 0, "neg %rdx")
BETWEEN(BASE, 0, "neg %r9d")
BETWEEN(BASE, 0, "neg %dl")

/* Shifts by more than one leave OVERFLOW undefined, all leave ADJUST so. */
#define SHIFT(operation)                                                                           \
    BETWEEN(BASE, FLAG_ADJUST, operation " %rdx")                                                  \
    BETWEEN(BASE, FLAG_ADJUST, operation " %r9w")                                                  \
    BETWEEN(BASE, FLAG_ADJUST, operation " %dh")                                                   \
    BETWEEN(BASE, FLAG_ADJUST | FLAG_OVERFLOW, operation " $5, %r9d")                              \
    BETWEEN(BASE, FLAG_ADJUST | FLAG_OVERFLOW, operation " $63, %rdx")                             \
    BETWEEN(BASE, FLAG_ADJUST | FLAG_OVERFLOW, operation " $7, %dl")                               \
    BETWEEN(BASE, FLAG_ADJUST | FLAG_OVERFLOW, operation " $8, %r9w")                              \
    BETWEEN(BASE, 0, operation " $0, %r9d")                                                        \
    BETWEEN(BASE, FLAG_ADJUST | FLAG_OVERFLOW, operation " %cl, %rdx")
SHIFT("shl")
SHIFT("shr")
SHIFT("sar")
SHIFT("rol")
SHIFT("ror")
#undef SHIFT

#define CONDITION(code)                                                                            \
    BETWEEN(BASE, 0, "j" code " 1f\n add $7, %rdx\n 1: nop")                                        \
    BETWEEN(BASE, 0, "{disp32} j" code " 1f\n lea 7(%rdx), %rdx\n 1: nop")                          \
    BETWEEN(BASE, 0, "set" code " %dl\n set" code " %ah")                                           \
    BETWEEN(BASE, 0, "cmov" code " %r9, %rdx\n cmov" code " (%rsi), %r10d")
CONDITION("o")
CONDITION("no")
CONDITION("b")
CONDITION("ae")
CONDITION("e")
CONDITION("ne")
CONDITION("be")
CONDITION("a")
CONDITION("s")
CONDITION("ns")
CONDITION("p")
CONDITION("np")
CONDITION("l")
CONDITION("ge")
CONDITION("le")
CONDITION("g")
#undef CONDITION

/* SSE. */
#define WHOLE(feature, move, aligned, a, b)                                                        \
    STORE(feature, 0, move " %" a ", (%rdi)")                                                      \
    STORE(feature, 0, move " %" b ", 128(%rdi)")                                                   \
    BETWEEN(feature, 0, move " 64(%rsi), %" b)                                                     \
    BETWEEN(feature, 0, move " %" a ", %" b "\n " move " %" b ", " aligned "(%rdi)")
WHOLE(BASE, "movups", "3", "xmm1", "xmm9")
WHOLE(BASE, "movupd", "5", "xmm2", "xmm15")
WHOLE(BASE, "movaps", "16", "xmm1", "xmm9")
WHOLE(BASE, "movapd", "32", "xmm3", "xmm8")
WHOLE(BASE, "movdqa", "48", "xmm1", "xmm9")
WHOLE(BASE, "movdqu", "9", "xmm4", "xmm11")
STORE(BASE, 0, "movntps %xmm3, 16(%rdi)")
STORE(BASE, 0, "movntpd %xmm13, 16(%rdi)")
STORE(BASE, 0, "movntdq %xmm3, 32(%rdi)")
STORE(BASE, 0, "movlps %xmm3, 1(%rdi)")
STORE(BASE, 0, "movlpd %xmm12, 8(%rdi)")
STORE(BASE, 0, "movhps %xmm3, 8(%rdi)")
STORE(BASE, 0, "movhpd %xmm3, 8(%rdi)")
STORE(BASE, 0, "movss %xmm3, 8(%rdi)")
STORE(BASE, 0, "movsd %xmm14, 8(%rdi)")
STORE(BASE, 0, "movd %xmm3, 8(%rdi)")
STORE(BASE, 0, "movq %xmm3, 8(%rdi)")
STORE(BASE, 0, ".byte 0x66, 0x48, 0x0f, 0x7e, 0x1f") /* movq %xmm3, (%rdi) by its longer opcode */
STORE(SSE4, 0, "pextrb $13, %xmm3, 8(%rdi)")
STORE(SSE4, 0, "pextrw $5, %xmm3, 8(%rdi)")
STORE(SSE4, 0, "pextrd $3, %xmm3, 8(%rdi)")
STORE(SSE4, 0, "pextrq $1, %xmm3, 8(%rdi)")
STORE(SSE4, 0, "extractps $2, %xmm3, 8(%rdi)")
BETWEEN(SSE4, 0, "pextrb $3, %xmm3, %edx\n pextrq $1, %xmm9, %r9\n pinsrq $1, 8(%rsi), %xmm3")
BETWEEN(SSE4, 0, "pinsrd $2, %edx, %xmm3\n movntdqa (%rsi), %xmm5")
BETWEEN(BASE, 0, "movlps (%rsi), %xmm3\n movhps 8(%rsi), %xmm9")
BETWEEN(BASE, 0, "movlpd (%rsi), %xmm3\n movhpd 8(%rsi), %xmm9")
BETWEEN(BASE, 0, "movhlps %xmm4, %xmm3\n movlhps %xmm5, %xmm9")
BETWEEN(BASE, 0, "movss (%rsi), %xmm3\n movsd 8(%rsi), %xmm9")
BETWEEN(BASE, 0, "movss %xmm4, %xmm3\n movsd %xmm5, %xmm9")
BETWEEN(BASE, 0, "movd (%rsi), %xmm3\n movd %edx, %xmm9\n movq %r9, %xmm10")
BETWEEN(BASE, 0, "movq (%rsi), %xmm3\n movq %xmm3, %xmm9\n movq %xmm10, %rdx\n movd %xmm11, %r9d")
BETWEEN(BASE, 0, "pxor %xmm3, %xmm3\n xorps (%rsi), %xmm9\n por %xmm1, %xmm2\n pand %xmm4, %xmm5")
BETWEEN(BASE, 0, "andps %xmm1, %xmm2\n orps %xmm2, %xmm3\n punpcklqdq %xmm5, %xmm6")
BETWEEN(SSE4, 0, "palignr $5, %xmm1, %xmm2\n palignr $20, (%rsi), %xmm9\n palignr $33, %xmm3, %xmm4")
BETWEEN(BASE, 0, "lddqu 3(%rsi), %xmm5")

/* AVX. */
WHOLE(AVX2, "vmovups", "3", "xmm1", "xmm9")
WHOLE(AVX2, "vmovups", "3", "ymm1", "ymm9")
WHOLE(AVX2, "vmovupd", "3", "ymm1", "ymm9")
WHOLE(AVX2, "vmovaps", "64", "ymm1", "ymm9")
WHOLE(AVX2, "vmovapd", "64", "xmm1", "xmm9")
WHOLE(AVX2, "vmovdqa", "64", "ymm1", "ymm9")
WHOLE(AVX2, "vmovdqu", "1", "ymm1", "ymm9")
WHOLE(AVX2, "vmovdqu", "1", "xmm1", "xmm9")
STORE(AVX2, 0, "vmovntps %ymm3, 32(%rdi)")
STORE(AVX2, 0, "vmovntpd %ymm13, 32(%rdi)")
STORE(AVX2, 0, "vmovntdq %ymm3, 32(%rdi)")
STORE(AVX2, 0, "vmovntdq %xmm3, 48(%rdi)")
STORE(AVX2, 0, "vextractf128 $1, %ymm3, 5(%rdi)")
STORE(AVX2, 0, "vextracti128 $1, %ymm13, 16(%rdi)")
STORE(AVX2, 0, "vextracti128 $0, %ymm13, 16(%rdi)")
STORE(AVX2, 0, "vmovq %xmm3, 8(%rdi)")
STORE(AVX2, 0, "vmovd %xmm3, 8(%rdi)")
STORE(AVX2, 0, "vmovss %xmm3, 8(%rdi)")
STORE(AVX2, 0, "vmovsd %xmm3, 8(%rdi)")
STORE(AVX2, 0, "vmovlps %xmm3, 8(%rdi)")
STORE(AVX2, 0, "vmovhpd %xmm3, 8(%rdi)")
STORE(AVX2, 0, "vpextrb $9, %xmm3, 8(%rdi)")
STORE(AVX2, 0, "vpextrw $2, %xmm3, 8(%rdi)")
STORE(AVX2, 0, "vpextrd $2, %xmm3, 8(%rdi)")
STORE(AVX2, 0, "vpextrq $1, %xmm3, 8(%rdi)")
STORE(AVX2, 0, "vextractps $1, %xmm3, 8(%rdi)")
BETWEEN(AVX2, 0, "vmaskmovps %ymm3, %ymm4, 8(%rdi)")
BETWEEN(AVX2, 0, "vmaskmovpd %xmm3, %xmm4, 8(%rdi)")
BETWEEN(AVX2, 0, "vpmaskmovd %ymm3, %ymm4, 8(%rdi)")
BETWEEN(AVX2, 0, "vpmaskmovq %ymm3, %ymm4, 8(%rdi)")
BETWEEN(AVX2, 0, "vmaskmovps 4(%rsi), %ymm4, %ymm5\n vmaskmovpd 4(%rsi), %xmm4, %xmm6")
BETWEEN(AVX2, 0, "vpmaskmovd 4(%rsi), %ymm4, %ymm5\n vpmaskmovq 4(%rsi), %ymm4, %ymm6")
BETWEEN(AVX2, 0, "vmovss (%rsi), %xmm3\n vmovsd %xmm1, %xmm2, %xmm9")
BETWEEN(AVX2, 0, "vmovlps (%rsi), %xmm1, %xmm3\n vmovhps (%rsi), %xmm1, %xmm9\n vmovhlps %xmm1, %xmm2, %xmm4")
BETWEEN(AVX2, 0, "vmovq (%rsi), %xmm3\n vmovd %edx, %xmm9\n vmovq %xmm10, %rdx")
BETWEEN(AVX2, 0, "vpxor %xmm1, %xmm2, %xmm3\n vxorps (%rsi), %ymm2, %ymm9\n vpor %ymm1, %ymm2, %ymm4")
BETWEEN(AVX2, 0, "vpunpcklqdq %ymm1, %ymm2, %ymm3\n vpinsrq $1, %rdx, %xmm1, %xmm9")
BETWEEN(AVX2, 0, "vpalignr $5, %ymm1, %ymm2, %ymm3\n vpalignr $20, (%rsi), %xmm4, %xmm9")
BETWEEN(AVX2, 0, "vlddqu 3(%rsi), %ymm5\n vmovntdqa (%rsi), %ymm7\n vextracti128 $1, %ymm3, %xmm8")
BETWEEN(AVX2, 0, "vzeroupper")
BETWEEN(AVX2, 0, "vzeroall")
BETWEEN(AVX2, 0, "vzeroupper\n vmovups (%rsi), %ymm3\n vmovups %ymm3, (%rdi)")

/* AVX-512, with 8-bit displacements that count in vectors, masks, and registers above 15. */
WHOLE(AVX512, "vmovups", "3", "zmm1", "zmm29")
WHOLE(AVX512, "vmovupd", "3", "ymm17", "ymm9")
WHOLE(AVX512, "vmovaps", "64", "zmm1", "zmm16")
WHOLE(AVX512, "vmovapd", "64", "xmm21", "xmm9")
WHOLE(AVX512, "vmovdqa32", "64", "zmm1", "zmm31")
WHOLE(AVX512, "vmovdqa64", "64", "ymm18", "ymm9")
WHOLE(AVX512, "vmovdqu8", "1", "zmm1", "zmm30")
WHOLE(AVX512, "vmovdqu16", "1", "xmm19", "xmm9")
WHOLE(AVX512, "vmovdqu32", "1", "ymm16", "ymm9")
WHOLE(AVX512, "vmovdqu64", "1", "zmm16", "zmm9")
#define MASKED(move, to, from)                                                                     \
    BETWEEN(AVX512, 0, move " %" from ", 64(%rdi){%k1}")                                           \
    BETWEEN(AVX512, 0, move " 64(%rsi), %" to "{%k2}")                                             \
    BETWEEN(AVX512, 0, move " 64(%rsi), %" to "{%k3}{z}")                                          \
    BETWEEN(AVX512, 0, move " %" from ", %" to "{%k4}")                                            \
    BETWEEN(AVX512, 0, move " %" from ", %" to "{%k5}{z}")
MASKED("vmovups", "zmm3", "zmm20")
MASKED("vmovupd", "ymm3", "ymm20")
MASKED("vmovaps", "xmm3", "xmm20")
MASKED("vmovapd", "zmm31", "zmm20")
MASKED("vmovdqa32", "zmm31", "zmm2")
MASKED("vmovdqa64", "zmm31", "zmm2")
MASKED("vmovdqu8", "zmm31", "zmm2")
MASKED("vmovdqu8", "xmm31", "xmm2")
MASKED("vmovdqu16", "ymm31", "ymm2")
MASKED("vmovdqu32", "zmm31", "zmm2")
MASKED("vmovdqu64", "ymm31", "ymm2")
#undef MASKED
STORE(AVX512, 0, "vmovntps %zmm3, 64(%rdi)")
STORE(AVX512, 0, "vmovntpd %zmm23, 128(%rdi)")
STORE(AVX512, 0, "vmovntdq %zmm3, (%rdi)")
STORE(AVX512, 0, "vmovntdq %zmm30, 64(%rdi)")
STORE(AVX512, 0, "vmovntdq %ymm30, 32(%rdi)")
STORE(AVX512, 0, "vmovntdq %xmm30, 16(%rdi)")
STORE(AVX512, 0, "vextractf32x4 $3, %zmm3, 16(%rdi)")
STORE(AVX512, 0, "vextractf64x2 $2, %zmm23, 16(%rdi)")
STORE(AVX512, 0, "vextractf32x8 $1, %zmm3, 32(%rdi)")
STORE(AVX512, 0, "vextractf64x4 $1, %zmm3, 32(%rdi)")
STORE(AVX512, 0, "vextracti32x4 $1, %ymm23, 16(%rdi)")
STORE(AVX512, 0, "vextracti64x2 $1, %zmm3, 16(%rdi)")
STORE(AVX512, 0, "vextracti32x8 $1, %zmm23, 32(%rdi)")
STORE(AVX512, 0, "vextracti64x4 $1, %zmm3, 32(%rdi)")
BETWEEN(AVX512, 0, "vextractf32x4 $3, %zmm3, 16(%rdi){%k1}")
BETWEEN(AVX512, 0, "vextracti64x4 $1, %zmm3, 32(%rdi){%k1}")
BETWEEN(AVX512, 0, "vextracti32x8 $1, %zmm3, %ymm24{%k1}\n vextracti64x2 $3, %zmm5, %xmm25{%k2}{z}")
STORE(AVX512, 0, "vmovq %xmm23, 16(%rdi)")
STORE(AVX512, 0, "vmovd %xmm23, 16(%rdi)")
STORE(AVX512, 0, "vmovss %xmm23, 16(%rdi)")
STORE(AVX512, 0, "vmovsd %xmm23, 16(%rdi)")
STORE(AVX512, 0, "vmovlps %xmm23, 16(%rdi)")
STORE(AVX512, 0, "vmovhpd %xmm23, 16(%rdi)")
STORE(AVX512, 0, "vpextrb $5, %xmm23, 16(%rdi)")
STORE(AVX512, 0, "vpextrw $5, %xmm23, 16(%rdi)")
STORE(AVX512, 0, "vpextrd $1, %xmm23, 16(%rdi)")
STORE(AVX512, 0, "vpextrq $1, %xmm23, 16(%rdi)")
STORE(AVX512, 0, "vextractps $1, %xmm23, 16(%rdi)")
BETWEEN(AVX512, 0, "vmovntdqa 64(%rsi), %zmm23\n vmovq 8(%rsi), %xmm24\n vmovd %edx, %xmm25\n vmovq %xmm26, %r9")
BETWEEN(AVX512, 0, "vmovss (%rsi), %xmm23\n vmovsd %xmm1, %xmm2, %xmm19\n vpinsrq $0, %rdx, %xmm20, %xmm21")
STORE(AVX512, 0, "kmovb %k1, 3(%rdi)")
STORE(AVX512, 0, "kmovw %k2, 4(%rdi)")
STORE(AVX512, 0, "kmovd %k3, 4(%rdi)")
STORE(AVX512, 0, "kmovq %k4, 8(%rdi)")
BETWEEN(AVX512, 0, "kmovb %k1, %k2\n kmovw (%rsi), %k3\n kmovd %k4, %k5\n kmovq (%rsi), %k6")
BETWEEN(AVX512, 0, "kmovb %edx, %k1\n kmovw %r9d, %k2\n kmovd %r10d, %k3\n kmovq %r11, %k4")
BETWEEN(AVX512, 0, "kmovb %k1, %edx\n kmovw %k2, %r9d\n kmovd %k3, %r10d\n kmovq %k4, %r11")
#undef WHOLE

/* clang-format on */
