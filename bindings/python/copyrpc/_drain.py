"""_drain.py: ending a service gracefully. What has begun finishes; what has not is dropped as not started, so that its caller can send it
again elsewhere. The connections take leave at once, so that clients know that what is dropped is for another server, and end when all is
answered. Nothing that came is left without an answer."""
from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Collection

from . import _asyncio
from .errors import Closed, CopyrpcError

if TYPE_CHECKING:
    from ._endpoint import Endpoint
    from ._request import Request, Requests

#: How long clients have to take leave, when nothing more is done for them.
LEAVE_SECONDS = 1.0


class Drain:
    """The end of a listener, or of one endpoint, in at most so many seconds."""

    def __init__(self, requests: Requests, grace: float) -> None:
        self._pump = requests._pump
        self._deadline = time.monotonic() + grace
        self._endpoints: Collection[Endpoint] = requests._drained()
        self._queues = [requests._queue, *(endpoint._queue for endpoint in self._endpoints)]

    def _left(self) -> float:
        """Seconds that handlers still have."""
        return max(self._deadline - time.monotonic(), 0.0)

    def _waiting(self) -> bool:
        return any(self._queues)

    def _over(self) -> bool:
        return all(endpoint._over() for endpoint in self._endpoints)

    def _drop(self) -> None:
        """Drops what has come and was not begun."""
        for queue in self._queues:
            while queue:
                drop_not_started(queue.popleft())

    def _take_leave(self) -> None:
        for endpoint in self._endpoints:
            if not endpoint._up:  # it is only being connected
                endpoint.close()
                continue
            with self._pump._use:
                endpoint._leave(self._left() + LEAVE_SECONDS)

    def run(self) -> None:
        """Nothing has begun: handlers are done."""
        try:
            self._take_leave()
            self._drop()
            while not self._over():
                with self._pump._use:
                    self._pump._wait(lambda: self._waiting() or self._over())
                self._drop()
        except Closed:
            pass  # the context was closed: nobody can be answered

    async def arun(self, tasks: Collection[asyncio.Task[None]]) -> None:
        """The tasks handle requests. Those that do not end in time are canceled."""
        dropping = asyncio.ensure_future(self._drop_all())
        try:
            await _asyncio.ready(self._pump)
            self._take_leave()
            if tasks:
                await asyncio.wait(tasks, timeout=self._left())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await _asyncio.wait(self._pump, self._over)
        except Closed:
            pass
        finally:
            dropping.cancel()
            await asyncio.gather(dropping, return_exceptions=True)

    async def _drop_all(self) -> None:
        while True:
            await _asyncio.wait(self._pump, self._waiting)
            self._drop()


def drop_not_started(request: Request) -> None:
    """Answers a request that has not begun."""
    try:
        with request._pump._use:
            request._drop_not_started()
    except CopyrpcError:
        pass  # the context was closed
    request.release()
