/* submit_rounds.c: ops of queues and lanes by the public API, for callgrind: what work_rounds.c does with
 * libmlx5 and the driver alone.
 *
 *   submit_rounds (write|send|read|write_region|datagram|datagram_each|dc|dc_streams|
 *                  lane_write|lane_read|lane_pieces) DEVICE ROUNDS
 *
 * A round submits 64 ops of 32 bytes, WRITEs and SENDs inline (write_region: from a region; of lanes likewise,
 * as long ones would be), and takes their completions. Receives of SENDs belong to another context, and are
 * not counted. Datagrams find none; of datagram_each, each goes to a target of its own. dc: WRITEs from a DCI,
 * inline; dc_streams: of one with four streams, in turn. A lane's pieces are two of 16 bytes.
 *
 * If a round has not landed when it is polled, nothing can be said, and the status is 75: to be tried
 * again with a greater $LANDING_US.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "give_up.h"
#include "not_inlined.h"
#include "pair.h"

#define BATCH 64u
#define BYTES 32u
#define STREAMS 4u
#define LANDING_US 2000 /* for a round to land, if the environment does not say it */
#define TRY_AGAIN 75    /* EX_TEMPFAIL */

struct side {
    crpc_context *context;
    crpc_queue queue;
    crpc_endpoint endpoint;
    crpc_region region;
    uint8_t memory[BATCH * BYTES];
    crpc_queue_op ops[BATCH];
    crpc_lane_op lane_ops[BATCH];
    crpc_piece pieces[2 * BATCH];
    crpc_completion completions[BATCH];
};

static struct side near, far;
static useconds_t landing_us = LANDING_US;
static crpc_target targets[BATCH]; /* of datagrams, and of a DCI; none = the queues are connected */
static uint32_t streams;
static uint32_t piece_count; /* of a batch of a lane */

/* ---- What is counted ------------------------------------------------------------------------- */

NOT_INLINED static int32_t bench_api_post(void)
{
    return crpc_queue_submit(near.context, near.queue, near.ops, BATCH, NULL, 0, NULL);
}

NOT_INLINED static int32_t bench_lane_post(void)
{
    return crpc_lane_submit(near.context, near.endpoint, near.lane_ops, BATCH, near.pieces,
                            piece_count, NULL);
}

NOT_INLINED static int32_t bench_api_poll(void)
{
    return crpc_poll(near.context, near.completions, BATCH);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void open_context(struct side *side, const char *device)
{
    const uint32_t access =
        CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .flags = CRPC_CONTEXT_QUEUES,
                                    .receive_depth = 256,
                                    .endpoints_max = 3}; /* a lane of BATCH ops takes two */
    snprintf(options.device, sizeof(options.device), "%s", device);
    need(crpc_context_open(&options, &side->context, &error), &error);
    need(crpc_region_register(side->context, side->memory, sizeof(side->memory), access,
                              &side->region, &error),
         &error);
}

/* Without a blob: for datagrams. */
static void open_side(struct side *side, const char *device, uint8_t *blob, uint32_t *blob_bytes)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_queue_options queue = {.struct_size = sizeof(queue),
                                      .kind = blob ? CRPC_QUEUE_KIND_RC : CRPC_QUEUE_KIND_UD,
                                      .sends = 2 * BATCH,
                                      .receives = 2 * BATCH,
                                      .retry_timeout = blob ? 20 : 0};
    open_context(side, device);
    need(blob ? crpc_queue_blob(side->context, &queue, &side->queue, blob, blob_bytes, &error)
              : crpc_queue_open(side->context, &queue, &side->queue, &error),
         &error);
}

static void connect_sides(const char *device)
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {CRPC_BLOB_BYTES_MAX, CRPC_BLOB_BYTES_MAX};
    open_side(&near, device, blobs[0], &bytes[0]);
    open_side(&far, device, blobs[1], &bytes[1]);
    need(crpc_queue_join(near.context, near.queue, blobs[1], bytes[1], &error), &error);
    need(crpc_queue_join(far.context, far.queue, blobs[0], bytes[0], &error), &error);
    pair_wait_connected(near.context);
    pair_wait_connected(far.context);
}

/* ---- Lanes ----------------------------------------------------------------------------------- */

static crpc_completion next(struct side *side, uint8_t kind)
{
    while (true) {
        int32_t count = crpc_poll(side->context, side->completions, 1);
        if (count == 1 && side->completions[0].kind == kind) {
            return side->completions[0];
        }
        crpc_poll(side == &near ? far.context : near.context, side->completions, 1);
    }
}

/* The far side grants its memory. Returns the handle that the near side makes of it. */
static crpc_grant give_grant(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t bytes[CRPC_GRANT_BYTES];
    crpc_grant opened;
    const crpc_lane_op give = {.opcode = CRPC_LANE_GRANT,
                               .access = CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ,
                               .bytes = sizeof(far.memory),
                               .region = far.region,
                               .address = (uint64_t)(uintptr_t)far.memory};
    while (crpc_lane_submit(far.context, far.endpoint, &give, 1, NULL, 0, NULL) == 0) {
        crpc_poll(near.context, near.completions, 1);
        crpc_poll(far.context, far.completions, 1);
    }
    const crpc_grant given = {next(&far, CRPC_COMPLETION_WORK).token};
    need(crpc_grant_get(far.context, given, bytes), &error);
    while (crpc_grant_open(near.context, near.endpoint, bytes, sizeof(bytes), &opened, &error) ==
           CRPC_E_AGAIN) {
        crpc_poll(near.context, near.completions, 1);
    }
    return opened;
}

static void connect_lane(const char *device)
{
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_ENDPOINT_LANE | CRPC_ENDPOINT_FULL_SIZE,
                                           .keepalive_ns = CRPC_FOREVER,
                                           .retry_timeout = 20,
                                           .lane_depth = BATCH};
    crpc_endpoint endpoints[2];
    open_context(&near, device);
    open_context(&far, device);
    pair_endpoints((crpc_context *const[]){near.context, far.context}, &options, endpoints);
    near.endpoint = endpoints[0];
    far.endpoint = endpoints[1];
}

static void prepare_lane(uint8_t opcode, bool in_pieces)
{
    const crpc_grant grant = give_grant();
    for (uint32_t i = 0; i < BATCH; i++) {
        const uint64_t address = (uint64_t)(uintptr_t)(near.memory + (size_t)i * BYTES);
        near.lane_ops[i] = (crpc_lane_op){.opcode = opcode,
                                          .flags = in_pieces ? CRPC_LANE_PIECES : 0,
                                          .bytes = in_pieces ? 2 : BYTES,
                                          .user_data = i,
                                          .region = in_pieces ? (crpc_region){0} : near.region,
                                          .address = in_pieces ? 2ull * i : address,
                                          .grant = grant,
                                          .offset = (uint64_t)i * BYTES};
        for (uint32_t k = 0; k < 2; k++) {
            near.pieces[2 * i + k] = (crpc_piece){.region = near.region,
                                                  .address = address + (uint64_t)k * BYTES / 2,
                                                  .bytes = BYTES / 2};
        }
    }
    piece_count = in_pieces ? 2 * BATCH : 0;
    while (crpc_poll(near.context, near.completions, BATCH) > 0) { /* what tells of room */
    }
}

static void make_targets(uint32_t kind, bool each)
{
    const crpc_target_options options = {.struct_size = sizeof(options), .kind = kind};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue_address address = {.struct_size = sizeof(address)};
    need(crpc_queue_get_address(far.context, far.queue, &address), &error);
    for (uint32_t i = 0; i < BATCH; i++) {
        targets[i] = targets[0];
        if (i == 0 || each) {
            need(crpc_target_open(near.context, &address, &options, &targets[i], &error), &error);
        }
    }
}

/* In place of what open_side has made. */
static void reopen(struct side *side, const crpc_queue_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue_close(side->context, side->queue);
    need(crpc_queue_open(side->context, options, &side->queue, &error), &error);
}

static void open_dc(void)
{
    const crpc_queue_options dci = {.struct_size = sizeof(dci),
                                    .kind = CRPC_QUEUE_KIND_DCI,
                                    .sends = 2 * BATCH,
                                    .retry_timeout = 20,
                                    .streams = streams};
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 1};
    crpc_queue_options dct = {.struct_size = sizeof(dct), .kind = CRPC_QUEUE_KIND_DCT};
    crpc_error error = {.struct_size = sizeof(error)};
    need(crpc_queue_open(far.context, &shared, &dct.receive_queue, &error), &error);
    reopen(&near, &dci);
    reopen(&far, &dct);
}

static void open_with_targets(const char *device, bool dc, bool each)
{
    open_side(&near, device, NULL, NULL);
    open_side(&far, device, NULL, NULL);
    if (dc) {
        open_dc();
    }
    make_targets(dc ? CRPC_QUEUE_KIND_DCI : CRPC_QUEUE_KIND_UD, each);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static void prepare(uint8_t opcode, bool copied)
{
    crpc_region_info info = {.struct_size = sizeof(info)};
    crpc_region_get_info(far.context, far.region, &info);
    for (uint32_t i = 0; i < BATCH; i++) {
        near.ops[i] = (crpc_queue_op){
            .opcode = opcode,
            .flags = copied ? CRPC_QUEUE_INLINE : 0,
            .stream = (uint16_t)(streams > 0 ? i % streams : 0),
            .user_data = i,
            .region = copied ? (crpc_region){0} : near.region,
            .address = (uint64_t)(uintptr_t)(near.memory + (size_t)i * BYTES),
            .bytes = BYTES,
            .remote_key = opcode == CRPC_QUEUE_SEND ? 0 : info.remote_key,
            .remote_address = opcode == CRPC_QUEUE_SEND ? 0 : info.address + (uint64_t)i * BYTES,
            .target = targets[i]};
        far.ops[i] =
            (crpc_queue_op){.opcode = CRPC_QUEUE_RECEIVE,
                            .user_data = i,
                            .region = far.region,
                            .address = (uint64_t)(uintptr_t)(far.memory + (size_t)i * BYTES),
                            .bytes = BYTES};
    }
}

static void run_round(void)
{
    if ((near.endpoint.bits ? bench_lane_post() : bench_api_post()) != (int32_t)BATCH) {
        give_up("an op was refused");
    }
    usleep(landing_us);
    int32_t count = bench_api_poll();
    if (count != (int32_t)BATCH) {
        fprintf(stderr, "submit_rounds: %d had landed, so nothing can be said\n", count);
        exit(TRY_AGAIN);
    }
    for (uint32_t i = 0; i < BATCH; i++) {
        if (near.completions[i].kind != CRPC_COMPLETION_WORK ||
            near.completions[i].status != CRPC_OK || near.completions[i].user_data != i) {
            give_up("an op failed");
        }
    }
}

static void take_receives(void)
{
    int32_t count = 0;
    while (count < (int32_t)BATCH) {
        int32_t more = crpc_poll(far.context, far.completions, BATCH);
        if (more < 0) {
            give_up("a poll failed");
        }
        count += more;
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr,
                "usage: submit_rounds (write|send|read|write_region|datagram|datagram_each|dc|"
                "dc_streams|lane_write|lane_read|lane_pieces) DEVICE ROUNDS\n");
        return 2;
    }
    const char *landing = getenv("LANDING_US");
    const bool sends = strcmp(argv[1], "send") == 0, reads = strcmp(argv[1], "read") == 0;
    landing_us = landing ? (useconds_t)strtoul(landing, NULL, 0) : LANDING_US;
    const bool lane = strncmp(argv[1], "lane_", 5) == 0;
    const bool each = strcmp(argv[1], "datagram_each") == 0;
    const bool datagrams = each || strcmp(argv[1], "datagram") == 0;
    streams = strcmp(argv[1], "dc_streams") == 0 ? STREAMS : 0;
    const bool dc = streams > 0 || strcmp(argv[1], "dc") == 0;
    if (lane) {
        connect_lane(argv[2]);
        prepare_lane(strcmp(argv[1], "lane_read") == 0 ? CRPC_LANE_READ : CRPC_LANE_WRITE,
                     strcmp(argv[1], "lane_pieces") == 0);
    } else if (datagrams || dc) {
        open_with_targets(argv[2], dc, each);
    } else {
        connect_sides(argv[2]);
    }
    if (!lane) {
        prepare(sends || datagrams ? CRPC_QUEUE_SEND
                : reads            ? CRPC_QUEUE_READ
                                   : CRPC_QUEUE_WRITE,
                !reads && strcmp(argv[1], "write_region") != 0);
    }
    uint64_t rounds = strtoull(argv[3], NULL, 0);
    for (uint64_t i = 0; i < rounds; i++) {
        if (sends &&
            crpc_queue_submit(far.context, far.queue, far.ops, BATCH, NULL, 0, NULL) != BATCH) {
            give_up("a receive was refused");
        }
        run_round();
        if (sends) {
            take_receives();
        }
    }
    crpc_context_close(near.context);
    crpc_context_close(far.context);
    return 0;
}
