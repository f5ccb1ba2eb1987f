/* barrier.h: orders the processor's loads and stores against those of the device.
 *
 * The device sees memory like another processor, with two exceptions. Its registers are mapped
 * write-combining, so stores to them may leave the processor late and in any order. And it writes
 * completions at any time. Each barrier below has one place in post or poll, and gives one
 * guarantee. No barrier orders threads against each other, because a queue belongs to one thread.
 *
 * x86-64 keeps stores in order and loads in order, so most barriers only stop the compiler. Only
 * write-combining stores need an instruction (Intel SDM volume 3, 12.3.1; AMD APM volume 2, 7.4).
 * arm64 needs an instruction everywhere: `dmb oshst` and `dmb oshld` order accesses against devices
 * in the outer shareable domain, and `dsb` waits until buffered stores have left (Arm ARM, B2.3).
 */
#ifndef CORE_NIC_MLX5_BARRIER_H
#define CORE_NIC_MLX5_BARRIER_H

#include "nic/barrier.h"

#if defined(__x86_64__)
#define BARRIER_STORE_STORE() __asm__ volatile("" ::: "memory")
#define BARRIER_REGISTER_STORES() __asm__ volatile("sfence" ::: "memory")
#define BARRIER_REGISTER_FLUSH() __asm__ volatile("sfence" ::: "memory")
#elif defined(__aarch64__)
#define BARRIER_STORE_STORE() __asm__ volatile("dmb oshst" ::: "memory")
#define BARRIER_REGISTER_STORES() __asm__ volatile("dmb oshst" ::: "memory")
#define BARRIER_REGISTER_FLUSH() __asm__ volatile("dsb st" ::: "memory")
#else
#error "no barriers for this processor: say what they are here, or build with -Dmlx5=disabled"
#endif

/* Goes between writing WQEs and writing the doorbell record that counts them. A device that reads
 * the record then sees complete WQEs. */
static inline void barrier_before_record(void)
{
    BARRIER_STORE_STORE();
}

/* Goes between the doorbell record and the doorbell. A device that gets the doorbell then finds the
 * new record. */
static inline void barrier_before_doorbell(void)
{
    BARRIER_REGISTER_STORES();
}

/* Goes after a doorbell. The doorbell then leaves the processor at once, and before the next
 * doorbell, which may go to the same register. */
static inline void barrier_after_doorbell(void)
{
    BARRIER_REGISTER_FLUSH();
}

/* Goes between the check that a CQE is ours and all reads of its other fields and of the data that
 * it reports. */
static inline void barrier_after_owner(void)
{
    barrier_after_device_wrote();
}

/* Goes between the last read of a CQE and telling the device that its place is free. */
static inline void barrier_before_release(void)
{
#if defined(__aarch64__)
    __asm__ volatile("dmb osh" ::: "memory"); /* loads before a store */
#else
    BARRIER_STORE_STORE();
#endif
}

#endif
