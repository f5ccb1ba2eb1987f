"""Payloads that the device reads from a region: calls and replies."""
import asyncio
import threading

import pytest

import copyrpc

SIZE = 1 << 16


@pytest.fixture
def region(endpoint):
    memory = bytearray(index * 7 % 251 for index in range(SIZE))
    with endpoint.context.register(memory) as region:
        yield region


def large(size):
    return {"reply_bytes_max": size}


@pytest.mark.parametrize("start,size", [(0, 0), (5, 1), (0, 2047), (3, 2048), (7, 40000), (0, SIZE)])
def test_a_call(endpoint, region, start, size):
    part = region[start : start + size]
    assert endpoint.call(part, **large(size)) == bytes(region.memory[start : start + size])
    with endpoint.call_view(part, **large(size)) as reply:
        assert reply.payload == region.memory[start : start + size]


def test_several_at_once(endpoint, region):
    calls = [endpoint.start(region[i * 5000 : (i + 1) * 5000], **large(5000)) for i in range(8)]
    for i, call in enumerate(calls):
        assert call.result(60) == bytes(region.memory[i * 5000 : (i + 1) * 5000])


def test_coroutines(endpoint, region):
    async def run():
        parts = [region[i * 3000 : (i + 1) * 3000] for i in range(10)]
        answers = await asyncio.gather(*(endpoint.acall(part, **large(3000)) for part in parts))
        assert answers == [bytes(part.memory) for part in parts]

    asyncio.run(run())


def test_changes_between_calls(endpoint, region):
    for value in range(20):
        region.memory[:8000] = bytes([value]) * 8000
        assert endpoint.call(region[:8000], **large(8000)) == bytes([value]) * 8000


def test_preparing(endpoint, region):
    region.prepare(endpoint)
    region.prepare(endpoint)
    assert endpoint.call(region[:5000], **large(5000)) == bytes(region.memory[:5000])
    endpoint.close()
    with pytest.raises(copyrpc.CopyrpcError):
        region.prepare(endpoint)


def test_a_region_that_is_closed(endpoint):
    region = endpoint.context.register(bytearray(SIZE))
    part = region[:5000]
    endpoint.call(part, **large(5000))
    while True:  # the device's completion may come later than the answer
        try:
            region.close()
            break
        except copyrpc.InvalidArgument:
            endpoint.call(b"")
    with pytest.raises(copyrpc.Closed, match="a region that is closed"):
        endpoint.call(part)
    assert endpoint.call(b"x") == b"x"


def test_a_region_of_another_context(endpoint):
    with copyrpc.Context() as other:
        with other.register(bytearray(SIZE)) as region:
            for use in (lambda: endpoint.call(region[:5000]), lambda: asyncio.run(endpoint.acall(region[:5000]))):
                with pytest.raises(copyrpc.InvalidArgument, match="another context"):
                    use()
    assert endpoint.call(b"x") == b"x"


def test_what_does_not_go_together(endpoint, region):
    with pytest.raises(copyrpc.InvalidArgument):
        endpoint.call(region[:5000], after=True)
    with pytest.raises(TypeError):
        endpoint.call_many([region[:5000]])
    with pytest.raises(copyrpc.TooBig):
        with endpoint.context.register(bytearray(8 << 20)) as big:
            endpoint.call(big[:])
    assert endpoint.call(b"x") == b"x"


def serve(address, how):
    """A server whose replies are parts of a region; how(request, part) answers. Returns its thread, what ends it, and a list of its failures."""
    ready, over, failures = threading.Event(), threading.Event(), []

    def run():
        try:
            with copyrpc.Context() as context, context.listen(address) as listener, context.register(bytearray(b"r" * SIZE)) as region:
                ready.set()
                for size in (0, 1, 2048, 30000):
                    request = listener.receive()
                    region.memory[:size] = bytes([size % 251]) * size
                    how(request, region[:size])
                    region.memory[:size] = bytes(size)  # it may change
                over.wait(60)
        except BaseException as error:
            failures.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(60)
    return thread, over, failures


def answer_in_coroutine(request, part):
    asyncio.run(request.areply(part, 3))


@pytest.mark.parametrize("how", [lambda request, part: request.reply(part, 3), answer_in_coroutine], ids=["thread", "coroutine"])
def test_replies(address, how):
    thread, over, failures = serve(address, how)
    with copyrpc.connect(address) as endpoint:
        for size in (0, 1, 2048, 30000):
            with endpoint.call_view(b"", **large(30000)) as reply:
                assert reply.status == 3 and reply.payload == bytes([size % 251]) * size
        over.set()
    thread.join(60)
    assert not thread.is_alive() and not failures
