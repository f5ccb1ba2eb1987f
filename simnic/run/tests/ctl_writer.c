/* ctl_writer.c: a process of a session that has no device: it writes what `simnic ctl` is to show,
 * or what would hurt it. Takes words from stdin, one a line, and answers each with "done". */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "simnic/nic/nic.h"

static struct fabric fabric;
static uint32_t base; /* of QPNs */

static void record(uint32_t kind, uint32_t number, const void *bytes, uint32_t count)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    fabric_tick(&fabric, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
    fabric_trace(&fabric, kind, number, bytes, count);
}

static void statistics(void)
{
    struct fabric_queue_pair_statistics *qps = fabric.file->statistics[fabric.slot].queue_pairs;
    for (uint32_t i = 0; i < FABRIC_OBJECTS; i++) {
        fabric.file->statistics[fabric.slot].objects[i] = i + 1;
    }
    for (uint32_t i = 0; i < 3; i++) {
        qps[i] =
            (struct fabric_queue_pair_statistics){.qpn = base + i, .type = TYPE_RC, .state = 3};
        uint64_t *counters = &qps[i].send_wqes;
        for (uint64_t c = 0; c < 17; c++) {
            counters[c] = (i + 1) * (c + 1);
        }
    }
    qps[0].bytes_sent = 1234567890123;
    qps[0].partition = 0x8011;
    qps[0].timeout = 18;
    qps[0].way = (struct rail_way){.lid = 6,
                                   .service_level = 5,
                                   .grh = 1,
                                   .traffic_class = 106,
                                   .gid = {0xfe, 0x80, [15] = 9}};
    qps[1].type = TYPE_UD;
    qps[1].rail = 1;
    qps[2].destroyed = 1;
}

static struct mlx5_wqe_ctrl_seg control(uint8_t opcode, uint16_t index, uint32_t qpn, uint32_t ds,
                                        uint8_t flags, uint32_t immediate)
{
    return (struct mlx5_wqe_ctrl_seg){.opmod_idx_opcode = htobe32((uint32_t)index << 8 | opcode),
                                      .qpn_ds = htobe32(qpn << 8 | ds),
                                      .fm_ce_se = flags,
                                      .imm = htobe32(immediate)};
}

static struct mlx5_wqe_data_seg data(uint32_t key, uint64_t address, uint32_t bytes)
{
    return (struct mlx5_wqe_data_seg){htobe32(bytes), htobe32(key), htobe64(address)};
}

static void work_requests(void)
{
    struct {
        struct mlx5_wqe_ctrl_seg control;
        struct mlx5_wqe_raddr_seg remote;
        struct mlx5_wqe_data_seg data[2];
    } write = {control(MLX5_OPCODE_RDMA_WRITE_IMM, 7, base, 4,
                       MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_SOLICITED | MLX5_WQE_CTRL_FENCE,
                       0xabcd1234),
               {htobe64(0x7f0012345678), htobe32(0x5500), 0},
               {data(0x101, 0xdead000, 4096), data(0x202, 0xbeef000, 0)}};
    record(FABRIC_TRACE_WQE, base, &write, sizeof(write));
    record(FABRIC_TRACE_WQE, base, &write, 48); /* one data segment is missing */
    struct {
        struct mlx5_wqe_ctrl_seg control;
        uint32_t inline_bytes;
        uint8_t bytes[28];
        struct mlx5_wqe_data_seg wrong;
    } send = {control(MLX5_OPCODE_SEND, 8, base, 3, 0, 0), htobe32(20 | MLX5_INLINE_SEG),
              "hello, world: 20 byt", data(0, 0, 0)};
    record(FABRIC_TRACE_WQE, base, &send, sizeof(send));
    send.inline_bytes = htobe32(0x7fffffffu | MLX5_INLINE_SEG);
    record(FABRIC_TRACE_WQE, base, &send, sizeof(send));
    struct {
        struct mlx5_wqe_ctrl_seg control;
        struct mlx5_wqe_raddr_seg remote;
        struct mlx5_wqe_atomic_seg atomic;
        struct mlx5_wqe_data_seg data;
    } swap = {control(MLX5_OPCODE_ATOMIC_CS, 9, base + 2, 4, MLX5_WQE_CTRL_CQ_UPDATE, 0),
              {htobe64(0x1000), htobe32(0x77), 0},
              {htobe64(5), htobe64(6)},
              data(0x303, 0x2000, 8)};
    record(FABRIC_TRACE_WQE, base, &swap, sizeof(swap));
    struct {
        struct mlx5_wqe_ctrl_seg control;
        struct mlx5_wqe_av av;
        struct mlx5_wqe_data_seg data;
    } datagram = {control(MLX5_OPCODE_SEND, 10, base + 1, 5, 0, 0),
                  {.hop_limit = 64},
                  data(0x404, 0x3000, 100)};
    datagram.av.key.qkey.qkey = htobe32(0x11111111);
    datagram.av.dqp_dct = htobe32(0x42 | MLX5_EXTENDED_UD_AV);
    datagram.av.rgid[15] = 9;
    record(FABRIC_TRACE_WQE, base + 1, &datagram, sizeof(datagram));
    datagram.control =
        control(MLX5_OPCODE_SEND, 11, base + 1, 5, 0, 0); /* on InfiniBand, without a GRH */
    datagram.av.rlid = htobe16(6);
    datagram.av.fl_mlid = 1;
    datagram.av.stat_rate_sl = 5;
    datagram.av.rgid[15] = 0;
    record(FABRIC_TRACE_WQE, base + 1, &datagram, sizeof(datagram));
    datagram.control = control(MLX5_OPCODE_SEND, 13, base + 1, 5, 0, 0); /* and with one */
    datagram.av.rgid[15] = 9;
    datagram.av.grh_gid_fl = htobe32(1u << 30);
    record(FABRIC_TRACE_WQE, base + 1, &datagram, sizeof(datagram));
    struct {
        struct mlx5_wqe_ctrl_seg control;
        struct mlx5_wqe_tm_seg tag;
        struct mlx5_wqe_data_seg data;
    } append = {control(MLX5_OPCODE_TAG_MATCHING, 12, base, 4, 0, 0),
                {.opcode = 0x10, .flags = 0xc0, .index = htobe16(6), .sw_cnt = htobe16(3)},
                data(0x505, 0x4000, 64)};
    append.tag.append_tag = htobe64(0x77);
    append.tag.append_mask = htobe64(0xff);
    record(FABRIC_TRACE_WQE, base, &append, sizeof(append));
    struct mlx5_wqe_ctrl_seg odd = control(0x3f, 11, base, 2, 0, 0);
    record(FABRIC_TRACE_WQE, base, &odd, sizeof(odd));
    record(FABRIC_TRACE_WQE, base, &odd, 3);
}

static void completions(void)
{
    struct mlx5_cqe64 cqe = {.sop_drop_qpn = htobe32((uint32_t)MLX5_OPCODE_RDMA_READ << 24 | base),
                             .byte_cnt = htobe32(512),
                             .wqe_counter = htobe16(7),
                             .op_own = MLX5_CQE_REQ << 4 | 1};
    record(FABRIC_TRACE_CQE, 3, &cqe, sizeof(cqe));
    uint8_t compressed[64] = {0, 8, MLX5_OPCODE_SEND, 0, 0, 0, 0, 32, 0, 9};
    compressed[63] = 1 << 4 | 3 << 2; /* two of them */
    record(FABRIC_TRACE_CQE, 3, compressed, sizeof(compressed));
    compressed[63] = 0xff;
    record(FABRIC_TRACE_CQE, 4, compressed, sizeof(compressed));
    cqe.op_own = MLX5_CQE_RESP_SEND_IMM << 4 | MLX5_INLINE_SCATTER_32 | 2;
    cqe.imm_inval_pkey = htobe32(0x99887766);
    cqe.byte_cnt = htobe32(3);
    memcpy(&cqe, "abc", 3);
    record(FABRIC_TRACE_CQE, 3, &cqe, sizeof(cqe));
    struct mlx5_err_cqe error = {.syndrome = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR,
                                 .vendor_err_synd = 0x81,
                                 .s_wqe_opcode_qpn = htobe32(MLX5_OPCODE_SEND << 24 | base),
                                 .op_own = MLX5_CQE_REQ_ERR << 4};
    record(FABRIC_TRACE_CQE, 3, &error, sizeof(error));
    record(FABRIC_TRACE_CQE, 3, &error, 63);
    struct mlx5_cqe64 tag = {.sop_drop_qpn = htobe32(base + 5),
                             .app = 1,
                             .app_op = 6,
                             .app_info = htobe16(4),
                             .op_own = MLX5_CQE_NO_PACKET << 4};
    tag.tm_cqe.success = htobe32(MLX5_TMC_SUCCESS);
    tag.tm_cqe.hw_phase_cnt = htobe16(9);
    record(FABRIC_TRACE_CQE, 3, &tag, sizeof(tag));
}

/* Sound records of random bytes. */
static void random_records(void)
{
    struct fault_dice dice = {42};
    for (uint32_t i = 0; i < 3000; i++) {
        uint64_t bytes[128];
        for (uint32_t j = 0; j < 128; j++) {
            bytes[j] = fault_roll(&dice);
        }
        static const uint8_t opcodes[] = {8, 9, 10, 11, 1, 16, 17, 18, 0x28};
        if (i % 2) {
            ((uint8_t *)bytes)[3] = opcodes[bytes[5] % 9];
            for (uint32_t at = 16; at < 1024; at += 16) { /* inline, of a size that may even fit */
                memcpy((uint8_t *)bytes + at, (uint8_t[]){0x80 * (bytes[6] >> at % 64 & 1), 0, 0},
                       3);
            }
        }
        record(i % 3 == 0, base + i % 3, bytes, (uint32_t)(bytes[7] % 1025));
    }
}

/* A ring that makes no sense. */
static void damage(unsigned which)
{
    struct fabric_trace *trace = &fabric.file->trace[fabric.slot];
    uint64_t head = atomic_load(&trace->head);
    uint32_t header[6] = {0, 0, which == 1 ? 77 : 0, base, which == 2 ? UINT32_MAX : 64, 0};
    for (uint32_t i = 0; i < sizeof(header); i++) {
        trace->bytes[(head + i) % FABRIC_TRACE_BYTES] = ((uint8_t *)header)[i];
    }
    switch (which) {
    case 3:
        atomic_store(&trace->head, head + FABRIC_TRACE_BYTES * 5ull);
        break;
    case 4:
        atomic_store(&trace->head, head - 1000);
        break;
    case 5:
        atomic_store(&trace->tail, head + (1ull << 40));
        atomic_store(&trace->head, head + 8);
        break;
    default:
        atomic_store(&trace->head, head + 40); /* shorter than it says */
        break;
    }
}

static void hostile(void)
{
    memset(fabric.file->slots[fabric.slot].name, 0x9b, 16);
    memset(&fabric.file->statistics[fabric.slot], 0xff, sizeof(fabric.file->statistics[0]));
}

static bool obey(const char *word)
{
    if (strcmp(word, "statistics") == 0) {
        statistics();
    } else if (strcmp(word, "records") == 0) {
        work_requests(), completions();
    } else if (strcmp(word, "random") == 0) {
        random_records();
    } else if (strncmp(word, "damage", 6) == 0) {
        damage((unsigned)atoi(word + 6));
    } else if (strcmp(word, "hostile") == 0) {
        hostile();
    } else if (strcmp(word, "fault") == 0) {
        atomic_fetch_add(&fabric.file->fault_generation, 1);
    } else if (strcmp(word, "tracing") == 0) {
        printf("%u ", atomic_load(&fabric.file->tracing));
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    char path[256], line[64];
    snprintf(path, sizeof(path), "%s/fabric", argc > 1 ? argv[1] : "");
    prctl(PR_SET_NAME, "ctl_writer");
    int result = fabric_attach(&fabric, path);
    if (result) {
        fprintf(stderr, "%s: %s\n", path, strerror(-result));
        return 1;
    }
    base = fabric.slot << QPN_SLOT_SHIFT | 0x40;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (!obey(line)) {
            break;
        }
        printf("done\n");
    }
    fabric_detach(&fabric);
    return 0;
}
