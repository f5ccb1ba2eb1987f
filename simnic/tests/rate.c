/* rate.c: how fast a device is within one process: 8-byte WRITEs in lists of 32, and round trips of
 * WRITE_IMM between two QPs. Prints one line of JSON. Run it under `simnic run`. Times say
 * something about the machine; compare them with others of the same run only. */
#include "simnic/tests/pair.h"

#define LIST 32

static struct pair pair;

static double write_rate(long count)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory, 8, pair.region->lkey};
    struct ibv_send_wr wr[LIST], *bad;
    for (int i = 0; i < LIST; i++) {
        wr[i] = (struct ibv_send_wr){.next = i + 1 < LIST ? &wr[i + 1] : NULL,
                                     .sg_list = &sge,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_RDMA_WRITE,
                                     .send_flags = i + 1 < LIST ? 0 : IBV_SEND_SIGNALED};
        wr[i].wr.rdma.remote_addr = (uintptr_t)&pair.memory[512];
        wr[i].wr.rdma.rkey = pair.region->rkey;
    }
    double start = now();
    long posted = 0, completed = 0;
    while (completed < count) {
        while (posted < count && posted - completed <= PAIR_DEPTH - 2 * LIST) {
            if (ibv_post_send(pair.qp[0], wr, &bad)) {
                fail("post");
            }
            posted += LIST;
        }
        wait_for(pair.cq[0]);
        completed += LIST;
    }
    return (double)completed / (now() - start);
}

static double round_trip_ns(long count)
{
    double start = now();
    for (long i = 0; i < count; i++) {
        pair_round_trip(&pair);
    }
    return (now() - start) * 1e9 / (double)count;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 2000000;
    pair_open(&pair);
    write_rate(count / 10); /* to warm up */
    double rate = write_rate(count), ns = round_trip_ns(count / 20);
    printf("{\"writes_per_second\": %.0f, \"write_imm_round_trip_ns\": %.0f}\n", rate, ns);
    return 0;
}
