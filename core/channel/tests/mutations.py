"""mutations.py SOURCE_ROOT [--sample N | PART_OF_A_NAME]: breaks the engine on purpose, one rule at a time, and expects the simulation to notice.

Each mutation is a rule of the protocol taken away. A mutation whose text is no longer found fails the test: it has to
follow the code. Prints TAP. Exit status 3 if no mutation has the part in its name."""
import sys
from pathlib import Path

ROOT = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests"))
from mutate import Engine, Mutation, main  # noqa: E402

# name, file, [(text, what takes its place)]
MUTATIONS = [
    # Rails that fail.
    ("shares are sent again before the peer has fenced", "rail.c",
     [("    if (rail->report_known) {\n        resolve(channel, index);\n    }\n", "    resolve(channel, index);\n"),
      ("    bool open = rail->state ==", "    if (rail->state == RAIL_DOWN) return;\n    bool open = rail->state ==")]),
    ("all is sent again, whatever the report says", "rail.c",
     [("    if (number >= report->posted) {\n", "    if (1) {\n")]),
    ("nothing is sent again", "rail.c", [("    if (number >= report->posted) {\n        return false;", "    {\n        return true;")]),
    ("a slot's message before stands for its next", "rail.c",
     [("report->posted > number + channel->slot_mask + 1", "report->posted > number + 1")]),
    ("the report takes one share for the other", "rail.c",
     [("bool unseen = incoming->open && !(incoming->seen & 1u << share);",
       "bool unseen = incoming->open && !(incoming->seen & 2u >> share);")]),
    ("the fence drops what has arrived", "rail.c",
     [("            rail->fence = FENCE_DRAINED;\n            drain = true;\n", "            finish_fence(channel, i);\n            return false;\n")]),
    ("open receives are not told over a rail that comes back", "rail.c", [("    grants_renew(channel, index);\n", "")]),
    ("lost rails are not tried again", "rail.c", [("    if (channel->link.passive || pause_ns == CRPC_FOREVER ||", "    if (channel->link.passive || 1 ||")]),
    ("an attempt without queue pairs is the last", "rail.c",
     [("    } else if (!rails_fail_without(channel, index)) {\n        start_retry(channel, index);\n",
       "    } else if (!rails_fail_without(channel, index)) {\n")]),
    ("an attempt that the peer says has failed is the last", "rail.c",
     [("            start_retry(channel, message->rail);\n            connected_if_settled", "            connected_if_settled")]),
    ("control on a lost queue pair is not sent again", "queues.c", [("control_unsend(queue);\n    list_remove(", "list_remove(")]),
    ("control that was sent again is taken twice", "control.c",
     [("    if (ahead >= half || waits) {\n        take_repeated(channel);\n        return;",
       "    if (ahead >= half) {\n        channel->control.in_sequence = sequence; ahead = 0;")]),
    ("control may not be sent again", "rail.c", [("    channel->control.repeats_left += CHANNEL_INBOX_MESSAGES;\n", "")]),
    ("a repeated share does not say so", "send.c", [("(share != rail ? CHANNEL_IMMEDIATE_PROXY : 0)", "0")]),
    # Messages.
    ("a slot is used again before all is acknowledged", "send.c", [("unlikely(outgoing->count != 0 || channel->up == 0)", "unlikely(channel->up == 0)")]),
    ("a message is complete with its first share", "receive.c", [("    if (incoming->seen == incoming->mask) {\n", "    if (incoming->seen) {\n")]),
    ("sizes are read with the first immediate", "receive.c",
     [("    if (incoming->seen == incoming->mask) {\n", "    if (incoming->seen == incoming->mask || incoming->record) {\n")]),
    ("rail 0 leads every message", "send.c", [("outgoing->record && share == leader_of(outgoing->mask)", "outgoing->record && share == 0")]),
    ("the size is that of the share that comes last", "receive.c", [("incoming->bytes += bytes;", "incoming->bytes = bytes;")]),
    ("share 1 lands at the start", "send.c", [("uint64_t offset = share == 0 ? 0 : outgoing->part[index];", "uint64_t offset = 0;")]),
    ("what is too long is sent all the same", "send.c",
     [("too_long(outgoing, i) ? 0 : part_of(outgoing, i, share);\n        if", "part_of(outgoing, i, share);\n        if")]),
    ("groups go without their last buffer", "send.c",
     [("        if (bytes == 0) {\n            continue;", "        if (bytes == 0 || i == 7) {\n            continue;")]),
    ("a message goes without room for it", "send.c", [("    if (unlikely(nic_send_room(queue->queue_pair) < wqes)) {", "    if (0) {")]),
    ("a freed place goes to the newest send", "send_end.c",
     [("    sends_fill_places(channel); /* places are free now, and older sends come first */\n", ""),
      ("    sends_fill_places(channel); /* before a newer one comes */\n", "")]),
    ("a send is sent after its time-out", "send.c",
     [("        if (wheel_timer_set(&op->timer)) {\n            wheel_clear(&channel->engine->links.wheel, &op->timer);\n        }\n"
       "    }\n    for (uint32_t rail",
       "    }\n    for (uint32_t rail")]),
    # Rights to write to buffers.
    ("a receive completes before its rights have ended", "grant.c",
     [("    if (!incoming->arrived || incoming->grants[0] != GRANT_NONE ||\n        incoming->grants[1] != GRANT_NONE) {",
       "    if (!incoming->arrived) {")]),
    ("rights are told before they are there", "grant.c",
     [("    queue->operations->post_write(queue->queue_pair, &transfer, flags);\n",
       "    queue = channel->rails[rail].queues[0];\n    queue_wants_doorbell(queue);\n"
       "    queue->operations->post_write(queue->queue_pair, &transfer, flags);\n")]),
    ("what was told in an earlier epoch is heeded", "rights.c", [(" && copy->right.epoch == epoch;", ";")]),
    ("a slot is used again before what told of it was read", "grant.c",
     [("told ? GRANT_NONE : GRANT_WITHDRAWING;", "told ? GRANT_NONE : GRANT_NONE;"), ("    assert(*state == GRANT_WITHDRAWING);\n", "")]),
    ("rights to one buffer of a group are rights to all", "rights.c",
     [("return; /* the others are under way */", "break; /* the others are under way */")]),
    ("rights of a rail outlive it", "rail.c",
     [("    sends_rail_lost(channel, index);\n", "")]),
    ("windows are not given back", "grant.c", [("            queue->windows_left++;\n", "")]),
    # Receives of the devices.
    ("receives are posted again too late", "internal.h",
     [("nic->receives_posted < nic_receive_low_mark(rail->nic)", "nic->receives_posted < nic_receive_low_mark(rail->nic) / 4")]),
    ("a channel asks for half of its receives", "internal.h", [("return 2 * slots + CHANNEL_INBOX_MESSAGES + 2;", "return slots / 2 + 2;")]),
    ("a message of several WQEs has the size of the last", "send.c",
     [("                     channel->engine->straight_bytes)) {\n            outgoing->record = true;",
       "                     channel->engine->straight_bytes)) {")]),
    # Payloads that land late.
    ("what is looked at without a completion may be late", "area.c",
     [("CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, error)", "CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | NIC_ACCESS_RELAXED, error)")]),
    ("a long share is its immediate alone", "send.c",
     [("        post_write(queue, transfer, *foreign);\n        *transfer = ", "        *transfer = ")]),
    # Senders that sleep.
    ("a sender that sleeps is not woken by the receive", "wake.c", [("        channel->wake.due = true;\n", "")]),
    ("a sender that nobody will wake does not look", "wake.c",
     [("        if (!channel->wake.asleep_said || channel->send.repeats > 0) {", "        if (!channel) {")]),
    # Keys.
    ("any proof is right", "link/prove.c", [("if (status == CRPC_OK && !proof_equal(word->proof, expected))", "if (0)")]),
    ("a link opens before the peer has proved its key", "link/prove.c",
     [("    say(link, &answer);\n    if (link->proof->body_waits) {\n",
       "    say(link, &answer);\n    link->proof->done = true;\n    link_open(link);\n    if (0) {\n")]),
    ("who has another key is not told", "link/prove.c",
     [("link->proof->wrong && link->proof->sent == link->proof->said && link->queue_pair->posted == link->queue_pair->completed", "link->proof->wrong")]),
    ("memory is shown before the key is compared", "link/prove.c",
     [("    memcpy(link->proof->their_nonce, word->proof, LINK_PROOF_BYTES);\n",
       "    memcpy(link->proof->their_nonce, word->proof, LINK_PROOF_BYTES);\n    link->group->service->expose(link, &error);\n"),
      ("    return task->link->group->service->expose(task->link, error);", "    return CRPC_OK;")]),
    ("a side with a key takes a peer without", "link/prove.c", [("    return ours == link->peer.proves ?", "    return ours >= link->peer.proves ?")]),
    # What is done off the poll.
    ("a closed channel goes while a task needs it", "link/life.c", [("    } else if (link->busy == 0) {\n", "    } else if (1) {\n")]),
    ("queue pairs go while they are being made or connected", "queues.c",
     [("    return queue->busy || (link_joining(link)", "    return 0 && (link_joining(link)")]),
    ("what has ended is made when its task has ended", "queues.c", [("    if (rail->state != RAIL_MAKING) {", "    if (0) {")]),
    ("queue pairs and windows are made in the poll", "queues.c",
     [("        link_task_start(&rail->making.task, &channel->link, make_queues, made);",
       "        rail->making.task.link = &channel->link;\n        error.status = make_queues(&rail->making.task, &error);\n"
       "        made(&rail->making.task, &error);")]),
    ("a rail does not begin anew when what it had has ended", "queues.c",
     [("    if (rail->state == RAIL_MAKING) {\n        make_what_it_lacks", "    if (0) {\n        make_what_it_lacks")]),
    ("the rights over a lost rail never end", "queues.c", [("    if (any) {\n        grants_lost(channel, index);\n    }\n", ""),
                                                         ("    grants_lost(channel, index);\n    link_task_start", "    link_task_start")]),
    ("what has ended is connected when its task has ended", "connect.c", [("    if (rail->state != RAIL_CONNECTING) {", "    if (0) {")]),
    # Ends.
    ("BYE does not connect a channel that still waits", "leave.c", [("        channel_connected(channel); /* the peer was", "        /* the peer was"),
      ("    if (channel->link.state == CRPC_STATE_CONNECTING) {\n        return;\n    }\n    if (channel->peer_leave == PEER_BYE",
       "    if (channel->peer_leave == PEER_BYE")]),
    ("BYE is heeded whatever it overtook", "leave.c", [(" &&\n        channel->stats.messages_received >= channel->bye.sent", "")]),
    ("a channel ends before its BYE has arrived", "leave.c", [("return; /* our BYE is under way */", "")]),
    ("leave is not announced", "leave.c", [("channel->leave = channel->peer_leave == PEER_BYE ? LEAVE_SAID : LEAVE_ASKED;", "channel->leave = LEAVE_SAID;")]),
    ("room is not reported", "op.c", [("        if (unlikely(channel->link.refused)) {\n", "        if (0) {\n")]),
]

PROGRAMS = ["simulate.c", "sim_act.c", "sim_check.c", "sim_trouble.c", "sim_world.c"]


if __name__ == "__main__":
    simulation = Engine(ROOT, "channel", PROGRAMS, steps=60_000_000)
    sys.exit(main(simulation, [Mutation(name, file, changes) for name, file, changes in MUTATIONS]))
