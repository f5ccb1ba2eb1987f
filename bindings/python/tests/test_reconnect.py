"""Endpoints that connect again when their connection is lost: EndpointOptions.reconnect. The server is a process, which is killed and started."""
import asyncio
import signal
import threading
import time

import pytest
from conftest import CONNECT_SECONDS, HOST, until
from reconnecting import ASK, HOLD, OPTIONS, Process, in_thread

import copyrpc
from copyrpc._native import ffi, lib


@pytest.fixture
def process(tmp_path):
    process = Process(tmp_path)
    process.start()
    yield process
    process.end()


@pytest.fixture
def endpoint(process):
    with copyrpc.connect(process.address, copyrpc.EndpointOptions(**OPTIONS), timeout=CONNECT_SECONDS) as endpoint:
        yield endpoint


def events_until(endpoint, condition):
    """Those that come until there is one that is meant."""
    found = []
    for event in endpoint.events(60):
        found.append(event)
        if condition(event):
            return found
    raise AssertionError(f"it did not come; {found} did")


def lost(event):
    return not event.connected


def connected(event):
    return event.connected


def lose(process, endpoint):
    list(endpoint.events(0))
    process.end()
    return events_until(endpoint, lost)


# ---- Connections ----


def test_it_comes_back(process, endpoint):
    assert endpoint.call(b"1") == b"1" and endpoint.connected and endpoint.reconnecting is None
    assert [event.connected for event in endpoint.events(0)] == [True]
    for turn in range(3):
        (event,) = lose(process, endpoint)
        assert isinstance(event.error, copyrpc.Disconnected)
        assert not endpoint.connected and endpoint.error is None and endpoint.reconnecting is not None
        assert endpoint.info().state == "connecting" and "connecting" in repr(endpoint)
        process.start()
        found = events_until(endpoint, connected)
        assert all(isinstance(event.error, copyrpc.CopyrpcError) for event in found[:-1]) and found[-1].error is None
        assert endpoint.call(b"2") == b"2" and endpoint.connected
        assert endpoint.info().connections == turn + 2
    assert endpoint.stats().calls == 4


def test_calls_wait_for_a_server(process, endpoint):
    lose(process, endpoint)
    calls = [endpoint.start(b"%d" % index, idempotent=index % 2 == 0) for index in range(20)]
    with pytest.raises(copyrpc.Timeout):
        endpoint.call(b"late", timeout=0.05)
    assert endpoint.info().calls_waiting == 20
    process.start()
    assert [call.result(60) for call in calls] == [b"%d" % index for index in range(20)]
    assert process.done() == [b"%d" % index for index in range(20)]  # in their order, and each once
    assert endpoint.info().calls_waiting == 0


def test_more_calls_than_calls_max_wait(process):
    options = copyrpc.EndpointOptions(calls_max=8, **OPTIONS)
    with copyrpc.connect(process.address, options, timeout=CONNECT_SECONDS) as endpoint:
        lose(process, endpoint)
        starting = threading.Timer(0.1, process.start)
        starting.start()
        answers = endpoint.call_many([b"%d" % index for index in range(100)], timeout=60)
        assert answers == [b"%d" % index for index in range(100)]
        starting.join()


@pytest.mark.parametrize("as_list", [False, True])
def test_another_address_takes_over(tmp_path, as_list):
    servers = [Process(tmp_path), Process(tmp_path)]
    addresses = [server.address for server in servers]
    for server in servers:
        server.start()
    try:
        with copyrpc.connect(addresses if as_list else ",".join(addresses), copyrpc.EndpointOptions(**OPTIONS), timeout=60) as endpoint:
            assert endpoint.call(b"1") == b"1" and endpoint.info().address_index == 0
            servers[0].end()
            assert endpoint.call(b"2", idempotent=True, timeout=60) == b"2"
            assert endpoint.info().address_index == 1 and servers[1].done() == [b"2"]
    finally:
        for server in servers:
            server.end()


def test_there_may_be_no_server_at_first(process):
    process.end()
    starting = threading.Timer(0.2, process.start)
    with copyrpc.Context() as context:
        starting.start()
        endpoint = context.connect(process.address, copyrpc.EndpointOptions(**OPTIONS), timeout=CONNECT_SECONDS)
        assert endpoint.call(b"1") == b"1" and endpoint.info().connections == 1
        assert isinstance(next(endpoint.events(0)).error, copyrpc.Refused)
    starting.join()


def test_connecting_to_nobody_says_why(process):
    process.end()
    options = copyrpc.EndpointOptions(**OPTIONS)
    with copyrpc.Context() as context:
        with pytest.raises(copyrpc.Refused, match=f"^connecting to {process.address}: "):
            context.connect(process.address, options, timeout=0.3)
        assert context.info().endpoints == 0 and not context._endpoints

    async def main():
        async with copyrpc.Context() as context:
            with pytest.raises(copyrpc.Refused, match="^connecting to "):
                await context.aconnect([process.address, process.address], options, timeout=0.3)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(context.aconnect(process.address, options), 0.1)
            assert context.info().endpoints == 0 and not context._endpoints

    asyncio.run(main())
    with pytest.raises(copyrpc.Refused):
        copyrpc.connect(process.address, options, timeout=0.1)


def test_wrong_options(process):
    for wrong, kind in ((0, ValueError), (-1.0, ValueError), (3601, ValueError), (float("nan"), ValueError), ("1", TypeError), (True, TypeError)):
        for name in ("reconnect_pause", "reconnect_pause_max"):
            with pytest.raises(kind, match=name):
                copyrpc.connect(process.address, copyrpc.EndpointOptions(reconnect=True, **{name: wrong}))
    for wrong in (dict(reconnect_pause=0.1), dict(reconnect=True, lane=True), dict(reconnect=True, reconnect_pause=2.0, reconnect_pause_max=1.0)):
        with pytest.raises(copyrpc.InvalidArgument):
            copyrpc.connect(process.address, copyrpc.EndpointOptions(**wrong))
    with pytest.raises(copyrpc.InvalidArgument, match="the side that connects"):
        copyrpc.listen(f"{HOST}:0", copyrpc.EndpointOptions(reconnect=True))
    with pytest.raises(copyrpc.InvalidArgument, match="several addresses"):
        copyrpc.connect([process.address, process.address])
    for wrong, kind in (([], ValueError), (["a:1,b:1"], ValueError), ([b"a:1"], TypeError), (5, TypeError)):
        with pytest.raises(kind):
            copyrpc.connect(wrong, copyrpc.EndpointOptions(reconnect=True))
    with copyrpc.connect(process.address) as endpoint, pytest.raises(copyrpc.InvalidArgument, match="reconnect"):
        next(endpoint.events())


# ---- Calls that were sent ----


def view(endpoint, request, **options):
    with endpoint.call_view(request, **options) as reply:
        return bytes(reply.payload)


def reserved(endpoint, request, **options):
    with endpoint.reserve(len(request), **options) as room:
        room.memory[:] = request
        call = room.commit()
    return call.result(60)


def in_region(endpoint, request, **options):
    with endpoint.context.register(bytearray(request)) as region:
        return endpoint.call(region[:], **options)


FORMS = {
    "call": lambda endpoint, request, **options: endpoint.call(request, **options),
    "start": lambda endpoint, request, **options: endpoint.start(request, **options).result(60),
    "many": lambda endpoint, request, **options: endpoint.call_many([request], **options)[0],
    "view": view,
    "reserve": reserved,
    "region": in_region,
}


@pytest.mark.parametrize("form", FORMS)
def test_what_may_have_been_done_ends_unless_it_is_idempotent(process, endpoint, form):
    once = in_thread(FORMS[form], endpoint, b"once", method=HOLD)
    process.wait_for(b"once")
    again = in_thread(FORMS[form], endpoint, b"again", method=HOLD, idempotent=True)
    process.wait_for(b"again")
    process.end()
    assert isinstance(once(), copyrpc.Disconnected)
    assert endpoint.error is None
    process.start()
    while process.done().count(b"again") < 2:
        time.sleep(0.002)
    assert endpoint.call(b"next", timeout=60) == b"next"
    process.end(signal.SIGTERM)  # which answers what it has
    assert again() == b"again"
    assert process.done().count(b"once") == 1


def test_an_interceptor_says_what_is_idempotent(process):
    seen = []

    def mark(call):
        seen.append(call.idempotent)
        call.idempotent = call.method == HOLD
        return (yield)

    options = copyrpc.EndpointOptions(interceptors=[mark], **OPTIONS)
    with copyrpc.connect(process.address, options, timeout=CONNECT_SECONDS) as endpoint:
        answer = in_thread(endpoint.call, b"again", method=HOLD)
        process.wait_for(b"again")
        process.end()
        process.start()
        assert endpoint.call_many([b"1"], idempotent=True, timeout=60) == [b"1"]
        while process.done().count(b"again") < 2:
            time.sleep(0.002)
        process.end(signal.SIGTERM)
        assert answer() == b"again" and seen == [False, True]


def test_arrays(process, endpoint):
    context = endpoint.context
    ops, completions = copyrpc.OpArray(4), copyrpc.CompletionArray(16)
    ops.fill_calls(endpoint, request_bytes=1, reply_bytes_max=16, method=HOLD, idempotent=True)
    ops.set(0, opcode=copyrpc.OP_CALL, method=HOLD, endpoint=endpoint.bits, payload_bytes=1, reply_bytes_max=16)
    assert context.submit(ops, payload=b"abcd") == 4

    def completion():
        while True:
            if context.poll(completions):
                return [(done.user_data, done.status) for done in completions]
            context.wait(60)

    waiting = in_thread(process.wait_for, b"a", b"b", b"c", b"d")
    context.wait(0.01)
    waiting()
    process.end()
    ended = completion()
    assert [index for index, _ in ended] == [0] and ended[0][1] < 0
    process.start()
    while process.done().count(b"d") < 2:
        context.poll(completions)
        time.sleep(0.001)
    ended = in_thread(process.end, signal.SIGTERM)
    results = []
    while len(results) < 3:
        results += completion()
    assert results == [(1, 0), (2, 0), (3, 0)]
    ended()


def test_what_a_server_that_ends_has_not_started_is_sent_again(process, endpoint):
    held = endpoint.start(b"held", method=HOLD)
    process.wait_for(b"held")
    process.end(signal.SIGTERM)
    assert held.result(60) == b"held"
    waiting = endpoint.start(b"next")
    process.start()
    assert waiting.result(60) == b"next"
    assert process.done() == [b"held", b"next"]


# ---- Requests of the server ----


def test_a_client_that_serves_goes_on(process, endpoint):
    begun, ended, answers = threading.Event(), threading.Event(), []

    def handle(request):
        payload = bytes(request.payload)
        if payload != b"first":
            return payload
        begun.set()
        assert ended.wait(60)
        answers.append(request.abandoned)
        try:
            request.reply(b"late")
        except copyrpc.Disconnected as error:
            answers.append(str(error))
            raise
        return b""

    serving = in_thread(endpoint.serve, handle)
    endpoint.call(b"first", method=ASK)
    assert begun.wait(60)
    lose(process, endpoint)
    process.start()
    events_until(endpoint, connected)
    ended.set()
    endpoint.call(b"second", method=ASK)
    endpoint.call(b"third", method=ASK)
    process.end(signal.SIGTERM)  # once its calls are answered
    endpoint.stop()
    assert serving() is None
    assert answers == [True, answers[1]] and "a connection that has ended" in answers[1]


def test_requests_that_nobody_has_begun_are_forgotten(process, endpoint):
    endpoint.call(b"first", method=ASK)
    while not endpoint._queue:
        endpoint.call(b"look")
    lose(process, endpoint)
    assert not endpoint._queue
    process.start()
    endpoint.call(b"second", method=ASK, timeout=60)
    request = endpoint.receive(60)
    assert bytes(request.payload) == b"second" and not request.abandoned
    request.reply(b"")


def test_a_reply_before_anybody_has_heard(process, endpoint):
    """The library knows that the connection has ended, and has not told it: one poll of one completion tells of a call first."""
    held = [endpoint.start(b"held", method=HOLD) for _ in range(3)]
    endpoint.call(b"first", method=ASK)
    one = ffi.new("crpc_completion *")
    with endpoint.receive(60) as request:
        process.end()
        deadline = time.monotonic() + 60
        while lib.crpc_poll(endpoint.context._pointer, one, 1) == 0:
            assert time.monotonic() < deadline
        assert one.kind == copyrpc.COMPLETION_RESPONSE and not request.answered
        with pytest.raises(copyrpc.Disconnected, match="a connection that has ended"):
            request.reply(b"x")
        assert request.abandoned and request.answered
    with pytest.raises(copyrpc.Disconnected):
        held[2].result(60)


def test_tasks_for_a_lost_connection_are_canceled(process):
    async def main():
        canceled, begun = [], asyncio.Event()

        async def handle(request):
            if bytes(request.payload) != b"first":
                return request.payload
            begun.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                canceled.append(request.abandoned)
                raise

        async with copyrpc.Context() as context:
            endpoint = await context.aconnect(process.address, copyrpc.EndpointOptions(**OPTIONS), timeout=CONNECT_SECONDS)
            serving = asyncio.ensure_future(endpoint.aserve(handle))
            await endpoint.acall(b"first", method=ASK)
            await begun.wait()
            process.end()
            await until(lambda: canceled)
            process.start()
            await endpoint.acall(b"second", method=ASK, idempotent=True, timeout=60)
            process.end(signal.SIGTERM)
            assert canceled == [True] and not serving.done()
            endpoint.stop()
            await serving

    asyncio.run(main())


# ---- Coroutines ----


def test_coroutines(process):
    async def main():
        async with copyrpc.Context() as context:
            options = copyrpc.EndpointOptions(calls_max=16, **OPTIONS)
            endpoint = await context.aconnect(process.address, options, timeout=CONNECT_SECONDS)
            events = endpoint.aevents()
            assert (await events.__anext__()).connected
            once = asyncio.ensure_future(endpoint.acall(b"once", method=HOLD))
            again = asyncio.ensure_future(endpoint.acall(b"again", method=HOLD, idempotent=True))
            await until(lambda: {b"once", b"again"} <= set(process.done()))
            process.end()
            with pytest.raises(copyrpc.Disconnected):
                await once
            assert not (await events.__anext__()).connected
            with pytest.raises(copyrpc.Timeout):
                await endpoint.acall(b"late", timeout=0.05)
            waiting = [asyncio.ensure_future(endpoint.acall(b"%d" % index, timeout=60)) for index in range(100)]
            await asyncio.sleep(0.05)
            waiting[5].cancel()
            process.start()
            answers = await asyncio.gather(*waiting, return_exceptions=True)
            assert isinstance(answers.pop(5), asyncio.CancelledError)
            assert answers == [b"%d" % index for index in range(100) if index != 5]
            await until(lambda: process.done().count(b"again") == 2)
            process.end(signal.SIGTERM)
            assert await again == b"again"
            assert b"5" not in process.done() and process.done().count(b"once") == 1
            await endpoint.adisconnect()
            assert [event async for event in events][0].error is not None

    asyncio.run(main())


# ---- Reservations ----


def test_coroutines_wait_for_a_connection_to_reserve(process):
    async def main():
        async with copyrpc.Context() as context:
            endpoint = await context.aconnect(process.address, copyrpc.EndpointOptions(**OPTIONS), timeout=CONNECT_SECONDS)
            process.end()
            await until(lambda: endpoint.reconnecting)
            room = asyncio.ensure_future(endpoint.areserve(4, idempotent=True))
            await asyncio.sleep(0.05)
            assert not room.done()
            process.start()
            with await room as written:
                written.memory[:] = b"room"
                assert await written.acommit() == b"room"

    asyncio.run(main())


def test_a_reservation_waits_for_a_connection(process, endpoint):
    lose(process, endpoint)
    with pytest.raises(copyrpc.Timeout):
        endpoint.reserve(8, timeout=0.05)
    room = in_thread(endpoint.reserve, 8)
    time.sleep(0.05)
    process.start()
    with room() as room:
        room.memory[:] = b"12345678"
        assert room.commit().result(60) == b"12345678"


@pytest.mark.parametrize("commit", [False, True])
def test_a_reservation_of_a_lost_connection(process, endpoint, commit):
    room = endpoint.reserve(8)
    memory = room.memory
    lose(process, endpoint)
    process.start()
    time.sleep(0.1)
    memory[:] = b"12345678"  # it is the application's still
    del memory
    assert not endpoint.connected
    if commit:
        with pytest.raises(copyrpc.Disconnected):
            room.commit()
    room.abort()
    assert endpoint.call(b"next", timeout=60) == b"next"


# ---- The end ----


def test_a_disconnect_ends_it(process, endpoint):
    endpoint.disconnect()
    assert isinstance(endpoint.error, copyrpc.Disconnected) and not list(endpoint.events(0))[1:]
    with pytest.raises(copyrpc.Disconnected):
        endpoint.call(b"x")
    assert endpoint.reconnecting is None


def test_a_disconnect_ends_what_waits(process, endpoint):
    lose(process, endpoint)
    waiting = endpoint.start(b"1")
    endpoint.disconnect()
    with pytest.raises(copyrpc.Disconnected):
        waiting.result(60)
    with pytest.raises(copyrpc.Disconnected):
        endpoint.call(b"x")


def test_a_close_ends_what_waits(process, endpoint):
    held = endpoint.start(b"held", method=HOLD, idempotent=True)
    process.wait_for(b"held")
    lose(process, endpoint)
    waiting = in_thread(endpoint.call, b"1")
    while endpoint.info().calls_waiting < 2:
        time.sleep(0.001)
    endpoint.close()
    assert isinstance(waiting(), copyrpc.Closed)
    with pytest.raises(copyrpc.Closed):
        held.result(60)


def test_a_canceled_wait(process, endpoint):
    lose(process, endpoint)
    first, second = endpoint.start(b"1"), endpoint.start(b"2")
    first.cancel()
    with pytest.raises(copyrpc.Canceled):
        first.result(60)
    process.start()
    assert second.result(60) == b"2" and process.done() == [b"2"]
