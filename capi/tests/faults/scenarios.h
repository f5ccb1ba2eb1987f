/* scenarios.h: what the scenarios of faults_test.c and those of queues (queue_scenarios.c) share. */
#ifndef CAPI_TESTS_FAULTS_SCENARIOS_H
#define CAPI_TESTS_FAULTS_SCENARIOS_H

#include "world.h"

#define SCENARIO_MEMORY_BYTES 200000
extern unsigned char memory[SCENARIO_MEMORY_BYTES];

void listen_at(const char *place, uint32_t flags);
/* A connection of this kind that the server refuses. */
void refuse(enum link_kind kind);
void arm_often(void);

void listen_for_queues(void);
void connect_queue(void);
void join_queue(void);
void queue_be_refused(void);
void use_srq(void);
void use_tags(void);
void use_dc(void);
void change_queue(void);
void connect_one_queue(void);
void work_often(void);
void sleep_on_queue(void);
void drain_queue(void);
void close_queue(void);

#endif
