/* fuzz_queues.c: queues of a victim whose peer is bad: private data of any bytes, blobs and addresses of
 * any bytes, messages and datagrams of any length, WRITEs, READs and atomics to anywhere, also from DCIs to
 * DCTs, messages with tags to TM-SRQs, connections that stop half way, events of the device about anything. Each op of
 * the victim completes once, what it has not opened to peers stays as it is, and nothing is left behind.
 *
 * It is for libFuzzer (./dev fuzz queues), or a test with fuzz_main.c.
 */
#include "base/checksum.h"
#include "nic/memory/memory.h"
#include "queue/tests/fuzz_queues.h"

const struct nic_operations *const nic_drivers[] = {&nic_memory_operations, NULL};

#define QUEUE_KEY 7u
#define ACCESS_KEY UINT64_C(0x7777777777)
#define STEPS_MAX 300u
#define POLL_MAX 16u

static const char *const addresses[SIDES] = {"victim", "bad"};

struct world world;

/* ---- The world ------------------------------------------------------------------------------- */

static void open_side(enum who who)
{
    struct side *side = &world.sides[who];
    const struct nic_options options = {
        .receive_depth = 16, .send_depth = 16, .send_completion_depth = 64, .signal_interval = 4};
    crpc_error error = {0};
    memset(side, 0, sizeof(*side));
    memset(side->hidden, 0x5a, SECRET_BYTES);
    handles_init(&side->handles);
    fake_cm_init(&side->cm);
    side->cm.late = who == VICTIM;
    fuzz_check(memory_nic_open(world.fabric, &options, &side->nic, &error) == CRPC_OK &&
                   queue_engine_create(side->nic, &side->cm, &world.log, &side->handles, 64, NULL,
                                       &world.clock_ns, &side->engine, &error) == CRPC_OK &&
                   link_listener_open(queue_links(side->engine), addresses[who], 4, 0,
                                      &side->listener, &error) == CRPC_OK,
               "no engine: %s", error.message);
    const struct nic_operations *operations = side->nic->operations;
    fuzz_check(operations->memory_register(side->nic, NULL, side->memory, BYTES, 0,
                                           CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                                               CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC,
                                           &side->keys, &error) == CRPC_OK &&
                   operations->memory_register(side->nic, NULL, side->hidden, SECRET_BYTES, 0,
                                               CRPC_ACCESS_LOCAL_WRITE, &side->secret,
                                               &error) == CRPC_OK,
               "no memory: %s", error.message);
}

static void close_side(struct side *side)
{
    queue_engine_destroy(side->engine);
    side->nic->operations->memory_deregister(side->nic, &side->keys);
    side->nic->operations->memory_deregister(side->nic, &side->secret);
    side->nic->operations->close(side->nic);
    handles_free(&side->handles);
}

/* ---- Polling --------------------------------------------------------------------------------- */

bool fuzz_note_queue(struct side *side, uint64_t handle)
{
    if (side->queue_count == QUEUES_MAX) {
        queue_close(handles_get(&side->handles, handle, HANDLE_QUEUE));
        return false;
    }
    side->queues[side->queue_count++] = handle;
    return true;
}

/* What lies before a message may be from an earlier one, whatever that was. */
static void look_for_source(const struct side *side, const crpc_completion *completion)
{
    struct queue *queue = handles_get(&side->handles, completion->endpoint.bits, HANDLE_QUEUE);
    struct queue_target *target;
    crpc_error error = {0};
    if (!queue || queue->options.kind != NIC_QUEUE_UD || completion->method != NIC_RECEIVE ||
        completion->status != CRPC_OK) {
        return;
    }
    int32_t status = queue_target_of(queue, completion, side->memory, &target, &error);
    fuzz_check(status == CRPC_OK || status == CRPC_E_PROTOCOL || status == CRPC_E_NO_DEVICE,
               "status %d of a source", status);
    if (status == CRPC_OK) {
        queue_target_close(target);
    }
}

static void take(enum who who, const crpc_completion *completion)
{
    struct side *side = &world.sides[who];
    if (completion->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
        fuzz_note_queue(side, completion->endpoint.bits);
    }
    if (who != VICTIM || completion->kind != NIC_COMPLETION_WORK) {
        return;
    }
    fuzz_check(completion->user_data < world.op_count && !world.done[completion->user_data],
               "op %llu completes twice, or there is none",
               (unsigned long long)completion->user_data);
    fuzz_check(completion->status <= CRPC_OK && completion->status >= CRPC_E_DEVICE, "status %d",
               completion->status);
    look_for_source(side, completion);
    fuzz_tags_check(completion);
    world.done[completion->user_data] = true;
    world.done_count++;
}

static void poll_side(enum who who, uint32_t capacity)
{
    crpc_completion completions[POLL_MAX];
    uint32_t count = queue_poll(world.sides[who].engine, completions, capacity);
    fuzz_check(count <= capacity, "%u completions in an array of %u", count, capacity);
    for (uint32_t i = 0; i < count; i++) {
        take(who, &completions[i]);
    }
}

/* ---- What the two do ------------------------------------------------------------------------- */

static struct queue *choose(struct fuzz_input *input, enum who who)
{
    struct side *side = &world.sides[who];
    if (side->queue_count == 0) {
        return NULL;
    }
    uint64_t handle = side->queues[fuzz_below(input, side->queue_count)];
    return handles_get(&side->handles, handle, HANDLE_QUEUE);
}

/* For an RC queue, which may take receives of the side's TM-SRQ. */
static struct queue_options choose_options(struct fuzz_input *input, enum who who)
{
    const uint8_t choice = fuzz_byte(input);
    struct queue_options options = {.kind = NIC_QUEUE_RC,
                                    .flags = choice & 1 ? QUEUE_SPARSE : 0,
                                    .sends = 8,
                                    .send_pieces = 1,
                                    .inline_bytes = 0,
                                    .receives = 8,
                                    .receive_pieces = 1,
                                    .connect_timeout_ns = 1000000000,
                                    .retry_timeout = 14,
                                    .retry_count = 7};
    options.private_bytes = fuzz_below(input, QUEUE_REQUEST_BYTES_MAX + 1);
    fuzz_bytes(input, options.private_data, options.private_bytes);
    if (choice & 2 && fuzz_tags_of(&world.sides[who])) {
        options.receive_queue = fuzz_tags_of(&world.sides[who]);
        options.receives = options.receive_pieces = 0;
    }
    return options;
}

void fuzz_receive(enum who who, struct queue *queue, uint32_t bytes)
{
    struct side *side = &world.sides[who];
    const struct nic_work work = {.opcode = NIC_RECEIVE,
                                  .user_data = world.op_count,
                                  .address = (uint64_t)(uintptr_t)side->memory,
                                  .bytes = bytes};
    int32_t reason = CRPC_OK;
    if (who == VICTIM && world.op_count == OPS_MAX) {
        return;
    }
    uint32_t taken = queue_receive(queue, &work, &side->keys.local_key, NULL, 1, &reason);
    queue_submit_end(queue);
    world.op_count += who == VICTIM && taken == 1;
}

static void open_datagrams(struct fuzz_input *input, enum who who)
{
    struct queue_options options = choose_options(input, who);
    struct queue *queue;
    crpc_error error = {0};
    options.kind = NIC_QUEUE_UD;
    options.queue_key = QUEUE_KEY;
    options.private_bytes = 0;
    options.receives = 8;
    options.receive_pieces = 1;
    options.receive_queue = NULL;
    if (queue_open(world.sides[who].engine, &options, &queue, &error) == CRPC_OK &&
        fuzz_note_queue(&world.sides[who], queue->link.handle)) {
        for (uint32_t i = 0; i < 4; i++) {
            fuzz_receive(who, queue, BYTES);
        }
    }
}

/* A DCT with an SRQ of its own, which is closed behind it. */
static void open_dct(enum who who)
{
    struct side *side = &world.sides[who];
    const struct queue_options shared = {.kind = NIC_QUEUE_SRQ, .receives = 8, .receive_pieces = 1};
    struct queue_options options = {.kind = NIC_QUEUE_DCT, .access_key = ACCESS_KEY};
    struct queue *dct;
    crpc_error error = {0};
    if (side->queue_count + 2 > QUEUES_MAX ||
        queue_open(side->engine, &shared, &options.receive_queue, &error) != CRPC_OK) {
        return;
    }
    if (queue_open(side->engine, &options, &dct, &error) == CRPC_OK) {
        fuzz_note_queue(side, dct->link.handle);
    }
    fuzz_note_queue(side, options.receive_queue->link.handle);
    for (uint32_t i = 0; i < 4; i++) {
        fuzz_receive(who, options.receive_queue, BYTES / 2);
    }
}

static void open_dci(struct fuzz_input *input, enum who who)
{
    struct queue_options options = choose_options(input, who);
    struct queue *queue;
    crpc_error error = {0};
    options.kind = NIC_QUEUE_DCI;
    options.receives = options.receive_pieces = options.private_bytes = 0;
    options.receive_queue = NULL;
    options.streams = fuzz_below(input, 4);
    options.stream_failures_max = fuzz_below(input, options.streams + 1);
    options.flags = options.streams > 0 ? 0 : options.flags;
    if (queue_open(world.sides[who].engine, &options, &queue, &error) == CRPC_OK) {
        fuzz_note_queue(&world.sides[who], queue->link.handle);
    }
}

static void use_others(struct fuzz_input *input, enum who who)
{
    uint8_t choice = fuzz_byte(input);
    struct queue *queue;
    crpc_error error = {0};
    switch (choice % 4) {
    case 0:
        open_dct(who);
        break;
    case 1:
        open_dci(input, who);
        break;
    case 3:
        fuzz_tags_use(input, who, choice >> 2);
        break;
    default:
        queue = choose(input, who);
        if (queue) {
            queue_reset_stream(queue, choice >> 2, &error);
        }
    }
}

static void connect(struct fuzz_input *input, enum who who)
{
    const struct queue_options options = choose_options(input, who);
    struct side *side = &world.sides[who];
    struct link *link;
    crpc_error error = {0};
    if (link_connect(queue_links(side->engine), addresses[!who], &options, &link, &error) ==
        CRPC_OK) {
        fuzz_note_queue(side, link->handle);
    }
}

static void answer(struct fuzz_input *input, enum who who)
{
    struct queue *queue = choose(input, who);
    uint8_t data[QUEUE_REJECT_BYTES_MAX];
    crpc_error error = {0};
    if (!queue) {
        return;
    }
    uint32_t bytes = fuzz_below(input, sizeof(data) + 1);
    if (bytes & 1) {
        const struct queue_options options = choose_options(input, who);
        link_accept(&queue->link, &options, &error);
    } else {
        fuzz_bytes(input, data, bytes);
        queue_reject(queue, data, bytes);
    }
}

static void seal(uint8_t *bytes)
{
    struct link_blob blob;
    memcpy(&blob, bytes, sizeof(blob));
    blob.checksum = checksum_of(&blob, offsetof(struct link_blob, checksum));
    memcpy(bytes, &blob, sizeof(blob));
}

/* The victim joins a blob of the bad peer, of which bytes are changed, or any address. */
static void join(struct fuzz_input *input)
{
    struct queue_options options[SIDES];
    uint8_t blobs[SIDES][LINK_BLOB_BYTES];
    struct link *links[SIDES];
    crpc_error error = {0};
    options[VICTIM] = options[BAD] = choose_options(input, VICTIM);
    options[BAD].receives = options[BAD].receive_pieces = 1;
    options[BAD].receive_queue = NULL;
    for (uint32_t i = 0; i < SIDES; i++) {
        if (link_blob(queue_links(world.sides[i].engine), &options[i], &links[i], blobs[i],
                      &error) != CRPC_OK) {
            return;
        }
        if (!fuzz_note_queue(&world.sides[i], links[i]->handle)) {
            return;
        }
    }
    struct queue *queue = queue_of_link(links[VICTIM]);
    uint8_t choice = fuzz_byte(input);
    if (choice & 1) {
        struct nic_address address;
        links[BAD]->group->nic->operations->queue_pair_address(links[BAD]->queue_pair, &address);
        address.queue_pair_number = (uint32_t)fuzz_near(input, address.queue_pair_number);
        address.packet_sequence_number = (uint32_t)fuzz_near(input, address.packet_sequence_number);
        address.link = (uint8_t)fuzz_near(input, address.link);
        address.mtu_code = (uint8_t)fuzz_near(input, address.mtu_code);
        queue_join_address(queue, &address, &error);
    } else {
        for (uint32_t changes = choice >> 5; changes > 0; changes--) {
            uint8_t place = fuzz_byte(input);
            blobs[BAD][place % LINK_BLOB_BYTES] ^= fuzz_byte(input);
        }
        if (choice & 2) {
            seal(blobs[BAD]);
        }
        link_join(links[VICTIM], blobs[BAD], LINK_BLOB_BYTES - (choice >> 2 & 1), &error);
    }
    if (choice & 8) {
        link_join(links[BAD], blobs[VICTIM], LINK_BLOB_BYTES, &error);
    }
}

/* To a queue of the other side, or near it. */
static struct queue_target *choose_target(struct fuzz_input *input, enum who who, uint32_t kind)
{
    struct queue *there = choose(input, !who);
    struct queue_info info = {0};
    struct queue_target *target;
    crpc_error error = {0};
    if (there) {
        queue_get_info(there, &info);
    }
    struct nic_target_options options = {.kind = kind,
                                         .queue_key = kind == NIC_QUEUE_UD ? QUEUE_KEY : 0,
                                         .access_key = kind == NIC_QUEUE_UD ? 0 : ACCESS_KEY,
                                         .address = info.address};
    if (fuzz_byte(input) % 4 == 0) {
        options.address.queue_pair_number =
            (uint32_t)fuzz_near(input, options.address.queue_pair_number);
        options.address.link = (uint8_t)fuzz_near(input, options.address.link);
    }
    return queue_target_open(world.sides[who].engine, &options, &target, &error) == CRPC_OK ? target
                                                                                            : NULL;
}

static void send_datagram(struct fuzz_input *input, enum who who, struct queue *queue)
{
    struct side *side = &world.sides[who];
    struct queue_target *target = choose_target(input, who, NIC_QUEUE_UD);
    if (!target) {
        return;
    }
    const struct nic_work work = {.opcode = fuzz_byte(input) & 1 ? NIC_SEND : NIC_SEND_IMMEDIATE,
                                  .flags = NIC_WORK_SIGNAL,
                                  .user_data = world.op_count,
                                  .immediate = fuzz_word(input),
                                  .address = (uint64_t)(uintptr_t)side->memory,
                                  .bytes = fuzz_half(input) % BYTES};
    struct nic_target *const to = queue_target_nic(target);
    int32_t reason = CRPC_OK;
    uint32_t taken = queue_submit_to(queue, &work, &to, &side->keys.local_key, NULL, 1, &reason);
    queue_submit_end(queue);
    queue_target_close(target);
    world.op_count += who == VICTIM && taken == 1;
}

/* Returns how many were taken: one or none. */
static uint32_t post(struct fuzz_input *input, enum who who, struct queue *queue,
                     struct nic_work *work)
{
    struct side *side = &world.sides[who];
    int32_t reason = CRPC_OK;
    if (queue->options.kind != NIC_QUEUE_DCI) {
        return queue_submit(queue, work, &side->keys.local_key, NULL, 1, &reason);
    }
    struct queue_target *target = choose_target(input, who, NIC_QUEUE_DCI);
    if (!target) {
        return 0;
    }
    work->opcode = work->opcode == NIC_SEND_INVALIDATE ? NIC_SEND : work->opcode;
    work->stream = (uint16_t)fuzz_below(input, queue->options.streams + !queue->options.streams);
    struct nic_target *const to = queue_target_nic(target);
    uint32_t taken = queue_submit_to(queue, work, &to, &side->keys.local_key, NULL, 1, &reason);
    queue_target_close(target);
    return taken;
}

/* The victim's ops are good. The bad peer's lie in its own memory, and go anywhere. */
static void submit(struct fuzz_input *input, enum who who)
{
    static const uint8_t opcodes[] = {NIC_SEND,         NIC_SEND_IMMEDIATE,  NIC_SEND_INVALIDATE,
                                      NIC_WRITE,        NIC_WRITE_IMMEDIATE, NIC_READ,
                                      NIC_COMPARE_SWAP, NIC_FETCH_ADD,       NIC_NOP};
    struct side *side = &world.sides[who];
    struct queue *queue = choose(input, who);
    if (!queue || (who == VICTIM && world.op_count == OPS_MAX)) {
        return;
    }
    if (queue->options.kind == NIC_QUEUE_UD) {
        send_datagram(input, who, queue);
        return;
    }
    const struct side *other = &world.sides[!who];
    const uint8_t flags = fuzz_byte(input);
    struct nic_work work = {.opcode = opcodes[fuzz_below(input, sizeof(opcodes))],
                            .flags = flags & (NIC_WORK_FENCE | NIC_WORK_SOLICITED),
                            .user_data = world.op_count,
                            .address = (uint64_t)(uintptr_t)side->memory,
                            .bytes = fuzz_half(input) % BYTES,
                            .remote_address = (uint64_t)(uintptr_t)other->memory,
                            .remote_key = other->keys.remote_key};
    if (who == VICTIM) { /* each has to complete, so that they can be counted */
        work.flags |= NIC_WORK_SIGNAL;
        work.opcode = work.opcode == NIC_SEND_INVALIDATE ? NIC_SEND : work.opcode;
    } else {
        if (fuzz_byte(input) & 1) {
            work.remote_address = (uint64_t)(uintptr_t)other->hidden;
            work.remote_key = other->secret.remote_key;
        }
        work.remote_address = fuzz_near(input, work.remote_address);
        work.remote_key = (uint32_t)fuzz_near(input, work.remote_key);
        work.immediate = fuzz_word(input);
    }
    if (nic_opcode_is_atomic(work.opcode) || work.opcode == NIC_NOP) {
        work.address = work.bytes = 0;
    }
    uint32_t taken = post(input, who, queue, &work);
    queue_submit_end(queue);
    world.op_count += who == VICTIM && taken == 1;
}

static void receive(struct fuzz_input *input, enum who who)
{
    struct queue *queue = choose(input, who);
    uint32_t bytes = fuzz_half(input) % BYTES;
    if (queue) {
        fuzz_receive(who, queue, bytes);
    }
}

static void end_one(struct fuzz_input *input, enum who who)
{
    struct queue *queue = choose(input, who);
    uint8_t choice = fuzz_byte(input);
    if (!queue) {
        return;
    }
    switch (choice % 4) {
    case 0:
        queue_fail(queue);
        break;
    case 1:
        queue_drain(queue, choice & 4 ? CRPC_FOREVER : 1000000);
        break;
    default:
        queue_close(queue);
    }
}

/* About any queue pair, and when the device is said to be lost, it is. */
static void tell_device_event(struct fuzz_input *input)
{
    struct queue *queue = choose(input, VICTIM);
    uint32_t number = (uint32_t)fuzz_near(input, queue ? queue->number : 17);
    uint8_t choice = fuzz_byte(input);
    fake_cm_device_event(&world.sides[VICTIM].cm,
                         choice == 77 ? CM_EVENT_DEVICE_FATAL : CM_EVENT_QUEUE_PAIR, number,
                         CRPC_E_DISCONNECTED);
}

static void step(struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input);
    enum who who = what & 1 ? BAD : VICTIM;
    struct cm *cm = &world.sides[VICTIM].cm;
    uint32_t waiting;
    switch (what >> 1 & 15) {
    case 0:
        connect(input, who);
        break;
    case 1:
        answer(input, who);
        break;
    case 2:
        join(input);
        break;
    case 3:
    case 4:
        submit(input, who);
        break;
    case 5:
        receive(input, who);
        break;
    case 6:
        end_one(input, who);
        break;
    case 7:
        tell_device_event(input);
        break;
    case 8:
        world.clock_ns += (uint64_t)fuzz_byte(input) * 10000000;
        break;
    case 9:
        queue_progress(world.sides[who].engine);
        break;
    case 10:
    case 11:
        waiting = fake_cm_waiting(cm);
        if (waiting > 0) {
            fake_cm_step(cm, fuzz_byte(input) % waiting);
        }
        break;
    case 12:
        open_datagrams(input, who);
        break;
    case 13:
        use_others(input, who);
        break;
    default:
        poll_side(who, 1 + fuzz_below(input, POLL_MAX));
    }
}

/* ---- An input -------------------------------------------------------------------------------- */

static void finish(void)
{
    struct side *victim = &world.sides[VICTIM];
    /* Those whose receives others take come last. */
    for (uint32_t i = 0; i < 2 * victim->queue_count; i++) {
        struct queue *queue =
            handles_get(&victim->handles, victim->queues[i % victim->queue_count], HANDLE_QUEUE);
        if (queue && (i >= victim->queue_count || !nic_kind_is_shared(queue->options.kind))) {
            fuzz_check(queue_close(queue) == CRPC_OK, "a queue cannot be closed");
        }
    }
    for (uint32_t i = 0; i < 200; i++) {
        fake_cm_step_all(&victim->cm);
        poll_side(VICTIM, POLL_MAX);
        for (uint32_t k = 0; k < victim->queue_count; k++) { /* a request that has just come */
            struct queue *queue = handles_get(&victim->handles, victim->queues[k], HANDLE_QUEUE);
            if (queue) {
                queue_close(queue);
            }
        }
        poll_side(BAD, POLL_MAX);
    }
    fuzz_check(world.done_count == world.op_count, "%u of %u ops have completed", world.done_count,
               world.op_count);
    fuzz_check(queue_engine_queues(victim->engine) == 0, "a queue is left");
    fuzz_check(victim->engine->connecting == 0 && victim->engine->nops == 0, "a count is wrong");
    fuzz_check(!queue_something_waits(victim->engine), "something still waits");
    for (uint32_t i = 0; i < SECRET_BYTES; i++) {
        fuzz_check(victim->hidden[i] == 0x5a, "the peer has written what it may not");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    world.fabric = memory_fabric_create(1);
    memory_fabric_options(world.fabric)->mode = MEMORY_IMMEDIATE;
    memory_fabric_options(world.fabric)->retry_steps = 20;
    memory_fabric_options(world.fabric)->reuse_numbers = true;
    world.clock_ns = 1000000000;
    world.op_count = world.done_count = 0;
    memset(world.done, 0, sizeof(world.done));
    for (uint32_t i = 0; i < SIDES; i++) {
        open_side(i);
    }
    for (uint32_t i = 0; i < STEPS_MAX && input.left > 0; i++) {
        step(&input);
    }
    finish();
    for (uint32_t i = 0; i < SIDES; i++) {
        close_side(&world.sides[i]);
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        fake_cm_end(&world.sides[i].cm);
    }
    fuzz_check(memory_fabric_counters(world.fabric)->left_open == 0, "something is left");
    memory_fabric_destroy(world.fabric);
    return 0;
}
