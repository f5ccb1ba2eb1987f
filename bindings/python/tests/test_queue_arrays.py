"""Queues: arrays of ops and completions, with numpy and without, and exceptions of signal handlers among them."""
import asyncio
import contextlib
import ctypes
import random
import subprocess
import sys
import threading
import time

import pytest
from conftest import ALL_RIGHTS, queues_in
from test_interrupts import Interrupted, Storm

import copyrpc

numpy = pytest.importorskip("numpy")
HALF = 1 << 19


def writes(region, count, size=8):
    """`count` WRITEs of `size` bytes, from the first half of the region to the second."""
    ops = copyrpc.queue_ops(count)
    ops["opcode"] = copyrpc.QUEUE_WRITE
    ops["user_data"] = numpy.arange(count)
    ops["address"] = region.address + numpy.arange(count) * size
    ops["bytes"] = size
    ops["remote_address"] = region.address + HALF + numpy.arange(count) * size
    ops["remote_key"] = region.remote.key
    return ops


def fill(region, seed):
    region.memory[:HALF] = random.Random(seed).randbytes(HALF)
    region.memory[HALF:] = bytes(HALF)


def same(region, size):
    return region.memory[:size] == region.memory[HALF : HALF + size] and not any(region.memory[HALF + size :])


def kind(status):
    """The class of the exception for a status."""
    return type(copyrpc.errors.error_of(int(status))) if status else None


def test_the_types_are_the_headers():
    op, done, piece = copyrpc.queue_op_dtype, copyrpc.completion_dtype, copyrpc.piece_dtype
    assert (op.itemsize, done.itemsize, piece.itemsize) == (64, 64, 24)
    assert op.fields["remote_address"][1] == 40 and op.fields["user_data"][1] == 8 and done.fields["status"][0] == numpy.int32
    assert len(copyrpc.queue_ops(3)) == 3 and copyrpc.queue_ops(3).dtype == op
    with pytest.raises(AttributeError):
        copyrpc.no_such_dtype


@pytest.mark.parametrize("count", [0, 1, 64, 127, 128, 129, 5000])
def test_submit_and_wait(queue_pair, region, count):
    left, right = queue_pair
    fill(region, count)
    ops = writes(region, count)
    ops["user_data"] = (1 << 63) | numpy.arange(count, dtype="u8")  # here all bits are the caller's
    done = left.submit_and_wait(ops, region=region)
    assert done.dtype == copyrpc.completion_dtype and not done["status"].any() and not ops["region"].any()
    assert (done["user_data"] == ops["user_data"]).all() and (done["method"] == copyrpc.QUEUE_WRITE).all()
    assert (done["endpoint"] == left.bits).all() and same(region, count * 8)


def test_all_opcodes(queue_pair, region):
    left, right = queue_pair
    fill(region, 1)
    receives = copyrpc.queue_ops(4)
    receives["opcode"] = copyrpc.QUEUE_RECEIVE
    receives["region"] = region.bits
    receives["address"] = region.address + HALF + 4096 + numpy.arange(4) * 64
    receives["bytes"] = 64
    receives["user_data"] = 100 + numpy.arange(4)
    assert right.submit(receives) == 4
    ops = writes(region, 8)
    ops["opcode"] = [copyrpc.QUEUE_SEND, copyrpc.QUEUE_SEND_IMMEDIATE, copyrpc.QUEUE_WRITE_IMMEDIATE, copyrpc.QUEUE_READ,
                     copyrpc.QUEUE_COMPARE_SWAP, copyrpc.QUEUE_FETCH_ADD, copyrpc.QUEUE_NOP, copyrpc.QUEUE_SEND]
    ops["immediate"][1:3] = 11, 12
    ops["remote_key"][[0, 1, 6, 7]] = ops["remote_address"][[0, 1, 6, 7]] = 0
    ops["address"][4:7] = 0, 0, 0
    ops["bytes"][4:7] = 0
    ops["operand"][4:6] = 77, 3
    ops["flags"][3:7] = copyrpc.QUEUE_FENCE
    ops["remote_address"][4:6] = region.address + HALF + 1024  # 0 there: becomes 77, then 80
    pieces = numpy.zeros(3, copyrpc.piece_dtype)
    pieces["region"] = region.bits
    pieces["address"] = region.address + numpy.array([0, 100, 200])
    pieces["bytes"] = 10
    ops["flags"][7] = copyrpc.QUEUE_PIECES
    ops["address"][7], ops["bytes"][7] = 1, 2
    done = left.submit_and_wait(ops, region=region, pieces=pieces)
    assert not done["status"].any() and list(done["token"][4:6]) == [0, 77]
    completions, seen = copyrpc.CompletionArray(16), []
    while len(seen) < 4:
        left.context.poll(completions)
        seen.extend(completions)
    assert [record.user_data for record in seen] == [100, 101, 102, 103] and all(record.kind == copyrpc.COMPLETION_WORK for record in seen)
    assert [record.payload_bytes for record in seen] == [8, 8, 0, 20] and [record.reply_bytes_max for record in seen] == [0, 11, 12, 0]
    assert seen[1].flags & copyrpc.COMPLETION_IMMEDIATE and seen[1].flags & copyrpc.COMPLETION_OF_QUEUE and seen[0].flags & copyrpc.COMPLETION_DETAIL
    with pytest.raises(ValueError):
        completions.payload(0)
    assert region.memory[HALF + 4096 + 3 * 64 :][:20] == region.memory[100:110].tobytes() + region.memory[200:210].tobytes()


def test_submit_and_poll(queue_pair, region):
    left, _ = queue_pair
    fill(region, 2)
    ops = writes(region, 1000)
    completions, sent, ended = copyrpc.CompletionArray(256), 0, []
    while len(ended) < 1000:
        sent += left.submit(ops, first=sent, region=region) if sent < 1000 else 0
        left.context.poll(completions)
        assert not any(completions.column("status"))
        ended.extend(completions.column("user_data"))
    assert ended == list(range(1000)) and same(region, 8000)
    assert left.submit(ops, 0) == 0 and left.submit(ops[:0]) == 0


def test_completions_are_kept_while_others_poll(queue_pair, region):
    left, _ = queue_pair
    assert left.submit(writes(region, 20), region=region) == 20
    left.write(b"x", region.remote)  # which polls
    completions, ended = copyrpc.CompletionArray(7), []
    while len(ended) < 20:
        left.context.poll(completions)
        ended.extend(record.user_data for record in completions)
    assert ended == list(range(20))


def test_room_that_is_given(queue_pair, region):
    left, _ = queue_pair
    ops = writes(region, 100)
    room = numpy.zeros(150, copyrpc.completion_dtype)
    done = left.submit_and_wait(ops, room, region=region)
    assert done.base is room and len(done) == 100 and (room["user_data"][:100] == numpy.arange(100)).all() and not room["kind"][100:].any()
    array = copyrpc.CompletionArray(100)
    assert left.submit_and_wait(ops, array, region=region) is array and list(array.column("user_data")) == list(range(100))
    with pytest.raises(ValueError):
        left.submit_and_wait(ops, room[:99], region=region)


def test_without_numpy(queue_pair, region):
    left, _ = queue_pair
    fill(region, 3)
    ops = copyrpc.QueueOpArray(10)
    for index in range(10):
        ops.set(index, opcode=copyrpc.QUEUE_WRITE, user_data=index, region=region.bits, address=region.address + index, bytes=1,
                remote_address=region.address + HALF + index, remote_key=region.remote.key)
    done = left.submit_and_wait(ops)
    assert isinstance(done, copyrpc.CompletionArray) and [record.user_data for record in done] == list(range(10)) and same(region, 10)
    assert left.submit(ops, 3, 5) == 3
    raw = (ctypes.c_byte * 64 * 10).from_buffer_copy(ops.memory)
    with pytest.raises(TypeError):  # 10 x 64 items of a byte
        left.submit(raw)
    code = "import sys; sys.modules['numpy'] = None; import copyrpc; copyrpc.QueueOpArray(1)\ntry: copyrpc.queue_op_dtype\nexcept ImportError: print('ok')"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout == "ok\n"


def test_arrays_that_cannot_be(queue_pair, region):
    left, _ = queue_pair
    ops = writes(region, 10)
    for submit in (left.submit, left.submit_and_wait):
        for wrong in (bytes(640), None, 7, [1], ops.reshape(2, 5), numpy.zeros(10, copyrpc.completion_dtype), numpy.zeros(10), "x" * 64,
                      numpy.zeros(10, copyrpc.piece_dtype)):
            with pytest.raises(TypeError):
                submit(wrong)
        with pytest.raises(BufferError):
            submit(ops[::2])
        with pytest.raises(BufferError):
            submit(numpy.frombuffer(bytearray(644), "u1")[4:].view(copyrpc.queue_op_dtype))
        for wrong in (ops, numpy.zeros(5, "u8")):
            with pytest.raises(TypeError):
                submit(ops, pieces=wrong)
        with pytest.raises(ValueError):
            submit(ops, pieces=numpy.zeros(4097, copyrpc.piece_dtype))
        with pytest.raises(TypeError):
            submit(ops, region=region[:])
    readonly = numpy.zeros(10, copyrpc.completion_dtype)
    readonly.flags.writeable = False
    with pytest.raises(BufferError):
        left.submit_and_wait(ops, readonly, region=region)
    for wrong in ({"count": 11}, {"first": 11}, {"count": -1}, {"first": -1}, {"first": 5, "count": 6}):
        with pytest.raises(ValueError):
            left.submit(ops, **wrong)
    ops["user_data"] |= numpy.uint64(1 << 63)
    with pytest.raises(copyrpc.InvalidArgument):
        left.submit(ops, region=region)
    assert left.stats().sends == 0


def test_an_op_that_is_refused(queue_pair, region):
    left, _ = queue_pair
    ops = writes(region, 10)
    ops["opcode"][4] = 99
    done = left.submit_and_wait(ops, region=region)
    assert [kind(status) for status in done["status"]] == [None] * 4 + [copyrpc.Unsupported] + [copyrpc.Canceled] * 5
    assert (done["user_data"] == numpy.arange(10)).all() and (done["method"] == ops["opcode"]).all()
    with pytest.raises(copyrpc.Unsupported):
        left.submit_and_wait(ops[4:], region=region)
    with pytest.raises(copyrpc.Unsupported):
        left.submit(ops[4:], region=region)
    assert left.submit(ops, region=region) == 4
    with pytest.raises(copyrpc.InvalidArgument):  # no region
        left.submit_and_wait(writes(region, 1))


def test_an_op_that_fails(queue_pair, region):
    left, _ = queue_pair
    ops = writes(region, 300)
    ops["remote_key"][20] ^= 0x5555
    done = left.submit_and_wait(ops, region=region)
    assert len(done) == 300 and sorted(done["user_data"]) == list(range(300))
    status = done["status"][numpy.argsort(done["user_data"], kind="stable")]
    assert not status[:20].any() and (status[21:] < 0).all()
    assert (kind(status[20]), kind(status[21])) == (copyrpc.AccessRefused, copyrpc.Flushed)
    with pytest.raises(copyrpc.Disconnected):
        while True:
            left.submit_and_wait(ops, region=region)


def test_a_sparse_queue(queue_context, address, region):
    options = copyrpc.QueueOptions(sparse=True, sends=32)
    with queue_context.listen_queues(address) as listener:
        left, _ = queues_in(queue_context, listener, options)
    fill(region, 4)
    ops = writes(region, 500)
    done = left.submit_and_wait(ops, region=region)
    assert not done["status"].any() and len(done) == 500 and same(region, 4000)
    ops["flags"][15] = copyrpc.QUEUE_SIGNAL
    assert left.submit(ops[:16], region=region) == 16
    completions = copyrpc.CompletionArray(16)
    while not queue_context.poll(completions):
        pass
    assert [record.user_data for record in completions] == [15] and queue_context.poll(completions) == 0


def test_timeout(queue_pair, region):
    left, right = queue_pair
    ops = copyrpc.queue_ops(4)
    ops["opcode"], ops["region"], ops["address"], ops["bytes"] = copyrpc.QUEUE_RECEIVE, region.bits, region.address, 8
    with pytest.raises(copyrpc.Timeout, match="4 ops were submitted"):
        right.submit_and_wait(ops, timeout=0.05)
    assert not left.context._works
    last = right.post_receive(region[0:8])
    for index in range(5):
        left.send(b"%d" % index)
    assert last.wait().size == 1 and copyrpc.CompletionArray(1).capacity == 1
    assert left.context.poll(copyrpc.CompletionArray(8)) == 0  # nobody hears of the four


def test_threads_and_coroutines(address):
    with copyrpc.Context(queues=True) as context, context.listen_queues(address) as listener:
        region = context.register(bytearray(1 << 20), *ALL_RIGHTS)
        queues = [queues_in(context, listener, copyrpc.QueueOptions(sends=50))[0] for _ in range(3)]
        fill(region, 5)
        ops = writes(region, 3000)
        wrong = []

        def work(queue, part):
            for _ in range(20):
                done = queue.submit_and_wait(part, region=region)
                if done["status"].any() or (done["user_data"] != part["user_data"]).any():
                    wrong.append(done)

        threads = [threading.Thread(target=work, args=(queue, ops[index::3].copy())) for index, queue in enumerate(queues)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong and same(region, 24000)
        fill(region, 6)

        async def main():
            parts = [ops[index::3].copy() for index in range(3)]
            done = await asyncio.gather(*(queue.asubmit_and_wait(part, region=region) for queue, part in zip(queues, parts)))
            assert not any(one["status"].any() for one in done) and same(region, 24000)
            with pytest.raises(copyrpc.Unsupported):
                await queues[0].asubmit_and_wait(numpy.zeros(1, copyrpc.queue_op_dtype))

        asyncio.run(main())
        assert not context._works


def test_closed_meanwhile(address):
    with copyrpc.Context(queues=True) as context, context.listen_queues(address, copyrpc.QueueOptions(receives=8)) as listener:
        region = context.register(bytearray(4096), *ALL_RIGHTS)
        _, right = queues_in(context, listener)
        _, other = queues_in(context, listener)
        ops = copyrpc.queue_ops(4)
        ops["opcode"], ops["region"], ops["address"], ops["bytes"] = copyrpc.QUEUE_RECEIVE, region.bits, region.address, 8
        ended = []

        def wait(queue):
            try:
                ended.append(queue.submit_and_wait(ops)["status"])
            except BaseException as error:
                ended.append(error)

        def begin(queue):
            thread = threading.Thread(target=wait, args=(queue,))
            thread.start()
            while queue.info().receives_open != 4:
                pass
            return thread

        thread = begin(right)
        right.close()
        thread.join(60)
        assert [kind(status) for status in ended[0]] == [copyrpc.Closed] * 4
        thread = begin(other)
        context.close()
        thread.join(60)
        assert isinstance(ended[1], copyrpc.Closed)


def test_close_completes_what_was_submitted(queue_pair, region):
    _, right = queue_pair
    ops = copyrpc.queue_ops(40)
    ops["opcode"], ops["region"], ops["address"], ops["bytes"] = copyrpc.QUEUE_RECEIVE, region.bits, region.address, 8
    ops["user_data"] = numpy.arange(40)
    assert right.submit(ops) == 40
    right.close()
    completions, ended = copyrpc.CompletionArray(16), []
    while len(ended) < 40:
        right.context.poll(completions)
        ended.extend(completions)
    assert sorted(record.user_data for record in ended) == list(range(40))
    assert {kind(record.status) for record in ended} == {copyrpc.Closed} and {record.endpoint for record in ended} == {right.bits}
    with pytest.raises(copyrpc.Closed):
        right.submit(ops)
    with pytest.raises(copyrpc.Closed):
        right.submit_and_wait(ops)


def test_the_region_of_an_array_stays(queue_pair, region):
    left, right = queue_pair
    ops = copyrpc.queue_ops(1)
    ops["opcode"], ops["address"], ops["bytes"] = copyrpc.QUEUE_RECEIVE, region.address, 8
    ended = []
    thread = threading.Thread(target=lambda: ended.append(right.submit_and_wait(ops, region=region)))
    thread.start()
    while right.info().receives_open != 1:
        pass
    with pytest.raises(copyrpc.InvalidArgument, match="array of ops"):
        region.close()
    left.send(b"x")
    thread.join(60)
    assert ended[0]["payload_bytes"][0] == 1
    region.close()


def additions(region):
    """200 that add 1 to the region's first 8 bytes."""
    ops = copyrpc.queue_ops(200)
    ops["opcode"], ops["remote_key"], ops["remote_address"], ops["operand"] = copyrpc.QUEUE_FETCH_ADD, region.remote.key, region.address, 1
    ops["user_data"] = numpy.arange(200)
    return ops


def test_a_storm(queue_context, address):
    """Each write adds one to what is there; how many were submitted is known, and none may come twice or be lost."""
    region = queue_context.register(bytearray(1 << 20), *ALL_RIGHTS)
    with queue_context.listen_queues(address, copyrpc.QueueOptions(receives=64)) as listener:
        left, right = queues_in(queue_context, listener, copyrpc.QueueOptions(sends=32))
    ops = additions(region)
    rounds = 0
    with Storm() as storm:
        while not storm.over():
            rounds += 1
            with contextlib.suppress(Interrupted):
                if rounds % 3 == 0:
                    done = left.submit_and_wait(ops)
                    assert not done["status"].any() and (done["user_data"] == numpy.arange(200)).all()
                elif rounds % 3 == 1:
                    left.fetch_add(region.remote, 1)
                else:
                    try:
                        work = right.post_receive(region[8:16])
                    except copyrpc.NoRoom:  # of those whose message was cut
                        left.send(b"x")
                        continue
                    left.send(b"x")
                    work.wait()
    done = left.submit_and_wait(ops)  # all before it have ended
    assert not done["status"].any() and (numpy.diff(done["token"].astype("i8")) == 1).all()
    sends = right.stats().receives - right.info().receives_open  # those that have come
    assert int.from_bytes(region.memory[0:8], "little") == left.stats().sends - sends
    for _ in range(right.info().receives_open):  # those whose wait was cut are still there
        left.send(b"x")
    deadline = time.monotonic() + 60
    while queue_context._pending and time.monotonic() < deadline:
        queue_context.poll(copyrpc.CompletionArray(1))
    assert not queue_context._pending
    assert not queue_context._works and not queue_context._followers and queue_context._leader is None


def test_a_storm_on_an_event_loop(address):
    """The same with coroutines, of which some are cancelled."""

    async def main(context, left, region):
        loop = asyncio.get_running_loop()
        strange = []
        loop.set_exception_handler(
            lambda loop, about: None if isinstance(about.get("exception"), Interrupted) else strange.append(about)
        )
        ops = additions(region)

        async def work(name):
            rounds = 0
            while not storm.over():
                rounds += 1
                with contextlib.suppress(Interrupted, asyncio.CancelledError):
                    if name == 0:
                        done = await left.asubmit_and_wait(ops)
                        assert not done["status"].any() and (done["user_data"] == ops["user_data"]).all()
                    elif rounds % 4:
                        await left.afetch_add(region.remote, 1)
                    else:
                        task = asyncio.ensure_future(left.afetch_add(region.remote, 1))
                        await asyncio.sleep(0)
                        task.cancel()
                        await task

        with Storm() as storm:
            await asyncio.gather(*map(work, range(8)))
        done = await left.asubmit_and_wait(ops)
        assert not done["status"].any() and (numpy.diff(done["token"].astype("i8")) == 1).all()
        assert int.from_bytes(region.memory[0:8], "little") == left.stats().sends
        assert not strange and not context._pending and not context._works and not context._attachment.waiters

    with copyrpc.Context(queues=True) as context:
        region = context.register(bytearray(4096), *ALL_RIGHTS)
        with context.listen_queues(address) as listener:
            left, _ = queues_in(context, listener, copyrpc.QueueOptions(sends=32))
        asyncio.run(main(context, left, region))
