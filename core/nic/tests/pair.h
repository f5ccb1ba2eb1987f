/* pair.h: two nics on one device, a connected queue pair on each, and memory between them. */
#ifndef CORE_NIC_TESTS_PAIR_H
#define CORE_NIC_TESTS_PAIR_H

#include "nic/nic.h"

#define PAIR_BYTES (2u << 20)
#define PAIR_WAIT_S 60 /* the VM is slow and its pollers share cores: never assert on time */
#define INBOX_MAX 4096
/* What the peer of a queue pair is promised. Where there is no SRQ, four queue pairs have as many receives as the nic. */
#define PAIR_RECEIVES 100u

/* What a nic's polls gave, in order. */
struct inbox {
    struct nic *nic;
    uint32_t count;
    struct nic_completion completions[INBOX_MAX];
};

struct pair {
    struct inbox near; /* sends */
    struct inbox far;  /* receives */
    struct nic_queue_pair *sender;
    struct nic_queue_pair *receiver;
    uint8_t *source; /* of near, registered for local access only */
    uint8_t *ring;   /* of far, peers may write */
    uint8_t *box;    /* of far, 64 bytes, peers may read */
    struct nic_keys source_memory, ring_memory, box_memory;
};

struct nic_queue;

/* What is tested: the driver, and the device in the options of pair_options. pair_device.c has these
 * for devices, memory_test.c for the in-memory NIC. */
uint32_t pair_driver(void);
void pair_choose(struct nic_options *options);
/* Lets time pass. A device uses it by itself; the in-memory NIC works in here. 0: no longer than one
 * poll takes. */
void pair_pass(uint32_t microseconds);
/* Fails the test unless the device has this RNR timer for a queue. The in-memory NIC has none. */
void pair_expect_timer(const struct nic_queue *queue, uint32_t code);
/* The device refuses to reset a queue pair so many times. The in-memory NIC has nothing to reset. */
void pair_refuse_resets(uint32_t count);
/* Returns true if the device has told that the limit of an SRQ was reached, since the last call. */
bool pair_limit_reached(struct nic_queue *srq);

struct nic_options pair_options(void);
struct nic *pair_open_nic(const struct nic_options *options);

void *pair_map(size_t bytes);
void pair_enroll(struct nic *nic, void *address, size_t bytes, uint32_t access,
                 struct nic_keys *memory);

/* Two nics with these options, their queue pairs and their memory. The far one's receives are posted. */
struct pair *pair_open(const struct nic_options *options);
void pair_close(struct pair *pair);

/* cmocka fixtures: *state is a struct pair, with pair_options. */
int pair_set_up(void **state);
int pair_tear_down(void **state);
#define PAIR_TEST(name) cmocka_unit_test_setup_teardown(name, pair_set_up, pair_tear_down)

/* Makes the pair's queue pairs again; whatever was outstanding is gone. */
void pair_reconnect(struct pair *pair);
void pair_connect(struct nic_queue_pair *one, struct nic_queue_pair *other,
                  const struct nic_transport *transport);

/* Returns how many WRITEs with immediate the nic takes over one queue pair that was just made, if it is not refilled. */
uint32_t pair_receives(const struct nic *nic);

struct nic_transfer pair_write(const struct pair *pair, uint64_t from, uint64_t to, uint32_t bytes,
                               uint32_t immediate);

/* Polls once, into the inbox. */
void inbox_poll(struct inbox *inbox);
/* Polls until it has `count` completions; fails the test after PAIR_WAIT_S. */
void inbox_wait(struct inbox *inbox, uint32_t count);
/* Polls until queue_pair->completed is `completed`. */
void inbox_wait_completed(struct inbox *inbox, const struct nic_queue_pair *queue_pair,
                          uint32_t completed);
const struct nic_completion *inbox_last(const struct inbox *inbox);
/* Polls for a moment and fails the test if anything comes. */
void inbox_expect_silence(struct inbox *inbox);

#endif
