/* contract_domains.c: protection domains: what a peer that knows every key can reach, and what the WQEs
 * of a queue pair can. The queue pairs and the memory of struct pair are in the nics' own domains.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "contract.h"
#include "pair.h"

#define BYTES 4096u

/* A second connection, whose far queue pair and memory are in a domain of their own. */
struct second {
    struct nic_domain *domain;
    struct nic_queue_pair *sender;   /* of near, in its own domain */
    struct nic_queue_pair *receiver; /* of far */
    uint8_t *bytes;                  /* of far; peers may read and write */
    struct nic_keys memory;
};

static struct nic_queue_pair *create(struct nic *nic, struct nic_domain *domain)
{
    struct nic_queue_pair *queue_pair = NULL;
    assert_int_equal(nic_queue_pair_create(nic, domain, NULL, PAIR_RECEIVES, &queue_pair, NULL),
                     CRPC_OK);
    return queue_pair;
}

static void open_second(struct pair *pair, struct second *second)
{
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct nic *far = pair->far.nic;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(far->operations->domain_create(far, &second->domain, &error), CRPC_OK);
    assert_ptr_equal(second->domain->nic, far);
    second->bytes = pair_map(BYTES);
    second->memory = (struct nic_keys){0};
    assert_int_equal(far->operations->memory_register(far, second->domain, second->bytes, BYTES, 0,
                                                      CRPC_ACCESS_LOCAL_WRITE |
                                                          CRPC_ACCESS_REMOTE_WRITE |
                                                          CRPC_ACCESS_REMOTE_READ,
                                                      &second->memory, &error),
                     CRPC_OK);
    second->sender = create(pair->near.nic, NULL);
    second->receiver = create(far, second->domain);
    pair_connect(second->sender, second->receiver, &transport);
}

static void close_second(struct pair *pair, struct second *second)
{
    const struct nic_operations *operations = pair->far.nic->operations;
    operations->queue_pair_destroy(second->sender);
    operations->queue_pair_destroy(second->receiver);
    operations->memory_deregister(pair->far.nic, &second->memory);
    operations->domain_destroy(second->domain);
    munmap(second->bytes, BYTES);
}

/* Of the second connection's memory. */
static struct nic_transfer transfer_of(const struct pair *pair, const struct second *second)
{
    struct nic_transfer transfer = pair_write(pair, 0, 0, 32, 7);
    transfer.remote_address = (uint64_t)(uintptr_t)second->bytes;
    transfer.remote_key = second->memory.remote_key;
    return transfer;
}

/* The oldest error of the inbox. */
static uint8_t cause_of(const struct inbox *inbox)
{
    for (uint32_t i = 0; i < inbox->count; i++) {
        if (inbox->completions[i].kind == NIC_COMPLETION_ERROR) {
            return inbox->completions[i].status;
        }
    }
    return NIC_ERROR_NONE;
}

static void expect_refused(struct pair *pair, struct nic_queue_pair *sender, enum nic_error cause)
{
    inbox_wait_completed(&pair->near, sender, sender->posted);
    assert_int_equal(cause_of(&pair->near), cause);
    assert_true(sender->failed);
}

/* The connection works: what is written arrives, and so does its immediate. */
static void expect_arrival(struct pair *pair, struct nic_queue_pair *sender,
                           const struct nic_transfer *write)
{
    const struct nic_operations *operations = pair->near.nic->operations;
    uint32_t before = pair->far.count;
    uint8_t *to = (uint8_t *)(uintptr_t)write->remote_address;
    memset(pair->source, 0x5a, write->bytes);
    operations->post_write_immediate(sender, write, NIC_POST_SIGNALED);
    operations->ring_doorbell(sender);
    inbox_wait(&pair->far, before + 1);
    assert_int_equal(inbox_last(&pair->far)->kind, NIC_COMPLETION_RECEIVE);
    assert_int_equal(inbox_last(&pair->far)->immediate, write->immediate);
    assert_memory_equal(to, pair->source, write->bytes);
}

/* A peer that knows another connection's address and key. */
void test_key_of_another_domain(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    struct second second;
    open_second(pair, &second);
    struct nic_transfer theft = transfer_of(pair, &second);
    memset(pair->source, 0xee, theft.bytes);
    for (uint32_t i = 0; i < 2; i++) {
        pair_reconnect(pair);
        pair->near.count = 0;
        if (i == 0) {
            operations->post_write(pair->sender, &theft, NIC_POST_SIGNALED);
        } else {
            operations->post_write_immediate(pair->sender, &theft, NIC_POST_SIGNALED);
        }
        operations->ring_doorbell(pair->sender);
        expect_refused(pair, pair->sender, NIC_ERROR_REMOTE_ACCESS);
        assert_int_equal(second.bytes[0], 0);
    }
    /* The other way round: from the domain to the nic's own. */
    struct nic_transfer write = pair_write(pair, 0, 0, 32, 1);
    struct nic_transfer honest = transfer_of(pair, &second);
    expect_arrival(pair, second.sender, &honest);
    pair->near.count = 0;
    operations->post_write(second.sender, &write, NIC_POST_SIGNALED);
    operations->ring_doorbell(second.sender);
    expect_refused(pair, second.sender, NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(pair->ring[0], 0);
    close_second(pair, &second);
}

void test_read_of_another_domain(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    struct second second;
    open_second(pair, &second);
    struct nic_transfer theft = transfer_of(pair, &second);
    memset(second.bytes, 0x77, 32);
    operations->post_read(pair->sender, &theft, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    expect_refused(pair, pair->sender, NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(pair->source[0], 0);
    operations->post_read(second.sender, &theft, NIC_POST_SIGNALED);
    operations->ring_doorbell(second.sender);
    inbox_wait_completed(&pair->near, second.sender, 1);
    assert_false(second.sender->failed);
    assert_int_equal(pair->source[31], 0x77);
    close_second(pair, &second);
}

/* What a WQE sends must be of its queue pair's domain, too, if it is not copied into the WQE. */
void test_own_memory_of_another_domain(void **state)
{
    struct pair *pair = *state;
    struct nic *near = pair->near.nic;
    const struct nic_operations *operations = near->operations;
    struct nic_domain *domain;
    struct nic_keys memory = {0};
    assert_int_equal(operations->domain_create(near, &domain, NULL), CRPC_OK);
    assert_int_equal(operations->memory_register(near, domain, pair->source, PAIR_BYTES, 0,
                                                 CRPC_ACCESS_LOCAL_WRITE, &memory, NULL),
                     CRPC_OK);
    struct nic_transfer write = pair_write(pair, 0, 0, near->inline_bytes_max + 64, 1);
    memset(pair->source, 0xee, write.bytes);
    write.local_key = memory.local_key;
    operations->post_write(pair->sender, &write, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    expect_refused(pair, pair->sender, NIC_ERROR_LOCAL);
    assert_int_equal(pair->ring[0], 0);
    operations->memory_deregister(near, &memory);
    operations->domain_destroy(domain);
}

void test_landing_in_another_domain(void **state)
{
    struct pair *pair = *state;
    struct nic *near = pair->near.nic;
    const struct nic_operations *operations = near->operations;
    struct nic_domain *domain;
    struct nic_keys memory = {0};
    uint8_t *landing = pair_map(BYTES);
    assert_int_equal(operations->domain_create(near, &domain, NULL), CRPC_OK);
    assert_int_equal(operations->memory_register(near, domain, landing, BYTES, 0,
                                                 CRPC_ACCESS_LOCAL_WRITE, &memory, NULL),
                     CRPC_OK);
    memset(pair->box, 0x77, 64);
    struct nic_transfer read = pair_write(pair, 0, 0, 64, 0);
    read.local_address = (uint64_t)(uintptr_t)landing;
    read.local_key = memory.local_key;
    read.remote_address = (uint64_t)(uintptr_t)pair->box;
    read.remote_key = pair->box_memory.remote_key;
    operations->post_read(pair->sender, &read, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    expect_refused(pair, pair->sender, NIC_ERROR_LOCAL);
    assert_int_equal(landing[0], 0);
    operations->memory_deregister(near, &memory);
    operations->domain_destroy(domain);
    munmap(landing, BYTES);
}

/* The SRQ, whose receives have no memory, serves the queue pairs of all domains. */
void test_domains_share_receives(void **state)
{
    struct pair *pair = *state;
    struct second second[2];
    uint32_t posted = pair->far.nic->receives_posted;
    open_second(pair, &second[0]);
    open_second(pair, &second[1]);
    for (uint32_t i = 0; i < 2; i++) {
        struct nic_transfer write = transfer_of(pair, &second[i]);
        write.immediate = 100 + i;
        expect_arrival(pair, second[i].sender, &write);
        assert_int_equal(inbox_last(&pair->far)->queue_pair_number, second[i].receiver->number);
    }
    struct nic_transfer write = pair_write(pair, 0, 0, 32, 102);
    expect_arrival(pair, pair->sender, &write);
    assert_int_equal(pair->far.nic->receives_posted, posted - 3);
    close_second(pair, &second[0]);
    close_second(pair, &second[1]);
}
