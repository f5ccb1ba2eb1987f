"""Coroutines: calls, cancellation, servers, one wake-up for many."""
import array
import asyncio
import gc
import mmap
import threading
import time

import pytest
from conftest import FAIL, STATUS, until

import copyrpc

run = asyncio.run


def connected(address, options=None):
    """`async with connected(address) as endpoint`, in a context of its own."""

    class Connected:
        async def __aenter__(self):
            self.context = copyrpc.Context()
            self.endpoint = await self.context.aconnect(address, options)
            return self.endpoint

        async def __aexit__(self, *error):
            await self.endpoint.__aexit__(*error)
            self.context.close()

    return Connected()


def test_a_call(server):
    async def main():
        async with connected(server.address) as endpoint:
            assert await endpoint.acall(b"hello", timeout=5.0) == b"hello"
            assert await endpoint.acall(bytearray(b"")) == b""

    run(main())


class Named(bytes):
    pass


def test_payloads_of_every_kind(server):
    async def main():
        buffers = [b"bytes", bytearray(b"bytearray"), memoryview(b"xsliced")[1:], Named(b"named"), array.array("H", [1, 2]), b"", bytearray()]
        async with connected(server.address) as endpoint:
            assert await asyncio.gather(*map(endpoint.acall, buffers)) == [bytes(buffer) for buffer in buffers]
            buffers[1].append(1)  # which raises BufferError while something holds it
            held = memoryview(buffers[1])
            call = asyncio.ensure_future(endpoint.acall(held[:4]))
            await asyncio.sleep(0)  # it is in the outbox
            held.release()
            with pytest.raises(BufferError):
                buffers[1].append(2)
            assert await call == b"byte"
            del call
            buffers[1].append(2)

    run(main())


def test_a_payload_whose_length_does_not_fit(server):
    no_reserve = 0x4000  # of Linux; Python 3.13 has a name for it

    async def main():
        async with connected(server.address) as endpoint:
            with mmap.mmap(-1, (1 << 32) + 5, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve) as huge:
                with pytest.raises(OverflowError):
                    await endpoint.acall(huge)
            assert await endpoint.acall(b"goes on") == b"goes on"

    run(main())


def test_many_at_once(server):
    async def main():
        async with connected(server.address) as endpoint:
            requests = [b"%d" % index for index in range(2000)]  # more than may be open
            assert await asyncio.gather(*map(endpoint.acall, requests)) == requests
            assert endpoint.stats().calls == 2000

    run(main())


def test_calls_of_one_turn_go_out_together(server):
    async def main():
        async with connected(server.address) as endpoint:
            await endpoint.acall(b"x")
            before = endpoint.stats().batches_sent
            await asyncio.gather(*(endpoint.acall(b"x") for _ in range(64)))
            assert endpoint.stats().batches_sent - before <= 8

    run(main())


def test_one_wake_up_resolves_many(silent):
    async def main():
        async with connected(silent.address) as endpoint:
            tasks = [asyncio.ensure_future(endpoint.acall(b"x")) for _ in range(64)]
            while len(silent.requests) < 64:
                await asyncio.sleep(0.01)
            before = endpoint.context.stats().polls
            for request in silent.requests:
                request.reply(b"y")
            assert await asyncio.gather(*tasks) == [b"y"] * 64
            assert endpoint.context.stats().polls - before <= 64

    run(main())


def test_errors(server):
    async def main():
        async with connected(server.address) as endpoint:
            with pytest.raises(copyrpc.RemoteError, match="status 7"):
                await endpoint.acall(b"x", method=STATUS)
            with pytest.raises(copyrpc.RemoteError, match="the handler's own trouble"):
                await endpoint.acall(b"x", method=FAIL)
            with pytest.raises(copyrpc.TooBig):
                await endpoint.acall(bytes(endpoint.info().request_bytes_max + 1))
            with pytest.raises(TypeError, match="bytes or another buffer"):
                await endpoint.acall("text")
            with pytest.raises(BufferError, match="contiguous"):
                await endpoint.acall(memoryview(b"abcd")[::2])
            with pytest.raises(ValueError, match="0 seconds or more"):
                await endpoint.acall(b"x", timeout=-1)
            results = await asyncio.gather(
                endpoint.acall(b"a"), endpoint.acall(bytes(1 << 20)), endpoint.acall(b"c"), return_exceptions=True
            )
            assert results[0] == b"a" and isinstance(results[1], copyrpc.TooBig) and results[2] == b"c"

    run(main())


def test_a_deadline(silent):
    async def main():
        async with connected(silent.address) as endpoint:
            with pytest.raises(TimeoutError):
                await endpoint.acall(b"x", timeout=0.05)
            # Without room, the deadline holds for what waits for some.
            results = await asyncio.gather(*(endpoint.acall(bytes(2000), timeout=0.3) for _ in range(2000)), return_exceptions=True)
            assert all(isinstance(result, copyrpc.Timeout) for result in results)

    run(main())


def test_cancelling_a_task_cancels_its_call(silent):
    async def main():
        async with connected(silent.address) as endpoint:
            task = asyncio.ensure_future(endpoint.acall(b"x"))
            other = asyncio.ensure_future(endpoint.acall(b"y"))
            while len(silent.requests) < 2:
                await asyncio.sleep(0.01)
            assert endpoint.info().calls_open == 2
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: endpoint.info().calls_open == 1)
            for request in silent.requests:
                request.reply(b"late or not")
            assert await other == b"late or not"
            await until(lambda: endpoint.stats().late_responses == 1)

    run(main())


def test_cancelling_before_anything_was_sent(server):
    async def main():
        async with connected(server.address) as endpoint:
            task = asyncio.ensure_future(endpoint.acall(b"x"))
            await asyncio.sleep(0)  # the call has begun, and the loop's turn is not over
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await endpoint.acall(b"y") == b"y"
        assert server.seen <= 2

    run(main())


def test_wait_for(silent):
    async def main():
        async with connected(silent.address) as endpoint:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(endpoint.acall(b"x"), 0.05)
            await until(lambda: endpoint.info().calls_open == 0)

    run(main())


def test_async_for_over_a_listener(address):
    async def main():
        async with copyrpc.Context() as context, context.listen(address) as listener:

            async def serve():
                async for request in listener:
                    with request:
                        request.reply(b"re " + bytes(request.payload))

            serving = asyncio.ensure_future(serve())
            async with connected(address) as endpoint:
                assert await asyncio.gather(endpoint.acall(b"a"), endpoint.acall(b"b")) == [b"re a", b"re b"]
            listener.close()
            await asyncio.wait_for(serving, 60)

    run(main())


def test_payloads_live_until_they_are_released(address):
    """A handler looks at its request after others have come and gone."""

    async def main():
        async with copyrpc.Context() as context, context.listen(address) as listener:

            async def handler(request):
                view = request.payload
                await asyncio.sleep(0.05 if len(view) == 1 else 0)
                return view

            serving = asyncio.ensure_future(listener.aserve(handler))
            async with connected(address) as endpoint:
                requests = [b"a", b"bb", b"c", b"dd"] * 50
                assert await asyncio.gather(*map(endpoint.acall, requests)) == requests
            listener.stop()
            await asyncio.wait_for(serving, 60)

    run(main())


def test_a_coroutine_that_raises_answers(address):
    async def main():
        async with copyrpc.Context() as context, context.listen(address) as listener:

            async def handler(request):
                raise KeyError("no such thing")

            serving = asyncio.ensure_future(listener.aserve(handler))
            async with connected(address) as endpoint:
                for _ in range(2):
                    with pytest.raises(copyrpc.RemoteError, match="KeyError: 'no such thing'"):
                        await endpoint.acall(b"x")
            listener.stop()
            await asyncio.wait_for(serving, 60)

    run(main())


def test_closing_ends_waiting_coroutines(silent):
    async def main():
        context = copyrpc.Context()
        endpoint = await context.aconnect(silent.address)
        task = asyncio.ensure_future(endpoint.acall(b"x"))
        receiving = asyncio.ensure_future(endpoint.areceive())
        await asyncio.sleep(0.1)
        context.close()
        with pytest.raises(copyrpc.Closed):
            await task
        assert await receiving is None
        with pytest.raises(copyrpc.Closed):
            await endpoint.acall(b"x")

    run(main())


def test_the_peer_goes(silent):
    async def main():
        async with connected(silent.address) as endpoint:
            task = asyncio.ensure_future(endpoint.acall(b"x"))
            while not silent.requests:
                await asyncio.sleep(0.01)
            silent.requests[0].endpoint.close()
            with pytest.raises(copyrpc.Disconnected):
                await task
            with pytest.raises(ConnectionError):
                await endpoint.acall(b"x")

    run(main())


def test_nobody_listens(address):
    async def main():
        async with copyrpc.Context() as context:
            with pytest.raises(ConnectionError):
                await context.aconnect(address)

    run(main())


def test_closed_objects_and_wrong_words(server):
    async def main():
        async with copyrpc.Context() as context:
            endpoint = await context.aconnect(server.address)
            for timeout in (-1, float("nan"), "1"):
                for use in (endpoint.acall(b"x", timeout=timeout), endpoint.areserve(10, timeout=timeout), endpoint.adisconnect(timeout)):
                    with pytest.raises((TypeError, ValueError), match="seconds"):
                        await use
            with pytest.raises(TypeError, match="an address is a str"):
                await context.aconnect(5)
            with pytest.raises(TypeError, match="a blob must be bytes"):
                await endpoint.ajoin("text")
            endpoint.close()
            for use in (endpoint.acall(b"x"), endpoint.areserve(10), endpoint.ajoin(b"x")):
                with pytest.raises(copyrpc.Closed, match="closed"):
                    await use
            assert await endpoint.areceive() is None
            await endpoint.adisconnect()
            listener = context.listen("*:0", auto_accept=False)
            listener.close()
            assert await listener.anext_connection() is None and await listener.areceive() is None
        for use in (context.aconnect(server.address), endpoint.acall(b"x"), endpoint.areserve(10)):
            with pytest.raises(copyrpc.Closed, match="closed"):
                await use

    run(main())


def test_accepting(address):
    async def main():
        async with copyrpc.Context() as context, context.listen(address, auto_accept=False) as listener:
            asked = [asyncio.ensure_future(context.aconnect(address, copyrpc.EndpointOptions(token=token))) for token in (b"a", b"b")]
            with pytest.raises(copyrpc.InvalidArgument, match="auto_accept"):
                await context.listen("*:0").anext_connection()
            found = {}
            for _ in range(2):
                connection = await listener.anext_connection()
                found[connection.token] = connection
            accepted = await found[b"a"].aaccept()
            found[b"b"].reject(9)
            with pytest.raises(copyrpc.Refused, match="9"):
                await asked[1]
            endpoint = await asked[0]
            with pytest.raises(copyrpc.InvalidArgument, match="before"):
                await found[b"a"].aaccept()
            serving = asyncio.ensure_future(endpoint.aserve(answer))
            assert await accepted.acall(b"both ways") == b"both ways"
            # Closing ends who waits for the next one, and several may wait.
            waiting = [asyncio.ensure_future(listener.anext_connection()) for _ in range(2)]
            await asyncio.sleep(0.05)
            listener.close()
            assert await asyncio.wait_for(asyncio.gather(*waiting), 60) == [None, None]
            endpoint.stop()
            await asyncio.wait_for(serving, 60)

    async def answer(request):
        return bytes(request.payload)

    run(main())


def test_a_context_closed_while_accepting(address):
    async def main():
        context = copyrpc.Context()
        listener = context.listen(address, auto_accept=False)
        waiting = asyncio.ensure_future(listener.anext_connection())
        await asyncio.sleep(0.05)
        context.close()
        with pytest.raises(copyrpc.Closed):
            await asyncio.wait_for(waiting, 60)

    run(main())


def test_an_accept_that_is_cancelled(address):
    async def main():
        async with copyrpc.Context() as context, context.listen(address, auto_accept=False) as listener:
            asking = asyncio.ensure_future(context.aconnect(address))
            connection = await listener.anext_connection()
            accepting = asyncio.ensure_future(connection.aaccept())
            await asyncio.sleep(0)
            accepting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await accepting
            try:  # it may have been connected by then, for a moment
                endpoint = await asyncio.wait_for(asking, 60)
                assert await endpoint.areceive() is None and not endpoint.connected
            except copyrpc.CopyrpcError:
                pass
            assert context.info().endpoints == 0

    run(main())


def test_blobs():
    async def main():
        async with copyrpc.Context() as one, copyrpc.Context() as two:
            first, first_blob = one.blob()
            second, second_blob = two.blob()
            await asyncio.gather(first.ajoin(second_blob), second.ajoin(first_blob))
            call = asyncio.ensure_future(second.acall(b"by blob"))
            request = await first.areceive()
            request.reply(request.payload)
            assert await call == b"by blob"

    run(main())


def test_one_loop_after_another(server):
    """The context outlives the loop; between loops it is used without one."""
    with copyrpc.Context() as context:
        endpoint = context.connect(server.address)

        async def main():
            assert await endpoint.acall(b"x") == b"x"

        for _ in range(3):
            run(main())
            assert endpoint.call(b"y") == b"y"
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        with pytest.raises(RuntimeError, match="another event loop"):
            run(main())
        loop.close()
        run(main())


def test_threads_and_a_loop_share_a_context(server):
    async def main():
        async with connected(server.address) as endpoint:
            wrong = []

            def work(name):
                for index in range(50):
                    request = b"%s %d" % (name, index)
                    if endpoint.call(request, timeout=60) != request:
                        wrong.append(request)

            threads = [threading.Thread(target=work, args=(name,)) for name in (b"a", b"b")]
            for thread in threads:
                thread.start()
            for index in range(100):
                request = b"loop %d" % index
                assert await endpoint.acall(request, timeout=60) == request
                await asyncio.sleep(0.001)
            while any(thread.is_alive() for thread in threads):
                await asyncio.sleep(0.01)
            assert wrong == []

    run(main())


def test_the_loop_sleeps_when_nothing_happens(server):
    async def main():
        async with connected(server.address) as endpoint:
            await endpoint.acall(b"x")
            await asyncio.sleep(0.1)
            before, spent = endpoint.context.stats().polls, time.process_time()
            await asyncio.sleep(0.5)
            assert endpoint.context.stats().polls - before <= 20 and time.process_time() - spent < 0.4

    run(main())


def test_a_wait_that_is_canceled_is_forgotten(address):
    async def main():
        async with copyrpc.Context() as context, context.listen(address) as listener:
            for _ in range(3):
                tasks = [asyncio.ensure_future(listener.areceive()) for _ in range(20)]
                await asyncio.sleep(0)
                assert len(context._attachment.waiters) == 20
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                assert not context._attachment.waiters

    run(main())


def test_a_server_takes_so_many_requests_at_once(address):
    async def main():
        async with copyrpc.Context() as context, context.listen(address) as listener:
            go = asyncio.Event()
            running = most = 0

            async def handler(request):
                nonlocal running, most
                running += 1
                most = max(most, running)
                await go.wait()
                running -= 1
                return request.payload

            serving = asyncio.ensure_future(listener.aserve(handler, requests_max=3))
            async with connected(address) as endpoint:
                requests = [b"%d" % index for index in range(20)]
                calls = asyncio.gather(*map(endpoint.acall, requests))
                await until(lambda: running == 3 and len(listener._queue) == 17)
                go.set()
                assert await calls == requests and most == 3
                go.clear()
                late = [asyncio.ensure_future(endpoint.acall(b"late")) for _ in range(5)]
                await until(lambda: running == 3 and len(listener._queue) == 2)
                listener.stop()  # is heard while there is no room, too
                await asyncio.wait_for(serving, 60)
                assert len(listener._queue) == 2
                for call in late:
                    call.cancel()
            for wrong in (0, -1, "many"):
                with pytest.raises((ValueError, TypeError), match="requests_max"):
                    await listener.aserve(handler, requests_max=wrong)

    run(main())


def test_handlers_that_are_canceled_come_to_their_end(address):
    async def main():
        async with copyrpc.Context() as context, context.listen(address) as listener:
            begun, ended = [], []

            async def handler(request):
                begun.append(request)
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.01)
                    ended.append(request)

            serving = asyncio.ensure_future(listener.aserve(handler))
            async with connected(address) as endpoint:
                calls = [asyncio.ensure_future(endpoint.acall(b"x")) for _ in range(3)]
                await until(lambda: len(begun) == 3)
                serving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await serving
                assert len(ended) == 3
                for call in calls:
                    with pytest.raises(copyrpc.Dropped):
                        await asyncio.wait_for(call, 60)

    run(main())


def test_a_handler_that_is_canceled_before_it_begins_drops_its_request(address):
    async def main():
        async with copyrpc.Context() as context, context.listen(address) as listener:

            class Queue(type(listener._queue)):
                def popleft(self):
                    listener.stop()  # in the turn in which the handler's task is made
                    return super().popleft()

            listener._queue = Queue()
            serving = asyncio.ensure_future(listener.aserve(lambda request: asyncio.sleep(60)))
            async with connected(address) as endpoint:
                with pytest.raises(copyrpc.NotStarted):
                    await asyncio.wait_for(endpoint.acall(b"x"), 10)
                await serving

    run(main())


@pytest.mark.parametrize("cancel", [False, True])
def test_joining_does_not_hold_up_the_loop(monkeypatch, cancel):
    """The library takes its time with the context's lock held, and coroutines of the same context go on as soon as it has it."""
    held, slow = threading.Event(), threading.Event()
    join = copyrpc.Endpoint._join

    def join_slowly(self, blob):
        with self._pump._use:
            held.set()
            assert slow.wait(60)
        join(self, blob)

    async def main():
        async with copyrpc.Context() as one, copyrpc.Context() as two:
            first, first_blob = one.blob()
            second, second_blob = two.blob()
            await asyncio.gather(first.ajoin(second_blob), second.ajoin(first_blob))
            serving = asyncio.ensure_future(second.aserve(lambda request: asyncio.sleep(0, b"yes")))
            assert await first.acall(b"x") == b"yes"
            third, third_blob = one.blob()
            fourth, fourth_blob = two.blob()
            given_up = asyncio.ensure_future(first.acall(b"x"))
            await asyncio.sleep(0)  # it is in the outbox
            monkeypatch.setattr(copyrpc.Endpoint, "_join", join_slowly)
            rescue = threading.Timer(10, slow.set)
            rescue.start()
            joining = asyncio.ensure_future(third.ajoin(fourth_blob))
            while not held.is_set():
                await asyncio.sleep(0.001)
            calling = asyncio.ensure_future(first.acall(b"x"))
            waiting = asyncio.ensure_future(third.areceive())
            given_up.cancel()
            leaving = asyncio.ensure_future(second.ajoin(b""))  # of the other context
            for _ in range(20):
                await asyncio.sleep(0.001)  # the loop goes on
            assert not slow.is_set() and not calling.done()
            if cancel:
                joining.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await joining
                assert not slow.is_set() and not calling.done()
            slow.set()
            rescue.cancel()
            assert await asyncio.wait_for(calling, 10) == b"yes"
            assert given_up.cancelled() or given_up.result() == b"yes"
            monkeypatch.setattr(copyrpc.Endpoint, "_join", join)
            if not cancel:
                await asyncio.gather(joining, fourth.ajoin(third_blob))
                assert third.connected and fourth.connected
            with pytest.raises(copyrpc.CopyrpcError):
                await leaving  # errors come through
            with pytest.raises(copyrpc.CopyrpcError):
                await first.ajoin(second_blob)
            waiting.cancel()
            serving.cancel()
            await asyncio.gather(waiting, serving, return_exceptions=True)

    run(main())


def test_calls_do_not_time_out_with_their_connection(silent):
    async def main():
        async with copyrpc.Context() as context:
            endpoint = await context.aconnect(silent.address, copyrpc.EndpointOptions(calls_max=1))
            calls = [asyncio.ensure_future(endpoint.acall(b"x")) for _ in range(2)]  # one of them waits on this side
            while not silent.requests:
                await asyncio.sleep(0.01)
            with endpoint._pump._use:
                endpoint._disconnected(-11)  # as if the library had told of CRPC_E_TIMEOUT
            assert isinstance(endpoint.error, copyrpc.Timeout)
            for call in (calls[1], endpoint.acall(b"too late")):
                with pytest.raises(copyrpc.Disconnected):
                    await call
            with pytest.raises(copyrpc.Closed):  # which the library had: here it was not lost, but closed
                await calls[0]

    run(main())


def test_a_call_that_failed_pins_nothing(waiting):
    """A memoryview that is still pinned must not wait for the garbage collector: CPython 3.11 crashes there."""
    gc.collect()
    gc.disable()
    try:
        payload = memoryview(bytearray(3000))[:2000]

        async def main():
            try:
                await waiting.acall(payload, timeout=0.01)
            except copyrpc.Timeout:  # pytest.raises would keep the frames
                return True

        assert run(main())
        payload.release()  # which is an error as long as it is pinned
    finally:
        gc.enable()
