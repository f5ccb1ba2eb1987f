"""Callers that leave, as their servers see it; and servers that stop gracefully."""
import asyncio
import subprocess
import sys
import threading
import time

import pytest
from conftest import HOST, until

import copyrpc

run = asyncio.run
LONG = 600.0


def wait_for(condition, endpoint=None):
    """What gathers at the endpoint leaves meanwhile."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing comes of it"
        if endpoint is not None:
            endpoint.context.poll(copyrpc.CompletionArray(1))
        time.sleep(0.001)


def test_a_request_knows_how_long_its_caller_waits(silent):
    with copyrpc.connect(silent.address) as endpoint:
        calls = [endpoint.start(b"x", timeout=timeout) for timeout in (None, 100.0, 250_000.0, 1e6)]
        asked = time.monotonic()
        wait_for(lambda: len(silent.requests) == len(calls), endpoint)
        forever, short, days, more = silent.requests
        assert forever.deadline is None and more.deadline is None  # more than can be told
        assert asked + 100 <= short.deadline + 1 and short.deadline <= time.monotonic() + 101
        assert asked + 250_000 <= days.deadline + 1 and days.deadline <= time.monotonic() + 252_000
        assert not any(request.abandoned for request in silent.requests)
        for call in calls:
            call.cancel()


def test_a_request_that_was_abandoned_tells_it(silent):
    with copyrpc.connect(silent.address) as endpoint:
        call = endpoint.start(b"x", timeout=LONG)
        other = endpoint.start(b"y")
        wait_for(lambda: len(silent.requests) == 2, endpoint)
        call.cancel()
        with pytest.raises(copyrpc.Canceled):
            call.result()
        with pytest.raises(copyrpc.Timeout):
            endpoint.call(b"z", timeout=0.01)  # and what is said of it leaves, too
        wait_for(lambda: silent.requests[0].abandoned, endpoint)
        assert not silent.requests[1].abandoned
        request = silent.requests[0]
        request.reply(b"")  # which nobody sees
        assert request._token not in request.endpoint._left
        silent.requests[1].drop(not_started=True)
        with pytest.raises(copyrpc.NotStarted) as caught:
            other.result()
        assert "safe to send it again" in str(caught.value)
    wait_for(lambda: silent.requests[1].abandoned)  # the connection has ended


def test_what_nobody_waits_for_is_not_received(address):
    with copyrpc.Context() as context, copyrpc.Context() as other:
        listener = context.listen(address)
        connecting = threading.Thread(target=lambda: ends.append(other.connect(address)))
        ends = []
        connecting.start()
        while connecting.is_alive():
            with pytest.raises(copyrpc.Timeout):
                listener.receive(timeout=0.01)
        endpoint = ends[0]
        calls = [endpoint.start(b"%d" % i) for i in range(3)]
        while sum(len(queue) for queue in (listener._queue,)) < 3:
            other.poll(copyrpc.CompletionArray(4))
            context.poll(copyrpc.CompletionArray(4))
        calls[0].cancel()
        calls[2].cancel()
        for call in (calls[0], calls[2]):
            with pytest.raises(copyrpc.Canceled):
                call.result()
        (server,) = listener.endpoints
        while len(server._left) < 2:
            other.poll(copyrpc.CompletionArray(4))
            context.poll(copyrpc.CompletionArray(4))
        request = listener.receive(timeout=LONG)
        assert bytes(request) == b"1"
        with pytest.raises(copyrpc.Timeout):
            listener.receive(timeout=0.01)
        request.reply(b"answer")
        assert not server._left
        assert calls[1].result() == b"answer"


def test_coroutines_end_with_their_callers(address):
    async def main():
        begun, ended = [], []

        async def handle(request):
            begun.append(request)
            try:
                await asyncio.sleep(LONG if request.method == 0 else 0)
            except asyncio.CancelledError:
                ended.append(bytes(request.payload))
                raise
            return request.payload

        with copyrpc.Context() as context, copyrpc.Context() as other:
            listener = context.listen(address)
            serving = asyncio.ensure_future(listener.aserve(handle))
            endpoint = await other.aconnect(address)
            tasks = [asyncio.ensure_future(endpoint.acall(b"%d" % i)) for i in range(4)]
            await until(lambda: len(begun) == 4)
            tasks[1].cancel()
            await until(lambda: ended == [b"1"])
            with pytest.raises(copyrpc.Timeout):
                await endpoint.acall(b"late", timeout=0.02)
            if len(begun) == 5:  # else it was skipped, as nobody waited
                await until(lambda: b"late" in ended)
            assert await endpoint.acall(b"well", method=1) == b"well"
            await until(lambda: not any(peer._left for peer in listener.endpoints))
            listener.stop()
            await serving
            assert sorted(ended) == sorted([b"0", b"1", b"2", b"3"] + [b"late"] * (len(begun) == 6))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(main())


def test_a_deadline_of_which_the_caller_does_not_know_yet_cancels_nobody(address):
    """It has passed, as the server's clock has it, when a word about another call makes the server look. The answer of a handler that is
    canceled then would be the first that its caller hears: that its request was dropped."""

    async def main():
        begun, ended = {}, []

        async def handle(request):
            begun[bytes(request.payload)] = request
            try:
                await asyncio.sleep(LONG)
            finally:
                ended.append(bytes(request.payload))

        with copyrpc.Context() as context, copyrpc.Context() as other:
            listener = context.listen(address)
            serving = asyncio.ensure_future(listener.aserve(handle))
            endpoint = await asyncio.to_thread(other.connect, address)

            def poll():  # nobody else does it for the caller
                other.poll(copyrpc.CompletionArray(1))
                return True

            late, canceled = endpoint.start(b"late", timeout=1.0), endpoint.start(b"canceled")
            await until(lambda: poll() and len(begun) == 2)
            canceled.cancel()
            poll()  # which tells the server
            with pytest.raises(copyrpc.Canceled):
                canceled.result()
            wait_for(lambda: begun[b"late"].abandoned)  # meanwhile the loop stands still
            await until(lambda: b"canceled" in ended)
            await asyncio.sleep(0)
            assert ended == [b"canceled"]
            with pytest.raises(copyrpc.Timeout):
                late.result()
            await until(lambda: poll() and b"late" in ended)  # now it knows, and has said so
            listener.stop()
            await serving

    run(main())


CALLER = """
import sys, copyrpc
endpoint = copyrpc.connect(sys.argv[1])
endpoint.call(b"x", method=1)
endpoint.call(b"y")
"""


def called_by_a_process(address):
    return subprocess.Popen([sys.executable, "-c", CALLER, address])


def test_coroutines_end_with_the_connection_of_their_callers(address):
    async def main():
        begun, ended = [], []

        async def handle(request):
            begun.append(request)
            if request.method == 1:
                request.reply(b"answered before")
            try:
                await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                ended.append(request.method)
                raise

        with copyrpc.Context() as context:
            listener = context.listen(address)
            serving = asyncio.ensure_future(listener.aserve(handle))
            caller = called_by_a_process(address)
            await until(lambda: len(begun) == 2 or caller.poll() is not None)
            caller.kill()
            caller.wait()
            await asyncio.wait_for(until(lambda: bool(ended)), 60)
            assert ended == [0]  # what goes on behind its answer is for no caller
            listener.stop()
            await serving
            assert ended == [0, 1]

    run(main())


def test_coroutines_end_with_their_callers_when_another_service_has_ended(address):
    """Both had no requests when the second one stopped."""

    async def main():
        begun, ended = [], []

        async def handle(request):
            begun.append(request)
            try:
                await asyncio.sleep(LONG)
            finally:
                ended.append(request)

        with copyrpc.Context() as context, copyrpc.Context() as other:
            listener, second = context.listen(address), context.listen(f"{HOST}:0")
            serving, stopping = (asyncio.ensure_future(each.aserve(handle)) for each in (listener, second))
            await until(lambda: len(context._tasks) == 2)
            second.stop()
            await stopping
            endpoint = await other.aconnect(address)
            call = asyncio.ensure_future(endpoint.acall(b"?"))
            await until(lambda: len(begun) == 1)
            call.cancel()
            await asyncio.wait_for(until(lambda: len(ended) == 1), 60)
            listener.stop()
            await serving

    run(main())


def outcomes(results):
    return {name: sum(type(result).__name__ == name for result in results) for name in {type(result).__name__ for result in results}}


@pytest.mark.parametrize("grace", [0.0, 30.0])
def test_stopping_coroutines_gracefully(address, grace):
    """What has begun finishes if there is time, and what has not is dropped as not started."""

    async def main():
        go_on, begun, acted = asyncio.Event(), [], []

        async def handle(request):
            begun.append(request)
            await go_on.wait()
            acted.append(bytes(request.payload))
            return request.payload

        with copyrpc.Context() as context, copyrpc.Context() as other:
            listener = context.listen(address)
            serving = asyncio.ensure_future(listener.aserve(handle, requests_max=3))
            endpoint = await other.aconnect(address)
            tasks = [asyncio.ensure_future(endpoint.acall(b"%d" % i)) for i in range(8)]
            await until(lambda: len(begun) == 3 and len(listener._queue) == 5)
            listener.stop(grace=grace)
            waiting = tasks[3:]
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert outcomes(results) == {"NotStarted": 5}
            late = await asyncio.gather(endpoint.acall(b"late"), return_exceptions=True)
            assert outcomes(late).keys() <= {"NotStarted", "Disconnected"}
            if grace:
                go_on.set()
            results = await asyncio.gather(*tasks[:3], return_exceptions=True)
            assert outcomes(results) == ({"bytes": 3} if grace else {"Dropped": 3})
            await serving
            assert len(acted) == (3 if grace else 0)
            await until(lambda: endpoint.error is not None)
            with pytest.raises(copyrpc.Refused):
                await other.aconnect(address)

    run(main())


def test_stopping_a_thread_gracefully(address):
    with copyrpc.Context() as context, copyrpc.Context() as other:
        listener = context.listen(address)
        begun, go_on = threading.Event(), threading.Event()
        acted = []

        def handle(request):
            begun.set()
            assert go_on.wait(60)
            acted.append(bytes(request.payload))
            return request.payload

        thread = threading.Thread(target=listener.serve, args=(handle,))
        thread.start()
        endpoint = other.connect(address)
        calls = [endpoint.start(b"%d" % i) for i in range(5)]
        assert begun.wait(60)
        listener.stop(grace=30.0)
        go_on.set()
        results = []
        for call in calls:
            try:
                results.append(call.result())
            except copyrpc.CopyrpcError as error:
                results.append(error)
        assert results[0] == b"0" and outcomes(results[1:]) == {"NotStarted": 4}
        thread.join(60)
        assert not thread.is_alive() and acted == [b"0"]
        with pytest.raises(copyrpc.Disconnected):
            endpoint.call(b"late")


def test_an_endpoint_that_is_served_stops_gracefully(address):
    async def main():
        with copyrpc.Context() as context, copyrpc.Context() as other:
            listener = context.listen(address, auto_accept=False)
            client = asyncio.ensure_future(other.aconnect(address))
            server = await (await listener.anext_connection()).aaccept()
            endpoint = await client

            async def echo(request):
                return request.payload

            serving = asyncio.ensure_future(endpoint.aserve(echo))
            assert await server.acall(b"x") == b"x"
            endpoint.stop(grace=1.0)
            await serving
            assert not endpoint.connected
            await until(lambda: server.error is not None)

    run(main())


@pytest.mark.parametrize("grace", [-1.0, float("nan"), float("inf"), "1"])
def test_a_grace_that_is_none(server, grace):
    with pytest.raises(ValueError, match="grace"):
        server.listener.stop(grace=grace)
    with copyrpc.connect(server.address) as endpoint:
        assert endpoint.call(b"goes on") == b"goes on"


def test_drains_lose_nothing():
    """Clients that call all the time, and servers that stop in between: what was acted on was answered."""

    async def main(port):
        acted, answered = 0, 0

        async def handle(request):
            nonlocal acted
            acted += 1
            if acted % 5 == 0:
                await asyncio.sleep(0.0005)
            return request.payload

        async def client(endpoint):
            nonlocal answered
            while True:
                try:
                    await endpoint.acall(b"?")
                    answered += 1
                except copyrpc.NotStarted:
                    pass
                except copyrpc.Disconnected:
                    return

        with copyrpc.Context() as context, copyrpc.Context() as other:
            listener = context.listen(f"{HOST}:{port}")
            serving = asyncio.ensure_future(listener.aserve(handle, requests_max=4))
            clients = []
            for _ in range(2):
                endpoint = await other.aconnect(listener.address)
                clients += [asyncio.ensure_future(client(endpoint)) for _ in range(4)]
            await until(lambda: answered >= 20)
            listener.stop(grace=30.0)
            await serving
            await asyncio.gather(*clients)
            assert acted == answered

    for _ in range(10):
        run(main(0))
