"""mutations.py SOURCE_ROOT [PART_OF_A_NAME]: breaks the engine on purpose, one line at a time, and expects the simulation to notice.

Each mutation is a rule of the flow control taken away. A mutation whose text is no longer found fails the test: it has
to follow the code. Prints TAP. Exit status 3 if no mutation has the part in its name."""
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = sys.argv[1]
ENGINE = os.path.join(ROOT, "core/rpc")

MUTATIONS = [
    ("room is returned when a message is parsed, not when its view ends", "receive.c",
     "    endpoint->parsed = endpoint->batch_end - bytes_left;\n",
     "    endpoint->parsed = endpoint->batch_end - bytes_left; endpoint->released = endpoint->parsed;"
     " endpoint->request_consumed += endpoint->held_request_charge; endpoint->held_request_charge = 0;"
     " endpoint_publish(endpoint);\n"),
    ("an allowance is freed when its response is delivered", "receive.c",
     "    endpoint->held_allowance += wire_charge(call->reply_bytes_max);",
     "    endpoint->reply_outstanding -= wire_charge(call->reply_bytes_max);"),
    ("more room for requests is published than there is", "receive.c",
     "endpoint->request_consumed + endpoint->request_share;", "endpoint->request_consumed + endpoint->request_share + 512;"),
    ("the batch window is one too wide", "receive.c",
     "endpoint->batches_consumed + endpoint->batch_window;", "endpoint->batches_consumed + endpoint->batch_window + 1;"),
    ("receives are posted again too late", "receive.c",
     "receives_posted < nic_receive_low_mark(engine->nic)", "receives_posted < nic_receive_low_mark(engine->nic) / 2"),
    ("calls ignore the request limit", "send.c",
     "endpoint->request_produced + wire_charge(op->payload_bytes) <= endpoint->request_limit &&", ""),
    ("calls ignore the reply budget", "send.c",
     "endpoint->reply_outstanding + wire_charge(op->reply_bytes_max) <= endpoint->reply_budget &&", ""),
    ("batches ignore the window", "send.c", "endpoint->batches_sent < endpoint->batch_limit &&", ""),
    ("a blocked sender reads no mailbox", "send.c", "    endpoint_read_mailbox(endpoint);\n    if (!endpoint->read_in_flight)", "    if (0)"),
    ("a batch that waited for the window is forgotten", "send.c",
     "        if (endpoint->batch_messages > 0 || unlikely(fin_due(endpoint))) {\n"
     "            list_append_once(&endpoint->engine->work, &endpoint->work_link);\n        }", ""),
    ("a slot is freed at its deadline", "calls.c", "            call->state = CALL_ZOMBIE;", "            call_free(call);"),
    ("some ended calls are never reported", "calls.c",
     "    list_append(&endpoint->engine->ended, &call->timer.link);",
     "    if (endpoint->ended_calls % 7) list_append(&endpoint->engine->ended, &call->timer.link);"),
    ("what is malformed behind an end is parsed on", "endpoint.c",
     "    distrust_arrivals(endpoint);\n    endpoint_fail(endpoint, &error);",
     "    if (!endpoint->failing) distrust_arrivals(endpoint);\n    endpoint_fail(endpoint, &error);"),
    ("a batch counts as two when consumed", "receive.c",
     "    endpoint->held_batches += messages_left == 0;",
     "    endpoint->held_batches += messages_left == 0 ? 2 : 0;"),
]


def outcome(mutation):
    name, file, old, new = mutation
    work = tempfile.mkdtemp()
    try:
        engine = os.path.join(work, "rpc")
        shutil.copytree(ENGINE, engine)
        path = os.path.join(engine, file)
        text = Path(path).read_text()
        if old not in text:
            return name, False, "the text to change is not in " + file
        Path(path).write_text(text.replace(old, new))
        sources = [os.path.join(folder, source)
                   for folder in (engine, os.path.join(ROOT, "core/base"), os.path.join(ROOT, "core/nic/memory"))
                   for source in sorted(os.listdir(folder)) if source.endswith(".c")]
        sources += [os.path.join(engine, "tests", source)
                    for source in ("simulate.c", "sim_act.c", "sim_check.c", "sim_world.c", "cm_stub.c")]
        include = [engine] + [os.path.join(ROOT, folder)
                              for folder in ("capi", "core/base", "core/nic", "core/cm", "core/nic/memory")]
        program = os.path.join(work, "simulate")
        built = subprocess.run(["cc", "-O1", "-w", "-std=gnu11", "-D_GNU_SOURCE", "-o", program]
                               + ["-I" + folder for folder in include] + sources,
                               capture_output=True, text=True)
        if built.returncode:
            return name, False, "it does not compile: " + built.stderr[:200]
        run = subprocess.run([program, "--steps", "1000000"], capture_output=True, text=True, timeout=300)
        found = [line for line in run.stdout.splitlines() if line.startswith("# step")]
        if run.returncode == 0:
            return name, False, "the simulation did not notice"
        return name, True, found[0][2:] if found else "it ended with status %d" % run.returncode
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        MUTATIONS = [mutation for mutation in MUTATIONS if sys.argv[2] in mutation[0]]
    print("1..%d" % len(MUTATIONS))
    if not MUTATIONS:
        sys.exit(3)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, (name, noticed, what) in enumerate(pool.map(outcome, MUTATIONS), 1):
            failed += not noticed
            print("%s %d - noticed: %s\n# %s" % ("ok" if noticed else "not ok", number, name, what), flush=True)
    sys.exit(1 if failed else 0)
