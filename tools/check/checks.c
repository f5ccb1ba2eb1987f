/* checks.c: the list of checks. */
#include "station.h"

const struct check checks[] = {
    {"doorbell", "a doorbell of 8 bytes has the device read the WQE from memory", true, false,
     LEFT_OUT_MLX5, check_doorbell, NULL},
    {"doorbell-several", "one doorbell is enough for all WQEs before it", true, false,
     LEFT_OUT_MLX5, check_doorbell_several, NULL},
    {"doorbell-shared", "queue pairs with one register lose no doorbell", true, false,
     LEFT_OUT_MLX5, check_doorbell_shared, NULL},
    {"blueflame", "a WQE of 1 to 4 blocks in the register is executed as it is there", true, false,
     LEFT_OUT_BLUEFLAME, check_blueflame, NULL},
    {"blueflame-several", "several WQEs in one push are all executed", true, false,
     LEFT_OUT_BLUEFLAME, check_blueflame_several, NULL},
    {"wqe-write", "WRITEs, also with immediate and in the WQE, are what libmlx5 makes of them",
     true, false, LEFT_OUT_MLX5, NULL, check_wqe_write},
    {"wqe-read", "READs are what libmlx5 makes of them", true, false, LEFT_OUT_MLX5, NULL,
     check_wqe_read},
    {"wqe-pieces", "ops with several pieces of memory are what libmlx5 makes of them", true, false,
     LEFT_OUT_MLX5, NULL, check_wqe_pieces},
    {"wqe-atomic", "atomics are what libmlx5 makes of them", true, false, LEFT_OUT_MLX5, NULL,
     check_wqe_atomic},
    {"wqe-window", "binds and invalidates of windows are what libmlx5 makes of them", true, false,
     LEFT_OUT_MLX5, NULL, check_wqe_window},
    {"wqe-send", "SENDs are what libmlx5 makes of them", true, false, LEFT_OUT_MLX5, NULL,
     check_wqe_send},
    {"wqe-datagram", "datagrams are what libmlx5 makes of them", true, false, LEFT_OUT_MLX5, NULL,
     check_wqe_datagram},
    {"send-ring", "a send queue goes round its ring and its 16-bit counter", true, false,
     LEFT_OUT_MLX5, check_send_ring, NULL},
    {"completion-ring", "the owner bit of completions changes with each round of their ring", true,
     false, LEFT_OUT_MLX5, NULL, check_completion_ring},
    {"completion-counter", "the device takes 24 bits of how many completions were taken", true,
     false, LEFT_OUT_MLX5, check_completion_counter, NULL},
    {"receive-ring", "shared receives go round their list and their 16-bit counter", true, false,
     LEFT_OUT_MLX5, check_receive_ring, NULL},
    {"send-order", "the sends of a queue pair complete in order", false, false, 0, check_send_order,
     NULL},
    {"error-completion", "a WQE that fails is named, and the reason, too", false, false,
     LEFT_OUT_MLX5, check_error_completion, NULL},
    {"flush", "in a failed queue pair every WQE completes", false, false, LEFT_OUT_MLX5,
     check_flush, NULL},
    {"flush-room", "a completion for each WQE that can be open is never one too many", false, false,
     LEFT_OUT_MLX5, NULL, check_flush_room},
    {"compressed-receives", "compressed completions of receives are what they were", true, false, 0,
     NULL, check_compressed_receives},
    {"compressed-sends", "compressed completions of sends are what they were", true, false,
     LEFT_OUT_CQE_COMPRESSION, NULL, check_compressed_sends},
    {"compressed-alone", "a completion is not held back to be compressed with later ones", true,
     false, LEFT_OUT_CQE_COMPRESSION, NULL, check_compressed_alone},
    {"arm", "an armed queue wakes who sleeps", false, false, LEFT_OUT_MLX5, check_arm, NULL},
    {"arm-late", "arming wakes at once if a completion is there already", false, false,
     LEFT_OUT_MLX5, check_arm_late, NULL},
    {"shared-receives", "a queue pair that dies keeps no shared receive", false, false, 0, NULL,
     check_shared_receives},
    {"not-ready", "who finds no receive waits for one", false, false, 0, NULL, check_not_ready},
    {"scatter-to-cqe", "short messages come into memory, not into completions, if asked so", true,
     false, LEFT_OUT_MLX5, NULL, check_scatter_to_cqe},
    {"order-own", "what a message brought is there when it completes", false, false, 0,
     check_order_own, NULL},
    {"order-earlier", "what plain WRITEs brought is there when a later message completes", false,
     false, 0, check_order_earlier, NULL},
    {"order-relaxed", "in memory with relaxed ordering, what has completed is there", false, false,
     0, check_order_relaxed, NULL},
    {"order-flag", "in other memory, what a WRITE brought is there when a later one is seen", false,
     false, 0, check_order_flag, NULL},
    {"order-line", "of 64 aligned bytes the last 8 come last", false, false, 0, check_order_line,
     NULL},
    {"fence", "a WQE with a fence waits for READs", false, false, 0, check_fence, NULL},
    {"mtu", "messages arrive whole, whatever their packets", false, false, 0, check_mtu, NULL},
    {"retry", "a sender whose peer is gone gives up in time", false, false, 0, check_retry, NULL},
    {"keys", "a peer reaches memory by its key and in its bounds alone", false, false, 0,
     check_keys, NULL},
    {"domains", "a peer reaches no memory of another protection domain", false, false, 0,
     check_domains, NULL},
    {"closed", "nobody writes over a queue pair that has failed", false, false, 0, check_closed,
     NULL},
    {"dynamic", "one DCI sends to several DCTs, each with its key", true, false, LEFT_OUT_DC, NULL,
     check_dynamic},
    {"dma-buf", "memory of a GPU is read and written by its dma-buf", false, false, 0,
     check_dma_buf, NULL},
    {"calls", "calls and their replies come whole", false, true, 0, NULL, check_calls},
    {"channels", "messages of channels come whole", false, true, 0, NULL, check_channels},
    {"rails", "messages that two rails share come whole", false, false, 0, NULL, check_rails},
};
const uint32_t check_count = sizeof(checks) / sizeof(checks[0]);

void check_run(const struct check *check, const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    if (check->direct && !subject->direct) {
        not_here(outcome, "%s is used by libibverbs, not by the mlx5 driver", subject->device[0]);
    } else if (!check->body) {
        check->run(subject, outcome);
    } else {
        if (station_open(&station, subject, NULL, outcome)) {
            check->body(&station, outcome);
        }
        station_close(&station);
    }
}
