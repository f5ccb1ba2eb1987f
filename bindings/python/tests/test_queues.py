"""Queues: how they begin and end, messages, the peer's memory, one op at a time; in the forms for threads and for coroutines."""
import asyncio
import os
import signal
import struct
import subprocess
import sys
import threading

import pytest
from conftest import ALL_RIGHTS, STRICT_PYTHON, data, queues_in, until

import copyrpc
from copyrpc._native import ffi

U64 = struct.Struct("<Q")


# ---- Beginning ----


def test_without_queues(address):
    with copyrpc.Context() as context:
        for attempt in (lambda: context.listen_queues(address), lambda: context.queue_connect(address), context.queue_blob,
                        lambda: context.queue_open(copyrpc.QueueOptions(receives=1))):
            with pytest.raises(copyrpc.InvalidArgument) as caught:
                attempt()
            assert caught.value.status_name == "CRPC_E_STATE"


def test_private_data_and_info(queue_context, address):
    with queue_context.listen_queues(address) as listener:
        left = queue_context._begin_queue(address, copyrpc.QueueOptions(private_data=b"who am I", sends=10))
        asking = listener.next_connection(60)
        assert asking.private_data.rstrip(b"\0") == b"who am I" and asking.peer_address
        right = asking.accept(copyrpc.QueueOptions(private_data=b"come in", receives=7))
        with queue_context._use:
            left._settle(0, "connect")
        here, there = left.info(), right.info()
        assert here.private_data.rstrip(b"\0") == b"come in"
        assert (here.state, here.kind, here.sends >= 10, here.receives) == ("connected", "rc", True, 0)
        assert here.peer_number == there.queue_pair_number and there.receives >= 7 and there.message_bytes_max > 1 << 20
        assert listener.counts()[0] >= 1
        with pytest.raises(copyrpc.InvalidArgument):
            asking.reject()


def test_descriptions_have_the_headers_fields():
    fields = {name for name, _ in ffi.typeof("crpc_queue_info").fields}
    infos = {name + "_ns" if name == "not_ready_wait" else name for name in copyrpc.QueueInfo.__dataclass_fields__}
    assert fields - {"struct_size", "user_data", "private_bytes", "receive_queue"} == infos
    fields = {name for name, _ in ffi.typeof("crpc_queue_options").fields} - {"struct_size", "user_data", "private_bytes", "kind", "flags"}
    fields -= {"reserved"}
    options = {name + "_ns" if name == "connect_timeout" else name for name in copyrpc.QueueOptions.__dataclass_fields__}
    assert fields == options - {"sparse", "sequence_zero"}  # which are flags there


def test_rejected(queue_context, address):
    with queue_context.listen_queues(address) as listener:
        left = queue_context._begin_queue(address, None)
        asking = listener.next_connection(60)
        with pytest.raises(ValueError):
            asking.reject(b"x" * 149)
        asking.reject(b"not you")
        with pytest.raises(copyrpc.InvalidArgument):
            asking.accept()
        with pytest.raises(copyrpc.Refused) as caught, queue_context._use:
            left._settle(0, "connect")
        assert caught.value.private_data.rstrip(b"\0") == b"not you"
        assert isinstance(left.error, copyrpc.Refused)
    with pytest.raises(copyrpc.Closed):
        listener.accept()


def test_nobody_listens(queue_context, address):
    with pytest.raises((copyrpc.Refused, copyrpc.Unreachable)):
        queue_context.queue_connect(address, timeout=60)


@pytest.mark.parametrize("wrong", [{"sends": 8193}, {"receives": 8193}, {"send_pieces": 17}, {"inline_bytes": 513}, {"retry_count": 8},
                                   {"retry_timeout": 32}, {"not_ready_retry_count": 8}, {"reads_max": 17}, {"private_data": bytes(57)},
                                   {"private_data": bytes(197)}, {"receive_pieces": 2}])
def test_options_that_cannot_be(queue_context, address, wrong):
    with pytest.raises(ValueError):
        queue_context.queue_connect(address, copyrpc.QueueOptions(**wrong))
    for attempt in (lambda: queue_context.queue_connect(address, copyrpc.EndpointOptions()), lambda: queue_context.queue_connect(7),
                    lambda: queue_context.queue_connect(address, copyrpc.QueueOptions(private_data="text")),
                    lambda: queue_context.queue_connect(address, copyrpc.QueueOptions(receive_queue=7))):
        with pytest.raises(TypeError):
            attempt()


def test_blobs_and_addresses(queue_context, region):
    options = copyrpc.QueueOptions(receives=4)
    left, one = queue_context.queue_blob(options)
    right, other = queue_context.queue_blob(options)
    received = right.post_receive(region[0:10])
    with pytest.raises(copyrpc.InvalidArgument):  # not connected yet
        left.post_send(b"x")
    with pytest.raises(copyrpc.ProtocolError):
        left.join(one[:-1])
    left.join(other, timeout=60)
    right.join(one, timeout=60)
    left.send(b"by blob")
    assert received.wait().size == 7
    left, right = (queue_context.queue_blob(options)[0] for _ in range(2))
    with pytest.raises(TypeError):
        left.join_address(7)
    left.join_address(right.address(), timeout=60)
    right.join_address(left.address(), timeout=60)
    received = right.post_receive(region[0:10])
    left.send(b"by address")
    assert received.wait().size == 10 and region.memory[0:10] == b"by address"


def test_the_first_sequence_number_can_be_zero(queue_context, region):
    left, right = (queue_context.queue_blob(copyrpc.QueueOptions(receives=4, sequence_zero=zero))[0] for zero in (True, False))
    there = right.address()
    assert left.address().packet_sequence_number == 0
    # All that a peer knows which is not told the number.
    here = copyrpc.QueueAddress(left.address().queue_pair_number, 0, there.link, there.mtu_bytes, there.lid, left.address().gid)
    left.join_address(there, timeout=60)
    right.join_address(here, timeout=60)
    received = right.post_receive(region[0:10])
    left.send(b"number 0")
    assert received.wait().size == 8 and region.memory[0:8] == b"number 0"
    for attempt in (queue_context.datagram_queue, queue_context.queue_open):
        with pytest.raises(copyrpc.InvalidArgument, match="RC queues alone"):
            attempt(copyrpc.QueueOptions(receives=4, sequence_zero=True))


# ---- Messages ----


def test_messages(queue_pair, region):
    left, right = queue_pair
    region.memory[:3000] = data(3000)
    work = right.post_receive(region[4096:8192])
    left.send(region[:3000])
    assert work.wait(60) == copyrpc.Received(3000, None, None, right) and region.memory[4096:7096] == data(3000)
    work = right.post_receive(region.memory[4096:8192])  # a buffer that lies in the region
    left.send(b"inline", immediate=0xFEDCBA98, solicited=True, fence=True)
    assert work.wait() == copyrpc.Received(6, 0xFEDCBA98, None, right) and bytes(region[4096:4102].memory) == b"inline"
    work = right.post_receive([region[4096:4100], region[5000:6000]])
    left.send([b"ab", b"", b"cdef"])
    assert work.wait().size == 6 and region.memory[4096:4100] == b"abcd" and region.memory[5000:5002] == b"ef"
    work = right.post_receive([region[4096:4100], region[5000:6000]])
    left.send([region[0:3], region[10:13]])
    assert work.wait().size == 6 and region.memory[4096:4100] == data(3000)[0:3] + data(3000)[10:11]
    work = right.post_receive(region[0:0])
    assert not work.done() and "under way" in repr(work)
    left.send(b"")
    assert work.wait().size == 0 and work.test() and left.stats().sends == 5 and right.stats().receives == 5


def test_the_peers_memory(queue_pair, region):
    left, right = queue_pair
    region.memory[:1000] = data(1000)
    there = region[65536:].remote
    assert there == region.remote.at(65536)
    left.write(region[:1000], there)
    assert region.memory[65536:66536] == data(1000)
    left.write(b"small", there.at(8))
    left.write([region[0:3], region[5:9]], there.at(16))
    assert left.read(region[4096:5096], there) == 1000
    assert region.memory[4096:5096] == data(1000)[:8] + b"small" + data(1000)[13:16] + data(1000)[0:3] + data(1000)[5:9] + data(1000)[23:]
    work = right.post_receive(region[0:0])
    left.write(region[:500], there, immediate=7)
    assert work.wait() == copyrpc.Received(0, 7, None, right, written=500)  # nothing of it is in the buffer
    region.memory[65536:65544] = U64.pack(40)
    assert left.fetch_add(there, 2) == 40 and left.compare_swap(there, 41, 7) == 42 and left.compare_swap(there, 42, (1 << 64) - 1) == 42
    assert left.fetch_add(there, 1) == (1 << 64) - 1 and U64.unpack(region.memory[65536:65544]) == (0,)


def test_works_that_are_posted(queue_pair, region):
    left, right = queue_pair
    there = region.remote.at(1 << 16)
    region.memory[1 << 16 : (1 << 16) + 8] = bytes(8)
    works = [left.post_write(b"x" * 8, there.at(8)), left.post_read(region[0:8], there.at(8)), left.post_fetch_add(there, 5, fence=True),
             left.post_compare_swap(there, 5, 6, fence=True)]
    assert [work.wait() for work in works] == [None, 8, 0, 5] and region.memory[0:8] == b"x" * 8
    with pytest.raises(copyrpc.NoRoom):
        for _ in range(1000):
            works.append(right.post_receive(region[0:8]))
    assert 64 <= len(works) - 4 <= 256


def test_more_than_there_is_room_for(queue_pair, region):
    """Blocking forms wait for room; nothing is lost, nothing comes twice."""
    left, right = queue_pair
    errors = []

    def send(seed):
        try:
            for index in range(50):
                left.send(bytes([seed, index]))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    seen = []
    for index in range(200):
        at = region[index * 2 : index * 2 + 2]
        assert right.receive(at).size == 2
        seen.append(tuple(at.memory))
    for thread in threads:
        thread.join(60)
    assert not errors and sorted(seen) == [(seed, index) for seed in range(4) for index in range(50)]
    assert [index for seed, index in seen if seed == 2] == list(range(50))


def test_a_shared_receive_queue(queue_context, address, region):
    shared = queue_context.queue_open(copyrpc.QueueOptions(receives=32))
    assert shared.connected and shared.info().kind == "srq" and shared.info().receives >= 32
    with queue_context.listen_queues(address, copyrpc.QueueOptions(receive_queue=shared)) as listener:
        pairs = [queues_in(queue_context, listener) for _ in range(3)]
    works = [shared.post_receive(region[index * 8 : index * 8 + 8]) for index in range(3)]
    for index, (left, _) in enumerate(pairs):
        left.send(b"from %d" % index, immediate=index)
    results = [work.wait() for work in works]
    assert {result.immediate: result.queue for result in results} == {index: right for index, (_, right) in enumerate(pairs)}
    assert shared.info().queues == 3
    assert queue_context.info().queues == 7 and queue_context.info().queues_max == 256
    with pytest.raises(copyrpc.InvalidArgument) as caught:
        shared.close()
    assert caught.value.status_name == "CRPC_E_BUSY" and shared.connected
    left_over = shared.post_receive(region[0:8])
    for left, right in pairs:
        left.close()
        right.close()
    shared.close()
    with pytest.raises(copyrpc.Closed):
        left_over.wait()
    with pytest.raises(copyrpc.Closed):
        queue_context.queue_blob(copyrpc.QueueOptions(receive_queue=shared))


def test_a_sparse_queue(queue_context, address, region):
    options = copyrpc.QueueOptions(sparse=True, receives=8)
    with queue_context.listen_queues(address, options) as listener:
        left, right = queues_in(queue_context, listener, options)
    work = right.post_receive(region[0:8])
    left.send(b"x")
    assert work.wait().size == 1 and left.read(region[0:8], region.remote) == 8


# ---- Ends ----


def test_flushed_when_the_queue_fails(queue_pair, region):
    left, right = queue_pair
    waiting = [right.post_receive(region[0:8]) for _ in range(3)]
    here = [left.post_receive(region[0:8])]
    left.fail()
    for work in waiting + here:
        with pytest.raises(copyrpc.Flushed) as caught:
            work.wait(60)
        assert isinstance(caught.value, copyrpc.Disconnected) and caught.value.errno
    for queue in (left, right):
        with queue._pump._use:
            queue._pump._wait(queue._over)
        with pytest.raises(copyrpc.Disconnected):
            queue.send(b"x")
        with pytest.raises(copyrpc.Disconnected):
            queue.fail()
    assert left.stats().receives == 1


def test_drain(queue_pair, region):
    left, right = queue_pair
    received, never = right.post_receive(region[0:8]), right.post_receive(region[0:8])
    sent = left.post_send(b"last")
    left.drain(60)
    assert sent.wait() is None and received.wait().size == 4
    with pytest.raises(copyrpc.Flushed):
        never.wait(60)
    with pytest.raises(copyrpc.Disconnected):
        left.send(b"x")
    left.drain()
    left.close()
    left.close()


def test_close_ends_what_is_open(queue_pair, region):
    left, right = queue_pair
    works = [right.post_receive(region[0:8]) for _ in range(10)]
    right.close()
    for work in works:
        assert work.done()
        with pytest.raises(copyrpc.Closed):
            work.wait()
    with pytest.raises(copyrpc.Closed):
        right.info()
    assert not right._open_works() and "ended" in repr(right)


def test_closing_the_context_ends_what_is_open(address):
    context = copyrpc.Context(queues=True)
    region = context.register(bytearray(4096), "local_write")
    with context.listen_queues(address, copyrpc.QueueOptions(receives=4)) as listener:
        _, right = queues_in(context, listener)
    work = right.post_receive(region[:])
    context.close()
    with pytest.raises(copyrpc.Closed):
        work.wait()
    with pytest.raises(copyrpc.Closed):
        right.receive(region[:])


def test_leaving_a_with_block(queue_context, address, region):
    with queue_context.listen_queues(address, copyrpc.QueueOptions(receives=4)) as listener:
        left, right = queues_in(queue_context, listener)
    work = right.post_receive(region[0:8])
    with left:
        left.post_send(b"bye")
    assert work.wait(60).size == 3 and not left.connected


# ---- What goes wrong ----


def test_the_peers_device_refuses(queue_context, address, region):
    other = queue_context.register(bytearray(4096), "local_write", "remote_read")
    for attempt in (lambda left: left.write(b"x", other.remote), lambda left: left.read(region[0:8], copyrpc.Remote(0x1000, 0x123456)),
                    lambda left: left.read(region[0:16], other.remote.at(4088)), lambda left: left.fetch_add(other.remote, 1)):
        with queue_context.listen_queues(address) as listener:
            left, right = queues_in(queue_context, listener)
        with pytest.raises(copyrpc.AccessRefused) as caught:
            attempt(left)
        assert isinstance(caught.value, PermissionError) and caught.value.errno and "peer" in caught.value.message
        with queue_context._use:
            queue_context._wait(left._over)
        with pytest.raises(copyrpc.Disconnected):
            left.write(b"x", region.remote)
        assert left.error is not None
        left.close()
        right.close()


def test_nobody_receives(queue_context, address, region):
    with queue_context.listen_queues(address) as listener:
        left, _ = queues_in(queue_context, listener, copyrpc.QueueOptions(not_ready_retry_count=1))
        first, second = left.post_send(b"x"), left.post_send(b"y")
        with pytest.raises(copyrpc.NotReady):
            first.wait(60)
        with pytest.raises(copyrpc.Flushed):
            second.wait(60)


def test_too_short_a_receive(queue_pair, region):
    left, right = queue_pair
    work = right.post_receive(region[0:4])
    with pytest.raises(copyrpc.CopyrpcError):
        left.send(b"12345")
    with pytest.raises(copyrpc.TruncatedError):
        work.wait(60)


def test_memory_that_cannot_be(queue_pair, queue_context, region):
    left, right = queue_pair
    outside = bytearray(100)
    there = region.remote
    readonly = queue_context.register(bytearray(100))
    with pytest.raises(copyrpc.InvalidArgument, match="region with local_write"):
        right.post_receive(outside)
    with pytest.raises(copyrpc.InvalidArgument, match="region with local_write"):
        left.read(readonly.memory, there)
    with pytest.raises(copyrpc.InvalidArgument):
        left.read(readonly[:], there)
    with pytest.raises(copyrpc.TooBig, match="inline_bytes"):
        left.send(bytes(1000))
    with pytest.raises(copyrpc.TooBig):
        left.send([b"x"] * 5)
    for wrong in ("text", None, 7, object()):
        with pytest.raises(TypeError):
            left.send(wrong)
    for wrong in ([], [region] * 17):
        with pytest.raises(ValueError):
            left.send(wrong)
    for wrong in (7, None, "there", (1, 2, 3)):
        with pytest.raises(TypeError):
            left.write(b"x", wrong)
    with pytest.raises(ValueError):
        left.send(b"x", immediate=1, invalidate=2)
    with pytest.raises(ValueError):
        left.send(b"x", immediate=1 << 32)
    with pytest.raises(copyrpc.InvalidArgument):
        left.fetch_add(there.at(4), 1)
    for wrong in (slice(0, (1 << 20) + 1), slice(0, 10, 2), slice(-1, None), slice(5, 4)):
        with pytest.raises(ValueError):
            region[wrong]
    with pytest.raises(TypeError):
        region[5]
    with copyrpc.Context(queues=True) as other, pytest.raises(copyrpc.InvalidArgument, match="another context"):
        left.send(other.register(bytearray(10))[:])
    closed = queue_context.register(bytearray(10))
    closed.close()
    with pytest.raises(copyrpc.Closed):
        left.send(closed[:])
    work = right.post_receive(region[0:8])
    left.send(b"goes on")
    assert work.wait().size == 7


def test_a_region_in_use_stays(queue_pair, queue_context):
    left, right = queue_pair
    mine = queue_context.register(bytearray(100), *ALL_RIGHTS)
    work = right.post_receive(mine[0:50])
    with pytest.raises(copyrpc.InvalidArgument, match="uses this memory"):
        mine.close()
    left.send(b"x")
    assert work.wait().size == 1
    mine.close()


def test_timeout_and_interrupt_leave_the_op(queue_pair, region):
    left, right = queue_pair
    with pytest.raises(copyrpc.Timeout):
        right.receive(region[0:8], timeout=0.05)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(KeyboardInterrupt):
        right.receive(region[8:16])
    signal.signal(signal.SIGALRM, before)
    third = right.post_receive(region[16:24])
    for index in range(3):
        left.send(b"%d" % index)
    assert third.wait().size == 1 and bytes(region.memory[0:24:8]) == b"012"
    assert not right._open_works() and not queue_pair[0]._pump._pending


def test_another_program_is_killed(queue_context, address, region):
    code = """
import copyrpc, sys
with copyrpc.Context(queues=True) as context:
    queue = context.queue_connect(sys.argv[1], copyrpc.QueueOptions(connect_timeout=60))
    queue.send(b"ready")
    sys.stdin.read()
"""
    with queue_context.listen_queues(address, copyrpc.QueueOptions(receives=4)) as listener:
        process = subprocess.Popen([sys.executable, "-c", code, address], stdin=subprocess.PIPE)
        queue = listener.accept(timeout=60)
        assert queue.receive(region[0:8]).size == 5
        work = queue.post_receive(region[0:8])
        process.kill()
        process.wait(60)
        process.stdin.close()
        with pytest.raises(copyrpc.Disconnected):
            work.wait(60)


# ---- Coroutines ----


def test_coroutines(address):
    async def main():
        with copyrpc.Context(queues=True) as context, context.listen_queues(address, copyrpc.QueueOptions(receives=64)) as listener:
            region = context.register(bytearray(1 << 16), *ALL_RIGHTS)
            left, right = await asyncio.gather(context.aqueue_connect(address, copyrpc.QueueOptions(receives=1)), listener.aaccept())
            before = left.stats().doorbells
            receives = [asyncio.ensure_future(right.areceive(region[index * 8 : index * 8 + 8])) for index in range(64)]
            await asyncio.gather(*(left.asend(b"%d" % index) for index in range(64)))
            assert [result.size for result in await asyncio.gather(*receives)] == [len(str(index)) for index in range(64)]
            assert left.stats().doorbells - before <= 4  # all of one turn; the verbs driver posts 16 at a time
            there = region.remote.at(1 << 15)
            await left.awrite(b"x" * 8, there)
            assert await left.aread(region[0:8], there) == 8 and region.memory[0:8] == b"x" * 8
            await left.awrite(bytes(8), there)
            assert await left.afetch_add(there, 5) == 0 and await left.acompare_swap(there, 5, 6) == 5
            # 500 writes, for which there is no room at once.
            await asyncio.gather(*(left.awrite(bytes([index & 255]), there.at(index)) for index in range(500)))
            assert bytes(region.memory[1 << 15 : (1 << 15) + 500]) == bytes(index & 255 for index in range(500))
            task = asyncio.ensure_future(right.areceive(region[0:8]))
            await until(lambda: right._open_works())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await left.asend(b"there")
            await until(lambda: not right._open_works())
            assert region.memory[0:5] == b"there"
            task = asyncio.ensure_future(right.areceive(region[0:8]))
            await until(lambda: right._open_works())
            await left.adrain(60)
            with pytest.raises(copyrpc.Flushed):
                await task

    asyncio.run(main())


def test_documentation():
    """The section's programs, as they are printed."""
    with open(os.path.join(os.environ["TEST_SOURCE"], "docs/python.md")) as file:
        section = file.read().split("## Queues")[1].split("\n## ")[0]
    for part in section.split("```python")[1:]:
        done = subprocess.run([*STRICT_PYTHON, "-c", part.split("```")[0]], stdout=subprocess.PIPE, text=True, timeout=60)
        told = [line.split("# ")[-1] for line in part.split("```")[0].splitlines() if line.strip().startswith("print(")]
        assert done.returncode == 0 and sorted(done.stdout.splitlines()) == sorted(told) != []
