"""What services are made of: statuses, routers, interceptors, and what becomes of requests that are too many."""
import asyncio
import contextlib
import contextvars
import os
import pickle
import re
import threading

import pytest
from conftest import until

import copyrpc
from copyrpc import Status
from copyrpc._native import lib


@pytest.fixture
def serving(address):
    """serving(handler, options) gives a client of a server with this handler, in a thread."""
    listeners, threads = [], []
    ready = threading.Event()

    def start(handler, options=None):
        def run():
            with copyrpc.listen(address) as listener:
                listeners.append(listener)
                ready.set()
                listener.serve(handler)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        assert ready.wait(60)
        return copyrpc.connect(address, options)

    yield start
    for listener in listeners:
        listener.stop()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


# ---- Statuses ----


def test_statuses_are_those_of_c():
    names = {name[len("CRPC_STATUS_") :]: getattr(lib, name) for name in dir(lib) if name.startswith("CRPC_STATUS_")}
    assert names.pop("RESERVED_MAX") == 255
    assert {status.name: status.value for status in Status} == names
    for status in Status:
        assert copyrpc._native.ffi.string(lib.crpc_application_status_name(status)).decode() == status.name
    assert (str(Status.NOT_FOUND), f"{Status.NOT_FOUND} {Status.NOT_FOUND:03d}") == ("NOT_FOUND", "NOT_FOUND 005")
    assert Status.NOT_FOUND == 5 and Status.UNAUTHENTICATED == 16


def test_a_remote_error_says_its_status():
    error = copyrpc.RemoteError(Status.NOT_FOUND, "no key '\u00fc'")
    assert error.status is Status.NOT_FOUND and error.payload == "no key '\u00fc'".encode()
    assert str(error) == "the peer answered with status 5 (NOT_FOUND): no key '\u00fc'" and error.status_name == "NOT_FOUND"
    again = pickle.loads(pickle.dumps(error))
    assert (again.status, again.payload, str(again)) == (error.status, error.payload, str(error))
    assert copyrpc.RemoteError(5).status is Status.NOT_FOUND
    own = copyrpc.RemoteError(300, b"\xff")
    assert (own.status, own.status_name, str(own)) == (300, "300", "the peer answered with status 300")


def test_status_of():
    for error, status in (
        (None, Status.OK),
        (ValueError(), Status.UNKNOWN),
        (copyrpc.RemoteError(10), Status.ABORTED),
        (copyrpc.RemoteError(300), 300),
        (copyrpc.errors.error_of(lib.CRPC_E_TIMEOUT), Status.DEADLINE_EXCEEDED),
        (copyrpc.errors.error_of(lib.CRPC_E_DISCONNECTED), Status.UNAVAILABLE),
        (copyrpc.errors.error_of(-1000), Status.UNKNOWN),
        (asyncio.CancelledError(), Status.CANCELED),
        (asyncio.TimeoutError(), Status.DEADLINE_EXCEEDED),
    ):
        assert Status.of(error) == status
    assert Status.of(copyrpc.RemoteError(10)) is Status.ABORTED


def test_the_page_has_the_tables():
    with open(os.path.join(os.environ["TEST_SOURCE"], "docs/services.md")) as page:
        text = page.read()
    statuses = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| .+ \|$", text, re.M)
    assert statuses == [(str(status.value), status.name) for status in Status]
    errors = re.findall(r"^\| `(CRPC_E_\w+)` \| ([A-Z_]+) \| .+ \|$", text, re.M)
    numbers = {name: getattr(lib, name) for name in dir(lib) if name.startswith("CRPC_E_")}
    assert [name for name, _ in errors] == sorted(numbers, key=lambda name: -numbers[name])
    assert dict(errors) == {name: Status(lib.crpc_application_status(number)).name for name, number in numbers.items()}


def test_a_handler_answers_with_a_status(serving):
    def handler(request):
        raise copyrpc.RemoteError(Status.NOT_FOUND, f"no key {bytes(request.payload)!r}")

    with serving(handler) as endpoint, pytest.raises(copyrpc.RemoteError) as caught:
        endpoint.call(b"x")
    assert caught.value.status is Status.NOT_FOUND and caught.value.message.endswith("(NOT_FOUND): no key b'x'")


# ---- Methods ----


def test_names_have_numbers():
    """capi/tests/service_test.c has the same vectors."""
    for name, number in {
        "a": 0xE134,
        "kv.get": 0xF810,
        "kv.put": 0x9D15,
        "echo": 0xFDBF,
        "/helloworld.Greeter/SayHello": 0xBD85,
        "gr\u00fc\u00dfe": 0xA245,
        "queue.sum": 0x9AF2,
        "lock.update_all": 0x9AF2,
    }.items():
        assert copyrpc.method_number(name) == number >= copyrpc.METHOD_NAMED
    assert copyrpc.method_number(7) == 7
    for wrong in ("", "a\0b", 1 << 16, -1):
        with pytest.raises(ValueError):
            copyrpc.method_number(wrong)
    with pytest.raises(TypeError):
        copyrpc.method_number(b"kv.get")


def test_a_router_calls_the_handler_of_the_method(serving):
    router = copyrpc.Router()

    @router.method("kv.get")
    def get(request):
        return b"get " + bytes(request.payload)

    router.add(7, lambda request: b"seven")
    assert get.__name__ == "get" and router.name(copyrpc.method_number("kv.get")) == "kv.get" and router.name(7) is None
    with serving(router) as endpoint:
        assert endpoint.call(b"x", method=copyrpc.method_number("kv.get")) == b"get x"
        assert endpoint.call(b"x", method=7) == b"seven"
        for method, text in ((0, "no method 0 here"), (0x9D15, "no method 0x9d15 here")):
            with pytest.raises(copyrpc.RemoteError, match=text) as caught:
                endpoint.call(b"x", method=method)
            assert caught.value.status is Status.UNIMPLEMENTED
        router.add("kv.put", lambda request: b"put")  # while it serves
        assert endpoint.call(b"x", method=0x9D15) == b"put"


def test_a_router_notices_methods_that_collide():
    router = copyrpc.Router()

    def echo(request):
        return request.payload

    router.add("queue.sum", echo)
    router.add(0xF810, echo)
    for method, text in (
        ("lock.update_all", r"method 'queue.sum' \(0x9af2\) and method 'lock.update_all' \(0x9af2\) have the same number: rename one"),
        ("kv.get", r"method 0xf810 and method 'kv.get' \(0xf810\) have the same number"),
        (0x9AF2, "method 'queue.sum'.*rename one"),
        ("queue.sum", r"method 'queue.sum' \(0x9af2\) has a handler already"),
        (0xF810, "method 0xf810 has a handler already"),
    ):
        with pytest.raises(copyrpc.InvalidArgument, match=text):
            router.add(method, lambda request: None)
    with pytest.raises(TypeError, match="a handler is a function"):
        router.add(1, b"x")


# ---- Around handlers ----


def around(name):
    def interceptor(subject):
        if isinstance(subject, copyrpc.Request) and bytes(subject.payload) == name:
            raise copyrpc.RemoteError(Status.PERMISSION_DENIED, b"by " + name)
        answer = yield
        return name + b"(" + bytes(answer) + b")"

    return interceptor


def test_interceptors_go_around_handlers(serving):
    seen = []

    def watch(request):
        try:
            yield
        except ValueError as error:
            seen.append(error)
            if bytes(request.payload) == b"mend":
                return b"mended"
        else:
            seen.append("well")
        return None  # as it is

    def shortcut(request):
        if bytes(request.payload) == b"short":
            return b"cut"
        return (yield)

    def handler(request):
        if bytes(request.payload) in (b"raise", b"mend"):
            raise ValueError("in vain")
        return request.payload

    with serving(copyrpc.chain(handler, around(b"a"), around(b"b"), watch, shortcut)) as endpoint:
        assert endpoint.call(b"x") == b"a(b(x))" and seen == ["well"]
        assert endpoint.call(b"short") == b"a(b(cut))"
        with pytest.raises(copyrpc.RemoteError, match="by b") as caught:
            endpoint.call(b"b")
        assert caught.value.status is Status.PERMISSION_DENIED
        with pytest.raises(copyrpc.RemoteError, match="ValueError: in vain"):
            endpoint.call(b"raise")
        assert endpoint.call(b"mend") == b"a(b(mended))" and len(seen) == 4
        assert endpoint.call(b"still there") == b"a(b(still there))"


class Inside:
    """Tells whether something runs within it."""

    def __init__(self):
        self.seen, self.entered = contextvars.ContextVar("inside", default=False), 0

    def __enter__(self):
        self.token = self.seen.set(True)
        self.entered += 1

    def __exit__(self, *ignored):
        self.seen.reset(self.token)


def test_a_handler_runs_within_what_its_interceptor_yields(serving):
    inside, outside = Inside(), []

    def keep(request):
        try:
            yield inside
        except ValueError:
            outside.append(inside.seen.get())
            yield inside  # again
        outside.append(inside.seen.get())

    def handler(request):
        if inside.entered == 2:
            raise ValueError
        return b"%d" % inside.seen.get()

    with serving(copyrpc.chain(handler, keep)) as endpoint:
        assert endpoint.call(b"") == b"1" and endpoint.call(b"") == b"1"
    assert outside == [False, False, False] and inside.entered == 3


def test_a_coroutine_runs_within_what_its_interceptor_yields():
    """Also where it is awaited by another task than the one that has made it."""
    inside = Inside()

    def keep(subject):
        for _ in range(2):
            try:
                answer = yield inside
            except ValueError:
                assert not inside.seen.get()
                continue
            return (answer, inside.seen.get())

    async def handler(subject):
        await asyncio.sleep(0)
        if inside.entered < 3:
            raise ValueError
        return inside.seen.get()

    async def main():
        task = asyncio.ensure_future(copyrpc.chain(handler, keep)(None))
        assert not inside.seen.get()
        assert await task == (True, False) and not inside.seen.get()

    asyncio.run(main())
    assert inside.entered == 4


def test_what_is_yielded_may_end_an_exception():
    def keep(subject):
        assert (yield contextlib.suppress(ValueError)) is None
        return "kept"

    def handler(subject):
        raise ValueError

    async def coroutine(subject):
        raise ValueError

    assert copyrpc.chain(handler, keep)(None) == "kept"
    assert asyncio.run(copyrpc.chain(coroutine, keep)(None)) == "kept"


def test_a_call_is_started_within_what_an_interceptor_yields(serving):
    inside, seen = Inside(), []

    def keep(call):
        yield inside

    def look(call):
        seen.append(inside.seen.get())
        yield

    with serving(lambda request: b"", copyrpc.EndpointOptions(interceptors=[keep, look])) as endpoint:
        call = endpoint.start(b"")
        assert not inside.seen.get() and seen == [True]
        assert call.result(60) == endpoint.call(b"") == b"" and seen == [True, True]


def test_what_is_no_interceptor():
    with pytest.raises(TypeError, match="generator function, not bytes"):
        copyrpc.chain(lambda request: b"", b"x")
    with pytest.raises(TypeError, match="generator function, with a `yield`"):
        copyrpc.chain(lambda request: b"", lambda request: b"")(None)
    with pytest.raises(TypeError, match="yields nothing, or a context manager, not int"):
        copyrpc.chain(lambda request: b"", lambda request: (number for number in (5,)))(None)
    with copyrpc.Context() as context, pytest.raises(TypeError, match="generator function, not int"):
        context.blob(copyrpc.EndpointOptions(interceptors=[1]))


def test_interceptors_go_around_coroutines_and_routers(address):
    async def main():
        router = copyrpc.Router()

        @router.method("wait")
        async def wait(request):
            await asyncio.sleep(0)
            if not request.payload:
                raise ValueError("nothing")
            return request.payload

        router.add("at once", lambda request: request.payload)

        def again(request):
            while True:
                try:
                    return (yield)
                except ValueError:
                    answers.append("again")
                    if len(answers) == 3:
                        raise

        answers = []
        async with copyrpc.Context() as context, context.listen(address) as listener:
            served = asyncio.ensure_future(listener.aserve(copyrpc.chain(router, around(b"a"), again)))
            other = copyrpc.Context()
            endpoint = await other.aconnect(address)
            assert await endpoint.acall(b"x", method=copyrpc.method_number("wait")) == b"a(x)"
            assert await endpoint.acall(b"x", method=copyrpc.method_number("at once")) == b"a(x)"
            with pytest.raises(copyrpc.RemoteError, match="no method 3"):
                await endpoint.acall(b"x", method=3)
            with pytest.raises(copyrpc.RemoteError, match="nothing"):
                await endpoint.acall(b"", method=copyrpc.method_number("wait"))
            assert answers == ["again"] * 3
            listener.stop()
            await asyncio.wait_for(served, 60)
            other.close()

    asyncio.run(main())


# ---- Around calls ----


def numbered(call):
    call.method += 1
    call.request = b">" + bytes(call.request)
    answer = yield
    return b"(" + bytes(answer) + b")"


def persistent(call):
    """Calls again while the server is not available, and does not make empty calls."""
    if not call.request:
        raise copyrpc.RemoteError(Status.INVALID_ARGUMENT)
    if bytes(call.request) == b"known":
        return b"cached"
    while True:
        try:
            return (yield)
        except copyrpc.RemoteError as error:
            if error.status != Status.UNAVAILABLE:
                raise


class Reluctant:
    """Is not available twice, and answers then."""

    def __init__(self):
        self.calls = 0

    def __call__(self, request):
        self.calls += 1
        if self.calls % 3:
            raise copyrpc.RemoteError(Status.UNAVAILABLE, "not yet")
        return b"%d %s" % (request.method, bytes(request.payload))


def test_interceptors_go_around_calls_of_every_form(serving):
    options = copyrpc.EndpointOptions(interceptors=[numbered, numbered])
    with serving(lambda request: b"%d%s" % (request.method, bytes(request.payload)), options) as endpoint:
        assert isinstance(endpoint, copyrpc.InterceptedEndpoint)
        assert endpoint.call(b"x") == b"((2>>x))"
        assert endpoint.call(b"x", method=5) == b"((7>>x))"
        call = endpoint.start(b"y")
        assert call.result(60) == call.result() == b"((2>>y))" and call.done()
        assert endpoint.call_many([b"1", b"2"], method=1) == [b"((3>>1))", b"((3>>2))"]
        with pytest.raises(ValueError, match="method is 0 to 65535"):
            endpoint.call(b"x", method=0xFFFF)

        async def main():
            assert await asyncio.gather(endpoint.acall(b"a"), endpoint.acall(b"b", method=3)) == [b"((2>>a))", b"((5>>b))"]

        asyncio.run(main())


def test_call_view_has_interceptors_too(serving):
    seen = []

    def look(call):
        reply = yield
        seen.append((bytes(reply.payload), reply.status))

    with serving(lambda request: request.payload, copyrpc.EndpointOptions(interceptors=[look])) as endpoint:
        with endpoint.call_view(b"view") as reply:
            assert bytes(reply.payload) == b"view"
    assert seen == [(b"view", 0)]


def test_an_interceptor_may_call_again_or_not_at_all(serving):
    server = Reluctant()
    with serving(server, copyrpc.EndpointOptions(interceptors=[persistent])) as endpoint:
        assert endpoint.call(b"x") == b"0 x" and server.calls == 3
        call = endpoint.start(b"y", method=1)
        assert call.result(60) == b"1 y" and server.calls == 6
        with pytest.raises(copyrpc.RemoteError) as caught:
            endpoint.call(b"")
        assert caught.value.status is Status.INVALID_ARGUMENT
        assert endpoint.call(b"known") == endpoint.start(b"known").result() == b"cached" and server.calls == 6

        async def main():
            assert await endpoint.acall(b"z") == b"0 z" and server.calls == 9
            assert await endpoint.acall(b"known") == b"cached"

        asyncio.run(main())
        answers = endpoint.call_many([b"known", b"w"], return_exceptions=True)
        assert answers == [b"cached", b"0 w"]


def test_a_started_call_that_fails_is_told_every_time(serving):
    ends = []

    def watch(call):
        try:
            yield
        except copyrpc.RemoteError as error:
            ends.append(error.status)
            raise

    def handler(request):
        raise copyrpc.RemoteError(Status.ABORTED, "so it is")

    with serving(handler, copyrpc.EndpointOptions(interceptors=[watch])) as endpoint:
        call = endpoint.start(b"x")
        for _ in range(2):
            with pytest.raises(copyrpc.RemoteError, match="so it is"):
                call.result(60)
        assert ends == [Status.ABORTED] and call.done()
        answers = endpoint.call_many([b"x", b"y"], return_exceptions=True)
        assert [answer.status for answer in answers] == [Status.ABORTED] * 2
        with pytest.raises(copyrpc.RemoteError, match="so it is"):
            endpoint.call_many([b"x"])


def test_a_wait_that_ends_is_no_end_of_the_call(silent):
    ends = []

    def watch(call):
        try:
            return (yield)
        finally:
            ends.append(call.request)

    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address, copyrpc.EndpointOptions(interceptors=[watch]))
        call, canceled = endpoint.start(b"x"), endpoint.start(b"y")
        with pytest.raises(copyrpc.Timeout):
            call.result(0.01)
        assert not call.done() and not ends
        silent.wait_for(2)[0].reply(b"there")
        assert call.result(60) == b"there" and ends == [b"x"]
        canceled.cancel()
        with pytest.raises(copyrpc.Canceled):
            canceled.result(60)
        assert ends == [b"x", b"y"]


def test_a_task_that_is_canceled_passes_interceptors(silent):
    ends = []

    def watch(call):
        try:
            return (yield)
        except asyncio.CancelledError:
            ends.append("canceled")
            raise

    async def main():
        with copyrpc.Context() as context:
            endpoint = await context.aconnect(silent.address, copyrpc.EndpointOptions(interceptors=[watch]))
            task = asyncio.ensure_future(endpoint.acall(b"x"))
            await until(lambda: silent.requests)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert ends == ["canceled"]


def test_accepted_connections_have_interceptors_too(lane_context, address):
    with lane_context.listen(address, copyrpc.EndpointOptions(interceptors=[numbered])) as listener:
        client = lane_context.connect(address)
        client.start(b"x")
        request = listener.receive(60)
        assert isinstance(request.endpoint, copyrpc.InterceptedEndpoint) and not isinstance(client, copyrpc.InterceptedEndpoint)
        request.reply(b"")


# ---- Too many requests ----


@pytest.mark.parametrize("who", ["listener", "endpoint"])
def test_requests_beyond_the_bound_are_refused_at_once(address, who):
    async def main():
        async with copyrpc.Context() as context, context.listen(address) as listener:
            go, begun = asyncio.Event(), []

            async def handler(request):
                begun.append(request)
                await go.wait()
                return request.payload

            bound = {"requests_max": 2, "overload": "refuse"}
            coming = asyncio.ensure_future(listener.aserve(handler, **bound) if who == "listener" else listener.areceive())
            other = copyrpc.Context()
            caller = client = await other.aconnect(address)
            taker, serving = listener, coming
            if who == "endpoint":  # the one that has connected serves
                first = asyncio.ensure_future(client.acall(b"first"))
                request = await coming
                request.reply(b"")
                await first
                taker, caller = client, request.endpoint
                serving = asyncio.ensure_future(taker.aserve(handler, **bound))
            held = [asyncio.ensure_future(caller.acall(b"%d" % index)) for index in range(2)]
            await until(lambda: len(begun) == 2)
            outcomes = await asyncio.gather(*(caller.acall(b"more", timeout=60) for _ in range(50)), return_exceptions=True)
            assert [outcome.status for outcome in outcomes] == [Status.RESOURCE_EXHAUSTED] * 50 and len(begun) == 2
            with pytest.raises(copyrpc.RemoteError, match="as many requests open as it takes"):
                await caller.acall(b"one more")
            with pytest.raises(copyrpc.RemoteError, match=r"RESOURCE_EXHAUSTED\)$"):
                await caller.acall(b"one more", reply_bytes_max=0)
            assert taker.overloaded == 52
            go.set()
            assert await asyncio.gather(*held) == [b"0", b"1"]
            assert await caller.acall(b"again") == b"again" and taker.overloaded == 52
            taker.stop()
            await asyncio.wait_for(serving, 60)
            for wrong in ("drop", None):
                with pytest.raises((ValueError, TypeError), match="overload is one of wait, refuse"):
                    await taker.aserve(handler, overload=wrong)
            other.close()

    asyncio.run(main())
