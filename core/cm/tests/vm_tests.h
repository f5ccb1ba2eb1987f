/* vm_tests.h: the tests of destroy_vm_test.c, hand_over_vm_test.c and work_vm_test.c. */
#ifndef CORE_CM_TESTS_VM_TESTS_H
#define CORE_CM_TESTS_VM_TESTS_H

void test_destroy_client_stages(void **state);
void test_destroy_server_stages(void **state);
void test_accept_too_late(void **state);
void test_destroy_listener(void **state);
void test_destroy_lookup(void **state);
void test_destroy_races(void **state);
void test_cycles(void **state);
void test_vanished_client(void **state);
void vanishing_client(const char *address);

void test_hand_over_connects(void **state);
void test_hand_over_given_up(void **state);
void test_hand_over_races(void **state);
void test_hand_over_both_ways(void **state);
void test_hand_over_refused(void **state);
void test_hand_over_drops_early_events(void **state);
void test_hand_over_not_taken(void **state);

void test_work_connects(void **state);
void test_work_can_be_waited_for(void **state);
void test_destroy_waits_for_work(void **state);

#endif
