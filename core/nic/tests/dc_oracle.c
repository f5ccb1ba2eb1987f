/* dc_oracle.c: see dc_oracle.h. */
#include "dc_oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tally tally;

void blame(const struct world *world, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "episode of seed %llu: ", (unsigned long long)world->seed);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

uint8_t *slot_of(const struct world *world, uint32_t nic, uint64_t slot)
{
    return world->memory[nic] + slot * SLOT_BYTES;
}

uint64_t op_slot(uint64_t number)
{
    return 1 + CONSTANTS + number;
}

static uint64_t word_at(const uint8_t *place)
{
    uint64_t word;
    memcpy(&word, place, sizeof(word));
    return word;
}

static struct dci *dci_of(struct world *world, const struct nic_queue *queue)
{
    for (uint32_t i = 0; i < DCIS; i++) {
        if (world->dcis[i].queue == queue) {
            return &world->dcis[i];
        }
    }
    return NULL;
}

static struct dct *dct_of(struct world *world, uint64_t handle)
{
    for (uint32_t i = 0; i < DCTS; i++) {
        if (world->dcts[i].queue && world->dcts[i].queue->handle == handle) {
            return &world->dcts[i];
        }
    }
    return NULL;
}

/* It has landed where it was to, came from whom it says, and behind those before it in its stream. */
static void check_arrival(struct world *world, uint64_t receive, const crpc_completion *done)
{
    const struct dct *dct = dct_of(world, done->endpoint.bits);
    if (!dct || dct->queue->failed) {
        blame(world, "receive %llu completes at no DCT", (unsigned long long)receive);
    }
    if (done->status != CRPC_OK ||
        (done->flags & NIC_DONE_IMMEDIATE && done->reply_bytes_max == TOLD)) {
        return;
    }
    const uint64_t number = word_at(slot_of(world, dct->nic, op_slot(receive)));
    struct op *op = number < world->op_count ? &world->ops[number] : NULL;
    if (!op || op->opcode > NIC_SEND_IMMEDIATE || op->arrived++ || &world->dcts[op->dct] != dct ||
        op->source != (uint32_t)done->token) {
        blame(world, "message %llu has not been sent", (unsigned long long)number);
    }
    struct dci *dci = op->queue ? dci_of(world, op->queue) : NULL;
    if (dci && number < dci->next_message[op->stream][op->dct]) {
        blame(world, "message %llu comes behind a later one", (unsigned long long)number);
    }
    if (dci) {
        dci->next_message[op->stream][op->dct] = number + 1;
    }
    tally.messages++;
}

static void check_payload(struct world *world, const struct dci *dci, struct op *op,
                          const crpc_completion *done)
{
    const uint64_t number = done->user_data;
    const uint8_t *here = slot_of(world, dci->nic, op_slot(number));
    const uint8_t *there = slot_of(world, world->dcts[op->dct].nic, op_slot(number));
    if ((op->opcode == NIC_WRITE || op->opcode == NIC_WRITE_IMMEDIATE) &&
        word_at(there) != number) {
        blame(world, "WRITE %llu has not landed", (unsigned long long)number);
    }
    if (op->opcode == NIC_READ && (word_at(here) < 1 || word_at(here) > CONSTANTS)) {
        blame(world, "READ %llu has brought nothing", (unsigned long long)number);
    }
    if (op->opcode == NIC_FETCH_ADD) {
        op->old = done->token + 1;
    }
}

/* Of a queue that was not stopped. */
static void check_stream(struct world *world, struct dci *dci, const struct op *op,
                         const crpc_completion *done)
{
    const uint64_t number = done->user_data;
    const bool flushed = done->status == -NIC_ERROR_FLUSHED;
    if (number < dci->next[op->stream]) {
        blame(world, "op %llu completes behind a later one", (unsigned long long)number);
    }
    dci->next[op->stream] = number + 1;
    for (uint32_t i = 0; i < STREAMS; i++) {
        tally.overtaken += dci->next[i] > number + 1;
    }
    const bool over = dci->struck || (dci->queue->streams > 0 &&
                                      dci->queue->streams_failed > dci->queue->stream_failures_max);
    if (dci->failed[op->stream] ? !flushed : flushed && !(over && dci->queue->failed)) {
        blame(world, "op %llu ends with %d", (unsigned long long)number, done->status);
    }
    dci->failed[op->stream] |= done->status != CRPC_OK;
    if (op->correct && (done->status == -NIC_ERROR_LOCAL ||
                        (done->status == -NIC_ERROR_REMOTE_ACCESS && op->opcode != NIC_SEND &&
                         op->opcode != NIC_SEND_IMMEDIATE && op->opcode != NIC_WRITE_IMMEDIATE &&
                         world->dcts[op->dct].life == op->life))) {
        blame(world, "nothing is wrong with op %llu", (unsigned long long)number);
    }
}

void check_done(struct world *world, const crpc_completion *done, bool ended)
{
    if (done->kind != NIC_COMPLETION_WORK || done->user_data >= world->op_count) {
        blame(world, "a completion of nothing");
    }
    struct op *op = &world->ops[done->user_data];
    if (op->state != OP_OPEN || op->opcode != done->method) {
        blame(world, "op %llu completes twice, or has become another",
              (unsigned long long)done->user_data);
    }
    op->state = OP_DONE;
    op->good = done->status == CRPC_OK;
    tally.completed++;
    tally.errors += !op->good;
    if (op->opcode == NIC_RECEIVE) {
        if (!ended) {
            check_arrival(world, done->user_data, done);
        }
        return;
    }
    struct dci *dci = dci_of(world, op->queue);
    if (!dci || dci->queue->handle != done->endpoint.bits) {
        blame(world, "op %llu completes at another queue", (unsigned long long)done->user_data);
    }
    dci->open[op->stream] -= !op->silent;
    if (op->good && (op->silent || !op->correct)) {
        blame(world, "op %llu cannot have succeeded", (unsigned long long)done->user_data);
    }
    if (!ended) {
        check_stream(world, dci, op, done);
    }
    if (op->good) {
        check_payload(world, dci, op, done);
    }
}

void check_closed(struct world *world, const struct nic_queue *queue)
{
    for (uint32_t i = 0; i < world->op_count; i++) {
        struct op *op = &world->ops[i];
        if (op->queue != queue) {
            continue;
        }
        if (op->state == OP_OPEN && !op->silent) {
            blame(world, "op %u (opcode %u) never completes", i, op->opcode);
        }
        op->state = OP_DONE;
        op->queue = NULL;
    }
}

void check_all(struct world *world)
{
    for (uint32_t i = 0; i < NICS; i++) {
        const uint64_t value = word_at(world->memory[i]);
        uint8_t *seen = calloc(value + 1, 1);
        if (value > world->adds[i]) {
            blame(world, "%llu of %u FETCH_ADDs were done", (unsigned long long)value,
                  world->adds[i]);
        }
        for (uint32_t k = 0; k < world->op_count; k++) {
            const struct op *op = &world->ops[k];
            if (op->old != 0 && world->dcts[op->dct].nic == i &&
                (op->old > value || seen[op->old - 1]++)) {
                blame(world, "two FETCH_ADDs found %llu", (unsigned long long)op->old - 1);
            }
        }
        free(seen);
    }
    for (uint32_t k = 0; k < world->op_count; k++) {
        const struct op *op = &world->ops[k];
        if (op->good && op->opcode <= NIC_SEND_IMMEDIATE && !op->arrived &&
            op->life == world->dcts[op->dct].life) {
            blame(world, "message %u was sent and has not arrived", k);
        }
    }
}
