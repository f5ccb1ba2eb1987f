"""mutations.py SOURCE_ROOT [PART_OF_A_NAME]: breaks the engine on purpose, one line at a time, and expects the simulation to notice.

Each mutation is a rule of the flow control taken away. A mutation whose text is no longer found fails the test: it has
to follow the code. Prints TAP. Exit status 3 if no mutation has the part in its name."""
import sys
from pathlib import Path

ROOT = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests"))
from mutate import Engine, Mutation, main  # noqa: E402

# name, file, text, what takes its place
MUTATIONS = [
    ("room is returned when a message is parsed, not when its view ends", "receive.c",
     "    endpoint->in.parsed = endpoint->in.batch_end;\n",
     "    endpoint->in.parsed = endpoint->in.batch_end; endpoint->in.released = endpoint->in.parsed;"
     " endpoint->in.request_consumed += endpoint->in.held_request_charge; endpoint->in.held_request_charge = 0;"
     " endpoint_publish(endpoint);\n"),
    ("an allowance is freed when its response is delivered", "receive.c",
     "    endpoint->in.held_allowance += call->allowance;", "    endpoint->calls.reply_outstanding -= call->allowance;"),
    ("more room for requests is published than there is", "receive.c",
     "endpoint->in.request_consumed + endpoint->in.request_share;", "endpoint->in.request_consumed + endpoint->in.request_share + 512;"),
    ("the batch window is one too wide", "receive.c",
     "endpoint->in.batches_consumed + endpoint->in.batch_window;", "endpoint->in.batches_consumed + endpoint->in.batch_window + 1;"),
    ("receives are posted again too late", "receive.c",
     "receives_posted < engine->receives_low", "receives_posted < engine->receives_low / 2"),
    ("calls ignore the request limit", "message.h",
     "endpoint->out.request_produced + wire_charge(op->payload_bytes) <= endpoint->out.request_limit &&",
     "wire_charge(op->payload_bytes) <= endpoint->peer.request_bytes &&"),
    ("calls ignore the reply budget", "message.h",
     "endpoint->calls.reply_outstanding + wire_charge(op->reply_bytes_max) <= endpoint->calls.reply_budget &&", ""),
    ("calls of a run ignore the request limit", "run.c",
     "unlikely(!take_from(&request_left, charge))", "unlikely(!take_from(&request_left, charge)) && 0"),
    ("calls of a run ignore the reply budget", "run.c",
     "unlikely(!take_from(&reply_left, allowance))", "unlikely(!take_from(&reply_left, allowance)) && 0"),
    ("a run answers calls that have ended", "run.c", "call->call_id != call_id || call->state != CALL_TIMED", "call->call_id != call_id"),
    ("a run answers a request again", "run.c", "        request->reply_bytes_bound = 0;\n", ""),
    ("a run gives a call's slot twice", "run.c", "        call->next_free = first_free;\n", "        call->next_free = call;\n"),
    ("deadlines of a run's calls are kept", "run.c", "            wheel_clear(&endpoint->engine->links.wheel, &call->timer);\n", "            ;\n"),
    ("a lone call ignores the window", "lone.c",
     "!rpc_call_possible(endpoint, op) || unlikely(!endpoint_may_send(endpoint))", "!rpc_call_possible(endpoint, op)"),
    ("a lone call leaves in front of what waits", "lone.c", "    return endpoint->out.batch_messages | endpoint->leave |", "    return endpoint->leave |"),
    ("room is not returned of a batch that comes alone", "receive.c",
     "    in->sequence_expected++;\n    in->parsed += bytes;\n    in->held_batches++;\n", "    in->sequence_expected++;\n    in->parsed += bytes;\n"),
    ("a batch that comes alone overtakes what waits", "poll.c", "list_empty(&engine->ready) && !link_cm_waits(&engine->links)",
     "!link_cm_waits(&engine->links)"),
    ("a response that comes alone answers a call that has ended", "receive.c",
     "return likely(word == header->call_id &&", "return likely((uint32_t)word == header->call_id &&"),
    ("batches ignore the window", "internal.h", "endpoint->out.batches_sent < endpoint->out.batch_limit &&", ""),
    ("a blocked sender reads no mailbox", "send.c", "    endpoint_read_mailbox(endpoint);\n    if (!endpoint->read.in_flight)", "    if (0)"),
    ("a batch that waited for the window is forgotten", "internal.h",
     "        if (out->batch_messages > 0 || unlikely(endpoint->grow_attention) || unlikely(endpoint->leave == LEAVE_WANTED)) {\n"
     "            list_append_once(&endpoint->engine->work, &endpoint->work_link);\n        }", ""),
    ("a slot is freed at its deadline", "calls.c", "            call->state = CALL_ZOMBIE;", "            call_free(call);"),
    ("some ended calls are never reported", "calls.c",
     "    list_append(&call->endpoint->engine->ended, &call->timer.link);",
     "    if (call->endpoint->calls.ended % 7) list_append(&call->endpoint->engine->ended, &call->timer.link);"),
    ("what is malformed behind an end is parsed on", "endpoint.c",
     "    forget_arrivals(endpoint);\n}\n\n/* Nothing", "    if (!link->failing) forget_arrivals(endpoint);\n}\n\n/* Nothing"),
    ("a batch counts as two when consumed", "receive.c",
     "    endpoint->in.held_batches++;\n", "    endpoint->in.held_batches += 2;\n"),
    ("calls that have ended ask for no attention", "calls.c", "    call->endpoint->engine->links.attention = true;\n", ""),
    ("acknowledged replies ask for no attention", "send.c", "        endpoint->engine->links.attention = true;\n", ""),
    ("what has failed asks for no attention", "endpoint.c",
     "&endpoint->failing_link);\n        endpoint->engine->links.attention = true;\n    }\n}\n\nstatic void abandoned",
     "&endpoint->failing_link);\n    }\n}\n\nstatic void abandoned"),
    ("events of links ask for no attention", "link/events.c", "    link->group->attention = true;\n}\n\n/* ---- Giving", "}\n\n/* ---- Giving"),
    ("a poll that leaves something forgets it", "poll.c", "engine->links.attention = rest_waits(engine);", "engine->links.attention = false;"),
    ("any proof is right", "link/prove.c", "if (status == CRPC_OK && !proof_equal(word->proof, expected))", "if (0)"),
    ("a link opens before the peer has proved its key", "link/prove.c",
     "    say(link, &answer);\n    if (link->proof->body_waits) {\n",
     "    say(link, &answer);\n    link->proof->done = true;\n    link_open(link);\n    if (0) {\n"),
    ("who has another key is not told", "link/prove.c",
     "link->proof->wrong && link->queue_pair->posted == link->queue_pair->completed", "link->proof->wrong"),
    ("a closed endpoint goes while a task needs it", "link/life.c", "    } else if (link->busy == 0) {\n", "    } else if (1) {\n"),
    ("a queue pair goes while it is being connected", "endpoint.c", "    if (!link_joining(link)) {\n        destroy", "    {\n        destroy"),
    ("a queue pair fails while it is being connected", "endpoint.c", "link->queue_pair && !link_joining(link)", "link->queue_pair"),
    ("what has failed is opened when its queue pair is connected", "link/blob.c",
     "    if (link->failing) {\n        link->group->service->abandoned(link);\n    } else if", "    if"),
    ("what has failed says its last word when its memory is registered", "link/prove.c",
     "    if (link->failing) {\n        return;\n    }\n    if (error.status", "    if (error.status"),
    ("a peer's last word is taken before this side's is said", "link/prove.c", "bool exposing = proof->expose.under_way != NULL;", "bool exposing = false;"),
    ("a queue pair that was connected too late is left alone", "endpoint.c",
     "    const struct rpc_endpoint *endpoint = endpoint_of_link(link);\n    endpoint->engine->operations->queue_pair_fail(link->queue_pair);\n",
     "    (void)link;\n"),
    ("a message does not wait for ops of its lane", "word.c", "    return !lane->gated;\n", "    return true;\n"),
    ("a batch that was set aside does not wait for ops of its lane", "after.c",
     "if (batch->gated && !lane_reached(lane->lane, batch->gate)) {", "if (0) {"),
    ("a message that is refused leaves what was before it aside", "after.c",
     "        undo_begin(endpoint);\n", "        (void)undo_begin;\n"),
    ("a message goes that waited for ops of a lane that has failed", "lane.c", "    if (behind) {\n", "    if (0) {\n"),
    ("FIN does not wait for ops of its lane", "send.c",
     "endpoint->leave == LEAVE_WANTED && likely(!rpc_lane_has_open(endpoint))", "endpoint->leave == LEAVE_WANTED"),
    ("a REVOKE of a lane is answered while ops are under way", "lane/grant.c",
     "return lane->answer_owed && lane_reached(lane, lane->answer_mark);", "return lane->answer_owed;"),
    ("a lane accepts ops for a grant that is revoked", "lane/grant.c",
     "    lane->revoked_uses[place] = serial >> SERIAL_INDEX_BITS;\n", ""),
    ("a window of a lane is invalidated before the peer has answered", "lane/grant.c",
     "    list_append_once(&lane->tell, &given->tell_link);\n",
     "    list_append_once(&lane->tell, &given->tell_link); invalidate_now(lane, given);\n"),
    ("what a lane has open when it ends is forgotten", "lane/lane.c",
     "    end_queue_pair(lane, wheel);\n    end_entries(lane, status);\n", "    end_queue_pair(lane, wheel);\n"),
    ("a lane counts an op as done that is not", "lane/lane.c",
     "    take_done(lane, completed);\n", "    take_done(lane, lane->posted);\n"),
    ("a lane goes while a task connects it", "lane.c",
     "    if (lane->join.under_way) {\n        return; /* joined comes, and there are no ops */\n    }\n", ""),
    ("a call ends while the device reads its payload", "calls.c", "if (likely(call->kind != CALL_GATHERED) || rpc_gather_let_go(call)) {", "if (1) {"),
    ("a batch is written to behind a payload in a region", "send.c", "endpoint->gather.waits   ? CRPC_E_AGAIN", "0   ? CRPC_E_AGAIN"),
    ("a larger ring counts for requests before the peer has moved to it", "grow.c",
     "    rpc_grow_attend(endpoint, RPC_GROW_SAY_RING);\n",
     "    rpc_grow_attend(endpoint, RPC_GROW_SAY_RING); endpoint->in.request_share = rpc_request_share(&endpoint->options);\n"),
    ("a ring goes while its views are read", "grow.c",
     "    grow->old = in->ring;\n", "    ring_destroy(&in->ring, endpoint->engine->nic);\n"),
    ("what waits is sent before this side has moved", "grow.c", "    return !grow->waits;\n", "    return true;\n"),
    ("what is not sent stays in the small send ring", "grow.c", "endpoint->out.produced - start + in_place);", "0);"),
    ("a place that is written to is left behind", "grow.c", "reserved ? WIRE_BATCH_HEADER_BYTES", "0 ? WIRE_BATCH_HEADER_BYTES"),
    ("the small send ring goes while the device may read it", "grow.c",
     "    grow->waits = false;\n", "    grow->waits = false; ring_destroy(&grow->staging_old, endpoint->engine->nic);\n"),
    ("nobody asks for a larger ring", "grow.c", "        rpc_grow_attend(endpoint, RPC_GROW_SAY_WANT);\n", ""),
    ("more is lent than there is", "grow.c", "    return left > kept ? (uint32_t)(left - kept) : 0;", "    return 1024;"),
    ("what is lent is not counted", "grow.c", "    engine->window_sum += more;\n", ""),
    ("limits from before a YIELD count after it", "grow.c", "    endpoint->out.batches_sent += WIRE_YIELD_JUMP;\n", ""),
    ("a side keeps what it gives back", "grow.c",
     "    endpoint->out.batch_limit = endpoint->out.batches_sent + endpoint->peer.batch_window_first;\n",
     "    endpoint->out.batch_limit += WIRE_YIELD_JUMP;\n"),
    ("a place is written to again before it was returned", "gather.c", "    endpoint->peer_arena.used |= 1u << place;\n", ""),
    ("what was returned before counts as news", "arena.c", "    if (count > WIRE_RETURNS_MAX) {\n", "    if (0) {\n"),
    ("a call leaves that has ended, and its payload with it", "gather.c",
     "        take_out(endpoint, call);\n", "        (void)take_out;\n"),
    ("a batch leaves before its payload", "gather.c",
     "    operations->post_foreign_write(endpoint->link.queue_pair, &payload, 0);\n"
     "    endpoint->sent.batches[slot].wqe = endpoint->link.queue_pair->posted;\n"
     "    endpoint->stats.bytes_sent += payload.bytes;\n"
     "    operations->post_write_immediate(endpoint->link.queue_pair, transfer, NIC_POST_RING | NIC_POST_SIGNALED);\n",
     "    endpoint->sent.batches[slot].wqe = endpoint->link.queue_pair->posted;\n"
     "    operations->post_write_immediate(endpoint->link.queue_pair, transfer, NIC_POST_RING | NIC_POST_SIGNALED);\n"
     "    operations->post_foreign_write(endpoint->link.queue_pair, &payload, 0);\n"),
    ("payloads stay in use when their connection has ended", "endpoint.c", "    rpc_gather_end_all(endpoint);\n", ""),
]

PROGRAMS = ["simulate.c", "sim_act.c", "sim_arena.c", "sim_check.c", "sim_gather.c", "sim_lane.c", "sim_world.c"]


if __name__ == "__main__":
    simulation = Engine(ROOT, "rpc", PROGRAMS, steps=3_000_000)
    sys.exit(main(simulation, [Mutation(name, file, [(old, new)]) for name, file, old, new in MUTATIONS]))
