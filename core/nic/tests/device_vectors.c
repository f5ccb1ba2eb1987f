/* device_vectors.c: which of the device's completion vectors a nic uses. An event of a completion queue comes with the interrupt of
 * its vector. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>

#include "device_vectors.h"
#include "nic/device/device.h"
#include "queues.h"

#define MADE_MAX 64

/* Of the completion queues that were made: those that can raise events. */
static int made[MADE_MAX];
static uint32_t made_count;

static void note(int vector, const struct ibv_comp_channel *channel)
{
    if (channel && made_count < MADE_MAX) { /* other tests make any number */
        made[made_count++] = vector;
    }
}

static void *library_function(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    assert_non_null(found);
    return found;
}

/* The driver finds these before those of the libraries. */
struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
    struct ibv_cq *(*function)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
    void *found = library_function("ibv_create_cq");
    memcpy(&function, &found, sizeof(function));
    note(vector, channel);
    return function(context, entries, cq_context, channel, vector);
}

struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context,
                                   struct ibv_cq_init_attr_ex *attributes,
                                   struct mlx5dv_cq_init_attr *direct)
{
    struct ibv_cq_ex *(*function)(struct ibv_context *, struct ibv_cq_init_attr_ex *,
                                  struct mlx5dv_cq_init_attr *);
    void *found = library_function("mlx5dv_create_cq");
    memcpy(&function, &found, sizeof(function));
    note((int)attributes->comp_vector, attributes->channel);
    return function(context, attributes, direct);
}

/* Of completion queues that are made by DevX. */
int mlx5dv_devx_query_eqn(struct ibv_context *context, uint32_t vector, uint32_t *event_queue)
{
    int (*function)(struct ibv_context *, uint32_t, uint32_t *);
    void *found = library_function("mlx5dv_devx_query_eqn");
    memcpy(&function, &found, sizeof(function));
    if (made_count < MADE_MAX) {
        made[made_count++] = (int)vector;
    }
    return function(context, vector, event_queue);
}

/* Opens a nic with this option, and a queue, whose completion queue is another. Returns the vector of all. */
static uint32_t open_one(uint32_t option, uint32_t *vectors)
{
    struct nic_options options = pair_options();
    options.completion_vector = option;
    made_count = 0;
    struct nic *nic = pair_open_nic(&options);
    struct nic_queue_options queue_options = queues_options();
    queue_options.kind = NIC_QUEUE_UD;
    struct nic_queue *queue = queues_create(nic, &queue_options);
    assert_true(made_count >= 4);
    for (uint32_t i = 0; i < made_count; i++) {
        assert_int_equal(made[i], nic->completion_vector);
    }
    const uint32_t vector = nic->completion_vector;
    *vectors = (uint32_t)device_context(nic)->num_comp_vectors;
    assert_in_range(vector, 0, *vectors - 1);
    queues_end(queue);
    nic->operations->close(nic);
    return vector;
}

/* As it is told, modulo what there is. */
void test_vector_given(void **state)
{
    uint32_t vectors;
    (void)state;
    open_one(1, &vectors);
    for (uint32_t i = 0; i < 2 * vectors; i++) {
        assert_int_equal(open_one(1 + i, &vectors), i % vectors);
    }
}

/* Otherwise those of a process take turns, so that not all interrupts go to one processor. */
void test_vectors_spread(void **state)
{
    uint32_t vectors;
    (void)state;
    const uint32_t first = open_one(0, &vectors);
    for (uint32_t i = 1; i < 2 * vectors; i++) {
        assert_int_equal(open_one(0, &vectors), (first + i) % vectors);
    }
}
