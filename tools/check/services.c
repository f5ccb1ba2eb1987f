/* services.c: calls and channels, as programs use them, with each byte of each answer checked. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "peer.h"

static bool late(uint64_t start_ns, const struct subject *subject)
{
    return clock_now_ns() - start_ns > subject->patience_ms * 1000000ull;
}

/* `server`: NULL = it is on another host, and polls itself. */
static bool poll_both(struct end *client, struct end *server, struct outcome *outcome)
{
    return (!server || end_poll(server, outcome)) && end_poll(client, outcome);
}

static bool connect_both(struct end *client, struct end *server, const struct subject *subject,
                         struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    while (!client->connected || (server && !server->connected)) {
        if (!poll_both(client, server, outcome)) {
            return false;
        }
        if (late(start_ns, subject)) {
            return fails(outcome, "no connection within %u ms", subject->patience_ms);
        }
    }
    return true;
}

/* Sends for the time of a hunt, and then until all is answered. */
static bool exchange(struct end *client, struct end *server, const struct subject *subject,
                     struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    const uint64_t end_ns = start_ns + (uint64_t)(subject->hunt_seconds * 1e9);
    uint64_t done = 0, done_ns = start_ns;
    while (clock_now_ns() < end_ns || !end_idle(client)) {
        if ((clock_now_ns() < end_ns && !end_send(client, outcome)) ||
            !poll_both(client, server, outcome)) {
            return false;
        }
        if (client->done != done) {
            done = client->done;
            done_ns = clock_now_ns();
        } else if (late(done_ns, subject)) {
            return fails(outcome, "no answer within %u ms, after %llu that were right",
                         subject->patience_ms, (unsigned long long)done);
        }
    }
    return true;
}

/* Both rails have to have carried some. */
static bool rails_used(const struct end *client, struct outcome *outcome)
{
    crpc_channel_stats stats = {.struct_size = sizeof(stats)};
    crpc_channel_get_stats(client->context, client->channel, &stats);
    return (stats.rail_bytes_sent[0] > 0 && stats.rail_bytes_sent[1] > 0) ||
           fails(outcome, "of %llu bytes, rail 0 has carried %llu and rail 1 %llu",
                 (unsigned long long)stats.bytes_sent, (unsigned long long)stats.rail_bytes_sent[0],
                 (unsigned long long)stats.rail_bytes_sent[1]);
}

static struct end client, server;

static bool run_here(const struct subject *subject, enum service service, struct outcome *outcome)
{
    struct blob client_blob, server_blob;
    return end_open(&client, subject, 0, service, false, &client_blob, outcome) &&
           end_open(&server, subject, service == SERVICE_RAILS ? 0 : 1, service, true, &server_blob,
                    outcome) &&
           end_join(&client, &server_blob, outcome) && end_join(&server, &client_blob, outcome) &&
           connect_both(&client, &server, subject, outcome) &&
           exchange(&client, &server, subject, outcome) &&
           (service != SERVICE_RAILS || rails_used(&client, outcome));
}

static bool run_to_peer(const struct subject *subject, enum service service,
                        struct outcome *outcome)
{
    struct blob own, peer;
    if (!end_open(&client, subject, 0, service, false, &own, outcome)) {
        return false;
    }
    int fd = peer_ask(subject->peer, service, &own, &peer, outcome);
    if (fd < 0) {
        return false;
    }
    bool good = end_join(&client, &peer, outcome) &&
                connect_both(&client, NULL, subject, outcome) &&
                exchange(&client, NULL, subject, outcome);
    close(fd);
    return good;
}

static void run(const struct subject *subject, enum service service, const char *what,
                struct outcome *outcome)
{
    client = server = (struct end){0};
    if (subject->peer ? run_to_peer(subject, service, outcome)
                      : run_here(subject, service, outcome)) {
        passes(outcome, "%llu %s, %llu MB there and back%s, all right",
               (unsigned long long)client.done, what,
               (unsigned long long)(client.bytes_done / 1000000),
               subject->peer ? " over the network" : "");
    }
    end_close(&client);
    end_close(&server);
}

/* core/rpc: calls of many sizes and their replies. */
void check_calls(const struct subject *subject, struct outcome *outcome)
{
    run(subject, SERVICE_CALLS, "calls", outcome);
}

/* core/channel: messages of many sizes over one rail. */
void check_channels(const struct subject *subject, struct outcome *outcome)
{
    run(subject, SERVICE_CHANNELS, "messages", outcome);
}

/* core/channel: messages of which each rail carries half. */
void check_rails(const struct subject *subject, struct outcome *outcome)
{
    if (subject->devices < 2) {
        not_here(outcome, "only one device was named");
        return;
    }
    run(subject, SERVICE_RAILS, "messages", outcome);
}
