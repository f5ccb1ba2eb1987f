"""Spans of calls and requests, as OpenTelemetry's own SDK records them."""
import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading

import pytest
from conftest import HOST, Serving, until

import copyrpc
from copyrpc import Status, Trace

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: ./dev setup gets it from PyPI")

from opentelemetry import context as contexts
from opentelemetry import trace as traces
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from copyrpc.opentelemetry import _place, client_interceptor, server_interceptor

CLIENT, SERVER, INTERNAL = SpanKind.CLIENT, SpanKind.SERVER, SpanKind.INTERNAL
FAULTS = ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")


class Recorder:
    """A provider, and what its spans were."""

    def __init__(self, **options):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("tests")

    def of(self, kind):
        """The spans of this kind that have ended, in the order of their beginnings."""
        return sorted((span for span in self.exporter.get_finished_spans() if span.kind == kind), key=lambda span: span.start_time)

    def one(self, kind):
        (span,) = self.of(kind)
        return span


@pytest.fixture
def recorder():
    recorder = Recorder()
    before = contexts.get_current()
    yield recorder
    assert contexts.get_current() is before  # whatever was done
    recorder.provider.shutdown()


def options_of(recorder, *outer):
    return copyrpc.EndpointOptions(interceptors=[*outer, client_interceptor(recorder.provider)])


class Service(Serving):
    """Has the interceptor before its handler. When it is closed, all spans of requests have ended."""

    def __init__(self, address, handler, recorder, during=contextlib.nullcontext):
        self.handle = copyrpc.chain(handler, server_interceptor(recorder.provider))
        self.during = during
        super().__init__(address)

    def run(self):
        with self.during():
            super().run()


@pytest.fixture
def serving(address, recorder):
    services = []

    def start(handler, **options):
        services.append(Service(address, handler, recorder, **options))
        return services[-1]

    yield start
    for service in services:
        service.close()


def echo(request):
    return request.payload


def with_trace(trace):
    """An interceptor that sets a trace."""

    def carry(call):
        call.trace = trace
        yield

    return carry


def is_child(span, parent):
    assert span.context.trace_id == parent.context.trace_id
    assert span.parent.span_id == parent.context.span_id
    return True


# ---- Two sides of one call ----


def test_a_call_and_its_request_are_spans_of_one_trace(serving, recorder):
    router = copyrpc.Router()

    @router.method("trace.echo")
    def handle(request):
        with recorder.tracer.start_as_current_span("work"):
            return request.payload

    service = serving(router)
    with copyrpc.connect(service.address, options_of(recorder)) as endpoint:
        with recorder.tracer.start_as_current_span("outer"):
            assert endpoint.call(b"x", method=copyrpc.method_number("trace.echo")) == b"x"
        peer = endpoint.info().peer_address
        local = endpoint.info().local_address
    service.close()
    work, outer = recorder.of(INTERNAL)[::-1]
    client, server = recorder.one(CLIENT), recorder.one(SERVER)
    assert outer.parent is None and is_child(client, outer) and is_child(server, client) and is_child(work, server)
    assert server.parent.is_remote and server.parent.trace_flags.sampled
    assert client.name == server.name == "trace.echo"
    host, port = service.address.split(":")
    assert dict(client.attributes) == {
        "rpc.system.name": "copyrpc",
        "rpc.method": "trace.echo",
        "server.address": host,
        "server.port": int(port),
        "network.peer.address": peer.split(":")[0],
        "network.peer.port": int(peer.split(":")[1]),
        "rpc.status_code": "OK",
    }
    assert dict(server.attributes) == {
        "rpc.system.name": "copyrpc",
        "rpc.method": "trace.echo",
        "network.peer.address": local.split(":")[0],
        "network.peer.port": int(local.split(":")[1]),
        "rpc.status_code": "OK",
    }
    assert client.status.status_code == server.status.status_code == StatusCode.UNSET and not client.events and not server.events
    assert client.instrumentation_scope.name == "copyrpc.opentelemetry"
    assert client.instrumentation_scope.version == copyrpc.__version__
    assert client.instrumentation_scope.schema_url.startswith("https://opentelemetry.io/schemas/")


def test_a_request_without_a_trace_begins_one(serving, recorder):
    """Whose span the server was begun in is not whose request it is."""
    seen = []

    def handler(request):
        seen.append((traces.get_current_span().get_span_context().trace_id, request.trace))

    service = serving(handler, during=lambda: recorder.tracer.start_as_current_span("serving"))
    with copyrpc.connect(service.address) as endpoint:
        endpoint.call(b"")
    with copyrpc.connect(service.address, copyrpc.EndpointOptions(interceptors=[with_trace(Trace(bytes(16), bytes(8), 1))])) as endpoint:
        endpoint.call(b"")  # W3C calls such a trace invalid
    service.close()
    first, second = recorder.of(SERVER)
    assert first.parent is None and second.parent is None and first.context.trace_id != second.context.trace_id
    assert [trace_id for trace_id, _ in seen] == [first.context.trace_id, second.context.trace_id]
    assert recorder.one(INTERNAL).context.trace_id not in (first.context.trace_id, second.context.trace_id)
    assert seen[0][1] is None


def test_a_trace_goes_on_through_a_server_that_calls_another(recorder, address):
    async def main():
        async with copyrpc.Context() as context, copyrpc.Context() as middle, copyrpc.Context() as other:
            last, first = context.listen(address), middle.listen(f"{HOST}:0")
            serving = [asyncio.ensure_future(last.aserve(copyrpc.chain(echo, server_interceptor(recorder.provider))))]
            behind = await middle.aconnect(address, options_of(recorder))

            async def forward(request):
                return await behind.acall(request.payload)

            serving.append(asyncio.ensure_future(first.aserve(copyrpc.chain(forward, server_interceptor(recorder.provider)))))
            endpoint = await other.aconnect(first.address, options_of(recorder))
            with recorder.tracer.start_as_current_span("outer"):
                answers = await asyncio.gather(*(endpoint.acall(b"%d" % index) for index in range(20)))
            assert answers == [b"%d" % index for index in range(20)]
            first.stop()
            last.stop()
            await asyncio.wait_for(asyncio.gather(*serving), 60)

    asyncio.run(main())
    outer = recorder.one(INTERNAL)
    clients, servers = recorder.of(CLIENT), recorder.of(SERVER)
    assert len(clients) == len(servers) == 40
    by_id = {span.context.span_id: span for span in (*clients, *servers, outer)}
    for span in (*clients, *servers):
        is_child(span, by_id[span.parent.span_id])
    kinds = sorted(str([span.kind.name, by_id[span.parent.span_id].kind.name]) for span in (*clients, *servers))
    assert kinds == ["['CLIENT', 'INTERNAL']"] * 20 + ["['CLIENT', 'SERVER']"] * 20 + ["['SERVER', 'CLIENT']"] * 40
    assert len({span.parent.span_id for span in servers}) == 40  # each has its own caller


def test_every_form_of_a_call_is_a_span(serving, recorder):
    service = serving(echo)
    with copyrpc.connect(service.address, options_of(recorder)) as endpoint:
        with recorder.tracer.start_as_current_span("outer"):
            endpoint.call(b"1")
            endpoint.start(b"2").result(60)
            with endpoint.call_view(b"3") as reply:
                assert bytes(reply.payload) == b"3"
            assert endpoint.call_many([b"4", b"5", b"6"]) == [b"4", b"5", b"6"]

            async def main():
                return await asyncio.gather(endpoint.acall(b"7"), endpoint.acall(b"8"))

            assert asyncio.run(main()) == [b"7", b"8"]
            region = endpoint.context.register(bytearray(8192), "local_write")
            assert endpoint.call(region[:3000], idempotent=True) == bytes(3000)
    service.close()
    outer, clients, servers = recorder.one(INTERNAL), recorder.of(CLIENT), recorder.of(SERVER)
    assert len(clients) == len(servers) == 9
    assert all(is_child(span, outer) for span in clients)
    assert {span.parent.span_id for span in servers} == {span.context.span_id for span in clients}


# ---- The current context ----


def test_a_call_that_is_open_leaves_the_context_alone(silent, recorder):
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address, options_of(recorder))
        before = contexts.get_current()
        with recorder.tracer.start_as_current_span("first") as first:
            one = endpoint.start(b"1")
            assert traces.get_current_span() is first
        with recorder.tracer.start_as_current_span("second") as second:
            other = endpoint.start(b"2")
            assert traces.get_current_span() is second
        assert contexts.get_current() is before and not recorder.of(CLIENT)
        with pytest.raises(copyrpc.Timeout):
            other.result(0.001)
        requests = silent.wait_for(2)
        sent = [request.trace for request in requests]
        for request in reversed(requests):
            request.reply(b"!")
        with recorder.tracer.start_as_current_span("third") as third:
            assert other.result(60) == b"!" and one.result(60) == b"!"
            assert traces.get_current_span() is third
        ours = recorder.of(CLIENT)
        assert is_child(ours[0], first) and is_child(ours[1], second)
        assert [int.from_bytes(trace.span_id, "big") for trace in sent] == [span.context.span_id for span in ours]


def test_a_call_that_nobody_waits_for_ends_its_span(silent, recorder):
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address, options_of(recorder))
        call = endpoint.start(b"1")
        del call
        gc.collect()
        span = recorder.one(CLIENT)
        assert span.status.status_code == StatusCode.UNSET and "rpc.status_code" not in span.attributes


def test_a_coroutine_that_runs_elsewhere_takes_the_span_along(recorder, address):
    """A handler may make tasks of what is behind it: what made the task must not be left with the span."""

    async def handler(request):
        await asyncio.sleep(0)
        with recorder.tracer.start_as_current_span("work"):
            return request.payload

    chained = copyrpc.chain(handler, server_interceptor(recorder.provider))

    async def dispatch(request):
        before = contexts.get_current()
        task = asyncio.ensure_future(chained(request))
        assert contexts.get_current() is before
        answer = await task
        assert contexts.get_current() is before
        return answer

    async def main():
        async with copyrpc.Context() as context, copyrpc.Context() as other, context.listen(address) as listener:
            serving = asyncio.ensure_future(listener.aserve(dispatch))
            endpoint = await other.aconnect(address, options_of(recorder))
            assert await endpoint.acall(b"x") == b"x"
            listener.stop()
            await asyncio.wait_for(serving, 60)

    asyncio.run(main())
    assert is_child(recorder.one(INTERNAL), recorder.one(SERVER)) and is_child(recorder.one(SERVER), recorder.one(CLIENT))


# ---- Errors ----


def statuses():
    return [status for status in Status if status != Status.OK] + [17, 255, 256, 300]


def test_which_answers_are_errors(serving, recorder):
    """At the client, all; at the server, what is its own fault: as the conventions have it for gRPC."""

    def handler(request):
        status = request.method
        if bytes(request.payload) == b"raise":
            raise copyrpc.RemoteError(status, "as asked")
        request.reply(b"as asked", status)

    service = serving(handler)
    with copyrpc.connect(service.address, options_of(recorder)) as endpoint:
        for how in (b"raise", b"reply"):
            for status in statuses():
                with pytest.raises(copyrpc.RemoteError):
                    endpoint.call(how, method=status)
        for status in statuses():
            with endpoint.call_view(b"raise", method=status) as reply:
                assert reply.status == status
    service.close()
    clients, servers = recorder.of(CLIENT), recorder.of(SERVER)
    names = [copyrpc.RemoteError(status).status_name for status in statuses()]
    assert [span.attributes["rpc.status_code"] for span in clients] == names * 3
    assert [span.attributes["rpc.status_code"] for span in servers] == names * 3
    for span, name in zip(clients, names * 3):
        assert span.status.status_code == StatusCode.ERROR and span.attributes["error.type"] == name
    for span in clients[: 2 * len(names)]:
        assert span.status.description.endswith("as asked") and [event.name for event in span.events] == ["exception"]
    for span, name in zip(servers, names * 3):
        assert (span.status.status_code == StatusCode.ERROR) == (name in FAULTS), name
        assert span.attributes.get("error.type") == (name if name in FAULTS else None)


class Odd(Exception):
    pass


def test_a_handler_that_fails(serving, recorder):
    def handler(request):
        if request.method == 1:
            raise Odd("so it is")
        if request.method == 2:
            raise copyrpc.errors.error_of(copyrpc._native.lib.CRPC_E_TIMEOUT, "its own call")
        if request.method == 3:
            request.reply(b"", 5)
            raise Odd("too late")
        if request.method == 4:
            request.drop()
        if request.method == 5:
            request.drop(not_started=True)
        if request.method == 6:
            with request.reserve(3, status=13) as room:
                room.commit()

    service = serving(handler)
    with copyrpc.connect(service.address, options_of(recorder)) as endpoint:
        for method in range(1, 7):
            with pytest.raises(copyrpc.CopyrpcError):
                endpoint.call(b"", method=method)
    service.close()
    seen = [
        (span.attributes["rpc.status_code"], span.attributes.get("error.type"), span.status.status_code.name, len(span.events))
        for span in recorder.of(SERVER)
    ]
    assert seen == [
        ("UNKNOWN", f"{__name__}.Odd", "ERROR", 1),
        ("UNKNOWN", "CRPC_E_TIMEOUT", "ERROR", 1),
        ("NOT_FOUND", None, "UNSET", 0),
        ("UNKNOWN", "CRPC_E_DROPPED", "ERROR", 0),
        ("UNAVAILABLE", "CRPC_E_NOT_STARTED", "ERROR", 0),
        ("INTERNAL", "INTERNAL", "ERROR", 0),
    ]
    odd = recorder.of(SERVER)[0]
    assert odd.status.description == "so it is"
    assert odd.events[0].attributes["exception.message"] == "so it is" and "in handler" in odd.events[0].attributes["exception.stacktrace"]
    seen = [(span.attributes["rpc.status_code"], span.attributes["error.type"], span.status.status_code.name) for span in recorder.of(CLIENT)]
    assert seen == [
        ("UNKNOWN", "UNKNOWN", "ERROR"),
        ("UNKNOWN", "UNKNOWN", "ERROR"),
        ("NOT_FOUND", "NOT_FOUND", "ERROR"),
        ("UNKNOWN", "CRPC_E_DROPPED", "ERROR"),
        ("UNAVAILABLE", "CRPC_E_NOT_STARTED", "ERROR"),
        ("INTERNAL", "INTERNAL", "ERROR"),
    ]


def test_errors_of_the_library_and_of_the_caller(silent, recorder):
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address, options_of(recorder))
        with pytest.raises(copyrpc.Timeout):
            endpoint.call(b"", timeout=0.001)
        with pytest.raises(TypeError):
            endpoint.call("text")
        endpoint.close()
        with pytest.raises(copyrpc.Closed):
            endpoint.call(b"")
    seen = [(span.attributes["rpc.status_code"], span.attributes["error.type"], span.status.status_code.name) for span in recorder.of(CLIENT)]
    assert seen == [
        ("DEADLINE_EXCEEDED", "CRPC_E_TIMEOUT", "ERROR"),
        ("UNKNOWN", "TypeError", "ERROR"),
        ("CANCELED", "CRPC_E_CLOSED", "ERROR"),
    ]


@pytest.mark.parametrize("how", ["cancel", "deadline", "stop"])
def test_a_request_whose_task_is_canceled(recorder, address, how):
    async def main():
        async with copyrpc.Context() as context, copyrpc.Context() as other, context.listen(address) as listener:
            begun = []

            async def handler(request):
                begun.append(traces.get_current_span())
                await asyncio.Event().wait()

            serving = asyncio.ensure_future(listener.aserve(copyrpc.chain(handler, server_interceptor(recorder.provider))))
            endpoint = await other.aconnect(address, options_of(recorder))
            task = asyncio.ensure_future(endpoint.acall(b"x", timeout=2.0 if how == "deadline" else None))
            await until(lambda: begun)
            assert begun[0].is_recording()
            if how == "cancel":
                task.cancel()
            elif how == "stop":
                listener.stop(grace=0)
            with pytest.raises((asyncio.CancelledError, copyrpc.CopyrpcError)):
                await task
            await until(lambda: recorder.of(SERVER))
            assert not begun[0].is_recording()
            listener.stop()
            if how != "stop":
                await asyncio.wait_for(serving, 60)
            else:
                await asyncio.wait_for(asyncio.gather(serving, return_exceptions=True), 60)

    asyncio.run(main())
    client, server = recorder.one(CLIENT), recorder.one(SERVER)
    status, error_type, fault = {
        "cancel": ("CANCELED", "asyncio.exceptions.CancelledError", StatusCode.UNSET),
        "deadline": ("DEADLINE_EXCEEDED", "CRPC_E_TIMEOUT", StatusCode.ERROR),
        "stop": ("UNKNOWN", "CRPC_E_DROPPED", StatusCode.UNSET),
    }[how]
    assert (client.attributes["rpc.status_code"], client.attributes["error.type"]) == (status, error_type)
    assert client.status.status_code == StatusCode.ERROR and is_child(server, client)
    assert server.attributes["rpc.status_code"] == ("CANCELED" if how == "stop" else status) and server.status.status_code == fault


# ---- Several attempts ----


@pytest.mark.parametrize("form", ["call", "start", "acall"])
def test_each_attempt_of_an_outer_interceptor_is_a_span(serving, recorder, form):
    calls = []

    def handler(request):
        if len(recorder.of(SERVER)) % 3 != 2:
            raise copyrpc.RemoteError(Status.UNAVAILABLE)
        return b"now"

    def patient(call):
        while True:
            assert call.trace is None  # nothing is left of an attempt
            try:
                answer = yield
            except copyrpc.RemoteError:
                continue
            calls.append(call)
            return answer

    service = serving(handler)
    with copyrpc.connect(service.address, options_of(recorder, patient)) as endpoint:
        if form == "call":
            assert endpoint.call(b"") == b"now"
        elif form == "start":
            assert endpoint.start(b"").result(60) == b"now"
        else:
            assert asyncio.run(endpoint.acall(b"")) == b"now"
    service.close()
    clients, servers = recorder.of(CLIENT), recorder.of(SERVER)
    assert len(clients) == len(servers) == 3 and calls[0].trace is None
    assert all(is_child(server, client) for server, client in zip(servers, clients))
    assert [span.status.status_code.name for span in clients] == ["ERROR", "ERROR", "UNSET"]


def test_attempts_of_an_inner_interceptor_are_one_span(serving, recorder):
    answers = [copyrpc.RemoteError(Status.UNAVAILABLE), b"now"]

    def handler(request):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def patient(call):
        try:
            return (yield)
        except copyrpc.RemoteError:
            return (yield)

    service = serving(handler)
    options = copyrpc.EndpointOptions(interceptors=[client_interceptor(recorder.provider), patient])
    with copyrpc.connect(service.address, options) as endpoint:
        assert endpoint.call(b"") == b"now"
    service.close()
    client = recorder.one(CLIENT)
    assert len(recorder.of(SERVER)) == 2 and all(is_child(span, client) for span in recorder.of(SERVER))
    assert client.status.status_code == StatusCode.UNSET


# ---- Spans that are not recorded ----


def test_what_is_not_sampled_tells_the_server_so(address):
    """The server would record, but follows its caller."""
    quiet, loud = Recorder(sampler=ALWAYS_OFF), Recorder(sampler=ParentBased(TraceIdRatioBased(1.0)))
    seen = []

    def handler(request):
        seen.append((request.trace, traces.get_current_span().get_span_context()))
        raise ValueError("nobody records this")

    service = Service(address, handler, loud)
    with copyrpc.connect(address, options_of(quiet)) as endpoint:
        with pytest.raises(copyrpc.RemoteError):
            endpoint.call(b"")
        with quiet.tracer.start_as_current_span("outer") as outer, pytest.raises(copyrpc.RemoteError):
            endpoint.call(b"")
    service.close()
    assert not quiet.exporter.get_finished_spans() and not loud.exporter.get_finished_spans()
    for trace, current in seen:
        assert trace.flags & 1 == 0 and not current.trace_flags.sampled
        assert int.from_bytes(trace.trace_id, "big") == current.trace_id != 0
    assert seen[1][1].trace_id == outer.get_span_context().trace_id != seen[0][1].trace_id


def test_without_a_tracer_nothing_is_sent(address, recorder):
    nothing = traces.NoOpTracerProvider()
    seen = []

    def handler(request):
        seen.append((request.trace, traces.get_current_span().get_span_context().is_valid))

    with copyrpc.listen(address) as listener:
        thread = threading.Thread(target=listener.serve, args=(copyrpc.chain(handler, server_interceptor(nothing)),))
        thread.start()
        with copyrpc.connect(address, copyrpc.EndpointOptions(interceptors=[client_interceptor(nothing)])) as endpoint:
            endpoint.call(b"")
        trace = Trace(b"t" * 16, b"s" * 8, 1)
        with copyrpc.connect(address, copyrpc.EndpointOptions(interceptors=[with_trace(trace), client_interceptor(nothing)])) as endpoint:
            endpoint.call(b"")  # the application's own is left as it is
        listener.stop()
        thread.join(60)
    assert seen[0] == (None, False) and seen[1][0] == trace


# ---- Names ----


def test_what_methods_are_called(serving, recorder):
    service = serving(echo)
    named, numbered = copyrpc.method_number("test_what_methods_are_called"), 0x8000 | 0x1234
    twice = copyrpc.method_number("queue.sum")
    assert copyrpc.method_number("lock.update_all") == twice
    with copyrpc.Context() as context:
        endpoint = context.connect(service.address, options_of(recorder))
        context.name_method(9, "nine")
        for method in (0, 7, named, numbered, twice, 9):
            endpoint.call(b"", method=method)
    names = [span.name for span in recorder.of(CLIENT)]
    assert names == ["method 0", "method 7", "test_what_methods_are_called", "method 0x9234", f"method {twice:#x}", "nine"]
    assert [span.attributes["rpc.method"] for span in recorder.of(CLIENT)] == names


@pytest.mark.parametrize(
    "address, place",
    [
        ("192.0.2.1:7471", {"x.address": "192.0.2.1", "x.port": 7471}),
        ("[2001:db8::1]:7471", {"x.address": "2001:db8::1", "x.port": 7471}),
        ("one.example:7471", {"x.address": "one.example", "x.port": 7471}),
        ("one:7471,two:7471", {"x.address": "one:7471,two:7471"}),
        ("nowhere", {"x.address": "nowhere"}),
    ],
)
def test_what_is_made_of_an_address(address, place):
    assert _place("x", address) == place


def test_an_endpoint_that_connects_again_tells_its_new_peer(address, recorder):
    with copyrpc.Context() as context:
        options = copyrpc.EndpointOptions(interceptors=[client_interceptor(recorder.provider)], reconnect=True)
        addresses = [address, f"{HOST}:20999"]
        for where in addresses:
            service = Service(where, echo, recorder)
            if where == address:
                endpoint = context.connect(addresses, options, timeout=60)
            for _ in range(2):
                endpoint.call(b"", timeout=60, idempotent=True)
            service.close()
        spans = recorder.of(CLIENT)
    assert [span.attributes["network.peer.port"] for span in spans] == [int(where.split(":")[1]) for where in addresses for _ in range(2)]
    assert {span.attributes["server.address"] for span in spans} == {",".join(addresses)}


# ---- Being used wrongly, or not at all ----


def test_the_wrong_interceptor(serving, recorder):
    with pytest.raises(TypeError, match="client_interceptor is for EndpointOptions.interceptors; around a handler goes server_interceptor"):
        copyrpc.chain(echo, client_interceptor(recorder.provider))(None)
    service = serving(echo)
    with copyrpc.connect(service.address, copyrpc.EndpointOptions(interceptors=[server_interceptor(recorder.provider)])) as endpoint:
        with pytest.raises(TypeError, match="server_interceptor goes around a handler"):
            endpoint.call(b"")


def run_python(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=os.environ)


def test_copyrpc_alone_imports_nothing_of_it():
    done = run_python("import copyrpc, sys; print([name for name in sys.modules if 'opentelemetry' in name])")
    assert done.stdout == "[]\n", done.stderr


def test_without_the_package_it_says_what_to_install():
    done = run_python("import sys; sys.modules['opentelemetry'] = None; import copyrpc.opentelemetry")
    assert done.returncode != 0 and "ImportError: copyrpc.opentelemetry needs the package opentelemetry-api: pip install opentelemetry-api" in done.stderr
