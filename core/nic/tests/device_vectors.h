/* device_vectors.h: tests of device_vectors.c. */
#ifndef CORE_NIC_TESTS_DEVICE_VECTORS_H
#define CORE_NIC_TESTS_DEVICE_VECTORS_H

void test_vector_given(void **state);
void test_vectors_spread(void **state);

#endif
