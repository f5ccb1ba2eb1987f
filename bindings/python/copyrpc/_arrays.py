"""_arrays.py: many calls with few calls of the library: lists of buffers (Batch, for
Endpoint.call_many), and arrays of ops and completions that the application fills and reads itself,
with numpy or without."""
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Optional, Union

from ._guards import Attempt, Pins, settle
from ._message import CLOSED, Message, memory
from ._native import ffi, lib
from ._options import number, pin, pin_writable
from ._records import CHANNEL_OP, COMPLETION, MARK, OP, Completion, column_form, records_form, structured
from ._trace import Trace, trace_of_request
from .errors import Closed, CopyrpcError, check, error_of

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Buffer

    from ._channel import Channel
    from ._endpoint import Endpoint
    from ._pump import Pump
    from ._region import Region

CALL: int = lib.CRPC_OP_CALL
_CHUNK = 1024
_uncleared = ffi.new_allocator(should_clear_after_alloc=False)
_VIEWED = (lib.CRPC_COMPLETION_RESPONSE, lib.CRPC_COMPLETION_REQUEST)


class Batch:
    """A list of requests to one endpoint, under way."""

    def __init__(
        self, endpoint: Endpoint, requests: Iterable[Buffer], limit_ns: int, method: int, reply_bytes_max: int, flags: int
    ) -> None:
        buffers = tuple(requests)
        try:
            pins = Pins(buffers)
        except (TypeError, BufferError, ValueError):
            for index, buffer in enumerate(buffers):
                pin(buffer, f"request {index}")  # says which and why
            raise
        self.endpoint = endpoint
        self.pins: Optional[Pins] = pins  # until the library has copied all
        self.limit_ns = limit_ns
        self.method = method
        self.reply_bytes_max = reply_bytes_max
        self.flags = flags
        self.results: list[Any] = [None] * len(pins)
        self.left = len(pins)
        self.low = self.high = 0
        self.failed = False  # results has exceptions

    def take(self, user_data: int, status: int, address: int, size: int) -> None:
        payload: bytes = memory[address : address + size] if size else b""
        result = payload if status == 0 else self.failure(error_of(status, "call", payload))
        index = user_data - self.low
        settle(self, self.results, index, result)  # again, if it was cut just behind this

    def failure(self, error: CopyrpcError) -> CopyrpcError:
        self.failed = True
        return error

    def _finished(self) -> bool:
        return self.left == 0

    def run(self, return_exceptions: bool) -> list[Union[bytes, CopyrpcError]]:
        pump = self.endpoint._pump
        with Attempt(pump._use, self._abandon, pump):
            self._begin(pump)
            self._end(pump)
        return self.answers(return_exceptions)

    def _begin(self, pump: Pump) -> None:
        """Submits the requests. Waits if there is no room for all."""
        self.endpoint._check()
        self.low = pump._ids.value + 1
        pump._ids.value += self.left
        self.high = pump._ids.value + 1
        pump._batches.append(self)
        pins, self.pins = self.pins, None
        assert pins is not None
        self._submit(pump, pins)
        pump._rearm()

    def _end(self, pump: Pump) -> None:
        """Waits for the answers."""
        pump._wait(self._finished)
        pump._batches.remove(self)

    def answers(self, return_exceptions: bool) -> list[Union[bytes, CopyrpcError]]:
        if self.failed and not return_exceptions:
            for result in self.results:
                if result.__class__ is not bytes:
                    raise result
        return self.results

    def _submit(self, pump: Pump, pins: Pins) -> None:
        count = len(pins)
        deadline = time.monotonic_ns() + self.limit_ns if self.limit_ns else None
        first = ffi.new("crpc_op *")
        ops = _uncleared("crpc_op[]", min(count, _CHUNK))
        payloads, sizes = ffi.cast("void **", pins.addresses), ffi.cast("uint32_t *", pins.sizes)
        sent = 0
        while sent < count:
            some = min(count - sent, _CHUNK)
            left = self.limit_ns if deadline is None else max(1, deadline - time.monotonic_ns())
            first_op = (CALL, self.flags, self.method, 0, self.endpoint._bits, MARK | self.low + sent, 0, 0, 0, self.reply_bytes_max, left, 0)
            OP.pack_into(ffi.buffer(first), 0, *first_op)
            seen = pump._room
            taken = lib.copyrpc_native_submit_calls(pump._pointer, first, ops, payloads + sent, sizes + sent, some, pump._reason)
            sent += max(taken, 0)
            if taken == some:
                continue
            if pump._reason[0] == lib.CRPC_E_AGAIN:
                try:
                    pump._wait_for_room(self.endpoint, seen, deadline, "call")
                    continue
                except CopyrpcError as error:
                    if pump._pointer is None:
                        raise
                    self.results[sent:] = [self.failure(error)] * (count - sent)  # none of the others has a chance either
                    self.left -= count - sent
                    return
            self.take(self.low + sent, pump._reason[0], 0, 0)
            sent += 1

    def _abandon(self, pump: Pump) -> None:
        """An exception such as KeyboardInterrupt ends the wait. May be called again if it was cut."""
        if self in pump._batches:
            pump._batches.remove(self)
        if pump._pointer is not None and self.low:  # else it has no ids, and small ones are those of others
            for index, result in enumerate(self.results):
                if result is None:
                    pump._cancel(self.endpoint._bits, self.low + index)


class Ops:
    """Room for ops of one kind, in the library's format."""

    _form: str
    _handles: tuple[str, ...]  # the fields that are handles

    def __init__(self, count: int) -> None:
        number(count, "the length of an array", 1, 1 << 20)
        self._ops = ffi.new(self._form + "[]", count)
        self._count = count
        #: The ops as bytes, 64 each, to be written.
        self.memory = memoryview(ffi.buffer(self._ops))
        self._array: Any = None

    def __len__(self) -> int:
        return self._count

    def _structured(self) -> numpy.ndarray[Any, Any]:
        if self._array is None:
            self._array = structured(self.memory, self._form)
        array: numpy.ndarray[Any, Any] = self._array
        return array

    def set(self, index: int, **fields: int) -> None:
        """Writes one op. Members that are not named become zero."""
        number(index, "index", 0, self._count - 1)
        op = ffi.new(self._form + " *")
        for name, value in fields.items():
            if name in self._handles:
                getattr(op, name).bits = value
            else:
                setattr(op, name, value)
        self.memory[index * 64 : index * 64 + 64] = ffi.buffer(op)[:]


class OpArray(Ops):
    """Room for ops, which Context.submit accepts with one call of the library. `array` shows them
    to numpy; set() writes one op without numpy. The package reserves the highest bit of
    user_data."""

    _form = "crpc_op"
    _handles = ("endpoint", "region")

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """The ops as a structured numpy array. Its field names are those of crpc_op."""
        return self._structured()

    def fill_calls(
        self,
        endpoint: Endpoint,
        *,
        request_bytes: int,
        reply_bytes_max: int,
        method: int = 0,
        timeout_ns: int = 0,
        idempotent: bool = False,
    ) -> None:
        """Makes each op a call with user_data 0, 1, 2... Its request begins at user_data *
        request_bytes of the payload."""
        number(request_bytes, "request_bytes", 0, 0xFFFFFFFF)
        number(reply_bytes_max, "reply_bytes_max", 0, 0xFFFFFFFF)
        number(method, "method", 0, 0xFFFF)
        number(timeout_ns, "timeout_ns", 0, (1 << 64) - 1)
        flags = lib.CRPC_OP_IDEMPOTENT if idempotent else 0
        for index in range(self._count):
            op = (CALL, flags, method, 0, endpoint.bits, index, 0, index * request_bytes, request_bytes, reply_bytes_max, timeout_ns, 0)
            OP.pack_into(self.memory, index * 64, *op)


class ChannelOpArray(Ops):
    """Room for ops of channels, which Context.submit accepts with one call of the library. `array`
    shows them to numpy; set() writes one op without numpy. The array does not keep the memory alive
    that its ops name: see docs/python.md. The package reserves the highest bit of user_data."""

    _form = "crpc_channel_op"
    _handles = ("channel", "region")

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """The ops as a structured numpy array. Its field names are those of crpc_channel_op."""
        return self._structured()

    def fill(self, opcode: int, channel: Channel, region: Region, message_bytes: int, *, tag: int = 0, timeout_ns: int = 0) -> None:
        """Makes each op a CHANNEL_SEND or CHANNEL_RECEIVE with user_data 0, 1, 2... Its message
        begins at user_data * message_bytes of the region."""
        if opcode not in (lib.CRPC_CHANNEL_SEND, lib.CRPC_CHANNEL_RECEIVE):
            raise ValueError(f"opcode is CHANNEL_SEND or CHANNEL_RECEIVE, not {opcode!r}")
        number(message_bytes, "message_bytes", 0, 1 << 30)
        number(tag, "tag", 0, 0xFFFFFFFF)
        number(timeout_ns, "timeout_ns", 0, (1 << 64) - 1)
        for index in range(self._count):
            address = region.address + index * message_bytes
            op = (opcode, 0, 0, tag, channel.bits, index, region.bits, address, message_bytes, timeout_ns, 0)
            CHANNEL_OP.pack_into(self.memory, index * 64, *op)


class QueueOpArray(Ops):
    """Room for ops of queues, for Queue.submit and submit_and_wait: what queue_ops makes for numpy.
    `array` shows them to numpy; set() writes one op without numpy. The array does not keep the memory
    alive that its ops name. The package reserves the highest bit of user_data."""

    _form = "crpc_queue_op"
    _handles = ("region", "target")

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """The ops as a structured numpy array. Its field names are those of crpc_queue_op."""
        return self._structured()


class LaneOpArray(Ops):
    """Room for ops of lanes, for Endpoint.submit and submit_and_wait: what lane_ops makes for numpy.
    `array` shows them to numpy; set() writes one op without numpy. The array does not keep the memory
    alive that its ops name. The package reserves the highest bit of user_data."""

    _form = "crpc_lane_op"
    _handles = ("region", "grant")

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """The ops as a structured numpy array. Its field names are those of crpc_lane_op."""
        return self._structured()


class CompletionArray:
    """Room for completions, which Context.poll fills with one call of the library. Iterate over it,
    or use `array` with numpy."""

    def __init__(self, capacity: int) -> None:
        number(capacity, "the length of an array", 1, 1 << 20)
        self._completions = ffi.new("crpc_completion[]", capacity)
        self._capacity = capacity
        self._count = 0
        self._pump: Optional[Pump] = None
        self._poll = 0
        self._kept: list[bytes] = []  # payloads that another poll than this array's brought
        self._memory = ffi.buffer(self._completions)
        self._whole: Any = None
        self._columns: dict[str, memoryview] = {}
        self._gathered: Any = None
        self._offsets: Any = None

    def __len__(self) -> int:
        """The number of completions of the last poll."""
        return self._count

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """The completions of the last poll as a structured numpy array. Its field names are those
        of crpc_completion."""
        if self._whole is None:
            self._whole = structured(self._memory, "crpc_completion")
        part: numpy.ndarray[Any, Any] = self._whole[: self._count]
        return part

    def __iter__(self) -> Iterator[Completion]:
        return map(Completion._make, self.records())

    def records(self, *fields: str) -> Iterator[tuple[int, ...]]:
        """The completions of the last poll as plain tuples of the named fields, or of all fields,
        in the header's order. This is faster than Completion objects, and fewer fields are
        faster."""
        form = records_form(fields) if fields else COMPLETION
        return form.iter_unpack(self._memory[: self._count * 64])

    def column(self, field: str) -> memoryview:
        """One field of all completions of the last poll, in place. `any(done.column("status"))` is
        the fastest check without numpy. Valid until the next poll into this array."""
        column = self._columns.get(field)
        if column is None:
            code, offset = column_form(field)
            form: Any = code  # which of cast's formats it is, mypy cannot know
            cells = memoryview(self._memory).cast("B").cast(form)
            column = self._columns[field] = cells[offset // cells.itemsize :: 64 // cells.itemsize].toreadonly()
        return column[: self._count]

    def _fresh(self) -> Pump:
        if self._pump is None or self._pump._polls != self._poll or self._pump._pointer is None:
            raise Closed("the payloads of these completions have ended with a later poll, or with the context", CLOSED)
        return self._pump

    def payload(self, index: int) -> memoryview:
        """One payload, where it arrived. Invalid after the context's next poll. Until then a hostile peer
        can still change it: copy before you check, if you do not trust the peer."""
        number(index, "index", 0, self._count - 1)
        pump = self._fresh()
        completion = self._completions[index]
        if completion.kind not in _VIEWED:
            raise ValueError("only requests and responses have payloads of the library's; channels fill the application's memory")
        return Message(pump, completion.payload, completion.payload_bytes).payload

    def retain(self, index: int, buffer: Buffer) -> int:
        """Copies one payload into a writable buffer, and returns its length. The copy stays as it is, whatever the
        peer does: check it, and not the view, if you do not trust the peer. Raises TooBig if the buffer is too small, and
        Closed after the context's next poll, or when the connection was closed."""
        number(index, "index", 0, self._count - 1)
        memory = pin_writable(buffer, "the buffer")
        pump = self._fresh()
        with pump._use as pointer:
            self._fresh()
            completion = self._completions[index]
            placed = completion.flags & lib.CRPC_COMPLETION_PLACED
            if self._kept and completion.kind in _VIEWED and not placed:  # the view has ended with the poll that brought it
                size = int(completion.payload_bytes)
                if size > len(memory):
                    raise error_of(lib.CRPC_E_TOO_BIG, "retain")
                ffi.memmove(memory, ffi.cast("void *", completion.payload), size)
                return size
            return check(lib.crpc_retain(pointer, self._completions + index, memory, len(memory)), "retain")

    def trace(self, index: int) -> Optional[Trace]:
        """Which trace a request belongs to, as Request.trace. It is there until the request is answered, unlike the payload."""
        number(index, "index", 0, self._count - 1)
        request = self._completions[index]
        if request.kind != lib.CRPC_COMPLETION_REQUEST:
            raise ValueError("only requests have a trace")
        assert self._pump is not None  # which has brought it
        with self._pump._use as pointer:
            return trace_of_request(pointer, request.endpoint.bits, request.token)

    def _payload_bytes(self) -> int:
        return sum(record[8] + 7 & ~7 for record in self.records() if record[0] in _VIEWED)

    def gather(self) -> memoryview:
        """Copies all payloads to one buffer of this array, with one call of the library. `offsets`
        tells where each payload is. Valid until the next gather."""
        self._fresh()
        if self._gathered is None:
            self._gathered = ffi.new("uint8_t[]", max(4096, self._payload_bytes()))
            self._offsets = ffi.new("uint64_t[]", self._capacity)
        while True:
            done = lib.copyrpc_native_gather(
                self._completions, self._count, self._gathered, len(self._gathered), self._offsets
            )
            if done == self._count:
                return memoryview(ffi.buffer(self._gathered))
            self._gathered = ffi.new("uint8_t[]", self._payload_bytes())

    @property
    def offsets(self) -> memoryview:
        """Offsets of the gathered payloads: unsigned 64-bit numbers."""
        if self._offsets is None:
            raise Closed("nothing was gathered yet", CLOSED)
        return memoryview(ffi.buffer(self._offsets)).cast("Q")[: self._count]

    # ---- For submit_and_wait and Context.poll, with the lock ----

    def _filled(self, pump: Pump, count: int) -> None:
        self._pump = pump
        self._poll = pump._polls
        self._kept.clear()
        self._count = count

    def _fill(self, pump: Pump) -> int:
        self._pump = pump
        if pump._backlog:
            self._count = 0
            self._kept.clear()
            target = memoryview(self._memory)
            while pump._backlog and self._count < self._capacity:
                record, payload = pump._backlog.popleft()
                target[self._count * 64 : self._count * 64 + 64] = record
                self._kept.append(payload)
                if payload:
                    self._completions[self._count].payload = int(ffi.cast("uintptr_t", ffi.from_buffer(payload)))
                self._count += 1
        else:
            self._count = 0
            self._count = pump._poll_array(self._completions, self._capacity)
        self._poll = pump._polls
        return self._count
