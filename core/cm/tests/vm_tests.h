/* vm_tests.h: the tests of destroy_vm_test.c and work_vm_test.c. */
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

void test_work_connects(void **state);
void test_work_can_be_waited_for(void **state);
void test_destroy_waits_for_work(void **state);

#endif
