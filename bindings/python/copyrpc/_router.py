"""_router.py: a handler for each method, and interceptors: what goes around handlers and calls."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, ContextManager, Generator, Optional, Sequence, TypeVar, Union

from ._native import lib
from ._status import METHOD_NAMED, Status, asked_names, method_number
from .errors import RemoteError, error_of

if TYPE_CHECKING:
    from ._request import Request

    AnyHandler = Callable[["Request"], Any]
    H = TypeVar("H", bound=AnyHandler)

#: What runs one thing that interceptors go around: of a handler, a Request; of a call, an OutgoingCall.
Step = Callable[[Any], Any]
#: A generator function. At each `yield`, what is behind it runs, and its answer is what `yield` gives, or it raises. It runs within what
#: is yielded, if that is a context manager.
Interceptor = Callable[[Any], Generator[Optional[ContextManager[Any]], Any, Any]]


#: Names of methods, of all routers: for metrics. A name always has the same number.
router_names: dict[int, str] = {}


class Router:
    """A handler for each method. It is itself a handler, for serve and aserve:

        router = copyrpc.Router()

        @router.method("kv.get")
        def get(request): ...

        listener.serve(router)

    A request for a method that it does not have is answered with Status.UNIMPLEMENTED."""

    def __init__(self) -> None:
        self._methods: dict[int, tuple[Optional[str], AnyHandler]] = {}

    def add(self, method: Union[int, str], handler: AnyHandler) -> None:
        """Has `handler` answer the method with that number, or with that name: see method_number. Raises InvalidArgument if
        the method has a handler already, and if another name has the same number. May be called at any time."""
        if not callable(handler):
            raise TypeError(f"a handler is a function that takes a Request, not {type(handler).__name__}")
        name = method if isinstance(method, str) else None
        index = method_number(method)
        other = self._methods.setdefault(index, (name, handler))
        if name and other[0] == name:
            router_names[index] = name
        if other[1] is handler and other[0] == name:
            return
        if other[0] == name:
            raise error_of(lib.CRPC_E_BUSY, f"{_called(index, name)} has a handler already")
        raise error_of(
            lib.CRPC_E_BUSY,
            f"{_called(index, other[0])} and {_called(index, name)} have the same number: rename one, or give it a number of its own"
            f" below {METHOD_NAMED:#x}",
        )

    def method(self, method: Union[int, str]) -> Callable[[H], H]:
        """Does the same as add, as a decorator."""

        def decorate(handler: H) -> H:
            self.add(method, handler)
            return handler

        return decorate

    def name(self, method: int) -> Optional[str]:
        """Gives the name with which the method was added, and None if there was none."""
        return self._methods.get(method, (None, None))[0]

    def __call__(self, request: Request) -> Any:
        found = self._methods.get(request.method)
        if found is None:
            raise RemoteError(Status.UNIMPLEMENTED, f"there is no {_called(request.method, None)} here")
        return found[1](request)


def called(method: int) -> str:
    """What the method is called: by its name, if this program has used one, and else by its number."""
    return router_names.get(method) or asked_names.get(method) or _called(method, None)


def _called(method: int, name: Optional[str]) -> str:
    if name is not None:
        return f"method {name!r} ({method:#x})"
    return f"method {method:#x}" if method >= METHOD_NAMED else f"method {method}"


def chain(handler: AnyHandler, *interceptors: Interceptor) -> AnyHandler:
    """Puts interceptors around a handler, the first outermost. Each is a generator function:

        def timed(request):
            begun = time.monotonic()
            try:
                answer = yield          # the handler runs, and gives this or raises
            finally:
                observe(request.method, time.monotonic() - begun)
            return answer               # or another; without it, the handler's

    The same serves functions and coroutines. One that returns or raises before its `yield` answers in the handler's
    stead. What sets a contextvar for the handler yields a context manager that does it: `yield manager`. That is entered around
    the handler alone. For a coroutine it is entered again where the coroutine runs, which may be another task."""
    return around_all(interceptors, handler)


def around_all(interceptors: Sequence[Interceptor], inner: Step) -> Step:
    """What runs `inner` within all of them, the first outermost."""
    for interceptor in reversed(interceptors):
        inner = around(interceptor, inner)
    return inner


def around(interceptor: Interceptor, inner: Step) -> Step:
    """What runs `inner` between the parts of the interceptor. If `inner` gives an awaitable, so does this."""
    if not callable(interceptor):
        raise TypeError(f"an interceptor is a generator function, not {type(interceptor).__name__}")

    def run(subject: Any) -> Any:
        run = Run(interceptor, subject)
        while not run.ended:
            try:
                answer = run.within(inner, subject)
                if hasattr(answer, "__await__"):
                    return _awaited(run, inner, subject, answer)
            except BaseException as error:
                run.failed(error)
            else:
                run.passed(answer)
        return run.answer

    return run


async def _awaited(run: Run, inner: Step, subject: Any, coming: Any) -> Any:
    """Goes on with a run whose inside has given an awaitable."""
    while True:
        try:
            if coming is None:  # again
                coming = run.within(inner, subject)
            answer = coming
            if hasattr(coming, "__await__"):
                if run.inside is None:
                    answer = await coming
                else:
                    answer = None
                    with run.inside:
                        answer = await coming
        except BaseException as error:
            run.failed(error)
        else:
            run.passed(answer)
        if run.ended:
            return run.answer
        coming = None


class Run:
    """One run of an interceptor."""

    __slots__ = ("_steps", "ended", "answer", "inside")

    def __init__(self, interceptor: Interceptor, subject: Any) -> None:
        self._steps = interceptor(subject)
        if not hasattr(self._steps, "throw"):
            raise TypeError(f"an interceptor is a generator function, with a `yield`; {interceptor!r} is none")
        self.ended = False
        self.answer: Any = None
        #: What the interceptor has yielded.
        self.inside: Optional[ContextManager[Any]] = None
        try:
            self.inside = next(self._steps)
        except StopIteration as end:
            self.ended, self.answer = True, end.value

    def within(self, step: Step, subject: Any) -> Any:
        """Takes the step that is behind the interceptor."""
        if self.inside is None:
            return step(subject)
        if not hasattr(self.inside, "__enter__"):
            raise TypeError(f"an interceptor yields nothing, or a context manager, not {type(self.inside).__name__}")
        with self.inside:
            return step(subject)
        return None  # the manager has swallowed an exception

    def passed(self, answer: Any) -> None:
        """What is behind the interceptor has given this."""
        self.answer = answer
        try:
            self.inside = self._steps.send(answer)
        except StopIteration as end:
            self.ended = True
            if end.value is not None:
                self.answer = end.value

    def failed(self, error: BaseException) -> None:
        """What is behind the interceptor has raised this. Raises it if the interceptor has no answer instead."""
        try:
            try:
                self.inside = self._steps.throw(error)
                return
            except StopIteration as end:
                self.ended, self.answer = True, end.value
            if self.answer is None:
                raise error
        finally:
            del error  # whose traceback has this frame
