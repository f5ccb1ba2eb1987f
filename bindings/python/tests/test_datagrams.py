"""Queues for datagrams, and their targets; one op at a time, for coroutines, and in arrays."""
import asyncio
import threading
import time

import pytest
from conftest import data

import copyrpc

HEADER = copyrpc.HEADER_BYTES
OPTIONS = copyrpc.QueueOptions(receives=16, receive_pieces=2, send_pieces=2)


@pytest.fixture
def queues(queue_context):
    return queue_context.datagram_queue(OPTIONS), queue_context.datagram_queue(OPTIONS)


def expect_sender(source, sender):
    """Within an InfiniBand subnet, the GID does not travel: the LID (0 on Ethernet) says where it came from."""
    there, here = source.address(), sender.address()
    assert (there.queue_pair_number, there.link, there.lid) == (here.queue_pair_number, here.link, here.lid)
    assert there.gid == here.gid or there.lid


def test_a_datagram_is_answered(queue_context, queues, region):
    left, right = queues
    target = queue_context.target(right.address())
    work = right.post_receive(region[0:4096])
    region.memory[8192:8692] = data(500)
    left.send(region[8192:8692], target, immediate=7)
    received = work.wait(30)
    assert received.size == HEADER + 500 and received.immediate == 7 and received.queue is right and received.written == 0
    assert received.source.queue_pair_number == left.info().queue_pair_number and "0x" in repr(received.source)
    assert region.memory[HEADER : HEADER + 500] == data(500)
    back = left.post_receive([region[4096:4136], region[4136:5000]])
    region.memory[0:HEADER] = bytes(HEADER)  # the header was kept
    with right.target_of(received) as source:
        expect_sender(source, left)
        right.send(b"answer", source)
    answer = back.wait(30)
    assert answer.size == HEADER + 6 and region.memory[4136:4142] == b"answer"
    target.close()
    target.close()
    with pytest.raises(copyrpc.Closed):
        left.send(b"x", target)


def test_it_is_usable_at_once_and_ends_as_others_do(queue_context, queues, region):
    left, right = queues
    info = left.info()
    assert (info.kind, info.state, info.peer_number) == ("ud", "connected", 0) and info.message_bytes_max >= 1024
    target = queue_context.target(right.address())
    with pytest.raises(copyrpc.TooBig):
        left.send(region[0 : info.message_bytes_max + 1], target)
    with pytest.raises(copyrpc.Unsupported):
        left.submit(_one(copyrpc.QUEUE_NOP))
    waiting = left.post_receive(region[0:100])
    left.drain()
    with pytest.raises(copyrpc.Disconnected):
        waiting.wait(30)
    with pytest.raises(copyrpc.Disconnected):
        left.send(b"x", target)
    with right:
        right.send(b"x", target)  # to itself, where nobody receives
    assert right.error is not None


def test_a_wrong_key_loses_it(queue_context, region):
    keyed = queue_context.datagram_queue(copyrpc.QueueOptions(receives=4, queue_key=77))
    sender = queue_context.datagram_queue()
    work = keyed.post_receive(region[0:100])
    sender.send(b"lost", queue_context.target(keyed.address()))
    sender.send(b"found", queue_context.target(keyed.address(), queue_key=77))
    assert work.wait(30).size == HEADER + 5 and region.memory[HEADER : HEADER + 5] == b"found"


def test_bad_input(queue_context, queues, region, address):
    left, right = queues
    there = right.address()
    for wrong in ({"queue_pair_number": 0}, {"queue_pair_number": 1 << 24}, {"mtu_bytes": 1500}):
        values = {name: getattr(there, name) for name in there.__dataclass_fields__}
        with pytest.raises(copyrpc.ProtocolError):
            queue_context.target(copyrpc.QueueAddress(**{**values, **wrong}))
    with pytest.raises(TypeError):
        queue_context.target("10.0.0.1")
    for options in ({"queue_key": 1 << 31}, {"service_level": 16}):
        with pytest.raises(copyrpc.InvalidArgument):
            queue_context.target(there, **options)
    with pytest.raises(copyrpc.InvalidArgument):
        queue_context.datagram_queue(copyrpc.QueueOptions(private_data=b"x"))
    with pytest.raises(copyrpc.InvalidArgument):
        queue_context.queue_connect(address, copyrpc.QueueOptions(queue_key=1))
    with pytest.raises(TypeError):
        left.send(b"x", there)
    with copyrpc.Context(queues=True) as other, pytest.raises(copyrpc.InvalidArgument):
        left.send(b"x", other.target(there))
    with pytest.raises(ValueError):
        left.target_of(copyrpc.Received(10, None, None, left))
    assert left.connected


def test_receives_may_be_shared(queue_context, region):
    shared = queue_context.queue_open(copyrpc.QueueOptions(receives=8))
    right = queue_context.datagram_queue(copyrpc.QueueOptions(receive_queue=shared))
    left = queue_context.datagram_queue()
    work = shared.post_receive(region[0:100])
    left.send(b"to all", queue_context.target(right.address()))
    received = work.wait(30)
    assert received.queue is right and received.source.queue_pair_number == left.info().queue_pair_number
    assert received.written == 0
    right.target_of(received).close()


def test_a_datagram_of_a_queue_that_is_closed_has_no_source(queue_context, region):
    shared = queue_context.queue_open(copyrpc.QueueOptions(receives=8))
    right = queue_context.datagram_queue(copyrpc.QueueOptions(receive_queue=shared))
    left = queue_context.datagram_queue()
    work = shared.post_receive(region[0:100])
    left.send(b"to all", queue_context.target(right.address()))
    while not work.test():
        pass
    right.close()
    received = work.wait(30)
    assert (received.size, received.queue, received.source, received.written) == (HEADER + 6, None, None, 0)


def test_coroutines(address):
    async def main():
        async with copyrpc.Context(queues=True) as context:
            left, right = context.datagram_queue(OPTIONS), context.datagram_queue(OPTIONS)
            region = context.register(bytearray(1 << 16), "local_write")
            target = context.target(right.address())
            receives = [asyncio.ensure_future(right.areceive(region[i * 256 : i * 256 + 100])) for i in range(8)]
            await asyncio.sleep(0)
            await asyncio.gather(*(left.asend(b"number %d" % i, target) for i in range(8)))
            came = await asyncio.gather(*receives)
            assert all(one.source is not None and one.size == HEADER + 8 for one in came)
            assert {bytes(region.memory[i * 256 + HEADER : i * 256 + HEADER + 8]) for i in range(8)} == {b"number %d" % i for i in range(8)}
            await left.adrain()

    asyncio.run(main())


def _one(opcode):
    ops = copyrpc.QueueOpArray(1)
    ops.set(0, opcode=opcode)
    return ops


def test_arrays_name_targets(queue_context, queues, region):
    numpy = pytest.importorskip("numpy")
    left, right = queues
    target = queue_context.target(right.address())
    works = [right.post_receive(region[4096 + i * 128 : 4096 + i * 128 + 100]) for i in range(8)]
    ops = copyrpc.queue_ops(8)
    ops["opcode"] = copyrpc.QUEUE_SEND
    ops["target"] = target.bits
    ops["address"] = region.address + 16 * numpy.arange(8)
    ops["bytes"] = 16
    region.memory[0:128] = data(128)
    done = left.submit_and_wait(ops, region=region)
    assert not done["status"].any()
    for index, work in enumerate(works):
        assert work.wait(30).size == HEADER + 16
        assert region.memory[4096 + index * 128 + HEADER : 4096 + index * 128 + HEADER + 16] == data(128)[16 * index : 16 * index + 16]
    ops["target"] = 0
    with pytest.raises(copyrpc.InvalidArgument):
        left.submit(ops, region=region)


def test_completions_of_arrays_are_answered(queue_context, queues, region):
    numpy = pytest.importorskip("numpy")
    left, right = queues
    target = queue_context.target(right.address())
    receives = copyrpc.queue_ops(2)
    receives["opcode"], receives["user_data"] = copyrpc.QUEUE_RECEIVE, (5, 6)
    receives["address"], receives["bytes"] = region.address + 4096 * numpy.arange(1, 3), 256
    assert right.submit(receives, region=region) == 2
    works = [left.post_receive(region[8192 + place : 8448 + place]) for place in (4096, 8192)]
    left.send(b"of numpy", target)
    left.send(b"of the package", target)
    done, came = copyrpc.CompletionArray(8), []
    while len(came) < 2:
        queue_context.poll(done)
        came += [(record.copy(), completion) for record, completion in zip(done.array, done)]
    headers = [region[4096 * (completion.user_data - 4) :][:256] for _, completion in came]
    with right.target_of(came[0][0], headers[0]) as source:
        expect_sender(source, left)
        right.send(b"answer", source)
    with right.target_of(came[1][1], bytes(headers[1].memory)) as source:
        right.send(b"another", source)
    assert [work.wait(30).size for work in works] == [HEADER + 6, HEADER + 7]

    record, completion = came[0]
    for wrong in (lambda: left.target_of(completion, headers[0]), lambda: right.target_of(completion, b"too short"),
                  lambda: right.target_of(completion._replace(endpoint=0), headers[0]),
                  lambda: right.target_of(copyrpc.Received(48, None, None, right), headers[0])):
        with pytest.raises(ValueError):
            wrong()
    for wrong in (lambda: right.target_of(completion), lambda: right.target_of(tuple(completion), headers[0]),
                  lambda: right.target_of(done.array[:0], headers[0]), lambda: right.target_of(receives[0], headers[0])):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(copyrpc.InvalidArgument):  # no receive
        right.target_of(completion._replace(method=copyrpc.QUEUE_SEND), headers[0])
    if not right.address().lid:  # on InfiniBand there is no header, whose memory may hold anything
        with pytest.raises(copyrpc.ProtocolError):
            right.target_of(completion, bytes(HEADER))


def test_what_somebody_waits_for_in_an_array_is_answered(queue_context, queues, region):
    pytest.importorskip("numpy")
    left, right = queues
    receive = copyrpc.queue_ops(1)
    receive["opcode"], receive["address"], receive["bytes"] = copyrpc.QUEUE_RECEIVE, region.address, 256
    came = []
    waiter = threading.Thread(target=lambda: came.extend(right.submit_and_wait(receive, region=region)))
    waiter.start()
    while right.info().receives_open == 0:
        time.sleep(0.001)
    left.send(b"question", queue_context.target(right.address()))
    waiter.join()
    answer = left.post_receive(region[4096:8192])
    with right.target_of(came[0], region[0:256]) as back:
        right.send(b"answer", back)
    assert answer.wait(30).size == HEADER + 6
