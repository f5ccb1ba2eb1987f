"""Spans of OpenTelemetry for calls and for requests, which are those of one trace:

    from copyrpc.opentelemetry import client_interceptor, server_interceptor

    copyrpc.connect(address, copyrpc.EndpointOptions(interceptors=[client_interceptor()]))
    listener.serve(copyrpc.chain(router, server_interceptor()))

This needs the package opentelemetry-api, which nothing else of copyrpc does. docs/observability.md has the details, and the semantic
conventions say what the attributes mean: https://opentelemetry.io/docs/specs/semconv/rpc/rpc-spans/"""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Generator, Mapping, Optional

from . import __version__
from ._intercept import OutgoingCall
from ._message import Reply
from ._native import ffi, lib
from ._request import Request
from ._router import called
from ._status import Status, standard, standard_name
from ._trace import Trace
from .errors import CopyrpcError, RemoteError

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace as traces
except ImportError as error:
    raise ImportError(
        "copyrpc.opentelemetry needs the package opentelemetry-api: pip install opentelemetry-api, and opentelemetry-sdk for a program"
        " that exports its spans"
    ) from error

if TYPE_CHECKING:
    from ._endpoint import Endpoint

__all__ = ["client_interceptor", "server_interceptor"]

_SCHEMA = "https://opentelemetry.io/schemas/1.45.0"

#: What is the server's own fault, of the statuses with which it answers: as the conventions have it for gRPC, whose numbers these are.
_FAULTS = frozenset(
    (Status.UNKNOWN, Status.DEADLINE_EXCEEDED, Status.UNIMPLEMENTED, Status.INTERNAL, Status.UNAVAILABLE, Status.DATA_LOSS)
)
_OK = Status.OK.name


def client_interceptor(
    tracer_provider: Optional[traces.TracerProvider] = None,
) -> Callable[[OutgoingCall], Generator[None, Any, None]]:
    """An interceptor for EndpointOptions.interceptors that makes a span of each call, a child of the span that is current when
    the call is made, and sends its trace to the server. Without a provider it takes OpenTelemetry's global one."""
    tracer = traces.get_tracer(__name__, __version__, tracer_provider, _SCHEMA)

    def traced(call: OutgoingCall) -> Generator[None, Any, None]:
        if not isinstance(call, OutgoingCall):
            raise TypeError("client_interceptor is for EndpointOptions.interceptors; around a handler goes server_interceptor")
        name = _method_name(call.endpoint, call.method)
        attributes = {"rpc.system.name": "copyrpc", "rpc.method": name, **_target(call.endpoint)}
        span = tracer.start_span(name, kind=traces.SpanKind.CLIENT, attributes=attributes)
        before = call.trace
        sent = _trace_of(span)
        if sent is not None:
            call.trace = sent
        try:
            answer = yield  # the span is not made the current one: a call that was started stays open, and its caller goes on
            if span.is_recording():
                _note_answer(span, call.endpoint, answer.status if isinstance(answer, Reply) else 0)
        except GeneratorExit:  # nobody wants the answer any more
            raise
        except BaseException as error:
            if span.is_recording():
                span.set_attributes(_peer(call.endpoint))
                _fail(span, Status.of(error), _error_type(error), error)
            raise
        finally:
            call.trace = before
            span.end()

    return traced


def server_interceptor(
    tracer_provider: Optional[traces.TracerProvider] = None,
) -> Callable[[Request], Generator[Optional[ContextManager[None]], Any, None]]:
    """An interceptor for `chain` that makes a span of each request, a child of its caller's span if the caller has sent a trace,
    and else the first of a new trace. It is the current span in the handler. Without a provider it takes OpenTelemetry's global one."""
    tracer = traces.get_tracer(__name__, __version__, tracer_provider, _SCHEMA)

    def traced(request: Request) -> Generator[Optional[ContextManager[None]], Any, None]:
        if not isinstance(request, Request):
            raise TypeError("server_interceptor goes around a handler, by `chain`; client_interceptor is for EndpointOptions.interceptors")
        name = _method_name(request.endpoint, request.method)
        attributes = {"rpc.system.name": "copyrpc", "rpc.method": name, **_peer(request.endpoint)}
        span = tracer.start_span(name, _parent(request.trace), traces.SpanKind.SERVER, attributes)
        try:
            yield _Current(span) if _replaces(span) else None
            if span.is_recording():
                _note_outcome(span, request._outcome or 0)
        except GeneratorExit:
            raise
        except BaseException as error:
            if span.is_recording():
                _note_failure(span, request, error)
            raise
        finally:
            span.end()

    return traced


# ---- Traces ----


def _trace_of(span: traces.Span) -> Optional[Trace]:
    """What is sent of the span; None if it is not one of a trace."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return Trace(context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big"), int(context.trace_flags) & 0xFF)


def _parent(trace: Optional[Trace]) -> contexts.Context:
    """The context that a request's span begins in. It has nothing of the program that serves: in whose span that was begun is not
    whose request this is."""
    if trace is None:
        return contexts.Context()
    remote = traces.SpanContext(
        int.from_bytes(trace.trace_id, "big"), int.from_bytes(trace.span_id, "big"), True, traces.TraceFlags(trace.flags)
    )
    return traces.set_span_in_context(traces.NonRecordingSpan(remote), contexts.Context())


class _Current:
    """Has a span be the current one. Can be entered again once it was left."""

    __slots__ = ("_span", "_context", "_token")

    def __init__(self, span: traces.Span) -> None:
        self._span = span
        self._context: Optional[contexts.Context] = None
        self._token: Any = None

    def __enter__(self) -> None:
        self._context = traces.set_span_in_context(self._span)
        self._token = contexts.attach(self._context)

    def __exit__(self, *ignored: object) -> None:
        if contexts.get_current() is self._context:  # else a coroutine that nobody finishes ends somewhere else
            contexts.detach(self._token)


def _replaces(span: traces.Span) -> bool:
    """Tells whether the handler would see another span without it."""
    return span.get_span_context().is_valid or traces.get_current_span().get_span_context().is_valid


# ---- Names and attributes ----


def _method_name(endpoint: Endpoint, method: int) -> str:
    return endpoint._context._method_names.get(method) or called(method)


def _target(endpoint: Endpoint) -> Mapping[str, Any]:
    """What the endpoint was asked to connect to."""
    found = endpoint._described.get("target")
    if found is None:
        found = _place("server", endpoint._target) if endpoint._target else {}
        endpoint._described["target"] = found
    return found


def _peer(endpoint: Endpoint) -> Mapping[str, Any]:
    """What it is connected to."""
    found = endpoint._described.get("peer")
    if found is None:
        try:
            address = endpoint.info().peer_address
        except CopyrpcError:  # there is no connection any more
            return {}
        found = _place("network.peer", address) if address else {}
        if endpoint.connected:
            endpoint._described["peer"] = found
    return found


def _place(prefix: str, address: str) -> dict[str, Any]:
    """The attributes for "host:port". Several addresses are one name for a group of servers, without a port."""
    host, _, port = address.rpartition(":")
    if "," in address or not host or not port.isdigit():
        return {f"{prefix}.address": address}
    return {f"{prefix}.address": host.strip("[]"), f"{prefix}.port": int(port)}


# ---- How it ended ----


def _note_answer(span: traces.Span, endpoint: Endpoint, status: int) -> None:
    """At the client. The status of a call_view raises nothing. Whose answer it is was not known before if the call had to wait for a
    connection."""
    span.set_attributes({"rpc.status_code": _OK, **_peer(endpoint)})
    if status != 0:
        _fail(span, status, _status_name(status))


def _note_outcome(span: traces.Span, outcome: int) -> None:
    """At the server: the status of its answer, or CRPC_E_* if it has dropped the request."""
    if outcome == 0:
        span.set_attribute("rpc.status_code", _OK)
        return
    _note_status(span, _standard(outcome), _library_name(outcome) if outcome < 0 else _status_name(outcome))


def _note_failure(span: traces.Span, request: Request, error: BaseException) -> None:
    """The handler has raised this."""
    if request._outcome is not None:  # it had answered before
        _note_status(span, _standard(request._outcome), _error_type(error), error)
    elif isinstance(error, RemoteError):
        _note_status(span, error.status, _error_type(error), error)
    elif isinstance(error, asyncio.CancelledError):
        why = request.endpoint._left.get(request._token)  # its caller waits no more; else the server ends
        _note_status(span, Status.CANCELED if why is None else _standard(why), _error_type(error), error)
    else:
        _note_status(span, Status.UNKNOWN, _error_type(error), error)


def _note_status(span: traces.Span, status: int, error_type: str, error: Optional[BaseException] = None) -> None:
    """At the server: most errors are the caller's, and what the server is for."""
    if status in _FAULTS:
        _fail(span, status, error_type, error)
    else:
        span.set_attribute("rpc.status_code", _status_name(status))


def _fail(span: traces.Span, status: int, error_type: str, error: Optional[BaseException] = None) -> None:
    span.set_attributes({"rpc.status_code": _status_name(status), "error.type": error_type})
    span.set_status(traces.Status(traces.StatusCode.ERROR, str(error) if error is not None else None))
    if error is not None:
        span.record_exception(error)


def _standard(status: int) -> int:
    return standard(lib.crpc_application_status(status))


def _status_name(status: int) -> str:
    """As RemoteError.status_name has it."""
    return standard_name(status) or str(int(status))


def _library_name(status: int) -> str:
    return str(ffi.string(lib.crpc_status_name(status)).decode())


def _error_type(error: BaseException) -> str:
    """What was answered, an error of the library by its name, or the exception's class."""
    if isinstance(error, CopyrpcError) and error.status:
        return error.status_name
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
