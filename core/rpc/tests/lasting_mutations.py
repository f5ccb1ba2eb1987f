"""lasting_mutations.py SOURCE_ROOT [PART_OF_A_NAME]: as mutations.py, for endpoints that connect again: simulate_lasting has to notice."""
import sys
from pathlib import Path

ROOT = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests"))
from mutate import Engine, Mutation, main  # noqa: E402

# name, file, text, what takes its place
MUTATIONS = [
    ("what may have been done is done again", "lasting.c",
     "!call || lasting->ending || !(unsent || kept->op.flags & CRPC_OP_IDEMPOTENT)", "!call || lasting->ending"),
    ("what was sent counts as not sent", "lasting.c", "kept->request_end > endpoint->out.request_sent;", "true;"),
    ("a call that waits has its trace no more", "lasting.c", "        kept->op.token = (uint64_t)(uintptr_t)&kept->trace;\n", ""),
    ("an idempotent call ends with its connection", "lasting.c", "!(unsent || kept->op.flags & CRPC_OP_IDEMPOTENT)", "!unsent"),
    ("a call that has ended is sent again", "lasting.c", "return call->call_id == kept->call_id && call_live(call) ? call : NULL;", "return call;"),
    ("the deadline of a call that waits again goes on", "lasting.c",
     "        wheel_clear(&endpoint->engine->links.wheel, &call->timer);\n        endpoint->calls.live--;", "        endpoint->calls.live--;"),
    ("what waits has no deadline", "lasting.c", "    if (kept->deadline_ns) {\n        wheel_set(", "    if (0) {\n        wheel_set("),
    ("what was not started is not sent again", "lasting.c", "    wait_again(lasting, kept, &lasting->waiting); /* among", "    return true; /* among"),
    ("a payload is the caller's", "lasting.c", "        memcpy(kept->payload, payload, op->payload_bytes);\n",
     "        memset(kept->payload, 0xff, op->payload_bytes);\n"),
    ("a kept call is another's as soon as it is sent", "lasting.c",
     "    list_remove(&kept->link);\n    list_append(&lasting->in_flight, &kept->link);\n", "    ;\n"),
    ("who was refused is not told", "lasting.c", "        link_report(link, LINK_EVENT_ROOM);\n    }\n}\n\nstatic void end_kept(",
     "        ;\n    }\n}\n\nstatic void end_kept("),
    ("what waits for room is forgotten", "lasting.c",
     "    if (lasting && !lasting->ending) {\n        resume(lasting);", "    if (0) {\n        resume(lasting);"),
    ("what waits is sent only when there is room", "lasting.c", "    lasting->connections++;\n    resume(lasting);\n", "    lasting->connections++;\n"),
    ("nobody tries again", "lasting.c", "    link_set_timer(link->group, &lasting->timer, next_pause(lasting));\n", "    (void)next_pause;\n"),
    ("an attempt that fails at once is the last", "lasting.c", "        link_report(link, LINK_EVENT_CONNECTED); /* that it could not connect */\n", ""),
    ("memory goes that is reserved", "lasting.c",
     "    if (lasting->reserved) {\n        lasting->attempt_due = true;", "    if (0) {\n        lasting->attempt_due = true;"),
    ("the end of a reservation is not noticed", "lasting.c", "        link_set_timer(&engine_of(lasting)->links, &lasting->timer, 0);\n", ""),
    ("cancels are forgotten with their connection", "link/life.c", "    link->cancels = other->cancels;\n    other->cancels = 0;\n", ""),
    ("what waits is not canceled", "lasting.c", "            end_kept(lasting, kept, CRPC_E_CANCELED);\n            count++;", "            count++;"),
    ("what waits stays when all ends", "lasting.c",
     "    while (!list_empty(&lasting->waiting)) {\n        end_kept(lasting, list_entry(lasting->waiting.next, struct rpc_kept, link), status);\n    }\n", ""),
    ("it comes back though it was disconnected", "lasting.c", "    if (!lasting || lasting->ending) {\n        return false;\n    }\n    link->away = true;",
     "    if (!lasting) {\n        return false;\n    }\n    link->away = true;"),
    ("more wait than may", "lasting.c", "lasting->waiting_count >= lasting->options.calls_max", "0"),
    ("the last that waits is told of no end", "endpoint.c", "(endpoint->lasting && endpoint->lasting->ended > 0)", "0"),
]


if __name__ == "__main__":
    simulation = Engine(ROOT, "rpc", ["simulate_lasting.c"], steps=3_000_000, helper="link/tests/cm_stub.c")
    sys.exit(main(simulation, [Mutation(name, file, [(old, new)]) for name, file, old, new in MUTATIONS]))
