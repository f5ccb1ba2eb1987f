/* devx.c: queue pairs that are made by DevX, for completions that are compressed in the enhanced layout, do all that those of the verbs do. */
#include <poll.h>

#include "base/clock.h"
#include "nic/device/device.h"
#include "station.h"

bool station_open_enhanced(struct station *station, const struct subject *subject, bool receives,
                           struct outcome *outcome)
{
    struct station_setup setup = {.options = station_options()};
    setup.options.features = CRPC_FEATURE_CQE_COMPRESSION;
    setup.options.compressed_receives = receives;
    setup.options.enhanced_layout = true;
    if (!station_open(station, subject, &setup, outcome)) {
        return false;
    }
    const char *missing = station->near->layout_missing[0] ? station->near->layout_missing
                                                           : station->far->layout_missing;
    return !missing[0] || not_here(outcome, "%s", missing);
}

static void ignore(void *argument, enum ibv_event_type type, uint32_t number)
{
    (void)argument;
    (void)type;
    (void)number;
}

/* last_wqe.c: one that fails says when it holds no shared receives any more. */
static void check_last_wqe(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 5 : 100;
    struct device_nic *far = to_device_nic(station->far);
    for (uint32_t i = 0; i < rounds; i++) {
        const struct device_queue_pair *failed = to_device_queue_pair(station->receiver);
        const uint64_t start_ns = clock_now_ns();
        station->receiver->operations->queue_pair_fail(station->receiver);
        while (!atomic_load(&failed->last_wqe_reached)) {
            struct pollfd event = {.fd = far->trouble_fd, .events = POLLIN};
            if (clock_now_ns() - start_ns > station->subject->patience_ms * 1000000ull) {
                fails(outcome,
                      "a queue pair that had failed did not say within %u ms that its last receive "
                      "has come back",
                      station->subject->patience_ms);
                return;
            }
            poll(&event, 1, 10);
            while (far->take_trouble(far, ignore, NULL)) {
            }
        }
        if (!station_reconnect(station, outcome)) {
            return;
        }
    }
    passes(outcome, "%u times, a queue pair gave its last receive back", rounds);
}

/* What of the other checks has a station, and could be otherwise with them. */
static const struct {
    const char *name;
    void (*body)(struct station *station, struct outcome *outcome);
} bodies[] = {
    {"doorbell", check_doorbell},
    {"doorbell-several", check_doorbell_several},
    {"doorbell-shared", check_doorbell_shared},
    {"blueflame", check_blueflame},
    {"blueflame-several", check_blueflame_several},
    {"send-ring", check_send_ring},
    {"receive-ring", check_receive_ring},
    {"send-order", check_send_order},
    {"error-completion", check_error_completion},
    {"flush", check_flush},
    {"arm", check_arm},
    {"arm-late", check_arm_late},
    {"fence", check_fence},
    {"mtu", check_mtu},
    {"keys", check_keys},
    {"domains", check_domains},
    {"closed", check_closed},
    {"last receive", check_last_wqe},
};

void check_devx(const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    uint32_t tried = 0;
    for (uint32_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        const bool open = station_open_enhanced(&station, subject, false, outcome);
        if (open) {
            bodies[i].body(&station, outcome);
        }
        station_close(&station);
        if (!open) {
            return;
        }
        if (outcome->verdict == VERDICT_FAILED) {
            fails_in(outcome, "%s", bodies[i].name);
            return;
        }
        tried += outcome->verdict == VERDICT_OK;
    }
    passes(outcome, "%u of %u other checks, with queue pairs that were made by DevX", tried,
           (uint32_t)(sizeof(bodies) / sizeof(bodies[0])));
}
