"""Payloads written in place: reserve, commit, abort."""
import asyncio
import gc
import time

import pytest
from conftest import FAIL

import copyrpc


@pytest.mark.parametrize("size", [0, 1, 31, 32, 1000, 40000])
def test_a_call_written_in_place(endpoint, size):
    with endpoint.reserve(size, reply_bytes_max=size) as room:
        assert len(room) == len(room.memory) == size and not room.memory.readonly
        room.memory[:] = bytes(index % 251 for index in range(size))
        call = room.commit()
    assert call.result(60) == bytes(index % 251 for index in range(size))


def test_less_than_was_reserved(endpoint):
    for size in (1, 2, 33, 500, 1000):
        room = endpoint.reserve(1000)
        room.memory[:] = bytes([size % 256]) * 1000
        assert room.commit(size).result(60) == bytes([size % 256]) * size
    room = endpoint.reserve(1000)
    assert room.commit(0).result(60) == b""


def test_a_method_and_a_failure(endpoint):
    with pytest.raises(copyrpc.RemoteError, match="own trouble"):
        endpoint.reserve(1, method=FAIL).commit().result(60)


def test_a_deadline_and_a_cancel(waiting):
    with pytest.raises(copyrpc.Timeout):
        waiting.reserve(1, timeout=0.05).commit().result(60)
    call = waiting.reserve(1).commit()
    call.cancel()
    with pytest.raises(copyrpc.Canceled):
        call.result(60)


def test_giving_up(endpoint):
    with endpoint.reserve(100) as room:
        room.memory[:5] = b"never"
    room.abort()
    for use in (room.commit, lambda: room.commit(5)):
        with pytest.raises(copyrpc.InvalidArgument, match="committed or given up"):
            use()
    with pytest.raises(copyrpc.Closed, match="committed or given up"):
        room.memory
    assert endpoint.call(b"x") == b"x" and endpoint.stats().calls == 1
    with pytest.raises(ZeroDivisionError):
        with endpoint.reserve(100):
            1 / 0
    assert endpoint.call(b"y") == b"y"


def test_committing_twice(endpoint):
    room = endpoint.reserve(1)
    room.memory[:1] = b"x"
    call = room.commit()
    with pytest.raises(copyrpc.InvalidArgument, match="committed or given up"):
        room.commit()
    assert call.result(60) == b"x"


def test_nothing_else_meanwhile(endpoint):
    call = endpoint.start(b"under way")
    with endpoint.reserve(100) as room:
        for use in (lambda: endpoint.call(b"x"), lambda: endpoint.start(b"x"), lambda: endpoint.reserve(1),
                    lambda: endpoint.call_many([b"x"])):
            with pytest.raises(copyrpc.InvalidArgument):
                use()
        assert call.result(60) == b"under way"  # what came before goes on
        room.memory[:3] = b"end"
        last = room.commit(3)
    assert last.result(60) == b"end" and endpoint.call(b"x") == b"x"


def test_what_is_alive_of_its_memory(endpoint):
    room = endpoint.reserve(100)
    whole, part = room.memory, room.memory[5:]
    for use in (room.commit, room.abort, endpoint.close, endpoint.context.close):
        with pytest.raises(BufferError, match="still alive"):
            use()
    part[0] = 5  # all as it was
    del part
    room.memory[:5] = b"12345"
    assert room.commit(6).result(60) == b"12345\x05"
    with pytest.raises(ValueError):
        whole[0]
    for end in (endpoint.close, endpoint.context.close):
        assert not room._open
        end()


@pytest.mark.parametrize("what", ["endpoint", "context"])
def test_closing_with_one_open(server, what):
    context = copyrpc.Context()
    endpoint = context.connect(server.address)
    room = endpoint.reserve(100)
    memory = room.memory
    (endpoint if what == "endpoint" else context).close()
    with pytest.raises(ValueError):
        memory[0]
    with pytest.raises(copyrpc.Closed):
        room.memory
    with pytest.raises(copyrpc.CopyrpcError):
        room.commit()
    room.abort()
    context.close()


def test_the_peer_goes_with_one_open(silent, waiting):
    room = waiting.reserve(100)
    memory = room.memory
    deadline = time.monotonic() + 60
    while not silent.listener.endpoints and time.monotonic() < deadline:
        time.sleep(0.001)  # the server may hear later than we do that we are connected
    for endpoint in list(silent.listener.endpoints):
        endpoint.close()
    deadline = time.monotonic() + 60
    while waiting.error is None and time.monotonic() < deadline:
        waiting.context.wait(0.01)
        waiting.context.poll(copyrpc.CompletionArray(4))
    assert isinstance(waiting.error, copyrpc.Disconnected)
    memory[:] = bytes(100)  # still ours to write
    assert waiting.context.info().endpoints >= 1
    with pytest.raises(copyrpc.Disconnected):
        room.commit()
    with pytest.raises(ValueError):
        memory[0]
    room.abort()
    gc.collect()


def test_a_reply_written_in_place(silent, waiting):
    call = waiting.start(b"x", reply_bytes_max=100)
    (request,) = silent.wait_for(1)
    with request.reserve(100) as room:
        room.memory[:4] = b"no!!"
    assert not request.answered
    with request.reserve(100, status=9) as room:
        room.memory[:5] = b"reply"
        with pytest.raises(copyrpc.InvalidArgument):
            request.reply(b"another way")
        room.commit(5)
    assert request.answered
    with pytest.raises(copyrpc.RemoteError) as caught:
        call.result(60)
    assert (caught.value.status, caught.value.payload) == (9, b"reply")
    with pytest.raises(copyrpc.Closed, match="answered before"):
        request.reply(b"again")


def test_waiting_for_room(silent):
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address, copyrpc.EndpointOptions(ring_bytes=1 << 20, calls_max=1))
        call = endpoint.start(b"fills the one place")
        (request,) = silent.wait_for(1)
        with pytest.raises(copyrpc.Timeout, match="no room"):
            endpoint.reserve(10, timeout=0.05)
        request.reply(b"free")
        with endpoint.reserve(10, timeout=10) as room:
            assert call.result(60) == b"free"
            room.memory[:] = bytes(10)
            last = room.commit()
        silent.wait_for(2)[1].reply(b"done")
        assert last.result(60) == b"done"


def test_coroutines(silent):
    async def main():
        async with copyrpc.Context() as context:
            endpoint = await context.aconnect(silent.address, copyrpc.EndpointOptions(calls_max=1))
            with await endpoint.areserve(5) as room:
                room.memory[:] = b"first"
                first = asyncio.ensure_future(room.acommit())
                await asyncio.sleep(0)  # committed
            while not silent.requests:
                await asyncio.sleep(0.01)
            waiting = asyncio.ensure_future(endpoint.areserve(6))
            await asyncio.sleep(0.1)
            assert not waiting.done()  # calls_max
            silent.requests[0].reply(b"1")
            assert await first == b"1"
            room = await asyncio.wait_for(waiting, 60)
            with pytest.raises(copyrpc.InvalidArgument):
                await endpoint.acall(b"meanwhile")
            second = asyncio.ensure_future(room.acommit(3))
            while len(silent.requests) < 2:
                await asyncio.sleep(0.01)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert len(silent.requests[1]) == 3

    asyncio.run(main())


def test_a_forked_child_has_none(endpoint):
    from test_lifetime import in_child

    with endpoint.reserve(10) as room:
        assert "Forked" in in_child(lambda: room.memory)
        assert "Forked" in in_child(room.commit)
        assert in_child(room.abort) == "None"
        room.memory[:] = b"0123456789"
        assert room.commit().result(60) == b"0123456789"
