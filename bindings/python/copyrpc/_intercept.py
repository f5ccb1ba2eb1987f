"""_intercept.py: endpoints with interceptors, which go around each call."""
from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Union

from ._endpoint import Endpoint
from ._options import EndpointOptions
from ._router import Interceptor, Run, Step, around_all
from ._trace import Carried, Trace
from .errors import CopyrpcError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._region import RegionSlice

    Payload = Union[Buffer, RegionSlice]


class OutgoingCall:
    """A call that an interceptor sees, and may change: the arguments of Endpoint.call."""

    __slots__ = ("endpoint", "request", "timeout", "method", "reply_bytes_max", "after", "idempotent", "trace")

    def __init__(
        self,
        endpoint: Endpoint,
        request: Payload,
        timeout: Optional[float],
        method: int,
        reply_bytes_max: Optional[int],
        after: bool,
        idempotent: bool,
    ) -> None:
        self.endpoint = endpoint
        self.request = request
        self.timeout = timeout
        self.method = method
        self.reply_bytes_max = reply_bytes_max
        self.after = after
        self.idempotent = idempotent
        #: Which trace it belongs to: the peer is told, if it asks Request.trace.
        self.trace: Optional[Trace] = None

    def _made_by(self, function: Callable[..., Any]) -> Any:
        """What one of Endpoint's functions gives for it."""
        return function(
            self.request if self.trace is None else Carried(self.request, self.trace),
            timeout=self.timeout,
            method=self.method,
            reply_bytes_max=self.reply_bytes_max,
            after=self.after,
            idempotent=self.idempotent,
        )


class InterceptedCall:
    """What InterceptedEndpoint.start returns: a Call with one interceptor around it. The part behind `yield` runs in result(), or
    in the first of several."""

    __slots__ = ("_run", "_start", "_call", "_inner", "_error")

    def __init__(self, interceptor: Interceptor, start: Step, call: OutgoingCall) -> None:
        self._start = start
        self._call = call
        self._error: Optional[BaseException] = None
        self._run = Run(interceptor, call)
        self._inner: Any = None if self._run.ended else self._begin()

    def _begin(self) -> Any:
        while not self._run.ended:
            try:
                return self._run.within(self._start, self._call)
            except BaseException as error:
                self._run.failed(error)
        return None

    def done(self) -> bool:
        """Returns True if the call has ended. An interceptor may then call again."""
        return self._error is not None or self._run.ended or bool(self._inner.done())

    def cancel(self) -> None:
        """Ends the call, unless it has ended."""
        if not self.done():
            self._inner.cancel()

    def result(self, timeout: Optional[float] = None) -> bytes:
        """Waits for the answer and returns it. `timeout` only limits the wait; the call goes on."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._run.ended and self._error is None:
            self._step(deadline)
        if self._error is not None:
            raise self._error
        answer: bytes = self._run.answer
        return b"" if answer is None else answer

    def _step(self, deadline: Optional[float]) -> None:
        """Tells the interceptor what has become of the call, and calls again if it wants that."""
        try:
            answer = self._inner.result(None if deadline is None else max(deadline - time.monotonic(), 0))
        except BaseException as error:
            if not self._inner.done():  # the wait ended, and not the call
                raise
            self._told(error)
        else:
            self._run.passed(answer)
        if not self._run.ended and self._error is None:
            self._inner = self._begin()

    def _told(self, error: BaseException) -> None:
        try:
            self._run.failed(error)
        except BaseException as final:
            self._error = final.with_traceback(None)  # which has this frame, and so this object


class InterceptedEndpoint(Endpoint):
    """An Endpoint with EndpointOptions.interceptors. In a class of its own, because others must not pay for it."""

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the interceptors make of a call by one of Endpoint's functions."""

        def step(call: OutgoingCall) -> Any:
            return call._made_by(function)

        return around_all(self._options.interceptors, step)(OutgoingCall(self, *arguments))

    def start(  # type: ignore[override]
        self,
        request: Payload,
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        after: bool = False,
        idempotent: bool = False,
    ) -> InterceptedCall:
        inner = super().start

        def last(call: OutgoingCall) -> Any:
            return call._made_by(inner)

        step: Step = last
        for interceptor in reversed(self._options.interceptors):
            step = partial(InterceptedCall, interceptor, step)
        started: InterceptedCall = step(OutgoingCall(self, request, timeout, method, reply_bytes_max, after, idempotent))
        return started

    def call(
        self,
        request: Payload,
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        after: bool = False,
        idempotent: bool = False,
    ) -> bytes:
        answer: Optional[bytes] = self._run(super().call, request, timeout, method, reply_bytes_max, after, idempotent)
        return b"" if answer is None else answer

    def call_view(
        self,
        request: Payload,
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        after: bool = False,
        idempotent: bool = False,
    ) -> Any:
        return self._run(super().call_view, request, timeout, method, reply_bytes_max, after, idempotent)

    async def acall(
        self,
        request: Payload,
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        after: bool = False,
        idempotent: bool = False,
    ) -> bytes:
        answer = self._run(super().acall, request, timeout, method, reply_bytes_max, after, idempotent)
        if hasattr(answer, "__await__"):
            answer = await answer
        return b"" if answer is None else bytes(answer)

    def call_many(
        self,
        requests: Iterable[Buffer],
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        after: bool = False,
        idempotent: bool = False,
        return_exceptions: bool = False,
    ) -> Any:
        calls = [
            self.start(
                request, timeout=timeout, method=method, reply_bytes_max=reply_bytes_max, after=after, idempotent=idempotent
            )
            for request in requests
        ]
        answers: list[Any] = []
        first: Optional[CopyrpcError] = None
        for call in calls:
            try:
                answers.append(call.result())
            except CopyrpcError as error:
                first = first or error
                answers.append(error)
        if first is not None and not return_exceptions:
            raise first
        return answers


def endpoint_class(options: EndpointOptions) -> type[Endpoint]:
    """The class of an endpoint with these options."""
    return InterceptedEndpoint if options.interceptors else Endpoint
