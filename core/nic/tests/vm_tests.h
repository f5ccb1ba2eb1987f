/* vm_tests.h: the tests of write_vm_test.c and trouble_vm_test.c. */
#ifndef CORE_NIC_VERBS_TESTS_VM_TESTS_H
#define CORE_NIC_VERBS_TESTS_VM_TESTS_H

void test_plain_write(void **state);
void test_plain_signaling(void **state);
void test_large_write(void **state);
void test_dmabuf(void **state);

void test_wrong_key(void **state);
void test_access(void **state);
void test_plain_access(void **state);
void test_peer_gone(void **state);
void test_no_receive(void **state);
void test_flush(void **state);
void test_stray_send(void **state);
void test_destroy_pending(void **state);
void test_bad_address(void **state);
void test_bad_memory(void **state);
void test_memlock(void **state);

#endif
