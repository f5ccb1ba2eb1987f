/* hash_table_server.c: has a hash table in its memory, and lends that to clients.
 *
 *   hash_table_server [ADDRESS [SLOTS]]      e.g. 10.99.0.1:7473; *:7473 and 8192 are the defaults
 *
 * It tells each client where the table is, and does nothing else for it: the devices do the rest.
 * hash_table.h says how. When its last client has gone, it looks through the table, and collects
 * what clients that died have lost.
 */
#include <signal.h>
#include <sys/mman.h>

#include <copyrpc.h>

#include "arguments.h"
#include "hash_table.h"

#define CLIENTS_MAX 1024u
#define SLOTS_MAX (1u << 22)

static volatile sig_atomic_t stop;

struct server {
    crpc_context *context;
    uint8_t *memory;
    uint64_t bytes;
    uint8_t *used; /* of each entry: a slot names it, or it is free */
    struct table_hello hello;
    uint32_t clients;
};

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

static int failed(const char *what, const char *why)
{
    fprintf(stderr, "hash_table_server: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

/* ---- The table, while nobody else uses it ---------------------------------------------------- */

static uint64_t *head_of(const struct server *server)
{
    return (uint64_t *)server->memory;
}

static struct table_entry *entry_of(const struct server *server, uint32_t number)
{
    return (struct table_entry *)(server->memory + table_entry_offset(server->hello.slots, number));
}

static void push(struct server *server, uint32_t number)
{
    uint64_t *head = head_of(server);
    entry_of(server, number)->word = table_number(*head);
    *head = table_next_head(*head, number);
}

static bool number_is_new(struct server *server, uint32_t number)
{
    bool is_new = number > 0 && number <= server->hello.entries && !server->used[number - 1];
    if (is_new) {
        server->used[number - 1] = 1;
    }
    return is_new;
}

/* Gives whether a search for the key of this slot comes to this slot, and to no other before. */
static bool is_found_at(const struct server *server, uint32_t slot)
{
    const uint64_t *words = (const uint64_t *)(server->memory + TABLE_HEAD_BYTES);
    const struct table_entry *entry = entry_of(server, table_number(words[slot]));
    uint32_t hash = table_crc32(entry->data, entry->key_bytes);
    uint32_t first = table_first_slot(hash, server->hello.slots);
    for (uint32_t i = 0; i < TABLE_PROBES * TABLE_BUCKET_SLOTS; i++) {
        uint32_t next = (first + i) & (server->hello.slots - 1);
        if (next == slot) {
            return table_fingerprint(words[slot]) == hash >> 24;
        }
        uint32_t number = table_number(words[next]);
        if (number < 1 || number > server->hello.entries ||
            table_key_is(entry_of(server, number), entry->data, entry->key_bytes)) {
            return false;
        }
    }
    return false;
}

/* Looks through the table, and pushes the entries that nobody has. */
static void collect(struct server *server)
{
    const uint64_t *words = (const uint64_t *)(server->memory + TABLE_HEAD_BYTES);
    uint32_t keys = 0, damaged = 0, unused = 0, collected = 0;
    memset(server->used, 0, server->hello.entries);
    for (uint32_t slot = 0; slot < server->hello.slots; slot++) {
        uint32_t number = table_number(words[slot]);
        if (words[slot]) {
            keys++;
            damaged += !number_is_new(server, number) ||
                       !table_entry_is(entry_of(server, number), words[slot], slot) ||
                       !is_found_at(server, slot);
        }
    }
    uint32_t next = table_number(*head_of(server));
    for (; number_is_new(server, next); unused++) {
        next = (uint32_t)entry_of(server, next)->word;
    }
    damaged += next != 0;
    for (uint32_t number = 1; damaged == 0 && number <= server->hello.entries; number++) {
        if (!server->used[number - 1]) {
            push(server, number);
            collected++;
        }
    }
    printf("%u keys, %u entries free, %u collected, %u damaged\n", keys, unused, collected,
           damaged);
    fflush(stdout);
}

static bool make_table(struct server *server, uint32_t slots)
{
    struct table_hello *hello = &server->hello;
    *hello = (struct table_hello){.magic = TABLE_MAGIC,
                                  .slots = slots,
                                  .entries = slots + CLIENTS_MAX, /* each client has one more */
                                  .entry_bytes = sizeof(struct table_entry)};
    server->bytes = table_entry_offset(slots, hello->entries + 1);
    void *memory =
        mmap(NULL, server->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    server->memory = memory == MAP_FAILED ? NULL : memory;
    server->used = malloc(hello->entries);
    if (!server->memory || !server->used) {
        return false;
    }
    hello->address = (uint64_t)(uintptr_t)server->memory;
    for (uint32_t number = hello->entries; number > 0; number--) {
        push(server, number);
    }
    return true;
}

/* ---- Clients that come and go ---------------------------------------------------------------- */

static void accept_client(struct server *server, crpc_queue client)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue_options options = {.struct_size = sizeof(options),
                                  .private_bytes = sizeof(server->hello)};
    memcpy(options.private_data, &server->hello, sizeof(server->hello));
    if (crpc_queue_accept(server->context, client, &options, &error) < 0) {
        failed("accept", error.message);
        crpc_queue_close(server->context, client);
        return;
    }
    server->clients++;
}

static void close_client(struct server *server, crpc_queue client)
{
    crpc_queue_close(server->context, client); /* what it has posted is done, or never will be */
    if (--server->clients == 0) {
        collect(server);
    }
}

static void serve(struct server *server)
{
    while (!stop) {
        crpc_completion done;
        if (crpc_poll(server->context, &done, 1) == 0) {
            crpc_wait(server->context, 200000000); /* a signal may come just before it */
            continue;
        }
        crpc_queue client = {done.endpoint.bits};
        if (done.kind == CRPC_COMPLETION_CONNECT_REQUEST) {
            accept_client(server, client);
        } else if (done.kind == CRPC_COMPLETION_DISCONNECTED ||
                   (done.kind == CRPC_COMPLETION_CONNECTED && done.status < 0)) {
            close_client(server, client);
        }
    }
}

/* ---- The program ----------------------------------------------------------------------------- */

static int open_server(struct server *server, const char *address)
{
    const crpc_context_options wanted = {
        .struct_size = sizeof(wanted), .flags = CRPC_CONTEXT_QUEUES, .queues_max = CLIENTS_MAX};
    const crpc_listener_options queues = {.struct_size = sizeof(queues),
                                          .flags = CRPC_LISTENER_QUEUES};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_region_info place = {.struct_size = sizeof(place)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_listener listener;
    crpc_region region;
    if (crpc_context_open(&wanted, &server->context, &error) < 0) {
        return failed("no context", error.message);
    }
    if (crpc_region_register(server->context, server->memory, server->bytes,
                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_READ |
                                 CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_ATOMIC,
                             &region, &error) < 0) {
        return failed("cannot register the table", error.message);
    }
    crpc_region_get_info(server->context, region, &place);
    server->hello.remote_key = place.remote_key;
    if (crpc_listener_open(server->context, address, &queues, &listener, &error) < 0) {
        return failed("cannot listen", error.message);
    }
    crpc_listener_get_info(server->context, listener, &info);
    printf("listening on %s\n", info.address);
    fflush(stdout);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static struct server server;
    uint64_t slots = 8192;
    answer_options(argc, argv, "[ADDRESS [SLOTS]]",
                   "Lends a hash table to clients, who use it by READ, WRITE and "
                   "compare-and-swap. ADDRESS is *:7473 if none is given.");
    if (argc > 3 || (argc == 3 && (!table_parse(argv[2], SLOTS_MAX, &slots) ||
                                   slots < TABLE_BUCKET_SLOTS || (slots & (slots - 1)) != 0))) {
        return failed("usage", "hash_table_server [ADDRESS [SLOTS, a power of two, 8 to 4194304]]");
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    int status = make_table(&server, (uint32_t)slots)
                     ? open_server(&server, argc > 1 ? argv[1] : "*:7473")
                     : failed("no memory", "for so many slots");
    if (status == EXIT_SUCCESS) {
        serve(&server);
    }
    crpc_context_close(server.context);
    if (server.memory) {
        munmap(server.memory, server.bytes);
    }
    free(server.used);
    return status;
}
