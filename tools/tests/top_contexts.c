/* top_contexts.c: opens three contexts, the last of which is never polled, and polls the others until stdin ends; each after it has
 * slept in crpc_wait. Prints how many polls each had.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <copyrpc.h>

#define CONTEXTS 3

int main(void)
{
    crpc_context *contexts[CONTEXTS];
    crpc_completion completions[4];
    crpc_error error = {.struct_size = sizeof(error)};
    for (int i = 0; i < CONTEXTS; i++) {
        crpc_context_options options = {.struct_size = sizeof(options)};
        if (crpc_context_open(&options, &contexts[i], &error) != CRPC_OK) {
            fprintf(stderr, "%s\n", error.message);
            return EXIT_FAILURE;
        }
    }
    puts("ready");
    fflush(stdout);
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&input, 1, 0) == 0) {
        for (int i = 0; i < CONTEXTS - 1; i++) {
            crpc_wait(contexts[i], 20000000);
            crpc_poll(contexts[i], completions, 4);
        }
    }
    for (int i = 0; i < CONTEXTS; i++) {
        crpc_context_close(contexts[i]);
    }
    return EXIT_SUCCESS;
}
