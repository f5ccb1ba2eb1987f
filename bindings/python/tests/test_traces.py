"""The trace of a call, as it travels: what a server sees of what a client has sent."""
import asyncio
import dataclasses
import threading

import pytest
from conftest import LANE, Serving, Silent, endpoints_in, until

import copyrpc
from copyrpc import Trace

ONE = Trace(bytes(range(1, 17)), bytes(range(1, 9)), 1)
OTHER = Trace(bytes(range(17, 33)), bytes(range(9, 17)), 3)
NONE_SAMPLED = Trace(b"\x80" * 16, b"\xff" * 8, 0)


def carry(call):
    """An interceptor: calls have the trace that is set here at the time."""
    call.trace = carry.trace
    yield


CARRYING = copyrpc.EndpointOptions(interceptors=[carry], reply_bytes_max=200_000)


@pytest.fixture(autouse=True)
def no_trace():
    carry.trace = None


def start(endpoint, trace, request=b"x", **arguments):
    """A call that is started with this trace."""
    carry.trace = trace
    return endpoint.start(request, **arguments)


class Tracing(Serving):
    """Echoes, and notes the traces of the requests in their order."""

    def __init__(self, where):
        self.seen = []
        super().__init__(where)

    def handle(self, request):
        self.seen.append(request.trace)
        return request.payload


@pytest.fixture
def tracing(address):
    tracing = Tracing(address)
    yield tracing
    tracing.close()


@pytest.fixture
def traced(tracing):
    """traced(trace, request, ...): what the server sees of a call with these arguments."""
    with copyrpc.Context() as context:
        endpoint = context.connect(tracing.listener.address, CARRYING)

        def ask(trace, request=b"x", **arguments):
            carry.trace = trace
            answer = endpoint.call(request, **arguments)
            assert answer == bytes(request.memory if isinstance(request, copyrpc.RegionSlice) else request)
            return tracing.seen.pop()

        ask.endpoint, ask.context = endpoint, context
        yield ask


@pytest.mark.parametrize("trace", [ONE, OTHER, NONE_SAMPLED, None])
@pytest.mark.parametrize("size", [0, 1, 32, 1000, 100_000])
def test_a_trace_comes_as_it_was_sent(traced, trace, size):
    assert traced(trace, b"\xee" * size) == trace


def test_a_trace_goes_with_payloads_of_every_kind(traced):
    assert traced(ONE, bytearray(b"array")) == ONE
    assert traced(OTHER, memoryview(b"a view")[2:]) == OTHER
    region = traced.context.register(bytearray(65536), "local_write")
    for size in (0, 10, 3000, 65536):  # copied, and read by the device
        assert traced(ONE, region[:size]) == ONE and traced(None, region[:size]) is None
    assert traced(OTHER, b"x", method=0xFFFF, timeout=60, reply_bytes_max=100, idempotent=True) == OTHER


def test_a_trace_goes_with_a_call_that_follows_a_lane(lane_context, address):
    left, right = endpoints_in(lane_context, address, dataclasses.replace(CARRYING, lane=True), LANE)
    call = start(left, ONE, after=True)
    request = right.receive(60)
    assert request.trace == ONE
    request.reply()
    assert call.result(60) == b""


def test_a_trace_goes_over_a_connection_that_has_come_back(address):
    """A call that waits for the next connection, and one that is sent again over it."""
    options = dataclasses.replace(CARRYING, reconnect=True)
    with copyrpc.Context() as context:
        silent = Silent(address)
        endpoint = context.connect(address, options, timeout=60)
        again = start(endpoint, ONE, idempotent=True)
        silent.wait_for(1)
        silent.close()
        while endpoint.connected:
            with pytest.raises(copyrpc.Timeout):
                again.result(0.01)
        waits = start(endpoint, OTHER)
        tracing = Tracing(address)
        assert again.result(60) == waits.result(60) == b"x"
        tracing.close()
    assert tracing.seen == [ONE, OTHER]


def test_every_form_of_a_call_carries_its_trace(tracing):
    def label(call):
        call.trace = Trace(bytes(call.request).rjust(16), b"12345678", 1)
        yield

    with copyrpc.connect(tracing.listener.address, copyrpc.EndpointOptions(interceptors=[label])) as endpoint:
        assert endpoint.call(b"call") == b"call"
        assert endpoint.start(b"start").result(60) == b"start"
        with endpoint.call_view(b"view") as reply:
            assert bytes(reply.payload) == b"view"
        assert endpoint.call_many([b"one", bytearray(b"two"), b""]) == [b"one", b"two", b""]

        async def main():
            return await asyncio.gather(endpoint.acall(b"acall"), endpoint.acall(bytearray(b"array")))

        assert asyncio.run(main()) == [b"acall", b"array"]
    assert [trace.trace_id.strip() for trace in tracing.seen] == [b"call", b"start", b"view", b"one", b"two", b"", b"acall", b"array"]
    assert all(trace[1:] == (b"12345678", 1) for trace in tracing.seen)


def test_calls_of_coroutines_keep_their_own_traces(address):
    traces = [None if index % 3 == 0 else Trace(b"%016d" % index, b"%08d" % index, index % 256) for index in range(2000)]
    seen = {}

    def label(call):
        call.trace = traces[int(bytes(call.request))]
        yield

    async def handler(request):
        seen[int(bytes(request.payload))] = request.trace
        return request.payload

    async def main():
        async with copyrpc.Context() as context, context.listen(address) as listener:
            serving = asyncio.ensure_future(listener.aserve(handler))
            with copyrpc.Context() as other:
                options = copyrpc.EndpointOptions(calls_max=16, interceptors=[label])  # most have to wait for room
                endpoint = await other.aconnect(address, options)
                calls = [endpoint.acall(bytearray(b"%d" % index) if index % 2 else b"%d" % index) for index in range(len(traces))]
                assert await asyncio.gather(*calls) == [b"%d" % index for index in range(len(traces))]
            listener.stop()
            await asyncio.wait_for(serving, 60)

    asyncio.run(main())
    assert [seen[index] for index in range(len(traces))] == traces


def test_a_coroutine_sends_a_region_with_a_trace(tracing):
    async def main():
        with copyrpc.Context() as context:
            region = context.register(bytearray(b"r" * 65536), "local_write")
            endpoint = await context.aconnect(tracing.listener.address, CARRYING)
            for carry.trace in (ONE, None):
                assert await endpoint.acall(region[:4096]) == b"r" * 4096

    asyncio.run(main())
    assert tracing.seen == [ONE, None]


def test_a_coroutine_that_is_canceled_lets_go_of_its_request(silent):
    """It was sent with a trace, and pinned for that."""

    async def main():
        with copyrpc.Context() as context:
            endpoint = await context.aconnect(silent.address, CARRYING)
            carry.trace, request = ONE, bytearray(b"pinned")
            task = asyncio.ensure_future(endpoint.acall(request))
            await until(lambda: silent.requests)
            with pytest.raises(BufferError):
                request.append(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del task
            request.append(1)

    asyncio.run(main())


def test_calls_that_wait_for_room_keep_their_traces(silent):
    """A call that finds no room is submitted again, with the same trace."""
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address, dataclasses.replace(CARRYING, calls_max=1))
        first, second = start(endpoint, ONE), []
        refused = endpoint.stats().refused
        carry.trace = OTHER
        thread = threading.Thread(target=lambda: second.append(endpoint.call(b"second")))
        thread.start()  # it finds no room until the first is answered
        while endpoint.stats().refused == refused:
            threading.Event().wait(0.001)
        (request,) = silent.wait_for(1)
        assert request.trace == ONE
        request.reply(b"1")
        request = silent.wait_for(2)[1]
        assert request.trace == OTHER
        request.reply(b"2")
        thread.join(60)
        assert (first.result(60), second) == (b"1", [b"2"])


def test_when_a_request_tells_its_trace(silent):
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address, copyrpc.EndpointOptions(interceptors=[carry]))
        calls = [start(endpoint, ONE) for _ in range(4)]
        with pytest.raises(copyrpc.Timeout):
            calls[0].result(0.001)  # all are sent when a thread waits
        looked, late, dropped, other = silent.wait_for(4)
        assert looked.trace is looked.trace == ONE
        looked.reply()
        assert looked.trace == ONE  # as it was looked at before
        late.reply()
        assert late.trace is None and late.trace is None
        dropped.drop()
        assert dropped.trace is None
        assert other.trace == ONE
        other.reply()
        for call in (calls[0], calls[1], calls[3]):
            assert call.result(60) == b""


@pytest.mark.parametrize("what", ["connection", "context"])
def test_a_request_whose_connection_has_ended_tells_no_trace(address, what):
    silent = Silent(address)
    with copyrpc.connect(silent.address, CARRYING) as endpoint:
        start(endpoint, ONE)
        (request,) = silent.wait_for(1)
        endpoint.close()
    while request.endpoint.error is None:  # the silent one polls
        threading.Event().wait(0.001)
    if what == "context":
        silent.close()
    assert request.trace is None
    if what == "connection":
        silent.close()


def test_wrong_traces(traced):
    endpoint = traced.endpoint
    for wrong, kind, text in (
        (Trace(b"x" * 15, b"y" * 8, 0), ValueError, "trace_id of a trace has 16 bytes, not 15"),
        (Trace(b"x" * 16, b"y" * 9, 0), ValueError, "span_id of a trace has 8 bytes, not 9"),
        (Trace(b"x" * 16, b"y" * 8, 256), ValueError, "flags of a trace are 0 to 255, not 256"),
        (Trace(b"x" * 16, b"y" * 8, -1), ValueError, "flags of a trace are 0 to 255, not -1"),
        (Trace(b"x" * 16, b"y" * 8, None), ValueError, "flags of a trace are 0 to 255, not None"),
        (b"x" * 32, TypeError, "a trace is a copyrpc.Trace, not bytes"),
        (Trace("x" * 16, b"y" * 8, 0), TypeError, "trace_id of a trace is bytes, not str"),
    ):
        carry.trace = wrong
        with pytest.raises(kind, match=text):
            endpoint.call(b"")
        with pytest.raises(kind, match=text):
            endpoint.start(b"")
        with pytest.raises(kind, match=text):
            asyncio.run(endpoint.acall(b""))
    carry.trace = ONE
    with pytest.raises(TypeError, match="a request must be bytes or another buffer, not str"):
        endpoint.call("text")
    assert not traced.context._pending and traced(ONE) == ONE


def test_inner_interceptors_see_and_change_traces(tracing):
    def inner(call):
        seen.append(call.trace)
        call.trace = OTHER if call.trace == ONE else None
        return (yield)

    seen = []
    with copyrpc.connect(tracing.listener.address, copyrpc.EndpointOptions(interceptors=[carry, inner])) as endpoint:
        for trace in (ONE, OTHER, None):
            assert start(endpoint, trace).result(60) == b"x"
    assert tracing.seen == [OTHER, None, None] and seen == [ONE, OTHER, None]


def test_ops_in_arrays_carry_traces(silent):
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address)
        ops, done = copyrpc.OpArray(2), copyrpc.CompletionArray(4)
        payload = b"abc" + ONE.trace_id + ONE.span_id + bytes([ONE.flags]) + bytes(7)
        common = {"opcode": copyrpc.OP_CALL, "endpoint": endpoint.bits, "reply_bytes_max": 16, "payload_bytes": 3}
        ops.set(0, user_data=1, flags=copyrpc.OP_TRACED, token=3, **common)
        ops.set(1, user_data=2, **common)
        assert context.submit(ops, 2, payload) == 2
        context.poll(done)
        first, second = silent.wait_for(2)
        assert (first.trace, second.trace) == (ONE, None)
        first.reply()
        second.reply()
        left = 2
        while left:
            left -= context.poll(done)


def test_arrays_tell_traces_of_requests(address):
    with copyrpc.Context() as server, copyrpc.Context() as client:
        server.listen(address, arrays=True)
        connected = threading.Event()
        ready = threading.Thread(target=lambda: (client.connect(address), connected.set()))
        ready.start()
        done, replies = copyrpc.CompletionArray(4), copyrpc.OpArray(1)
        while not connected.is_set():
            server.poll(done)
        ready.join(60)
        (endpoint,) = client._endpoints.values()
        ops = copyrpc.OpArray(2)
        payload = ONE.trace_id + ONE.span_id + bytes([ONE.flags]) + bytes(7)
        ops.set(0, opcode=copyrpc.OP_CALL, flags=copyrpc.OP_TRACED, endpoint=endpoint.bits)
        ops.set(1, opcode=copyrpc.OP_CALL, endpoint=endpoint.bits)
        assert client.submit(ops, 2, payload) == 2
        seen = []
        while len(seen) < 2:
            client.poll(copyrpc.CompletionArray(1))
            server.poll(done)
            for index, request in enumerate(list(done)):
                seen.append(done.trace(index))
                server.poll(copyrpc.CompletionArray(1))  # ends views, and not requests
                assert done.trace(index) == seen[-1]
                replies.set(0, opcode=copyrpc.OP_REPLY, flags=copyrpc.OP_QUIET, endpoint=request.endpoint, token=request.token)
                assert server.submit(replies) == 1
                assert done.trace(index) is None  # it is answered
        assert seen == [ONE, None]
        while client.poll(done) == 0:
            pass
        with pytest.raises(ValueError, match="only requests"):
            done.trace(0)
        with pytest.raises(ValueError):
            done.trace(4)
