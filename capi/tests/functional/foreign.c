/* foreign.c: programs of others, and our side of them. */
#include "foreign.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "leave_out.h"
#include "place.h"

crpc_context *context;
crpc_region region;
static pid_t program;

void foreign_need(int32_t status, const crpc_error *error)
{
    if (status < 0) {
        fail_msg("%s: %s", crpc_status_name(status), error->message);
    }
}

void foreign_open(void *memory, size_t bytes, uint32_t access)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options), .flags = CRPC_CONTEXT_QUEUES};
    snprintf(options.device, sizeof(options.device), "%s", place_device(0));
    foreign_need(crpc_context_open(&options, &context, &error), &error);
    foreign_need(crpc_region_register(context, memory, bytes, access, &region, &error), &error);
}

int foreign_close(void **state)
{
    (void)state;
    if (program > 0) {
        kill(program, SIGKILL);
        waitpid(program, NULL, 0);
        program = 0;
    }
    return crpc_context_close(context);
}

void foreign_listen(char port[FOREIGN_PORT_BYTES])
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_listener_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_LISTENER_QUEUES};
    crpc_listener listener;
    crpc_listener_info info = {.struct_size = sizeof(info)};
    foreign_need(crpc_listener_open(context, place_at(0, "0"), &options, &listener, &error),
                 &error);
    assert_int_equal(crpc_listener_get_info(context, listener, &info), CRPC_OK);
    snprintf(port, FOREIGN_PORT_BYTES, "%u", info.port & 0xffffu);
}

void foreign_submit(crpc_queue queue, const crpc_queue_op *op)
{
    int32_t reason;
    if (crpc_queue_submit(context, queue, op, 1, NULL, 0, &reason) != 1) {
        fail_msg("opcode %u: %s", op->opcode, crpc_status_name(reason));
    }
}

void foreign_leave_out_unless(struct CMUnitTest *tests, size_t count, const char *names,
                              const char *command)
{
    char why[160] = "";
    FILE *output = popen(command, "r");
    assert_non_null(output);
    if (!fgets(why, sizeof(why), output)) {
        snprintf(why, sizeof(why), "this failed: %s", command);
    }
    why[strcspn(why, "\n")] = '\0';
    if (pclose(output) == 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (strncmp(tests[i].name, names, strlen(names)) == 0) {
            leave_out(tests, count, tests[i].test_func, why);
        }
    }
}

void foreign_leave_out(struct CMUnitTest *tests, size_t count, const char *names, const char *name,
                       const char *package)
{
    char command[192];
    snprintf(command, sizeof(command),
             "command -v %s > /dev/null || { echo there is no %s: install %s; false; }", name, name,
             package);
    foreign_leave_out_unless(tests, count, names, command);
}

int foreign_run(struct CMUnitTest *tests, size_t count)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
}

/* Debian 13's ucx_perftest is built with MPI, and takes itself for one of MPI's processes when it has no terminal. Returns NULL if there
 * are none to be had. */
static const char *terminal(void)
{
    static int other_end = -1; /* open until this process ends */
    if (other_end < 0) {
        other_end = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (other_end < 0 || grantpt(other_end) || unlockpt(other_end)) {
            return NULL;
        }
    }
    return ptsname(other_end);
}

/* Not by fork(): the child would be without the memory that the device uses, until it becomes another
 * program. */
void foreign_start(const char *const words[])
{
    posix_spawn_file_actions_t actions;
    const char *input = terminal();
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, input ? input : "/dev/null", O_RDWR | O_NOCTTY,
                                     0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    assert_int_equal(
        posix_spawnp(&program, words[0], &actions, NULL, (char *const *)(uintptr_t)words, environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
}

int foreign_ended(void)
{
    int status;
    if (program <= 0 || waitpid(program, &status, WNOHANG) != program) {
        return -1;
    }
    program = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}
