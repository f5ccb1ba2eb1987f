/* queues.h: two nics, a connected queue with user data on each (nic/queue.h), and memory between them. */
#ifndef CORE_NIC_TESTS_QUEUES_H
#define CORE_NIC_TESTS_QUEUES_H

#include "nic/queue.h"
#include "pair.h"

#define QUEUES_BYTES (1u << 20)
#define QUEUES_DONE_MAX 4096u
#define QUEUES_PIECES 4u

/* What the polls of a nic gave, in order. */
struct done_list {
    struct nic *nic;
    uint32_t capacity; /* of each poll */
    uint32_t count;
    uint32_t errors;
    crpc_completion done[QUEUES_DONE_MAX];
};

struct queues {
    struct done_list near, far;
    struct nic_queue *sender;   /* of near */
    struct nic_queue *receiver; /* of far */
    uint8_t *source;            /* of near */
    uint8_t *target;            /* of far: peers may read, write, and use atomics */
    struct nic_keys source_keys, target_keys;
};

/* Options of a queue that sends 32 ops of 4 pieces or 100 bytes inline, and receives 16. */
struct nic_queue_options queues_options(void);

/* cmocka fixtures: *state is a struct queues without queues. */
int queues_set_up(void **state);
int queues_tear_down(void **state);
#define QUEUES_TEST(name) cmocka_unit_test_setup_teardown(name, queues_set_up, queues_tear_down)

struct nic_queue *queues_create(struct nic *nic, const struct nic_queue_options *options);
void queues_connect(struct nic_queue *one, struct nic_queue *other);
/* Makes the two queues, and connects them. */
void queues_make(struct queues *queues, const struct nic_queue_options *near,
                 const struct nic_queue_options *far);
/* Destroys a queue, of which nothing may be open. */
void queues_end(struct nic_queue *queue);

struct nic_work queues_work(const struct queues *queues, uint8_t opcode, uint32_t flags,
                            uint64_t user_data);
struct nic_piece queues_near(const struct queues *queues, uint64_t from, uint32_t bytes);
struct nic_piece queues_far(const struct queues *queues, uint64_t from, uint32_t bytes);
/* Posts an op with these pieces. Returns false if there is no room. */
bool queues_post_pieces(struct nic_queue *queue, const struct nic_work *work,
                        const struct nic_piece *pieces, uint32_t count);
/* Makes a target for ops of queues of `nic`. */
struct nic_target *queues_target(struct nic *nic, const struct nic_queue *to, uint32_t queue_key);
/* Posts a datagram. Returns false if there is no room. */
bool queues_post_to(struct nic_queue *queue, const struct nic_work *work, struct nic_target *target,
                    const struct nic_piece *pieces, uint32_t count);
/* Posts with one piece of the source, and does not ring. */
void queues_post(struct queues *queues, const struct nic_work *work, uint64_t from, uint32_t bytes);
/* Posts receives with these numbers as user data, each of so many bytes of the target. */
void queues_receive(struct nic_queue *queue, const struct queues *queues, uint64_t first,
                    uint32_t count, uint32_t bytes);
void queues_ring(struct nic_queue *queue);

void queues_poll(struct done_list *list);
void queues_wait(struct done_list *list, uint32_t count);
void queues_expect_silence(struct done_list *list);

#endif
