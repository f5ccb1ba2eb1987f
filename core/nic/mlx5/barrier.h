/* barrier.h: what orders our stores and loads against those of the device.
 *
 * The device sees memory as another processor would, with two exceptions: its registers are mapped
 * write-combining, so stores to them may leave the processor late and in any order; and it writes
 * completions without asking anybody. Each barrier below has one place in post or poll and one
 * guarantee. None orders our threads against each other: a queue belongs to one thread.
 *
 * x86-64 keeps stores in order and loads in order, so most of these only stop the compiler; only
 * write-combining stores need an instruction (Intel SDM volume 3, 12.3.1; AMD APM volume 2, 7.4).
 * arm64 needs one everywhere: `dmb oshst`/`oshld` order against devices in the outer shareable
 * domain, `dsb` waits until buffered stores have left (Arm ARM, B2.3).
 */
#ifndef CORE_NIC_MLX5_BARRIER_H
#define CORE_NIC_MLX5_BARRIER_H

#if defined(__x86_64__)
#define BARRIER_STORE_STORE() __asm__ volatile("" ::: "memory")
#define BARRIER_LOAD_LOAD() __asm__ volatile("" ::: "memory")
#define BARRIER_REGISTER_STORES() __asm__ volatile("sfence" ::: "memory")
#define BARRIER_REGISTER_FLUSH() __asm__ volatile("sfence" ::: "memory")
#elif defined(__aarch64__)
#define BARRIER_STORE_STORE() __asm__ volatile("dmb oshst" ::: "memory")
#define BARRIER_LOAD_LOAD() __asm__ volatile("dmb oshld" ::: "memory")
#define BARRIER_REGISTER_STORES() __asm__ volatile("dmb oshst" ::: "memory")
#define BARRIER_REGISTER_FLUSH() __asm__ volatile("dsb st" ::: "memory")
#else
#error "no barriers for this processor: say what they are here, or build with -Dmlx5=disabled"
#endif

/* Between writing WQEs and the doorbell record that counts them: whoever reads the record sees the
 * WQEs whole. */
static inline void barrier_before_record(void)
{
    BARRIER_STORE_STORE();
}

/* Between the doorbell record and the doorbell: a device that was rung finds the new record. */
static inline void barrier_before_doorbell(void)
{
    BARRIER_REGISTER_STORES();
}

/* After a doorbell: it leaves the processor now and not when its buffer is wanted for something
 * else, and before the next doorbell, which may be to the same register. */
static inline void barrier_after_doorbell(void)
{
    BARRIER_REGISTER_FLUSH();
}

/* Between finding that a CQE is ours and reading its other fields, and what it says has arrived. */
static inline void barrier_after_owner(void)
{
    BARRIER_LOAD_LOAD();
}

/* Between the last read of a CQE and telling the device that its place is free. */
static inline void barrier_before_release(void)
{
#if defined(__aarch64__)
    __asm__ volatile("dmb osh" ::: "memory"); /* loads before a store */
#else
    BARRIER_STORE_STORE();
#endif
}

#endif
