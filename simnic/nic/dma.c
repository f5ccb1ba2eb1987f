/* dma.c: accesses to memory that may not be there. See dma.h. */
#include "simnic/nic/dma.h"

#if defined(__x86_64__)

/* No access uses the stack or a register that the caller wants back, so dma_failed may simply
 * return. Copies of 256 bytes and more use `rep movsb`, which is fast on all recent processors. For
 * shorter ones its start costs more than it saves. */
__asm__(
    ".text\n"
    ".p2align 4\n"
    ".globl dma_copy, dma_load32, dma_store32, dma_store64, dma_fetch_add64, dma_compare_swap64\n"
    ".hidden dma_copy, dma_load32, dma_store32, dma_store64, dma_fetch_add64, dma_compare_swap64\n"
    ".globl dma_accesses_start, dma_accesses_end, dma_failed\n" /* link-time optimisation puts their uses elsewhere */
    ".hidden dma_accesses_start, dma_accesses_end, dma_failed\n"
    ".type dma_copy,@function\n"
    ".type dma_load32,@function\n"
    ".type dma_store32,@function\n"
    ".type dma_store64,@function\n"
    ".type dma_fetch_add64,@function\n"
    ".type dma_compare_swap64,@function\n"
    "dma_accesses_start:\n"
    "dma_copy:\n" /* rdi: to, rsi: from, rdx: bytes */
    "  cmp $256, %rdx\n"
    "  jae 5f\n"
    "1: sub $32, %rdx\n"
    "  jb 2f\n"
    "  mov (%rsi), %rax\n"
    "  mov 8(%rsi), %rcx\n"
    "  mov 16(%rsi), %r8\n"
    "  mov 24(%rsi), %r9\n"
    "  mov %rax, (%rdi)\n"
    "  mov %rcx, 8(%rdi)\n"
    "  mov %r8, 16(%rdi)\n"
    "  mov %r9, 24(%rdi)\n"
    "  add $32, %rsi\n"
    "  add $32, %rdi\n"
    "  jmp 1b\n"
    "2: add $32, %rdx\n"
    "3: sub $8, %rdx\n"
    "  jb 4f\n"
    "  mov (%rsi), %rax\n"
    "  mov %rax, (%rdi)\n"
    "  add $8, %rsi\n"
    "  add $8, %rdi\n"
    "  jmp 3b\n"
    "4: mov %rdx, %rcx\n"
    "  add $8, %rcx\n"
    "  rep movsb\n"
    "  mov $1, %eax\n"
    "  ret\n"
    "5: mov %rdx, %rcx\n"
    "  rep movsb\n"
    "  mov $1, %eax\n"
    "  ret\n"
    "dma_load32:\n" /* rdi: from, rsi: value */
    "  mov (%rdi), %eax\n"
    "  mov %eax, (%rsi)\n"
    "  mov $1, %eax\n"
    "  ret\n"
    "dma_store32:\n" /* rdi: to, esi: value */
    "  mov %esi, (%rdi)\n"
    "  mov $1, %eax\n"
    "  ret\n"
    "dma_store64:\n" /* rdi: to, rsi: value */
    "  mov %rsi, (%rdi)\n"
    "  mov $1, %eax\n"
    "  ret\n"
    "dma_fetch_add64:\n" /* rdi: at, rsi: add, rdx: old */
    "  lock xadd %rsi, (%rdi)\n"
    "  mov %rsi, (%rdx)\n"
    "  mov $1, %eax\n"
    "  ret\n"
    "dma_compare_swap64:\n" /* rdi: at, rsi: compare, rdx: swap, rcx: old */
    "  mov %rsi, %rax\n"
    "  lock cmpxchg %rdx, (%rdi)\n"
    "  mov %rax, (%rcx)\n"
    "  mov $1, %eax\n"
    "  ret\n"
    "dma_accesses_end:\n"
    "dma_failed:\n"
    "  xor %eax, %eax\n"
    "  ret\n"
    ".size dma_copy, dma_accesses_end - dma_copy\n"
    ".previous\n");

extern const char dma_accesses_start[] __attribute__((visibility("hidden")));
extern const char dma_accesses_end[] __attribute__((visibility("hidden")));
extern const char dma_failed[] __attribute__((visibility("hidden")));

bool dma_is_access(uintptr_t instruction)
{
    return instruction >= (uintptr_t)dma_accesses_start &&
           instruction < (uintptr_t)dma_accesses_end;
}

uintptr_t dma_failed_address(void)
{
    return (uintptr_t)dma_failed;
}

#else

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* For memory that is not there, the system call fails with EFAULT. */
bool dma_copy(void *to, const void *from, size_t bytes)
{
    struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)from, bytes};
    return bytes == 0 || process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

bool dma_load32(const void *from, uint32_t *value)
{
    return dma_copy(value, from, sizeof(*value));
}

bool dma_store32(void *to, uint32_t value)
{
    return dma_copy(to, &value, sizeof(value));
}

bool dma_store64(void *to, uint64_t value)
{
    return dma_copy(to, &value, sizeof(value));
}

bool dma_fetch_add64(void *at, uint64_t add, uint64_t *old)
{
    uint64_t probe;
    if (!dma_copy(&probe, at, sizeof(probe))) {
        return false;
    }
    *old = __atomic_fetch_add((uint64_t *)at, add, __ATOMIC_SEQ_CST);
    return true;
}

bool dma_compare_swap64(void *at, uint64_t compare, uint64_t swap, uint64_t *old)
{
    uint64_t probe;
    if (!dma_copy(&probe, at, sizeof(probe))) {
        return false;
    }
    *old = compare;
    __atomic_compare_exchange_n((uint64_t *)at, old, swap, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return true;
}

bool dma_is_access(uintptr_t instruction)
{
    (void)instruction;
    return false;
}

uintptr_t dma_failed_address(void)
{
    return 0;
}

#endif
