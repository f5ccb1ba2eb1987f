/* contract.h: the tests that every driver must pass, those of nic.h's promises that need nothing but
 * two connected nics. nic_vm_test.c runs them on a device, memory_test.c on the in-memory NIC.
 */
#ifndef CORE_NIC_TESTS_CONTRACT_H
#define CORE_NIC_TESTS_CONTRACT_H

#include "leave_out.h"
#include "pair.h"
#include "queues.h"

void test_write(void **state);
void test_written(void **state);
void test_plain_write(void **state);
void test_foreign_write(void **state);
void test_large_write(void **state);
void test_read(void **state);
void test_signaling(void **state);
void test_plain_signaling(void **state);
void test_refill(void **state);
void test_arm(void **state);

void test_window(void **state);
void test_window_behind_bind(void **state);
void test_window_invalidated(void **state);
void test_window_destroyed(void **state);
void test_window_other_queue_pair(void **state);
void test_window_old_key(void **state);
void test_window_memory(void **state);
void test_window_before(void **state);
void test_window_behind(void **state);
void test_window_read(void **state);
void test_window_no_read(void **state);
void test_window_no_atomics(void **state);
void test_atomics(void **state);
void test_fence(void **state);
void test_pieces(void **state);
void test_pieces_read(void **state);
void test_pieces_keys(void **state);
void test_pieces_wrap(void **state);
void test_pieces_immediate(void **state);
void test_deep(void **state);

void test_other_address(void **state);
void test_own_address(void **state);

void test_wrong_key(void **state);
void test_access(void **state);
void test_plain_access(void **state);
void test_peer_gone(void **state);
void test_no_receive(void **state);
void test_flush(void **state);
void test_destroy_pending(void **state);
void test_steps(void **state);
void test_steps_given_up(void **state);
void test_steps_to_the_end(void **state);

void test_key_of_another_domain(void **state);
void test_read_of_another_domain(void **state);
void test_own_memory_of_another_domain(void **state);
void test_landing_in_another_domain(void **state);
void test_domains_share_receives(void **state);

void test_queue_write(void **state);
void test_queue_pieces(void **state);
void test_queue_messages(void **state);
void test_queue_atomics(void **state);
void test_queue_nop(void **state);
void test_queue_fence(void **state);
void test_queue_dense(void **state);
void test_queue_sparse(void **state);
void test_queue_fair(void **state);
void test_queue_unordered(void **state);
void test_queue_small_polls(void **state);
void test_queue_room(void **state);
void test_queue_deep(void **state);
void test_queue_too_deep(void **state);
void test_queue_wrap(void **state);
void test_queue_arm(void **state);
void test_queue_remote_error(void **state);
void test_queue_sparse_error(void **state);
void test_queue_local_error(void **state);
void test_queue_long_message(void **state);
void test_queue_flush(void **state);
void test_queue_stop(void **state);
void test_queue_unconnected(void **state);
void test_queue_shared(void **state);
void test_queue_shared_stop(void **state);
void test_queue_stopped_ring(void **state);
void test_queue_shared_error(void **state);
void test_datagram_messages(void **state);
void test_datagram_pieces(void **state);
void test_datagram_targets(void **state);
void test_datagram_itself(void **state);
void test_datagram_lost(void **state);
void test_datagram_shared(void **state);
void test_datagram_sparse(void **state);
void test_datagram_deep(void **state);
void test_datagram_wrap(void **state);
void test_datagram_room(void **state);
void test_datagram_local_error(void **state);
void test_datagram_too_long(void **state);
void test_datagram_stop(void **state);
void test_datagram_source(void **state);
void test_dc_missing(void **state);
void test_dc_messages(void **state);
void test_dc_pieces(void **state);
void test_dc_read_atomics(void **state);
void test_dc_targets(void **state);
void test_dc_sparse(void **state);
void test_dc_sparse_room(void **state);
void test_dc_room(void **state);
void test_dc_deep(void **state);
void test_dc_errors(void **state);
void test_dc_long_message(void **state);
void test_dc_no_receive(void **state);
void test_dc_ends(void **state);
void test_dc_target_stopped(void **state);
void test_dc_streams(void **state);
void test_dc_stream_errors(void **state);
void test_dc_stream_wrap(void **state);
void test_dc_streams_fail(void **state);
void test_dc_streams_end(void **state);
void test_dc_stream_limits(void **state);
void test_dc_storm(void **state);
void test_dynamic_transfers(void **state);
void test_dynamic_turns(void **state);
void test_dynamic_before_connected(void **state);
void test_dynamic_all_get_turns(void **state);
void test_dynamic_peer_gone(void **state);
void test_dynamic_fails_under_way(void **state);
void test_dynamic_fails_waiting(void **state);
void test_dynamic_wrong_key(void **state);
void test_dynamic_domains(void **state);
void test_dynamic_numbers(void **state);
void test_dynamic_fail_unpolled(void **state);
void test_dynamic_refused(void **state);
void test_dynamic_storm(void **state);
void test_tags_messages(void **state);
void test_tags_long_message(void **state);
void test_tags_garbage(void **state);
void test_tags_write(void **state);
void test_tags_rendezvous(void **state);
void test_tags_remove(void **state);
void test_tags_remove_race(void **state);
void test_tags_synchronization(void **state);
void test_tags_room(void **state);
void test_tags_too_long(void **state);
void test_tags_wrong_key(void **state);
void test_tags_stop(void **state);
void test_tags_link_stop(void **state);
void test_tags_link_stop_within(void **state);
void test_tags_small_polls(void **state);
void test_tags_remove_too_late(void **state);
void test_tags_two(void **state);
void test_tags_storm(void **state);
void test_modify_access(void **state);
void test_modify_access_taken(void **state);
void test_modify_access_of_atomics(void **state);
void test_modify_access_before(void **state);
void test_modify_not_ready_timer(void **state);
void test_modify_refused(void **state);
void test_modify_queue_key(void **state);
void test_modify_limit(void **state);
void test_modify_limit_of_tags(void **state);

/* Elements of an array of struct CMUnitTest. */
#define CONTRACT_TESTS                                                                             \
    PAIR_TEST(test_write), PAIR_TEST(test_written), PAIR_TEST(test_plain_write),                   \
        PAIR_TEST(test_large_write), PAIR_TEST(test_read), PAIR_TEST(test_signaling),              \
        PAIR_TEST(test_plain_signaling), PAIR_TEST(test_refill), PAIR_TEST(test_arm),              \
        PAIR_TEST(test_wrong_key), PAIR_TEST(test_access), PAIR_TEST(test_plain_access),           \
        PAIR_TEST(test_peer_gone), PAIR_TEST(test_no_receive), PAIR_TEST(test_flush),              \
        PAIR_TEST(test_destroy_pending), PAIR_TEST(test_steps), PAIR_TEST(test_steps_given_up),    \
        PAIR_TEST(test_steps_to_the_end), PAIR_TEST(test_key_of_another_domain),                   \
        PAIR_TEST(test_read_of_another_domain), PAIR_TEST(test_own_memory_of_another_domain),      \
        PAIR_TEST(test_landing_in_another_domain), PAIR_TEST(test_domains_share_receives),         \
        PAIR_TEST(test_other_address), PAIR_TEST(test_own_address), PAIR_TEST(test_window),        \
        PAIR_TEST(test_window_behind_bind), PAIR_TEST(test_window_invalidated),                    \
        PAIR_TEST(test_window_destroyed), PAIR_TEST(test_window_other_queue_pair),                 \
        PAIR_TEST(test_window_old_key), PAIR_TEST(test_window_memory),                             \
        PAIR_TEST(test_window_before), PAIR_TEST(test_window_behind), PAIR_TEST(test_window_read), \
        PAIR_TEST(test_window_no_read), PAIR_TEST(test_window_no_atomics),                         \
        PAIR_TEST(test_atomics), PAIR_TEST(test_fence), PAIR_TEST(test_pieces),                    \
        PAIR_TEST(test_pieces_read), PAIR_TEST(test_pieces_keys), PAIR_TEST(test_pieces_wrap),     \
        PAIR_TEST(test_pieces_immediate), PAIR_TEST(test_deep), PAIR_TEST(test_foreign_write)

/* The same, of drivers that have queues with user data. */
#define TAG_CONTRACT_TESTS                                                                         \
    QUEUES_TEST(test_tags_messages), QUEUES_TEST(test_tags_long_message),                          \
        QUEUES_TEST(test_tags_garbage), QUEUES_TEST(test_tags_write),                              \
        QUEUES_TEST(test_tags_rendezvous), QUEUES_TEST(test_tags_remove),                          \
        QUEUES_TEST(test_tags_remove_race), QUEUES_TEST(test_tags_synchronization),                \
        QUEUES_TEST(test_tags_room), QUEUES_TEST(test_tags_too_long),                              \
        QUEUES_TEST(test_tags_wrong_key), QUEUES_TEST(test_tags_stop),                             \
        QUEUES_TEST(test_tags_link_stop), QUEUES_TEST(test_tags_link_stop_within),                 \
        QUEUES_TEST(test_tags_small_polls), QUEUES_TEST(test_tags_remove_too_late),                \
        QUEUES_TEST(test_tags_two), QUEUES_TEST(test_modify_limit_of_tags),                        \
        QUEUES_TEST(test_tags_storm)
/* Of devices that have atomics. */
#define QUEUE_ATOMIC_TESTS                                                                         \
    QUEUES_TEST(test_queue_atomics), QUEUES_TEST(test_modify_access_of_atomics)
/* Of devices that have SRQs. */
#define QUEUE_SHARED_TESTS                                                                         \
    QUEUES_TEST(test_queue_shared), QUEUES_TEST(test_queue_shared_stop),                           \
        QUEUES_TEST(test_queue_stopped_ring), QUEUES_TEST(test_queue_shared_error),                \
        QUEUES_TEST(test_datagram_shared), QUEUES_TEST(test_modify_limit)
#define QUEUE_CONTRACT_TESTS                                                                       \
    QUEUES_TEST(test_queue_write), QUEUES_TEST(test_queue_pieces),                                 \
        QUEUES_TEST(test_queue_messages), QUEUES_TEST(test_queue_nop),                             \
        QUEUES_TEST(test_queue_fence), QUEUES_TEST(test_queue_dense),                              \
        QUEUES_TEST(test_queue_sparse), QUEUES_TEST(test_queue_fair),                              \
        QUEUES_TEST(test_queue_unordered), QUEUES_TEST(test_queue_small_polls),                    \
        QUEUES_TEST(test_queue_room), QUEUES_TEST(test_queue_deep),                                \
        QUEUES_TEST(test_queue_too_deep), QUEUES_TEST(test_queue_wrap),                            \
        QUEUES_TEST(test_queue_arm), QUEUES_TEST(test_queue_remote_error),                         \
        QUEUES_TEST(test_queue_sparse_error), QUEUES_TEST(test_queue_local_error),                 \
        QUEUES_TEST(test_queue_long_message), QUEUES_TEST(test_queue_flush),                       \
        QUEUES_TEST(test_queue_stop), QUEUES_TEST(test_queue_unconnected),                         \
        QUEUES_TEST(test_datagram_messages), QUEUES_TEST(test_datagram_pieces),                    \
        QUEUES_TEST(test_datagram_targets), QUEUES_TEST(test_datagram_itself),                     \
        QUEUES_TEST(test_datagram_lost), QUEUES_TEST(test_datagram_sparse),                        \
        QUEUES_TEST(test_datagram_wrap), QUEUES_TEST(test_datagram_room),                          \
        QUEUES_TEST(test_datagram_local_error), QUEUES_TEST(test_datagram_too_long),               \
        QUEUES_TEST(test_datagram_stop), QUEUES_TEST(test_datagram_source),                        \
        QUEUES_TEST(test_datagram_deep), QUEUES_TEST(test_modify_access),                          \
        QUEUES_TEST(test_modify_access_taken), QUEUES_TEST(test_modify_access_before),             \
        QUEUES_TEST(test_modify_not_ready_timer), QUEUES_TEST(test_modify_refused),                \
        QUEUES_TEST(test_modify_queue_key), QUEUE_SHARED_TESTS, QUEUE_ATOMIC_TESTS,                \
        TAG_CONTRACT_TESTS

/* The same, of devices that have DC, ... */
#define DC_TESTS                                                                                   \
    QUEUES_TEST(test_dc_messages), QUEUES_TEST(test_dc_pieces), QUEUES_TEST(test_dc_read_atomics), \
        QUEUES_TEST(test_dc_targets), QUEUES_TEST(test_dc_sparse),                                 \
        QUEUES_TEST(test_dc_sparse_room), QUEUES_TEST(test_dc_room), QUEUES_TEST(test_dc_deep),    \
        QUEUES_TEST(test_dc_errors), QUEUES_TEST(test_dc_long_message),                            \
        QUEUES_TEST(test_dc_no_receive), QUEUES_TEST(test_dc_ends),                                \
        QUEUES_TEST(test_dc_target_stopped)
/* ... and of those whose DCIs have streams. */
#define DC_STREAM_TESTS                                                                            \
    QUEUES_TEST(test_dc_streams), QUEUES_TEST(test_dc_stream_errors),                              \
        QUEUES_TEST(test_dc_stream_wrap), QUEUES_TEST(test_dc_streams_fail),                       \
        QUEUES_TEST(test_dc_streams_end), QUEUES_TEST(test_dc_stream_limits),                      \
        QUEUES_TEST(test_dc_storm)
#define DC_CONTRACT_TESTS QUEUES_TEST(test_dc_missing), DC_TESTS, DC_STREAM_TESTS

/* Of drivers that have dynamic queue pairs. */
#define DYNAMIC_CONTRACT_TESTS                                                                     \
    cmocka_unit_test(test_dynamic_transfers), cmocka_unit_test(test_dynamic_turns),                \
        cmocka_unit_test(test_dynamic_before_connected),                                           \
        cmocka_unit_test(test_dynamic_all_get_turns), cmocka_unit_test(test_dynamic_peer_gone),    \
        cmocka_unit_test(test_dynamic_fails_under_way),                                            \
        cmocka_unit_test(test_dynamic_fails_waiting), cmocka_unit_test(test_dynamic_wrong_key),    \
        cmocka_unit_test(test_dynamic_domains), cmocka_unit_test(test_dynamic_numbers),            \
        cmocka_unit_test(test_dynamic_fail_unpolled), cmocka_unit_test(test_dynamic_refused),      \
        cmocka_unit_test(test_dynamic_storm)

/* Takes out what shows nothing in this build. */
static inline void contract_leave_out(struct CMUnitTest *tests, size_t count)
{
#ifdef NDEBUG
    leave_out(tests, count, test_queue_stopped_ring, "there are no asserts");
#else
    (void)tests;
    (void)count;
#endif
}

#endif
