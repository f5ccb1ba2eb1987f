/* push_test.c: BlueFlame pushes by whatever instructions copy them. What is pushed must be executed
 * in the thread that pushes, as soon as its last store is made: each test polls once and does not
 * wait.
 *
 * push_test SIMNIC WORD: to be run under simnic, by push_test.sh, which looks at the trace too. */
#include <infiniband/mlx5dv.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "simnic/tests/pair.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BLOCK 64u
#define PUSHES 200u
#define STEPS 5u /* fewer than make the device look by itself */
#define WAITS 40u
#define IDLE_US 2000 /* for the device to find that there is nothing to do */

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_cq *cq;
static struct ibv_qp *qp[2];
static struct ibv_mr *region;
static uint8_t memory[4096] __attribute__((aligned(64)));
static struct mlx5dv_qp queue;
static uint32_t next_block, register_offset, pushed;

static void expect(bool holds, const char *what)
{
    if (!holds) {
        fail(what);
    }
}

/* With one processor there is none to spare for polling: stores trap. */
static void open_all(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    expect(sched_getcpu() >= 0, "no processor");
    CPU_SET((unsigned)sched_getcpu(), &set);
    expect(sched_setaffinity(0, sizeof(set), &set) == 0, "no affinity");
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!list || !list[0] || !(context = ibv_open_device(list[0]))) {
        fail("no device");
    }
    ibv_free_device_list(list);
    domain = ibv_alloc_pd(context);
    region = ibv_reg_mr(domain, memory, sizeof(memory),
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {256, 1, 1, 1, 128}};
        qp[i] = ibv_create_qp(domain, &init);
        expect(qp[i], "no QP");
    }
    connect_to(context, qp[0], qp[1]->qp_num);
    connect_to(context, qp[1], qp[0]->qp_num);
    struct mlx5dv_obj object = {.qp = {.in = qp[0], .out = &queue}};
    expect(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) == 0 && queue.bf.size, "no BlueFlame");
}

/* Makes a WRITE of inline data of as many blocks in the queue, and returns it for the push. */
static const uint8_t *prepare(uint32_t blocks)
{
    static uint8_t wqe[4 * BLOCK] __attribute__((aligned(64)));
    uint32_t data = blocks * BLOCK - 36;
    struct mlx5_wqe_inl_data_seg inlined = {htobe32(data | MLX5_INLINE_SEG)};
    memset(wqe, 0, sizeof(wqe));
    mlx5dv_set_ctrl_seg((struct mlx5_wqe_ctrl_seg *)(void *)wqe, (uint16_t)next_block,
                        MLX5_OPCODE_RDMA_WRITE, 0, qp[0]->qp_num, MLX5_WQE_CTRL_CQ_UPDATE,
                        (uint8_t)(blocks * 4), 0, 0);
    struct mlx5_wqe_raddr_seg *remote = (struct mlx5_wqe_raddr_seg *)(void *)(wqe + 16);
    remote->raddr = htobe64((uintptr_t)memory);
    remote->rkey = htobe32(region->rkey);
    memcpy(wqe + 32, &inlined, 4);
    for (uint32_t i = 0; i < data; i++) {
        wqe[36 + i] = (uint8_t)(next_block * 31 + i * 7 + 1);
    }
    for (uint32_t i = 0; i < blocks; i++) {
        memcpy((uint8_t *)queue.sq.buf + (next_block + i) % queue.sq.wqe_cnt * BLOCK,
               wqe + i * BLOCK, BLOCK);
    }
    next_block += blocks;
    __atomic_store_n(&queue.dbrec[MLX5_SND_DBR], htobe32(next_block & 0xffff), __ATOMIC_RELEASE);
    memset(memory, 0, sizeof(memory));
    return wqe;
}

static uint8_t *bell(void)
{
    return (uint8_t *)queue.bf.reg + register_offset;
}

static void expect_executed(const uint8_t *wqe, uint32_t blocks)
{
    struct ibv_wc wc;
    register_offset ^= queue.bf.size;
    pushed++;
    expect(ibv_poll_cq(cq, 1, &wc) == 1, "what was pushed was not executed at once");
    expect(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
    expect(memcmp(memory, wqe + 36, blocks * BLOCK - 36) == 0, "other data was written");
}

/* What `simnic ctl stats` tells of all QPs, up to their sums. */
static const char *read_statistics(const char *simnic)
{
    static char text[1 << 16];
    char command[4096];
    snprintf(command, sizeof(command), "'%s' ctl stats --json", simnic);
    FILE *stats = popen(command, "r");
    expect(stats, "no statistics");
    text[fread(text, 1, sizeof(text) - 1, stats)] = 0;
    pclose(stats);
    char *end = strstr(text, "\"sum\"");
    expect(end, "the statistics have no sum");
    *end = 0;
    return text;
}

/* The sum of a counter over all QPs. */
static unsigned long counted(const char *statistics, const char *name)
{
    char key[64];
    unsigned long sum = 0;
    snprintf(key, sizeof(key), "\"%s\":", name);
    for (const char *at = strstr(statistics, key); at; at = strstr(at + 1, key)) {
        sum += strtoul(at + strlen(key), NULL, 10);
    }
    return sum;
}

/* Each push is one doorbell, and executed from what was pushed: but for a few that the service
 * thread finds by the doorbell record, since it happens to run between that and the push: the busier
 * the machine, the sooner. Copies of one length that are not noticed as pushes would be a quarter of
 * them. */
static void expect_all_pushed(const char *simnic)
{
    const char *statistics = read_statistics(simnic);
    unsigned long doorbells = counted(statistics, "doorbells");
    unsigned long pushes = counted(statistics, "blueflame_pushes");
    unsigned long executed = counted(statistics, "blueflame_executed");
    unsigned long read = counted(statistics, "wqe_reads");
    if (doorbells == pushed && pushes == executed && executed + read == pushed &&
        4 * read < pushed) {
        return;
    }
    fprintf(stderr,
            "push_test: %u pushed, %lu doorbells, %lu seen, %lu executed as pushed, %lu read\n",
            pushed, doorbells, pushes, executed, read);
    exit(1);
}

static void push_by_memcpy(const char *simnic)
{
    void *(*volatile copy)(void *, const void *, size_t) = memcpy; /* not the compiler's own */
    for (uint32_t i = 0; i < PUSHES; i++) {
        uint32_t blocks = 1 + i % 2 + i % 4 / 3;
        const uint8_t *wqe = prepare(blocks);
        copy(bell(), wqe, blocks * BLOCK);
        expect_executed(wqe, blocks);
    }
    expect_all_pushed(simnic);
}

/* Pushes that wait for each other so long that the NIC is idle between them. Prints how many full
 * seconds that took. */
static void push_and_wait(const char *simnic)
{
    (void)simnic;
    const time_t start = time(NULL);
    for (uint32_t i = 0; i < WAITS; i++) {
        struct ibv_wc wc;
        memcpy(bell(), prepare(1), BLOCK);
        register_offset ^= queue.bf.size;
        while (ibv_poll_cq(cq, 1, &wc) == 0) {
            usleep(100);
        }
        expect(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
        usleep(IDLE_US);
    }
    printf("%ld\n", (long)(time(NULL) - start));
}

#if defined(__x86_64__)

/* One instruction for all its uses: it is told of once. The prefix of "lock" is not known. */
__attribute__((noinline)) static void increment(uint64_t *at)
{
    __asm__ volatile("lock incq %0" : "+m"(*at));
}

static uint64_t *scratch(unsigned word) /* on the page, and no doorbell */
{
    return (uint64_t *)((uintptr_t)queue.bf.reg / 4096 * 4096 + 0xf00) + word;
}

/* maskmovdqu stores what another register says, to where rdi points. */
__attribute__((noinline)) static void copy_oddly(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    const __m128i all = _mm_set1_epi8(-1);
    for (uint32_t at = 0; at < bytes; at += 16) {
        _mm_maskmoveu_si128(_mm_loadu_si128((const __m128i *)(const void *)(from + at)), all,
                            (char *)to + at);
    }
}

/* A push of several steps is looked at between them, and so read from the queue at times. */
static void push_unknown(const char *simnic)
{
    (void)simnic;
    sigset_t usual, before, after;
    sigemptyset(&usual);
    sigaddset(&usual, SIGUSR1);
    sigaddset(&usual, SIGTRAP);
    pthread_sigmask(SIG_BLOCK, &usual, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    for (uint32_t i = 0; i < STEPS; i++) {
        increment(scratch(0));
        expect(*scratch(0) == i + 1, "a store was not made once");
    }
    for (uint32_t i = 0; i < PUSHES; i++) {
        const uint8_t *wqe = prepare(1);
        copy_oddly(bell(), wqe, BLOCK);
        expect_executed(wqe, 1);
    }
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int number = 1; number < 32; number++) {
        expect(sigismember(&before, number) == sigismember(&after, number),
               "the signal mask is another");
    }
}

static volatile sig_atomic_t own_traps;

static void count_trap(int signal_number)
{
    (void)signal_number;
    own_traps++;
}

/* A program's own SIGTRAP is its own. */
static void push_with_traps(const char *simnic)
{
    (void)simnic;
    struct sigaction action = {.sa_handler = count_trap}, told;
    expect(sigaction(SIGTRAP, &action, NULL) == 0, "no handler");
    for (uint32_t i = 0; i < STEPS; i++) {
        const uint8_t *wqe = prepare(1);
        __asm__ volatile("int3");
        copy_oddly(bell(), wqe, BLOCK);
        raise(SIGTRAP);
        expect_executed(wqe, 1);
        expect(own_traps == (int)(2 * i + 2), "the program's handler missed a SIGTRAP");
    }
    expect(sigaction(SIGTRAP, NULL, &told) == 0 && told.sa_handler == count_trap,
           "the program's handler is another");
}

static void *increment_often(void *word)
{
    for (unsigned i = 0; i < 10 * PUSHES; i++) {
        increment(word);
    }
    return NULL;
}

/* Threads on several processors at one page, and at one word. */
static void push_in_threads(const char *simnic)
{
    pthread_t thread[4];
    cpu_set_t all;
    (void)simnic;
    memset(&all, 0xff, sizeof(all));
    expect(sched_setaffinity(0, sizeof(all), &all) == 0, "no affinity");
    for (int i = 0; i < 4; i++) {
        expect(pthread_create(&thread[i], NULL, increment_often, scratch(1)) == 0, "no thread");
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
    }
    expect(*scratch(1) == 40 * PUSHES, "stores were lost, or made twice");
}

static sigjmp_buf back;

static void jump_back(int signal_number)
{
    siglongjmp(back, signal_number);
}

/* 16 stores by one instruction: the first to the page, the second to where nothing is. */
__attribute__((target("avx512f"))) static void scatter(uint8_t *first, uint8_t *second)
{
    long long distance = (second - first) / 8;
    __m512i offsets = _mm512_set_epi64(0, 0, 0, 0, 0, 0, distance, 0);
    _mm512_mask_i64scatter_epi64(first, 3, offsets, _mm512_set1_epi64(77), 8);
}

__attribute__((target("avx512f"))) static void compress(uint8_t *to, const uint8_t *from)
{
    _mm512_mask_compressstoreu_epi32(to, 0xffff, _mm512_loadu_si512(from));
}

static void push_by_avx512(const char *simnic)
{
    if (!__builtin_cpu_supports("avx512f")) {
        return;
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        const uint8_t *wqe = prepare(1);
        compress(bell(), wqe);
        expect_executed(wqe, 1);
    }
    /* A step that fails elsewhere is the program's failure; the page is closed behind it. */
    struct sigaction action = {.sa_handler = jump_back};
    expect(sigaction(SIGSEGV, &action, NULL) == 0, "no handler");
    if (sigsetjmp(back, 1) == 0) {
        scatter((uint8_t *)scratch(2), NULL);
        fail("a store to NULL went unnoticed");
    }
    expect(*scratch(2) == 77, "the first store was not made");
    for (uint32_t i = 0; i < STEPS; i++) {
        const uint8_t *wqe = prepare(1);
        compress(bell(), wqe);
        expect_executed(wqe, 1);
    }
    expect_all_pushed(simnic);
}

#endif

int main(int argc, char **argv)
{
    static const struct {
        const char *word;
        void (*run)(const char *simnic);
    } words[] = {
        {"memcpy", push_by_memcpy},
        {"blocked", push_by_memcpy},
        {"waits", push_and_wait},
#if defined(__x86_64__)
        {"unknown", push_unknown},
        {"traps", push_with_traps},
        {"threads", push_in_threads},
        {"avx512", push_by_avx512},
#endif
    };
    expect(argc == 3, "wants SIMNIC WORD");
    if (strcmp(argv[2], "blocked") == 0) { /* before anything is known of a device */
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    }
    open_all();
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i].word, argv[2]) == 0) {
            words[i].run(argv[1]);
            return 0;
        }
    }
    fail("knows no such word");
}
