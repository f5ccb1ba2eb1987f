"""Arenas: memory that a side lends, where payloads from the peer's regions land."""
import asyncio
import gc
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from conftest import endpoints_in

import copyrpc
from copyrpc import _pump

PLACE = 1 << 16
PLAIN = copyrpc.EndpointOptions()


@pytest.fixture
def context():
    with copyrpc.Context() as context:
        yield context


@pytest.fixture
def ends(context, address):
    return endpoints_in(context, address, PLAIN, PLAIN)


@pytest.fixture
def source(context):
    return context.register(bytearray(index * 7 % 251 for index in range(2 * PLACE)))


@pytest.fixture
def memory(context):
    return context.register(bytearray(4 * PLACE + 16), "local_write")


def tell(ends):
    """The left end has heard of all that the right one lends and has given back when this returns."""
    left, right = ends
    call = left.start(b"")
    with right.receive(60) as request:
        request.reply(b"")
    call.result(60)


def lend(ends, part, place_bytes=PLACE):
    ends[1].lend(part, place_bytes)
    tell(ends)


def test_a_request_stays_until_it_is_released(ends, source, memory):
    left, right = ends
    lend(ends, memory[: 4 * PLACE])
    calls = [left.start(source[i : i + 5000]) for i in range(3)]
    requests = [right.receive(60) for _ in calls]
    for _ in range(5):  # other polls
        other = left.start(b"other")
        with right.receive(60) as request:
            assert type(request) is copyrpc.Request
            request.reply(bytes(request))
        assert other.result(60) == b"other"
    for i, request in enumerate(requests):
        assert isinstance(request, copyrpc.PlacedRequest)
        assert request.payload == source.memory[i : i + 5000]
        assert request.place.memory == source.memory[i : i + 5000]
        request.reply(b"done")
        request.release()
        request.release()
        with pytest.raises(copyrpc.Closed):
            request.payload
    assert [call.result(60) for call in calls] == [b"done"] * 3


def test_places_are_used_again(ends, source, memory):
    left, right = ends
    lend(ends, memory[: 2 * PLACE])
    places = set()
    for i in range(20):
        call = left.start(source[i : i + 5000])
        with right.receive(60) as request:
            places.add(request.place.address)
            assert numpy.array_equal(numpy.frombuffer(request.payload, "u1"), source.memory[i : i + 5000])
            request.reply(b"")
        call.result(60)
    assert len(places) <= 2


def test_without_a_free_place(ends, source, memory):
    left, right = ends
    lend(ends, memory[:PLACE])
    first = left.start(source[:5000])
    held = right.receive(60)
    second = left.start(source[1:5001])
    with right.receive(60) as request:
        assert type(request) is copyrpc.Request and request.payload == source.memory[1:5001]
        request.reply(b"2")
    assert second.result(60) == b"2" and held.payload == source.memory[:5000]
    held.reply(b"1")
    assert first.result(60) == b"1"


def test_what_nobody_looks_at_any_more_is_given_back(ends, source, memory):
    left, right = ends
    lend(ends, memory[:PLACE])
    for i in range(3):
        call = left.start(source[i : i + 5000])
        request = right.receive(60)
        assert isinstance(request, copyrpc.PlacedRequest)
        request.reply(b"")
        del request
        gc.collect()
        call.result(60)
        tell(ends)
    call = left.start(source[:5000])
    request = right.receive(60)
    request.reply(b"")
    array = numpy.frombuffer(request.payload, "u1")
    del request  # the array looks at it: the place is not given back
    gc.collect()
    call.result(60)
    tell(ends)
    call = left.start(source[9:5009])
    with right.receive(60) as request:
        assert type(request) is copyrpc.Request
        request.reply(b"")
    assert bytes(array) == bytes(source.memory[:5000])
    call.result(60)


def test_a_request_longer_than_the_ring(context, address, memory):
    left, right = endpoints_in(context, address, copyrpc.EndpointOptions(ring_bytes=1 << 16), copyrpc.EndpointOptions(ring_bytes=1 << 16))
    source = context.register(bytearray(index % 249 for index in range(3 * PLACE)))
    with pytest.raises(copyrpc.TooBig):
        left.call(source[:])
    lend((left, right), memory[: 3 * PLACE], 3 * PLACE)
    call = left.start(source[:])
    with right.receive(60) as request:
        assert request.payload == source.memory
        request.reply(b"long")
    assert call.result(60) == b"long"


async def ends_with_one_place(client, server, address):
    """Of two contexts. The server's peer has heard of an arena with one place, without which the ring is too short."""
    options = copyrpc.EndpointOptions(ring_bytes=1 << 16, keepalive=None)
    with server.listen(address, auto_accept=False) as listener:
        connecting = asyncio.ensure_future(client.aconnect(listener.address, options))
        right = await (await listener.anext_connection()).aaccept(options)
        left = await connecting
    right.lend(server.register(bytearray(3 * PLACE), "local_write")[:], 3 * PLACE)
    heard = asyncio.ensure_future(left.acall(b""))
    (await right.areceive()).reply(b"")
    await heard
    return left, right, client.register(bytearray(index % 249 for index in range(3 * PLACE)))


# The place is released where nothing else has the server poll: both sides sleep, and no keepalive wakes them.


def test_who_waits_for_a_place_hears_of_it(address):
    async def run(client, server):
        left, right, source = await ends_with_one_place(client, server, address)
        first = asyncio.ensure_future(left.acall(source[:]))
        request = await right.areceive()
        request.reply(b"1")
        assert await first == b"1"
        second = asyncio.ensure_future(left.acall(source[:], timeout=60))
        received = asyncio.ensure_future(right.areceive())
        await asyncio.sleep(0.1)
        request.release()
        await asyncio.wait([second, received], return_when=asyncio.FIRST_COMPLETED)
        with await asyncio.wait_for(received, 1) as request:
            assert request.payload == source.memory
            request.reply(b"2")
        assert await second == b"2"

    with copyrpc.Context() as client, copyrpc.Context() as server:
        asyncio.run(run(client, server))


def test_who_waits_for_a_place_hears_of_it_from_another_thread(address, monkeypatch):
    monkeypatch.setattr(_pump, "_SLEEP_NS_MAX", 600_000_000_000)
    with copyrpc.Context() as client, copyrpc.Context() as server, ThreadPoolExecutor(2) as threads:
        left, right, source = asyncio.run(ends_with_one_place(client, server, address))
        first = threads.submit(left.call, source[:])
        held = right.receive(60)
        held.reply(b"1")
        assert first.result(60) == b"1"
        second = threads.submit(left.call, source[:], timeout=60)
        received = threads.submit(right.receive, 60)
        time.sleep(0.1)
        held.release()
        with received.result() as request:
            assert request.payload == source.memory
            request.reply(b"2")
        assert second.result(60) == b"2"


@pytest.mark.parametrize("count", [1, 50])
def test_answers(ends, source, memory, count):
    left, right = ends
    lend((right, left), memory[: 2 * PLACE])
    for i in range(count):
        call = left.start(b"", reply_bytes_max=PLACE)
        with right.receive(60) as request:
            sent = request._reply_from(source[i : i + 60000], 0, False)
        assert call.result(60) == bytes(source.memory[i : i + 60000])
        right._pump._wait(sent.done)


def test_an_answer_to_an_array_that_another_poll_has_found(ends, source, memory):
    """It is kept for the array, and says where the payload lies, which stays there."""
    left, right = ends
    lend((right, left), memory[:PLACE])
    ops, completions = copyrpc.OpArray(1), copyrpc.CompletionArray(1)
    ops.set(0, opcode=copyrpc.OP_CALL, endpoint=left.bits, reply_bytes_max=PLACE)
    assert left.context.submit(ops) == 1
    with right.receive(60) as request:
        request.reply(source[:5000])
    tell(ends)
    assert left.context.poll(completions) == 1
    (answer,) = completions
    assert answer.flags & copyrpc.COMPLETION_PLACED and answer.payload == memory.address
    assert completions.payload(0) == source.memory[:5000]
    left.give_back(answer.payload)


def test_coroutines(ends, source, memory):
    left, right = ends
    lend(ends, memory[: 4 * PLACE])

    async def answer(request):
        assert isinstance(request, copyrpc.PlacedRequest)
        await asyncio.sleep(0)
        return bytes(request.payload[:10])

    async def run():
        serving = asyncio.ensure_future(right.aserve(answer))
        answers = await asyncio.gather(*(left.acall(source[i : i + 3000]) for i in range(4)))
        assert answers == [bytes(source.memory[i : i + 10]) for i in range(4)]
        right.stop()
        await serving

    asyncio.run(run())


def test_arrays(context, ends, source, memory):
    left, right = ends
    lend(ends, memory[:PLACE])
    for _ in range(3):
        call = left.start(source[:5000])
        request = right.receive(60)
        address = request.place.address
        request.reply(b"")
        call.result(60)
        request._returned = True  # as if an array had told of it
        right.give_back(address)
        with pytest.raises(copyrpc.Closed):
            right.give_back(address)
        tell(ends)


def test_what_cannot_be_lent(context, ends, source, memory):
    left, right = ends
    cases = [
        (lambda: right.lend(bytearray(100), 16), TypeError, "part of a region"),
        (lambda: right.lend(memory[:PLACE], 0), ValueError, "place_bytes"),
        (lambda: right.lend(memory[:PLACE], 24), copyrpc.InvalidArgument, "multiples of 16"),
        (lambda: right.lend(memory[:PLACE], 2 * PLACE), copyrpc.InvalidArgument, "1 to 24 places"),
        (lambda: right.lend(memory[:], 16), copyrpc.InvalidArgument, "1 to 24 places"),
        (lambda: right.lend(source[:PLACE], PLACE), copyrpc.InvalidArgument, "LOCAL_WRITE"),
    ]
    for what, kind, words in cases:
        with pytest.raises(kind, match=words):
            what()
    right.lend(memory[:PLACE], PLACE)
    with pytest.raises(copyrpc.CopyrpcError, match="has an arena already"):
        right.lend(memory[:PLACE], PLACE)
    with pytest.raises(copyrpc.InvalidArgument):
        memory.close()
    right.close()
    left.close()
    context.poll(copyrpc.CompletionArray(8))
    memory.close()
