/* rig.c: the rig's NIC and its queues; see rig.h. wqe_build.c makes its WQEs. */
#include "simnic/nic/tests/rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "simnic/fabric/format.h"

#define BLOCKS 4096
#define ROUNDS 1000000 /* of a NIC that never rests */

static void require(bool condition, const char *what)
{
    if (condition) {
        return;
    }
    fprintf(stderr, "rig: %s\n", what);
    abort();
}

/* ---- memory that is not there, as shim/mmio/traps.c has it ---- */

static struct sigaction before[2];

static void handle(int signal_number, siginfo_t *information, void *context)
{
    struct sigaction *next = &before[signal_number == SIGBUS];
#if defined(__x86_64__)
    ucontext_t *machine = context;
    greg_t *instruction = &machine->uc_mcontext.gregs[REG_RIP];
    if (dma_is_access((uintptr_t)*instruction)) {
        *instruction = (greg_t)dma_failed_address();
        return;
    }
#endif
    if (next->sa_flags & SA_SIGINFO) {
        next->sa_sigaction(signal_number, information, context);
    } else {
        signal(signal_number, SIG_DFL); /* the instruction runs again and dies */
    }
}

/* A test framework may put its own handler in the place of this one before each test. */
void rig_catch_faults(void)
{
    static const int signals[2] = {SIGSEGV, SIGBUS};
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
    for (int i = 0; i < 2; i++) {
        struct sigaction old;
        sigaction(signals[i], &action, &old);
        if (!(old.sa_flags & SA_SIGINFO) || old.sa_sigaction != handle) {
            before[i] = old;
        }
    }
}

/* ---- the host ---- */

static void completion_event(void *context, void *owner)
{
    struct rig *rig = context;
    rig->completion_events++;
    rig->completion_owner = owner;
}

static void async_event(void *context, int event, int rail, void *owner)
{
    struct rig *rig = context;
    if (rig->event_count < RIG_EVENTS) {
        rig->events[rig->event_count++] = (struct rig_event){event, rail, owner};
    }
}

static void unplugged(void *context, int rail)
{
    struct rig *rig = context;
    rig->unplugged |= 1u << rail;
}

static void cm_message(void *context, uint32_t slot, const void *message, uint32_t bytes)
{
    (void)context;
    (void)slot;
    (void)message;
    (void)bytes;
}

static void trace(void *context, uint32_t kind, uint32_t number, const void *bytes, uint32_t count)
{
    struct rig *rig = context;
    (void)number;
    (void)bytes;
    (void)count;
    rig->traced[kind & 1]++;
}

uint32_t rig_events(struct rig *rig, int event)
{
    uint32_t found = 0, kept = 0;
    for (uint32_t i = 0; i < rig->event_count; i++) {
        if (rig->events[i].event == event) {
            found++;
        } else {
            rig->events[kept++] = rig->events[i];
        }
    }
    rig->event_count = kept;
    return found;
}

/* ---- life ---- */

struct rig *rig_new_linked(uint32_t link)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    if (!rig) {
        return NULL;
    }
    rig_catch_faults();
    snprintf(rig->folder, sizeof(rig->folder), "%s/simnic-rig-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    require(mkdtemp(rig->folder) != NULL, "no temporary folder");
    snprintf(rig->path, sizeof(rig->path), "%s/fabric", rig->folder);
    require(fabric_format(rig->path, link) == 0, "no fabric file");
    require(fabric_attach(&rig->fabric, rig->path) == 0, "cannot attach to the fabric");
    /* Its name would stay if the test is killed: from here on the open file is one. */
    rig->file = open(rig->path, O_RDWR | O_CLOEXEC);
    require(rig->file >= 0, "cannot open the fabric file");
    unlink(rig->path);
    rmdir(rig->folder);
    snprintf(rig->path, sizeof(rig->path), "/proc/self/fd/%d", rig->file);
    rig->blocks = calloc(BLOCKS, sizeof(*rig->blocks));
    struct nic_host host = {.context = rig,
                            .completion_event = completion_event,
                            .async_event = async_event,
                            .unplugged = unplugged,
                            .cm_message = cm_message,
                            .trace = trace};
    require(rig->blocks && nic_create(&rig->nic, &rig->fabric, &host), "out of memory");
    rig->now_ns = RIG_START_NS;
    for (uint32_t page = 0; page < RIG_PAGES; page++) {
        rig->page[page] = rig_allocate(rig, NIC_UAR_BYTES);
        require(nic_add_page(&rig->nic, page, rig->page[page]), "no page");
    }
    return rig;
}

struct rig *rig_new(void)
{
    return rig_new_linked(0);
}

void rig_delete(struct rig *rig)
{
    nic_destroy(&rig->nic);
    fabric_detach(&rig->fabric);
    close(rig->file);
    for (uint32_t i = 0; i < rig->block_count; i++) {
        free(rig->blocks[i]);
    }
    free(rig->blocks);
    free(rig);
}

void rig_clear(struct rig *rig, uint32_t blocks)
{
    nic_destroy_queues(&rig->nic);
    while (rig->block_count > blocks) {
        free(rig->blocks[--rig->block_count]);
    }
    rig->event_count = 0;
}

void *rig_allocate(struct rig *rig, size_t bytes)
{
    void *block = NULL;
    require(rig->block_count < BLOCKS, "too many blocks");
    require(posix_memalign(&block, 4096, bytes ? bytes : 1) == 0, "out of memory");
    memset(block, 0, bytes);
    return rig->blocks[rig->block_count++] = block;
}

static uint32_t register_memory(struct rig *rig, uint8_t *bytes, uint64_t size, uint32_t access,
                                uint32_t domain)
{
    struct memory_key *key = key_create(&rig->nic, KEY_REGION, domain);
    require(key != NULL, "no key");
    key->access = access;
    key->start = key->address = (uintptr_t)bytes;
    key->bytes = size;
    return key->key;
}

struct rig_memory rig_memory_with(struct rig *rig, uint64_t bytes, uint32_t access, uint32_t domain)
{
    struct rig_memory memory = {rig_allocate(rig, bytes), bytes, 0};
    memory.key = register_memory(rig, memory.bytes, bytes, access, domain);
    return memory;
}

struct rig_memory rig_memory(struct rig *rig, uint64_t bytes)
{
    return rig_memory_with(rig, bytes, RIG_ACCESS_ALL, RIG_DOMAIN);
}

struct rig_memory rig_mapped(struct rig *rig, uint64_t bytes)
{
    void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(place != MAP_FAILED, "out of memory");
    struct rig_memory memory = {place, bytes, 0};
    memory.key = register_memory(rig, place, bytes, RIG_ACCESS_ALL, RIG_DOMAIN);
    return memory;
}

void rig_unmap(const struct rig_memory *memory)
{
    rig_catch_faults();
    require(munmap(memory->bytes, memory->size) == 0, "munmap failed");
}

/* ---- queues ---- */

struct rig_cq *rig_cq_new(struct rig *rig, uint32_t entries, uint32_t entry_bytes)
{
    struct rig_cq *cq = rig_allocate(rig, sizeof(*cq));
    cq->rig = rig;
    cq->cq = cq_create(&rig->nic);
    require(cq->cq != NULL, "no CQ");
    cq->cq->buffer = rig_allocate(rig, (size_t)entries * entry_bytes);
    cq->cq->record = (uint8_t *)cq->record;
    cq->cq->entries = entries;
    cq->cq->entry_bytes = entry_bytes;
    cq->cq->owner = cq;
    cq->cq->arm_value = cq->record[1] = UINT32_MAX;
    for (uint32_t i = 0; i < entries; i++) {
        cq->cq->buffer[(i + 1) * entry_bytes - 1] = MLX5_CQE_INVALID << 4;
    }
    return cq;
}

struct rig_srq *rig_srq_new(struct rig *rig, uint32_t entries)
{
    struct rig_srq *srq = rig_allocate(rig, sizeof(*srq));
    require(entries <= sizeof(srq->next) / sizeof(srq->next[0]), "an SRQ that large");
    srq->rig = rig;
    srq->srq = srq_create(&rig->nic);
    require(srq->srq != NULL, "no SRQ");
    srq->srq->buffer = rig_allocate(rig, (size_t)entries * 64);
    srq->srq->record = (uint8_t *)srq->record;
    srq->srq->entries = entries;
    srq->srq->entry_shift = 6;
    srq->srq->domain = RIG_DOMAIN;
    srq->srq->owner = srq;
    for (uint32_t i = 0; i < entries; i++) {
        srq->next[i] = (uint16_t)((i + 1) & (entries - 1));
        struct mlx5_wqe_srq_next_seg next = {.next_wqe_index = htobe16(srq->next[i])};
        memcpy(srq->srq->buffer + i * 64, &next, sizeof(next));
    }
    srq->tail = (uint16_t)(entries - 1);
    return srq;
}

struct rig_qp *rig_qp_new(struct rig *rig, struct rig_cq *cq, const struct rig_qp_options *options)
{
    static const struct rig_qp_options defaults;
    const struct rig_qp_options *o = options ? options : &defaults;
    struct rig_qp *made = rig_allocate(rig, sizeof(*made));
    struct queue_pair *qp = qp_create(&rig->nic);
    require(qp != NULL, "no QP");
    made->rig = rig;
    made->qp = qp;
    qp->type = o->type ? o->type : TYPE_RC;
    qp->rail = o->rail;
    qp->destination_rail = o->rail;
    qp->user_index = 0x1000 + (qp->number & 0xfff);
    qp->domain = o->domain ? o->domain : RIG_DOMAIN;
    qp->page = o->page;
    qp->send_blocks = o->send_blocks ? o->send_blocks : 64;
    qp->send_buffer = rig_allocate(rig, (size_t)qp->send_blocks * 64);
    qp->receive_entries = o->receive_entries ? o->receive_entries : 64;
    if (o->no_receive_queue || o->srq) {
        qp->receive_entries = 0;
    }
    qp->receive_shift = 6;
    qp->receive_buffer = rig_allocate(rig, (size_t)qp->receive_entries << qp->receive_shift);
    qp->record = (uint8_t *)made->record;
    qp->send_queue_completions = cq->cq;
    qp->receive_queue_completions = o->receive_cq ? o->receive_cq->cq : cq->cq;
    qp->shared_receive_queue = o->srq ? o->srq->srq : NULL;
    qp->owner = made;
    qp->attributes = (struct queue_pair_attributes){
        .queue_key = 0x11111111,
        .access = RIG_ACCESS_ALL,
        .path_mtu = 3,
        .timeout = 14,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .min_rnr_timer = 12,
        .max_reads = NIC_MAX_READS,
        .max_peer_reads = NIC_MAX_READS,
        .send_psn = 0x123456,
        .receive_psn = 0x123456,
        .partition = RAIL_DEFAULT_PARTITION,
    };
    rig_qp_way(made, o->rail);
    qp_attach_page(&rig->nic, qp);
    qp_set_state(&rig->nic, qp, STATE_INIT);
    return made;
}

void rig_qp_way(struct rig_qp *qp, int rail)
{
    uint32_t link = qp->rig->fabric.link;
    struct rail_way way = {.gid_index = 3};
    memcpy(way.gid, rails[rail].gid[3].raw, sizeof(way.gid));
    if (link & LINK_INFINIBAND) {
        rail_find_way(link, qp->qp->rail, rail, &way);
    }
    rig_qp_follow(qp, &way);
}

void rig_qp_follow(struct rig_qp *qp, const struct rail_way *way)
{
    qp->qp->attributes.way = *way;
    qp->qp->destination_rail = qp_rail_reached(&qp->rig->nic, qp->qp, way);
}

void rig_qp_point(struct rig_qp *from, const struct rig_qp *to)
{
    from->qp->attributes.destination_qpn = to->qp->number;
    qp_set_state(&from->rig->nic, from->qp, STATE_RTR);
    qp_set_state(&from->rig->nic, from->qp, STATE_RTS);
}

void rig_connect(struct rig_qp *a, struct rig_qp *b)
{
    rig_qp_point(a, b);
    rig_qp_point(b, a);
}

/* ---- time ---- */

void rig_run(struct rig *rig)
{
    /* Two idle rounds: one that finds nothing may still have left something to the next. */
    uint32_t idle = 0;
    for (uint32_t round = 0; idle < 2; round++) {
        require(round < ROUNDS, "the NIC never rests");
        idle = nic_run(&rig->nic, rig->now_ns) ? 0 : idle + 1;
    }
}

void rig_pass(struct rig *rig, uint64_t ns)
{
    uint64_t end = rig->now_ns + ns;
    rig_run(rig);
    while (rig->now_ns < end) {
        uint64_t next = nic_deadline_ns(&rig->nic);
        if (next <= rig->now_ns) {
            next = rig->now_ns + 1000;
        }
        rig->now_ns = next < end ? next : end;
        rig_run(rig);
    }
}

void rig_fault(struct rig *rig, const char *spec)
{
    char error[256];
    require(fabric_set_fault(rig->path, spec, error, sizeof(error)) == 0, "a wrong fault");
    rig_run(rig);
}

/* ---- completions ---- */

const uint8_t *rig_entry(const struct rig_cq *cq, uint32_t index)
{
    return cq->cq->buffer + (size_t)(index & (cq->cq->entries - 1)) * cq->cq->entry_bytes;
}

bool rig_peek(const struct rig_cq *cq, struct mlx5_cqe64 *cqe)
{
    memcpy(cqe, rig_entry(cq, cq->consumer) + cq->cq->entry_bytes - 64, sizeof(*cqe));
    uint8_t lap = cq->consumer & cq->cq->entries ? 1 : 0;
    return cqe->op_own >> 4 != MLX5_CQE_INVALID && (cqe->op_own & 1) == lap;
}

bool rig_poll(struct rig_cq *cq, struct mlx5_cqe64 *cqe)
{
    if (!rig_peek(cq, cqe)) {
        return false;
    }
    cq->consumer++;
    cq->record[0] = htobe32(cq->consumer & 0xffffff);
    return true;
}

void rig_arm(struct rig_cq *cq, bool solicited)
{
    uint32_t value = (cq->arm_serial++ & 3) << 28 | (solicited ? 1u << 24 : 0);
    cq->record[1] = htobe32(value | (cq->consumer & 0xffffff));
    uint64_t doorbell = htobe64((uint64_t)value << 32 | cq->cq->number);
    memcpy(cq->rig->page[0] + 0x20, &doorbell, sizeof(doorbell));
    nic_look_at_doorbells(&cq->rig->nic);
}

void rig_fill(uint8_t *bytes, uint64_t count, uint32_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(state >> 56);
    }
}
