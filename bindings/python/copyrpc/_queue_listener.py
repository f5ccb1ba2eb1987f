"""_queue_listener.py: accepting queues."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

from ._door import Asking, Door
from ._native import ffi, lib
from ._queue import Queue
from ._queue_options import REJECT_BYTES_MAX, QueueOptions, private_bytes, queue_info, queue_options
from .errors import Closed, check, error_of

if TYPE_CHECKING:
    from ._context import Context


class QueueRequest(Asking[Queue, QueueOptions]):
    """A peer that wants to connect a queue. Use accept(), reject() or hand_over()."""

    _door: QueueListener

    def __init__(self, door: Door[Queue, QueueOptions], bits: int, info: Any) -> None:
        super().__init__(door, bits, info)
        #: What the peer has sent. The network may have added zeros.
        self.private_data: bytes = info.private_data

    def reject(self, private_data: bytes = b"") -> None:
        """Rejects the peer, which gets up to 148 bytes of private data: its connect raises
        Refused."""
        data = private_bytes(private_data, REJECT_BYTES_MAX)
        with self._door._pump._use as pointer:
            self._decide()
            check(lib.crpc_queue_reject(pointer, {"bits": self._bits}, data, len(data)), "reject")


class QueueListener(Door[Queue, QueueOptions]):
    """A listener for queues, made by Context.listen_queues. Any program that connects by rdma_cm
    can be the peer."""

    _kind = "crpc_queue"
    _asking = QueueRequest

    def __init__(
        self, context: Context, address: Optional[bytes], backlog: int, options: QueueOptions, spread: Sequence[QueueListener]
    ) -> None:
        if address is None and not context._op_room:
            raise error_of(lib.CRPC_E_STATE, "this context has no queues")
        self._open(context, address, backlog, options, spread, lib.CRPC_LISTENER_QUEUES)

    # ---- With the lock ----

    def _checked(self, options: Optional[QueueOptions]) -> QueueOptions:
        return queue_options(options)

    def _describe(self, struct: Any) -> Any:
        return queue_info(struct)

    def _c_options(self, options: QueueOptions) -> Any:
        return options.to_c()

    def _made(self, bits: int, options: QueueOptions) -> Queue:
        return Queue(self._context, bits, options)

    def _known(self, bits: int) -> Optional[Queue]:
        queue = self._context._queues.get(bits)
        return queue if isinstance(queue, Queue) else None

    def _reject(self, bits: int, reason: int) -> int:
        return int(lib.crpc_queue_reject(self._pump._pointer, {"bits": bits}, ffi.NULL, 0))

    # ---- For the application ----

    def next_connection(self, timeout: Optional[float] = None) -> Optional[QueueRequest]:
        """Waits for a peer that wants to connect. Returns None when the listener is closed."""
        asking: Optional[QueueRequest] = self._next(timeout)
        return asking

    async def anext_connection(self) -> Optional[QueueRequest]:
        """Does the same as next_connection, for coroutines."""
        asking: Optional[QueueRequest] = await self._anext()
        return asking

    def accept(self, options: Optional[QueueOptions] = None, *, timeout: Optional[float] = None) -> Queue:
        """Waits for a peer that wants to connect, and accepts every peer. `timeout` limits the
        wait."""
        asking = self.next_connection(timeout)
        if asking is None:
            raise Closed("the listener is closed", lib.CRPC_E_CLOSED)
        return asking.accept(options)

    async def aaccept(self, options: Optional[QueueOptions] = None) -> Queue:
        """Does the same as accept, for coroutines."""
        asking = await self.anext_connection()
        if asking is None:
            raise Closed("the listener is closed", lib.CRPC_E_CLOSED)
        return await asking.aaccept(options)
