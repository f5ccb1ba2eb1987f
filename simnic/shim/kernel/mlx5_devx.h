/* mlx5_devx.h: device commands (DevX): what a program that knows the PRM sends to the adapter past the verbs. mlx5_devx.c has the table
 * of them. Each has a function in a file of its subject:
 *
 *   mlx5_capabilities.c          what the adapter can do
 *   mlx5_queue_pair_commands.c   changing and asking queue pairs
 *   mlx5_devx_queues.c           making completion queues and queue pairs, in memory that is registered for it
 *   mlx5_devx_states.c           the states of queue pairs
 *   mlx5_devx_events.c           their events
 *   mlx5_key_commands.c          memory keys
 *   mlx5_general_objects.c       objects that have no verbs
 *
 * The PRM has the layout of a command: big-endian, by bits, bit 0 first. The first four words are alike in all of them. */
#ifndef SIMNIC_SHIM_KERNEL_MLX5_DEVX_H
#define SIMNIC_SHIM_KERNEL_MLX5_DEVX_H

#include "simnic/shim/kernel/attributes.h"

/* Status of a command (PRM, "Command Return Status"; libmlx5's mlx5_ifc.h). */
#define DEVX_BAD_OPERATION 0x2u
#define DEVX_BAD_PARAMETER 0x3u
#define DEVX_BAD_RESOURCE 0x5u
#define DEVX_BAD_RESOURCE_STATE 0x9u
#define DEVX_BAD_INDEX 0xau
#define DEVX_BAD_SIZE 0x40u
#define DEVX_NO_RESOURCES 0xfu
#define DEVX_BAD_QUEUE_PAIR_STATE 0x10u
#define DEVX_BAD_INPUT_LENGTH 0x50u

/* A command that came in. `object`: what it is about, or NULL. */
struct devx_command {
    const struct call *call;
    struct object *object;
    uint16_t in, out,
        handle; /* attributes: the command, its answer, and the handle of what it makes */
    uint16_t opcode;
    uint16_t modifier; /* op_mod, or the type of a general object */
};

/* Copies the command. Returns 0 or an errno: it is refused if it is shorter than `least`. */
int devx_read(const struct devx_command *command, void *to, size_t bytes, size_t least);
/* Gives the answer. */
int devx_answer(const struct devx_command *command, const void *answer, size_t bytes);
/* The adapter refuses the command, and nothing has changed. Returns the errno, as the kernel's since Linux 5.18: the answer says why. */
int devx_refuse(const struct devx_command *command, uint32_t status);

/* Makes an object of DevX, and tells its handle. Its `release` may be set. Returns NULL if there is no memory. */
struct object *devx_create_object(const struct devx_command *command);

/* A field of a command or of an answer, `bits` wide (at most 32), which no word boundary cuts. */
uint32_t devx_field(const uint32_t *words, uint32_t at, uint32_t bits);
void devx_set_field(uint32_t *words, uint32_t at, uint32_t bits, uint32_t value);

/* ---- mlx5_capabilities.c ---- */
int devx_query_capabilities(const struct devx_command *command);

/* ---- mlx5_general_objects.c ---- */
#define DEVX_OBJECT_RESERVED_QPN 0x2cu
#define DEVX_OBJECT_AV_QP_MAPPING 0x3au
int devx_create_general_object(const struct devx_command *command);

/* ---- mlx5_key_commands.c ---- */
int devx_create_key(const struct devx_command *command);

/* ---- mlx5_devx_queues.c ---- */
int devx_create_completion_queue(const struct devx_command *command);
int devx_create_queue_pair(const struct devx_command *command);

/* ---- mlx5_devx_states.c ---- */
#define DEVX_RST2INIT_QP 0x502u
#define DEVX_INIT2RTR_QP 0x503u
#define DEVX_RTR2RTS_QP 0x504u
#define DEVX_2ERR_QP 0x507u
#define DEVX_2RST_QP 0x50au
int devx_move_queue_pair(const struct devx_command *command);

/* ---- mlx5_devx_events.c ---- */
/* The completion vector of an event queue, whose number MLX5_IB_METHOD_DEVX_QUERY_EQN gives; UINT32_MAX: there is none. */
uint32_t devx_vector_of(uint32_t event_queue);

/* ---- mlx5_queue_pair_commands.c ---- */
/* The context of a queue pair: how long it is, and where its fields begin. An address path lies in it. */
#define DEVX_CONTEXT_WORDS 58u
#define DEVX_CONTEXT_PATH 0x0c0u
int devx_modify_queue_pair(const struct devx_command *command);
int devx_query_queue_pair(const struct devx_command *command);

#endif
