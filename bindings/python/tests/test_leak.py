"""100,000 calls and 1,000 connections leave nothing behind: no memory, no descriptors, no threads."""
import asyncio
import ctypes
import gc
import os
import subprocess
import sys
import threading
import time

import pytest

import copyrpc

SERVER = """
import copyrpc, signal, sys
with copyrpc.Context() as context, context.listen(sys.argv[1], copyrpc.EndpointOptions(connect_timeout=60)) as listener:
    signal.signal(signal.SIGTERM, lambda *_: listener.stop())
    print("listening", flush=True)
    listener.serve(lambda request: request.payload)
"""


@pytest.fixture
def remote(address):
    """A server in a process of its own, which must not grow either."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, address], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "listening\n"
    process.address = address
    yield process
    process.terminate()
    assert process.wait(60) == 0
    process.stdout.close()


def state(process="self"):
    """Resident KiB, descriptors, threads."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free, and not yet given back, is no leak
    with open(f"/proc/{process}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmRSS"].split()[0]), len(os.listdir(f"/proc/{process}/fd")), int(fields["Threads"])


def compare(before, slack_kib, process="self"):
    """simnic's thread has a file open for a moment now and then, and a thread that has ended is listed for a moment longer: either
    count may have one too many, and the later one is waited for."""
    after = state(process)
    deadline = time.monotonic() + 60
    while (after[1] > before[1] or after[2] > before[2]) and time.monotonic() < deadline:
        time.sleep(0.05)
        after = state(process)
    assert after[1] <= before[1] and after[2] <= before[2], f"descriptors and threads: {before[1:]} before, {after[1:]} after"
    assert after[0] - before[0] <= slack_kib, f"resident KiB: {before[0]} before, {after[0]} after"


def call(endpoint, count):
    """`count` calls, in all forms."""
    requests = [b"x" * 100] * 250
    ops, completions = copyrpc.OpArray(250), copyrpc.CompletionArray(250)
    ops.fill_calls(endpoint, request_bytes=100, reply_bytes_max=100)
    payload = bytes(25000)
    context = endpoint.context

    async def gather():
        await asyncio.gather(*(endpoint.acall(request, reply_bytes_max=100) for request in requests))

    for turn in range(count // 1000):
        assert len(endpoint.call_many(requests, reply_bytes_max=100)) == 250
        left = context.submit(ops, payload=payload)
        assert left == 250
        while left:
            left -= context.poll(completions)
            bytes(completions.payload(0)) if len(completions) else context.wait(1.0)
        calls = [endpoint.start(request, reply_bytes_max=100) for request in requests]
        for one in calls[:-10]:
            one.result()
        for one in calls[-10:]:
            one.cancel()
        for request in requests[:20]:
            with endpoint.call_view(request) as reply:
                bytes(reply.payload)
        if turn % 10 == 0:
            asyncio.run(gather())
        else:
            endpoint.call_many(requests[:230], reply_bytes_max=100)


def test_100_000_calls(remote):
    with copyrpc.Context() as context:
        endpoint = context.connect(remote.address)
        call(endpoint, 10_000)  # caches and rings are touched for the first time
        before, there = state(), state(remote.pid)
        call(endpoint, 100_000)
        compare(before, 2048)
        compare(there, 4096, remote.pid)
        assert endpoint.stats().calls >= 110_000 and not context._pending and not context._lent


def cycles(address, count):
    for index in range(count):
        if index % 2:
            with copyrpc.connect(address, copyrpc.EndpointOptions(ring_bytes=65536)) as endpoint:
                assert endpoint.call(b"x") == b"x"
        else:
            with copyrpc.Context() as context:
                context.connect(address, copyrpc.EndpointOptions(ring_bytes=65536)).call(b"x")


def test_1_000_connections(remote):
    cycles(remote.address, 400)  # the allocator's heaps reach their size
    before, there = state(), state(remote.pid)
    cycles(remote.address, 1000)
    compare(before, 4096)
    compare(there, 4096, remote.pid)
    assert threading.active_count() == 1


def messages(context, left, right, count):
    """`count` messages over a channel, in most forms."""
    rooms, sources = [bytearray(3000) for _ in range(50)], [bytes(2000) for _ in range(50)]

    async def gather():
        receives = [asyncio.ensure_future(right.areceive(room)) for room in rooms]
        await asyncio.gather(*(left.asend(source) for source in sources), *receives)

    for turn in range(count // 100):
        posted = [right.post_receive(room) for room in rooms]
        assert left.send_many(sources) == [transfer.wait() for transfer in posted]
        waiting = [left.post_send(source) for source in sources[:5]]
        for transfer in waiting:
            transfer.cancel()
        if turn % 10 == 0:
            asyncio.run(gather())
        else:
            group = right.post_receive(rooms[:5])
            left.send_many([bytes(100)] * 5)
            group.wait()


def test_5_000_messages(address):
    with copyrpc.Context(rails=True) as context, context.listen_channels(address) as listener:
        left = context._begin_channel(listener.address, None)
        right = listener.accept(timeout=60)
        with context._use:
            context._wait(left._settled)
        messages(context, left, right, 1000)
        before = state()
        messages(context, left, right, 5000)
        compare(before, 1024)
        assert not context._pending and not context._dropped and context.cache_info().registrations == 0


def works(context, left, right, region, count):
    """`count` ops of queues, in most forms."""
    ops = copyrpc.QueueOpArray(50)
    for index in range(50):
        ops.set(index, opcode=copyrpc.QUEUE_WRITE, region=region.bits, address=region.address, bytes=8, remote_address=region.address + 64,
                remote_key=region.remote.key)

    async def gather():
        receives = [asyncio.ensure_future(right.areceive(region[0:8])) for _ in range(20)]
        await asyncio.gather(*(left.asend(b"x") for _ in range(20)), *receives, left.asubmit_and_wait(ops))

    for turn in range(count // 100):
        left.submit_and_wait(ops)
        posted = [right.post_receive(region[0:8]) for _ in range(20)]
        for _ in range(20):
            left.send(b"x")
        for work in posted:
            work.wait()
        left.fetch_add(region.remote, 1)
        with pytest.raises(copyrpc.Timeout):
            right.receive(region[0:8], timeout=0)
        left.send(b"x")
        if turn % 10 == 0:
            asyncio.run(gather())


def test_5_000_ops_of_queues(address):
    with copyrpc.Context(queues=True) as context, context.listen_queues(address, copyrpc.QueueOptions(receives=64)) as listener:
        left = context._begin_queue(listener.address, None)
        right = listener.accept(timeout=60)
        with context._use:
            context._wait(left._settled)
        region = context.register(bytearray(4096), "local_write", "remote_write", "remote_atomic")
        works(context, left, right, region, 1000)
        before = state()
        works(context, left, right, region, 5000)
        compare(before, 1024)
        while context._pending:  # the last receive's
            context.poll(copyrpc.CompletionArray(1))
        assert not context._works
        region.close()


def lanes(left, right, region, count):
    """`count` ops of lanes, in most forms, and grants that come and go."""
    ops = copyrpc.LaneOpArray(50)

    async def gather(there):
        await asyncio.gather(*(left.awrite(region[0:8], there) for _ in range(80)), left.asubmit_and_wait(ops))

    for turn in range(count // 100):
        with right.grant(region[64:128], "rwa") as own, left.open_grant(bytes(own)) as there:
            for index in range(50):
                ops.set(index, opcode=copyrpc.LANE_WRITE, region=region.bits, address=region.address, bytes=8, grant=there.bits)
            left.submit_and_wait(ops)
            posted = [left.post_read(region[0:8], there) for _ in range(20)]
            for work in posted:
                work.wait()
            left.fetch_add(there, 1)
            call = left.start(b"x", after=True)
            right.receive(60).reply(after=True)
            call.result()
            if turn % 10 == 0:
                asyncio.run(gather(there))


def test_5_000_ops_of_lanes(address):
    from conftest import endpoints_in

    with copyrpc.Context() as context:
        left, right = endpoints_in(context, address)
        region = context.register(bytearray(4096), "local_write")
        lanes(left, right, region, 1000)
        before = state()
        lanes(left, right, region, 5000)
        compare(before, 1024)
        assert not context._pending and not context._works
        region.close()
