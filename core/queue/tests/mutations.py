"""mutations.py SOURCE_ROOT [PART_OF_A_NAME]: breaks the engine of queues on purpose, one rule at a time, and expects the simulation to notice.

A mutation whose text is no longer found fails the test: it has to follow the code. Prints TAP. Exit status 3 if no mutation has the part
in its name."""
import sys
from pathlib import Path

ROOT = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests"))
from mutate import Engine, Mutation, main  # noqa: E402

# name, file, text, what takes its place
MUTATIONS = [
    ("DISCONNECTED does not wait for completions that are kept", "life.c", "if (engine->held_count > 0 || link_joining(&queue->link))",
     "if (link_joining(&queue->link))"),
    ("receives of an SRQ that a stopped queue pair took never complete", "life.c",
     "list_append_once(&engine->ended, &srq->ended_link);", ";"),
    ("what is open in a stopped queue is forgotten", "life.c", "list_append_once(&engine->ended, &queue->ended_link);", ";"),
    ("a closed queue goes with ops open", "life.c", "(queue->nic->stopped && !queue_has_open(queue));", "queue->nic->stopped;"),
    ("an SRQ goes while a queue pair uses it", "life.c", "if (queue->nic->stopped || queue->nic->users > 0) {", "if (queue->nic->stopped) {"),
    ("a queue pair goes while it is being connected", "life.c", "if (queue->nic && !link_joining(link)) {", "if (queue->nic) {"),
    ("a queue that is closed stays a user of its SRQ", "life.c", "queue->srq->users--;", ";"),
    ("a failed sparse queue waits for ops that were done", "life.c", "queue->silent_only = true;", "return;"),
    ("a queue that never connects keeps its receives", "life.c", "queue_end(queue, CRPC_E_FLUSHED);\n    } else if (!queue->nic->stopped) {",
     ";\n    } else if (!queue->nic->stopped) {"),
    ("a sparse queue does not ask when its last ops are done", "life.c", "queue_post_nop(queue);", ";"),
    ("the NOP of a queue that drains is shown", "engine.c", "if (unlikely(engine->nops > 0)) {", "if (0) {"),
    ("a message can come before CONNECTED", "engine.c", "if (engine->connecting > 0) {\n        open_early(engine);", "if (0) {\n        open_early(engine);"),
    ("completions that are kept are given twice", "engine.c", "engine->held_first += count;", ";"),
    ("an error that is kept has the driver's number", "engine.c", "first[i].status = status_of(&first[i]);",
     "if (first != engine->held) first[i].status = status_of(&first[i]);"),
    ("that a queue was flushed is its reason, and not the op that failed", "engine.c", "return reason != NIC_ERROR_FLUSHED &&", "return 0 &&"),
    ("a closed queue's ops are flushed", "engine.c", "queue->nic->stopped ? queue->ended_status : CRPC_E_FLUSHED;", "CRPC_E_FLUSHED - queue->nic->stopped;"),
    ("room for receives is not reported", "submit.c", "nic->receives_open < nic->receives_max", "0"),
    ("whoever sleeps is not told of what is kept", "engine.c", "return engine->held_count > 0 ||", "return"),
    ("a queue that drains does not wait for its sends", "life.c", "if (!queue_sends_open(queue)) {", "if (1) {"),
    ("nobody hears that receives run low", "change.c", "link_report(&queue->link, LINK_EVENT_SERVICE);", ";"),
    ("a limit of 0 is reported", "change.c", "if (queue->srq_limit == 0) {", "if (0) {"),
    ("a target goes while ops name it", "target.c", "if (queue->nic && !queue->nic->stopped &&", "if (0 &&"),
    ("a target that is closed while others wait is forgotten", "target.c", "list_move_all(&engine->targets_leaving, &engine->targets_closed);",
     "list_init(&engine->targets_closed);"),
    ("stream reset: it does nothing", "peer.c", "queue->operations->reset_stream(queue->nic, (uint16_t)stream, error);", "CRPC_OK;"),
    ("a failed stream's ops end the queue", "engine.c", "if (queue && queue->nic->failed && ", "if (queue && "),
    ("what is kept counts as looked at", "tags.c", "unlikely(queue->engine->held_count > 0) ? unseen(queue) : 0;", "0;"),
    ("messages that are kept are of a queue that was closed", "life.c", "queue_rename_held(queue);", ";"),
    ("room for tags is not reported", "submit.c", "(queue->refused_add && nic_tags_room(nic, NIC_TAG_ADD)) ||", "0 ||"),
    ("a TM-SRQ goes with tags open", "internal.h", "(queue->nic->tags && queue->nic->tags->open > 0)", "0"),
    ("a removal that finds nothing ends its TM-SRQ", "engine.c", "queue->nic->failed && queue->options.kind != NIC_QUEUE_TM_SRQ",
     "(queue->nic->failed || queue->nic->tags)"),
    ("a tag that was taken back never completes", "nic/tags.c", "!give_back(queue, tag, NIC_ERROR_REMOVED, 0, output)", "0"),
    ("the last place of all is given away", "nic/tags.c", "tags->free_first != tags->free_last", "1"),
    ("tags of a stopped queue's messages never complete", "nic/memory/tags.c", "nic_tags_end(receiver, place);\n        return;", "return;"),
    ("messages that nobody can look at are waited for", "nic/memory/tags.c", "nic_tags_lost(receiver);", ";"),
    ("a queue that is not joined yet cannot fail", "link/life.c", "|| link->state == CRPC_STATE_NEW;", ";"),
]

PROGRAMS = ["simulate.c", "sim_act.c", "sim_check.c", "sim_datagram.c", "sim_dc.c", "sim_make.c", "sim_tags.c"]


if __name__ == "__main__":
    simulation = Engine(ROOT, "queue", PROGRAMS, steps=1_000_000, helper="queue/tests/fake_cm.c")
    sys.exit(main(simulation, [Mutation(name, file, [(old, new)]) for name, file, old, new in MUTATIONS]))
