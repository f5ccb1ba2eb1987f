/* hash_table_client.c: looks up, inserts and updates in the memory of hash_table_server.
 *
 *   hash_table_client ADDRESS get KEY              prints the value; status 2 if it is not there
 *   hash_table_client ADDRESS put KEY VALUE
 *   hash_table_client ADDRESS add KEY NUMBER       to the number that is its value; prints the sum
 *   hash_table_client ADDRESS storm NAME ROUNDS [OTHER...]
 *   hash_table_client ADDRESS crash MOMENT [KEY VALUE] KEY VALUE
 *   hash_table_client ADDRESS pause KEY
 *
 * A storm is many puts, adds and gets at once with those of the others that are named, also of the
 * clients in Python and Go. It checks each entry that it finds. A crash is a put in whose middle the
 * client kills itself (it does another before, if there are two), at one of five moments (hash_table_ops.h), and a pause is a get in whose middle
 * it stops, until it gets SIGCONT. All three are for tests.
 */
#include "arguments.h"
#include "hash_table_ops.h"

#define NOT_THERE 2
#define COUNTERS 4u
#define KEYS 8u /* of each client of a storm */
#define OTHERS_MAX 16u
#define TEXT_BYTES 128u
#define ROUNDS_MAX 1000000u

static int failed(const char *what, const char *why)
{
    fprintf(stderr, "hash_table_client: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

static int told(const struct table *table, const char *key, enum table_result result)
{
    bool done = result == TABLE_FOUND || result == TABLE_ABSENT;
    return done ? EXIT_SUCCESS : failed(key, table_text(table, result));
}

/* ---- A storm --------------------------------------------------------------------------------- */

struct storm {
    struct table *table;
    const char *name;
    char **others;
    uint32_t other_count;
    uint64_t seen[OTHERS_MAX][KEYS]; /* the last round that was found */
};

/* "key round fill": bytes of another round would be noticed. */
static void make_value(const char *key, uint64_t round, char *text)
{
    int bytes = snprintf(text, TEXT_BYTES, "%s %llu ", key, (unsigned long long)round);
    int fill = (int)(round * 7 % 40);
    memset(text + bytes, (int)('a' + round % 26), (size_t)fill);
    text[bytes + fill] = '\0';
}

/* Gets an entry of somebody's storm, and checks all of it. *round is 0 if it is not there. */
static int get_value(struct table *table, const char *key, uint64_t *round)
{
    char text[TEXT_BYTES], expected[TEXT_BYTES];
    enum table_result result = table_get(table, key);
    *round = 0;
    if (result != TABLE_FOUND) {
        return told(table, key, result);
    }
    table_value(table, text, sizeof(text));
    const char *number = strrchr(text, ' ');
    while (number && number > text && number[-1] != ' ') {
        number--;
    }
    *round = number ? strtoull(number, NULL, 10) : 0;
    make_value(key, *round, expected);
    return strcmp(text, expected) == 0 ? EXIT_SUCCESS : failed(key, "its value is not whole");
}

static int look_at_others(struct storm *storm, uint64_t round)
{
    char key[TEXT_BYTES / 2];
    for (uint32_t i = 0; i < storm->other_count; i++) {
        uint64_t *seen = &storm->seen[i][round % KEYS], found;
        snprintf(key, sizeof(key), "%.20s-%u", storm->others[i], (unsigned)(round % KEYS));
        if (get_value(storm->table, key, &found) != EXIT_SUCCESS) {
            return EXIT_FAILURE;
        }
        if (found < *seen) {
            return failed(key, "its value is older than what was there before");
        }
        *seen = found;
    }
    return EXIT_SUCCESS;
}

static int round_of(struct storm *storm, uint64_t round)
{
    char key[TEXT_BYTES / 2], value[TEXT_BYTES];
    uint64_t found;
    snprintf(key, sizeof(key), "counter-%u", (unsigned)(round % COUNTERS));
    int status = told(storm->table, key, table_add(storm->table, key, 1, &found));
    if (status == EXIT_SUCCESS) {
        snprintf(key, sizeof(key), "%.20s-%u", storm->name, (unsigned)(round % KEYS));
        make_value(key, round, value);
        status = told(storm->table, key, table_put(storm->table, key, value));
    }
    if (status == EXIT_SUCCESS) {
        status = get_value(storm->table, key, &found);
    }
    if (status == EXIT_SUCCESS && found != round) {
        status = failed(key, "it is not what this client has put there");
    }
    return status == EXIT_SUCCESS ? look_at_others(storm, round) : status;
}

/* Until each of the others has begun, so that they meet. */
static int meet_others(struct storm *storm)
{
    char key[TEXT_BYTES / 2];
    for (uint32_t i = 0; i < storm->other_count; i++) {
        uint64_t found;
        snprintf(key, sizeof(key), "%.20s-1", storm->others[i]);
        do {
            crpc_wait(storm->table->context, 1000000);
            if (get_value(storm->table, key, &found) != EXIT_SUCCESS) {
                return EXIT_FAILURE;
            }
        } while (found == 0);
    }
    return EXIT_SUCCESS;
}

static int storm(struct table *table, int count, char **words)
{
    struct storm own = {.table = table,
                        .name = words[0],
                        .others = words + 2,
                        .other_count = (uint32_t)(count - 2)};
    uint64_t rounds;
    if (!table_parse(words[1], ROUNDS_MAX, &rounds)) {
        return failed("storm", "up to 1000000 rounds");
    }
    for (uint64_t round = 1; round <= rounds; round++) {
        if (round_of(&own, round) != EXIT_SUCCESS ||
            (round == 1 && meet_others(&own) != EXIT_SUCCESS)) {
            return EXIT_FAILURE;
        }
    }
    printf("%s: %llu rounds\n", own.name, (unsigned long long)rounds);
    return EXIT_SUCCESS;
}

/* ---- The commands: words[0] is the first word behind the command ------------------------------ */

static int get(struct table *table, int count, char **words)
{
    char text[TEXT_BYTES];
    (void)count;
    enum table_result result = table_get(table, words[0]);
    if (result == TABLE_ABSENT) {
        failed(words[0], table_text(table, result));
        return NOT_THERE;
    }
    if (result == TABLE_FOUND) {
        table_value(table, text, sizeof(text));
        printf("%s\n", text);
    }
    return told(table, words[0], result);
}

static int put(struct table *table, int count, char **words)
{
    (void)count;
    if (strlen(words[0]) + strlen(words[1]) > TABLE_DATA_BYTES || words[0][0] == '\0') {
        return failed("put", "a key has a byte at least, and with its value 108 at most");
    }
    return told(table, words[0], table_put(table, words[0], words[1]));
}

static int add(struct table *table, int count, char **words)
{
    uint64_t number, sum;
    (void)count;
    if (!table_parse(words[1], UINT64_MAX, &number) || words[0][0] == '\0' ||
        strlen(words[0]) > TABLE_DATA_BYTES / 2) {
        return failed("add", "a key of 1 to 54 bytes, and a number");
    }
    int status = told(table, words[0], table_add(table, words[0], number, &sum));
    if (status == EXIT_SUCCESS) {
        printf("%llu\n", (unsigned long long)sum);
    }
    return status;
}

static int crash(struct table *table, int count, char **words)
{
    uint64_t moment;
    if (!table_parse(words[0], TABLE_DIES_HAVING_SWAPPED, &moment)) {
        return failed("crash", "the moment is 1 to 5");
    }
    if (count == 5) {
        int status = put(table, 2, words + 1);
        if (status != EXIT_SUCCESS) {
            return status;
        }
    }
    table->moment = (enum table_moment)moment;
    return put(table, 2, words + count - 2);
}

static int pause_get(struct table *table, int count, char **words)
{
    table->moment = TABLE_PAUSES;
    return get(table, count, words);
}

static const struct command {
    const char *name;
    int least; /* words behind it */
    int most;
    int (*run)(struct table *table, int count, char **words);
} commands[] = {{"get", 1, 1, get},         {"put", 2, 2, put},
                {"add", 2, 2, add},         {"crash", 3, 5, crash},
                {"pause", 1, 1, pause_get}, {"storm", 2, 2 + OTHERS_MAX, storm}};

static const struct command *command_of(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]) && argc > 2; i++) {
        if (argc - 3 >= commands[i].least && argc - 3 <= commands[i].most &&
            strcmp(argv[2], commands[i].name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static struct table table; /* its memory is registered */
    answer_options(argc, argv, "ADDRESS COMMAND [WORD...]",
                   "Looks up, inserts and updates in the memory of hash_table_server.");
    const struct command *command = command_of(argc, argv);
    if (!command) {
        return failed(
            "usage",
            "hash_table_client ADDRESS get KEY | put KEY VALUE | add KEY NUMBER | "
            "storm NAME ROUNDS [OTHER...] | crash MOMENT [KEY VALUE] KEY VALUE | pause KEY");
    }
    int status = table_open(&table, argv[1]) ? command->run(&table, argc - 3, argv + 3)
                                             : failed(argv[1], table.error.message);
    table_close(&table);
    return status;
}
