/* fake.c: the device of fake.h. */
#include "fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

struct fake fake;

/* ---- What the device does -------------------------------------------------------------------- */

static int fake_poll(struct ibv_cq *cq, int capacity, struct ibv_wc *entries)
{
    struct fake_queue *queue = container_of(cq, struct fake_queue, cq);
    uint32_t count = queue->count < (uint32_t)capacity ? queue->count : (uint32_t)capacity;
    memcpy(entries, queue->entries, count * sizeof(*entries));
    queue->count -= count;
    memmove(queue->entries, queue->entries + count, queue->count * sizeof(*entries));
    return (int)count;
}

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad)
{
    fake.post_calls++;
    for (; list; list = list->next) {
        if (fake.refuse_after == 0) {
            *bad = list;
            return ENOMEM;
        }
        fake.refuse_after -= fake.refuse_after != UINT32_MAX;
        assert_true(fake.post_count < FAKE_POSTS_MAX);
        fake.posts[fake.post_count++] = (struct fake_post){
            .wr_id = list->wr_id,
            .queue_pair_number = qp->qp_num,
            .flags = list->send_flags,
            .opcode = list->opcode,
            .bytes = list->num_sge ? list->sg_list[0].length : 0,
            .pieces = list->num_sge,
        };
    }
    return 0;
}

static int take_receives(struct ibv_recv_wr *list, struct ibv_recv_wr **bad)
{
    fake.receive_calls++;
    for (; list; list = list->next) {
        assert_int_equal(list->num_sge, fake.receive_pieces);
        if (list->num_sge > 0) {
            assert_int_equal(list->sg_list[0].length, 0);
        }
        if (fake.receives_posted == fake.receive_room) {
            *bad = list;
            return fake.receive_error;
        }
        fake.receives_posted++;
    }
    return 0;
}

static int fake_post_srq(struct ibv_srq *srq, struct ibv_recv_wr *list, struct ibv_recv_wr **bad)
{
    assert_ptr_equal(srq, &fake.srq);
    return take_receives(list, bad);
}

/* A queue pair without a receive queue, or in the state RESET, takes none. */
static int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *list, struct ibv_recv_wr **bad)
{
    assert_null(qp->srq);
    assert_int_not_equal(qp->state, IBV_QPS_RESET);
    fake.last_receive = qp->qp_num;
    return take_receives(list, bad);
}

struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes);
struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
    struct ibv_qp *qp = calloc(1, sizeof(*qp));
    (void)pd;
    fake.cap = attributes->cap;
    qp->context = &fake.context;
    qp->qp_num = fake.next_number;
    qp->srq = attributes->srq;
    return qp;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *qp);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
    if (fake.at_destroy) {
        fake.at_destroy(qp);
    }
    fake.destroyed++;
    free(qp);
    return 0;
}

/* INIT only where receives are posted before the queue pair is connected. */
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    assert_true(mask == IBV_QP_STATE || (attributes->qp_state == IBV_QPS_INIT && !qp->srq));
    qp->state = attributes->qp_state;
    return 0;
}

int __wrap_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes);
int __wrap_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
    assert_ptr_equal(context, &fake.context);
    *attributes = fake.attributes;
    return 0;
}

struct ibv_srq *__wrap_ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attributes);
struct ibv_srq *__wrap_ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attributes)
{
    (void)pd;
    assert_int_equal(attributes->attr.max_wr, FAKE_DEPTH);
    errno = fake.srq_error;
    return fake.srq_error ? NULL : &fake.srq;
}

int __wrap_ibv_destroy_srq(struct ibv_srq *srq);
int __wrap_ibv_destroy_srq(struct ibv_srq *srq)
{
    assert_ptr_equal(srq, &fake.srq);
    return 0;
}

void fake_add(struct fake_queue *queue, uint32_t number, uint64_t wr_id, enum ibv_wc_status status)
{
    assert_true(queue->count < FAKE_DEPTH);
    queue->entries[queue->count++] = (struct ibv_wc){
        .qp_num = number,
        .wr_id = wr_id,
        .status = status,
        .opcode = queue == &fake.receive ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RDMA_WRITE,
        .imm_data = htobe32((uint32_t)wr_id),
        .byte_len = 32,
    };
}

/* ---- Fixtures -------------------------------------------------------------------------------- */

static void open_source(struct verbs_source *source, struct fake_queue *queue)
{
    queue->cq.context = &fake.context;
    source->cq = &queue->cq;
    source->depth = FAKE_DEPTH;
    source->stash = malloc(FAKE_DEPTH * sizeof(*source->stash));
}

static int set_up(void **state, int srq_error)
{
    struct verbs_nic *nic = calloc(1, sizeof(*nic));
    memset(&fake, 0, sizeof(fake));
    fake.context.ops.poll_cq = fake_poll;
    fake.context.ops.post_send = fake_post_send;
    fake.context.ops.post_srq_recv = fake_post_srq;
    fake.context.ops.post_recv = fake_post_recv;
    fake.context.device = &fake.device;
    fake.srq.context = &fake.context;
    fake.srq_error = srq_error;
    fake.refuse_after = UINT32_MAX;
    fake.receive_room = UINT32_MAX;
    fake.receive_error = ENOMEM;
    open_source(&nic->receive, &fake.receive);
    open_source(&nic->send, &fake.send);
    nic->device.base.operations = &verbs_operations;
    nic->device.base.receive_depth = FAKE_DEPTH;
    nic->device.base.send_depth = 16;
    nic->device.base.signal_interval = 4;
    nic->device.base.inline_bytes_max = 64;
    nic->device.base.message_bytes_max = NIC_MESSAGE_BYTES_MAX;
    nic->device.receive_wqes_max = 48;
    table_init(&nic->device.by_number);
    assert_int_equal(verbs_receives_open(nic, NULL), CRPC_OK);
    verbs_refill(&nic->device.base);
    *state = nic;
    return 0;
}

int fake_set_up(void **state)
{
    return set_up(state, 0);
}

int fake_set_up_without_srq(void **state)
{
    return set_up(state, EOPNOTSUPP);
}

int fake_tear_down(void **state)
{
    struct verbs_nic *nic = *state;
    assert_int_equal(nic->device.queue_pairs, 0);
    assert_int_equal(nic->device.send_outstanding, 0);
    assert_int_equal(nic->receives_given, 0);
    assert_true(list_empty(&nic->short_of_receives));
    verbs_receives_close(nic);
    free(nic->receive.stash);
    free(nic->send.stash);
    table_free(&nic->device.by_number);
    free(nic);
    return 0;
}

struct nic_queue_pair *fake_create(struct verbs_nic *nic, uint32_t number, uint32_t receives)
{
    struct nic_queue_pair *queue_pair;
    fake.next_number = number;
    assert_int_equal(
        nic_queue_pair_create(&nic->device.base, NULL, NULL, receives, &queue_pair, NULL), CRPC_OK);
    assert_int_equal(queue_pair->number, number);
    return queue_pair;
}
