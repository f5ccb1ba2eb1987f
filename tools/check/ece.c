/* ece.c: what both devices offer beyond the standard can be set, and both ends come to the same, whether they tell each other at once or
 * one after the other: docs/design.md, "What both devices add". */
#include "nic/device/device.h"
#include "station.h"

#define MESSAGE_BYTES 20000u /* several packets */

static struct nic_ece ece_of(const struct nic_queue_pair *queue_pair)
{
    struct nic_address address;
    queue_pair->operations->queue_pair_address(queue_pair, &address);
    return address.ece;
}

static bool ends_agree(const struct nic_queue_pair *near, const struct nic_queue_pair *far,
                       uint32_t wanted, uint32_t *in_force, struct outcome *outcome)
{
    const uint32_t options = ece_of(near).options;
    if (atomic_load(&near->nic->ece_refused) || atomic_load(&far->nic->ece_refused)) {
        return fails(outcome,
                     "a queue pair did not get ready with options 0x%08x, which both ends offer",
                     wanted);
    }
    if (options != ece_of(far).options) {
        return fails(outcome,
                     "of options 0x%08x, one end has 0x%08x in force, and the other 0x%08x", wanted,
                     options, ece_of(far).options);
    }
    *in_force = options;
    return true;
}

/* As lanes and the ends of blobs: each end knows what the other offers. */
static bool at_once(struct station *station, uint32_t *wanted, uint32_t *in_force,
                    struct outcome *outcome)
{
    struct nic_queue_pair *near = NULL, *far = NULL;
    struct nic_address of_near, of_far;
    crpc_error error = {.struct_size = sizeof(error)};
    bool good = nic_queue_pair_create(station->near, NULL, NULL, 0, &near, &error) == CRPC_OK &&
                nic_queue_pair_create(station->far, NULL, NULL, 0, &far, &error) == CRPC_OK;
    if (good) {
        near->operations->queue_pair_address(near, &of_near);
        far->operations->queue_pair_address(far, &of_far);
        *wanted = nic_ece_common(of_near.ece, of_far.ece);
        good = near->operations->queue_pair_connect(near, &of_far, &station->transport, &error) ==
                   CRPC_OK &&
               far->operations->queue_pair_connect(far, &of_near, &station->transport, &error) ==
                   CRPC_OK;
    }
    good = good ? ends_agree(near, far, *wanted, in_force, outcome)
                : refused(outcome, error.status, error.message);
    if (near) {
        near->operations->queue_pair_destroy(near);
    }
    if (far) {
        far->operations->queue_pair_destroy(far);
    }
    return good;
}

static bool carries(struct station *station, uint32_t messages, struct outcome *outcome)
{
    for (uint32_t i = 0; i < messages; i++) {
        const uint32_t arrived = station->arrived;
        const struct nic_transfer write = station_transfer(station, 0, 0, MESSAGE_BYTES, i);
        station_fill(station, station->source, MESSAGE_BYTES);
        station->near->operations->post_write_immediate(station->sender, &write, NIC_POST_SIGNALED);
        station->near->operations->ring_doorbell(station->sender);
        if (!station_wait_arrived(station, arrived + 1, outcome) ||
            !station_wait_sent(station, outcome) ||
            !station_same(station, 0, 0, MESSAGE_BYTES, "a WRITE with them", outcome)) {
            return false;
        }
    }
    return true;
}

void check_ece(struct station *station, struct outcome *outcome)
{
    const uint32_t messages = station->subject->quick ? 16 : 256;
    uint32_t wanted = 0, first = 0, second = 0;
    station->near->ece = station->far->ece = true;
    if (!at_once(station, &wanted, &first, outcome)) {
        return;
    }
    if (wanted == 0) {
        not_here(outcome, "%s offers no options of ECE%s", station->subject->device[0],
                 station->subject->devices > 1 ? " that the other device has, too" : "");
        return;
    }
    /* As by rdma_cm, and as rails: the sender is ready when the receiver hears what is in force there. */
    if (!station_reconnect(station, outcome) ||
        !ends_agree(station->sender, station->receiver, wanted, &second, outcome)) {
        return;
    }
    if (first != second) {
        fails(outcome,
              "of options 0x%08x, ends that tell each other at once have 0x%08x in force, and "
              "others 0x%08x",
              wanted, first, second);
    } else if (first == 0) {
        fails(outcome, "options 0x%08x are offered, and none is in force", wanted);
    } else if (carries(station, messages, outcome)) {
        passes(outcome, "options 0x%08x are offered, 0x%08x are in force at both ends; %u messages",
               wanted, first, messages);
    }
}
