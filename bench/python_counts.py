#!/usr/bin/env python3
"""python_counts.py SIMNIC PYTHON [--check]: what a call of the Python binding takes, in instructions of the caller's thread, on simnic.

"list": of Endpoint.call_many with 256 requests, both halves, with the results made and thrown away. "asyncio": of Endpoint.acall, of 256
tasks that call again and again, with what the loop and the tasks take. The library's own work is in both, and simnic's is not. The peer is
another context of the same thread, whose work is not counted.

Prints JSON; with --check, TAP. The limits are for the interpreter that they were found with; with another nothing is checked."""
import asyncio
import gc
import json
import os
import select
import sys
import time

import counting
from counting import TRY_AGAIN

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))

CALLS, BYTES, ROUNDS = 256, 32, 10
PARTS = ["bench_begin", "bench_finish"]
MEASURED_WITH = (3, 11)
LIMITS = {"list": 815, "asyncio": 21600}  # 3 in 100 above what the build that is tested takes


class Peer:
    """Answers in arrays, without numpy, when it is told to."""

    def __init__(self):
        import copyrpc

        self.copyrpc = copyrpc
        # What makes a ring grow waits until its caller polls, who does so only when all has landed.
        self.options = copyrpc.EndpointOptions(ring_bytes=4 << 20, reply_bytes_max=BYTES, full_size=True)
        self.context = copyrpc.Context()
        self.listener = self.context.listen("127.0.0.1:0", self.options, arrays=True)
        self.completions, self.replies = copyrpc.CompletionArray(1024), copyrpc.OpArray(1024)

    def turn(self):
        count = self.context.poll(self.completions)
        for index, request in enumerate(self.completions):
            self.replies.set(index, opcode=self.copyrpc.OP_REPLY, flags=self.copyrpc.OP_QUIET, endpoint=request.endpoint,
                             token=request.token, payload_bytes=request.payload_bytes, payload_offset=index * BYTES)
        assert not count or self.context.submit(self.replies, count, bytes(CALLS * BYTES)) == count
        return count

    def connect(self, client):
        endpoint = client._begin_connect(self.listener.address, self.options, False)
        nothing = self.copyrpc.CompletionArray(16)
        while not endpoint.connected:
            assert endpoint.error is None, endpoint.error
            self.turn()
            client.poll(nothing)
            time.sleep(0.001)  # under valgrind one thread runs at a time
        return endpoint

    def answer(self, client):
        """All calls. The answers have landed when this returns."""
        from copyrpc._native import lib

        lib.crpc_wait(client._pointer, 0)  # sends what has gathered
        left = CALLS
        while left:
            left -= self.turn()
            time.sleep(0.001)
        lib.crpc_wait(self.context._pointer, 0)
        time.sleep(int(os.environ["LANDING_US"]) / 1e6)


def lists(rounds):
    import measured

    import copyrpc
    from copyrpc._arrays import Batch

    peer = Peer()
    with peer.context, copyrpc.Context() as context:
        endpoint = peer.connect(context)
        requests, under_way = [bytes(BYTES) for _ in range(CALLS)], []

        def begin():  # this and finish are Endpoint.call_many, with the peer's turn in between
            batch = Batch(endpoint, requests, 0, 0, BYTES, 0)
            with context._use:
                batch._begin(context)
            under_way.append(batch)

        def finish():
            batch = under_way.pop()
            with context._use:
                batch._end(context)
            assert len(batch.answers(False)) == CALLS

        for _ in range(rounds):
            measured.begin(begin)
            peer.answer(context)
            polls = context._polls
            measured.finish(finish)
            if context._polls != polls + 1:
                sys.exit(TRY_AGAIN)  # not all had landed


async def caller(endpoint):
    request = bytes(BYTES)
    while True:
        await endpoint.acall(request)


def coroutines(rounds):
    import measured

    import copyrpc

    peer = Peer()
    loop = asyncio.new_event_loop()
    with peer.context, copyrpc.Context() as context:
        endpoint = peer.connect(context)
        tasks = [loop.create_task(caller(endpoint)) for _ in range(CALLS)]

        def take():
            """The turn that takes what came."""
            loop.call_soon(loop.stop)
            loop.run_forever()

        def call():
            """Those in which the tasks call again, and in which that is sent."""
            take()
            take()

        call()
        for _ in range(rounds):
            peer.answer(context)
            if not select.select([context._fd], [], [], 0)[0]:
                sys.exit(TRY_AGAIN)
            measured.finish(take)
            if context._pending:
                sys.exit(TRY_AGAIN)
            measured.begin(call)
            assert not context._attachment.outbox and len(context._pending) == CALLS
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


def main():
    if sys.argv[1] in ("list", "asyncio"):
        gc.disable()
        {"list": lists, "asyncio": coroutines}[sys.argv[1]](int(sys.argv[2]))
        return 0
    simnic, python = (os.path.abspath(path) for path in sys.argv[1:3])
    os.environ["PYTHONHASHSEED"] = "0"
    result = {form: round(sum(counting.usual(simnic, [python, __file__, form, None], PARTS, ROUNDS, CALLS)), 1)
              for form in LIMITS}
    if "--check" not in sys.argv:
        print(json.dumps({"language": "python", "python": sys.version.split()[0], "calls": CALLS, "bytes": BYTES,
                          "instructions_a_call": result, "limits": LIMITS}, indent=2))
        return 0
    same = sys.version_info[:2] == MEASURED_WITH
    from checks import Checks  # here, and not in what is counted

    checks = Checks(len(LIMITS))
    for form, limit in LIMITS.items():
        name = f"a call by {form} takes {result[form]} instructions, at most {limit}"
        if same:
            checks.check(result[form] <= limit, name)
        else:
            checks.skip(name, f"the limit is for Python {'.'.join(map(str, MEASURED_WITH))}")
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
