/* tags.h: a TM-SRQ and two connections to it, for tests of nic/tags.h by any driver. For cmocka: what is not as
 * expected fails the test. */
#ifndef CORE_NIC_TESTS_TAGS_H
#define CORE_NIC_TESTS_TAGS_H

#include "nic/tags.h"
#include "queues.h"

#define TAGS_LINKS 2u
#define RECEIVES 16u
#define RECEIVE_BYTES 2048u
#define HEADER NIC_TAG_HEADER_BYTES
#define BUFFERS_AT (QUEUES_BYTES / 2) /* of tags, in the target; ordinary receives are before */
#define BUFFER_BYTES 16384u
#define ANY UINT64_MAX
#define EAGER 3
#define RENDEZVOUS 1
#define FINISHED 2
#define NO_TAG 0
#define CONTEXT 0x600df00du

struct tags {
    struct queues *queues;
    struct nic_queue *srq;
    struct nic_queue *near[TAGS_LINKS];
    struct nic_queue *far[TAGS_LINKS];
    uint32_t next_receive;
};

/* One of the connections, to the TM-SRQ. */
void tags_make_link(struct tags *tags, uint32_t i);
/* With so many tags. Skips the test where the device has none. */
void tags_make(void **state, struct tags *tags, uint32_t count);
void tags_end(struct tags *tags);
bool tags_command(struct tags *tags, const struct nic_work *work, const struct nic_piece *piece);
/* A buffer at its own place in the target. Returns false if there is no room. */
bool tags_add_of(struct tags *tags, uint64_t user_data, uint64_t tag, uint64_t mask,
                 uint32_t bytes);
/* Rings, and waits until the device has all commands. None of them may complete an op. */
void tags_settle(struct tags *tags);
/* A buffer that the device has. */
void tags_add(struct tags *tags, uint64_t user_data, uint64_t tag, uint64_t mask, uint32_t bytes);
void tags_remove_of(struct tags *tags, uint64_t user_data, uint64_t of);
void tags_synchronize(struct tags *tags, uint64_t user_data);
void tags_receive(struct tags *tags, uint32_t count);
/* Posts a message of a header and so many bytes. What the sender gets is not waited for. */
void tags_post_message(struct tags *tags, uint32_t link, uint8_t kind, uint64_t tag,
                       uint32_t bytes);
void tags_send_message(struct tags *tags, uint32_t link, uint8_t kind, uint64_t tag,
                       uint32_t bytes);
/* The next completion at the far side. */
const crpc_completion *tags_next(struct tags *tags);
void tags_expect_match(struct tags *tags, uint64_t user_data, uint32_t link, uint64_t tag,
                       uint32_t bytes);
/* A message in an ordinary receive. */
void tags_expect_receive(struct tags *tags, uint64_t user_data, uint32_t bytes, bool counted);
void tags_expect_command(struct tags *tags, uint16_t method, uint64_t user_data, int32_t status);

#endif
