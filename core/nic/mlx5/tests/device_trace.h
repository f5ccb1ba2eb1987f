/* device_trace.h: what simnic's device of this process saw: the WQEs that it executed, as it read
 * them or as they were pushed. Through the rings that `simnic ctl trace` prints, in the session's
 * file; so nothing of the queues' own memory is looked at.
 */
#ifndef CORE_NIC_MLX5_TESTS_DEVICE_TRACE_H
#define CORE_NIC_MLX5_TESTS_DEVICE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

struct device_trace_wqe {
    uint32_t number; /* of the queue pair */
    uint32_t bytes;  /* whole blocks, or what was pushed */
    uint8_t data[1024];
};

/* The body of main: runs an array of cmocka tests while the device is traced, which begins before it is
 * opened. Skips them if this is not simnic. */
#define device_trace_main(tests)                                                                   \
    (device_trace_begin() ? device_trace_end(cmocka_run_group_tests(tests, NULL, NULL)) : 0)

/* The next WQE; false if the device executed none since. */
bool device_trace_next(struct device_trace_wqe *wqe);

/* For device_trace_main. Returns false, and tells TAP, if this is not simnic. */
bool device_trace_begin(void);
/* Returns `status`. */
int device_trace_end(int status);

#endif
