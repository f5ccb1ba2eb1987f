"""forms.py: the other ways in which the package makes and serves calls. In the form `blocking`, threads wait for answers and requests; in
`serve`, handlers answer requests; arrays.py has the form `arrays`. Otherwise all that waits is a coroutine."""
import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import arrays
from words import event, payload, status_of, told, traced

import copyrpc

# What they cannot do: a call that waits for room blocks its thread, and `serve` ends no service while a handler waits for a command; the
# request of a handler is gone when that has ended, and with it the payload and the place.
FORMS = {"blocking": ["early_cancel", "stop"], "serve": ["payload", "lend", "give_back"], "arrays": arrays.LACKS}
THREADS = 200
REQUESTS = 100000  # that may be kept at once
FOREVER = 1e9  # seconds
BLOCKED_SECONDS = 1  # as long as a start may take that has room, on a busy machine


class Forms:
    """What a Runner has of them. Its form is "" if it is none of these."""

    def in_thread(self, work, *arguments):
        if self.threads is None:
            self.threads = ThreadPoolExecutor(THREADS)
        return asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    # ---- blocking ----

    async def start_calls(self, endpoint, id, count, length, seed, region, offset, trace, how):
        """Some calls have a thread each; many have one, which waits for all of them. One thread of each endpoint starts
        calls, in their order."""
        if count > THREADS // 4 and region is None:
            requests = [traced(payload(length, seed + index), trace) for index in range(count)]
            self.begin(self.calling_many(id, self.in_thread(lambda: endpoint.call_many(requests, return_exceptions=True, **how))))
            return
        for index in range(count):
            data = traced(self.sent(region, offset + index * length, payload(length, seed + index)), trace)
            started = self.calls[id + index] = self.in_order(endpoint, data, how)
            work = self.begin(self.calling(id + index, self.result(started)))
        await asyncio.wait([started, work], timeout=BLOCKED_SECONDS, return_when=asyncio.FIRST_COMPLETED)

    def in_order(self, endpoint, data, how):
        if endpoint not in self.starters:
            self.starters[endpoint] = ThreadPoolExecutor(1)
        return asyncio.get_running_loop().run_in_executor(self.starters[endpoint], lambda: endpoint.start(data, **how))

    async def result(self, started):
        call = await started
        return await self.in_thread(call.result)

    async def cancel_call(self, id):
        (await self.calls[id]).cancel()

    @staticmethod
    async def calling_many(id, answers):
        for index, answer in enumerate(await answers):
            failed = isinstance(answer, Exception)
            status, data = (status_of(answer), getattr(answer, "payload", b"")) if failed else ("CRPC_OK", answer)
            event("response", id=id + index, status=status, **told(data))

    async def receive_all(self, source):
        """As `async for` does."""
        with contextlib.suppress(copyrpc.Closed):  # the context
            while (request := await self.in_thread(source.receive)) is not None:
                await self.take_named(request)

    async def serve_in_thread(self, name, listener):
        """As `serve` does, one request after the other."""
        loop = asyncio.get_running_loop()

        def handle(request):
            loop.call_soon_threadsafe(self.tell_request, request, name)
            while not request.answered and request.endpoint.error is None:
                time.sleep(0.001)

        with contextlib.suppress(copyrpc.Closed):  # the context
            await self.in_thread(listener.serve, handle)

    # ---- serve ----

    async def handle(self, request):
        """A handler: it waits until it was told what to answer, unless it was told before."""
        await self.named(request)
        mode = self.modes.get(request.endpoint.user_data)
        if mode is None:
            self.take_request(request, request.endpoint.user_data)
            while not request.answered and request.endpoint.error is None:
                with contextlib.suppress(asyncio.CancelledError):  # its caller waits no more; run.py says when it is answered all the same
                    await asyncio.sleep(0.001)
        elif mode == "drop":
            request.drop()
        elif mode == "fail":
            raise RuntimeError("as it was told to")
        return request.payload if mode == "echo" else None

    # ---- Any ----

    async def take_requests(self, source):
        if self.form == "serve":
            await source.aserve(self.handle, requests_max=REQUESTS)
        elif self.form == "blocking":
            await self.receive_all(source)
        elif self.form == "arrays":
            await self.outlast(source)
        else:
            async for request in source:
                await self.take_named(request)

    @staticmethod
    async def named(request):
        while request.endpoint.user_data is None:  # it came before accept() gave us the endpoint
            await asyncio.sleep(0.001)

    async def take_named(self, request):
        await self.named(request)
        self.take_request(request, request.endpoint.user_data)
