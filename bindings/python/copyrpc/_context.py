"""_context.py: a context: one opened device, and everything made from it."""
from __future__ import annotations

import time
import warnings
from bisect import insort
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, TypeVar, Union

from . import _asyncio
from . import _options as options_module
from ._arrays import ChannelOpArray, CompletionArray, OpArray
from ._channel import Channel
from ._channel_listener import ChannelListener
from ._channel_options import CacheInfo, ChannelOptions, RailInfo, cache_info, channel_options, rail_info
from ._closing import Closing
from ._datagram import DatagramQueue, Target, target_of_address
from ._dynamic import DCIQueue, DCTQueue
from ._endpoint import Endpoint
from ._guards import Last, through
from ._intercept import endpoint_class
from ._listener import Listener
from ._logging import LogFeed, LoggerChoice, chosen_logger
from ._native import ffi, lib
from ._options import (
    ACCESSES,
    REGION_ACCESSES,
    ContextInfo,
    DeviceInfo,
    EndpointOptions,
    LogEntry,
    Stats,
    address_bytes,
    addresses_bytes,
    choice,
    endpoint_options,
    number,
    pin,
    pin_writable,
    sized,
    timeout_ns,
)
from ._pump import Pump, Waiter
from ._queue import Queue, SharedReceiveQueue
from ._queue_listener import QueueListener
from ._queue_options import QueueAddress, QueueOptions, queue_options
from ._records import MARK
from ._region import Region
from ._router import router_names
from ._tags import TaggedReceiveQueue, open_tagged_queue
from ._text import read_text
from .errors import NoDevice, check, error_of, new_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

_drivers = {"auto": lib.CRPC_DRIVER_AUTO, "verbs": lib.CRPC_DRIVER_VERBS, "mlx5": lib.CRPC_DRIVER_MLX5}
_log_levels = {
    "off": lib.CRPC_LOG_OFF,
    "error": lib.CRPC_LOG_ERROR,
    "warning": lib.CRPC_LOG_WARNING,
    "info": lib.CRPC_LOG_INFO,
    "debug": lib.CRPC_LOG_DEBUG,
}

C = TypeVar("C", Endpoint, Channel, Queue)
T = TypeVar("T", Endpoint, Listener, Channel, ChannelListener)
Q = TypeVar("Q", DatagramQueue, DCIQueue, DCTQueue)
Rails = Union[bool, Sequence[Optional[str]]]
Addresses = Union[str, Sequence[str]]


def _rail_options(options: Any, rails: Rails) -> int:
    """Fills in the rails. Returns the flag that they need."""
    if isinstance(rails, bool):
        return lib.CRPC_CONTEXT_RAILS if rails else 0
    if isinstance(rails, str) or not all(name is None or isinstance(name, str) for name in rails):
        raise TypeError("rails is True, or a list of names such as 'mlx5_0' or 'mlx5_0:1', or None for no rail")
    if not 1 <= len(rails) <= lib.CRPC_RAILS_MAX:
        raise ValueError(f"rails has 1 to {lib.CRPC_RAILS_MAX} names, not {len(rails)}")
    for index, name in enumerate(rails):
        text = b"none" if name is None else name.encode()
        if not 0 < len(text) < len(options.rails[index]):
            raise NoDevice(f"no device has a name of {len(text)} bytes", lib.CRPC_E_NO_DEVICE)
        options.rails[index] = text
    return int(lib.CRPC_CONTEXT_RAILS)


def _connecting_to(address: Addresses) -> str:
    return f"connecting to {address if isinstance(address, str) else ','.join(address)}"



def _choice_of(wanted: Optional[bool], name: str) -> int:
    """What an option says that the library can choose by itself."""
    if wanted is not None and not isinstance(wanted, bool):
        raise TypeError(f"{name} is True, False, or None for the library's choice, not {wanted!r}")
    choices: dict[Optional[bool], int] = {None: lib.CRPC_CHOICE_AUTO, True: lib.CRPC_CHOICE_ON, False: lib.CRPC_CHOICE_OFF}
    return choices[wanted]


class Context(Closing, Pump):
    """One opened device. Threads may share it, and it serves one at a time. One event loop at a
    time may use it."""

    def __init__(
        self,
        device: str = "",
        *,
        driver: str = "auto",
        port: int = 0,
        gid_index: Optional[int] = None,
        endpoints_max: int = 0,
        receive_depth: int = 0,
        signal_interval: int = 0,
        compressed_completions: bool = False,
        log_level: str = "off",
        rails: Rails = False,
        rail_receive_depth: int = 0,
        channels_max: int = 0,
        rail_queue_pairs_max: int = 0,
        keep_registered: bool = False,
        queues: bool = False,
        queues_max: int = 0,
        initiators: int = 0,
        metrics: bool = False,
        flight_records: int = 0,
        relaxed_ordering: Optional[bool] = None,
        adaptive_routing: Optional[bool] = None,
        adaptive_routing_bytes: int = 0,
        completion_vector: Optional[int] = None,
        logger: LoggerChoice = None,
        rails_gid_index: bool = False,
        traffic_class: int = 0,
        service_level: int = 0,
        partition_key: int = 0,
        retry_timeout: int = 0,
        retry_count: int = 0,
        ece: Optional[bool] = None,
    ) -> None:
        """Opens `device`, or the first device with an active port. 0 means the library's default;
        copyrpc.h explains each option.

        `compressed_completions` requests compressed completions; info().features tells whether they
        are in use. `rails` opens the rails, which channels need: True for all that there are, or
        one or two names; ["mlx5_0", None] is one rail, and ["mlx5_0"] leaves the choice of the second to the library.
        `rail_queue_pairs_max` is how many queue pairs of a rail a channel may have. With `keep_registered`, buffers stay registered after a channel has used
        them; call forget() before their memory goes away. `queues` is needed for queues: regions then
        give all of their peers the rights that register() names. With `initiators`, endpoints connect by
        DC, and share so many send queues: for thousands of peers, on mlx5 devices, and on both sides.
        `metrics` counts and times calls and requests by method, for metrics_text(). `flight_records` is how
        many of the last ops and completions of each endpoint are recorded, for its flight_records() and for the log.
        `relaxed_ordering` lets the device write payloads to channels' buffers and arenas in any order; with
        `adaptive_routing`, channels send what is longer than adaptive_routing_bytes so that a fabric can spread its packets. None: the
        library chooses. copyrpc.h says more. With `ece`, connections negotiate what both devices have beyond the standard; None: they do.

        `traffic_class`, `service_level` and `partition_key` (a P_Key) are of all that the context sends, `retry_timeout` and
        `retry_count` of all connections whose options say 0. Where one is 0, the environment counts: COPYRPC_TRAFFIC_CLASS and so
        on. With `rails_gid_index`, gid_index is that of each rail's port, too.
        `completion_vector` says which of the device's vectors, from 0, wakes who waits; None: those of a process take turns.

        `logger` gets the library's log: a logging.Logger, or True for logging.getLogger("copyrpc"). A thread of the context calls
        its handlers. The logger's level decides, unless log_level keeps less; "off" means "debug" then."""
        if not isinstance(device, str):
            raise TypeError(f"a device is a name such as 'mlx5_0', not {type(device).__name__}")
        options = sized("crpc_context_options")
        name = device.encode()
        if len(name) >= len(options.device):
            raise NoDevice(f"no device has a name of {len(name)} bytes", lib.CRPC_E_NO_DEVICE)
        options.device = name
        options.driver = choice(driver, "driver", _drivers)
        told = chosen_logger(logger)
        options.log_level = choice(log_level, "log_level", _log_levels)
        if told is not None and options.log_level == lib.CRPC_LOG_OFF:
            options.log_level = lib.CRPC_LOG_DEBUG
        options.port = number(port, "port", 0, 0xFFFFFFFF)
        if gid_index is not None:
            options.flags = lib.CRPC_CONTEXT_GID_INDEX
            options.gid_index = number(gid_index, "gid_index", 0, 0xFFFFFFFF)
        options.endpoints_max = number(endpoints_max, "endpoints_max", 0, 0xFFFFFFFF)
        options.receive_depth = number(receive_depth, "receive_depth", 0, 0xFFFFFFFF)
        options.signal_interval = number(signal_interval, "signal_interval", 0, 0xFFFFFFFF)
        options.flags |= _rail_options(options, rails)
        options.flags |= lib.CRPC_CONTEXT_RAILS_GID_INDEX if rails_gid_index else 0
        for option, value in (
            ("traffic_class", traffic_class),
            ("service_level", service_level),
            ("partition_key", partition_key),
            ("retry_timeout", retry_timeout),
            ("retry_count", retry_count),
        ):
            setattr(options, option, number(value, option, 0, 0xFFFFFFFF))
        options.rail_receive_depth = number(rail_receive_depth, "rail_receive_depth", 0, 0xFFFFFFFF)
        options.channels_max = number(channels_max, "channels_max", 0, 0xFFFFFFFF)
        options.rail_queue_pairs_max = number(rail_queue_pairs_max, "rail_queue_pairs_max", 0, 0xFFFFFFFF)
        options.flags |= lib.CRPC_CONTEXT_QUEUES if queues else 0
        options.flags |= lib.CRPC_CONTEXT_METRICS if metrics else 0
        options.queues_max = number(queues_max, "queues_max", 0, 0xFFFFFFFF)
        options.initiators = number(initiators, "initiators", 0, 0xFFFFFFFF)
        options.flight_records = number(flight_records, "flight_records", 0, 0xFFFFFFFF)
        options.relaxed_ordering = _choice_of(relaxed_ordering, "relaxed_ordering")
        options.adaptive_routing = _choice_of(adaptive_routing, "adaptive_routing")
        options.ece = _choice_of(ece, "ece")
        options.adaptive_routing_bytes = number(adaptive_routing_bytes, "adaptive_routing_bytes", 0, 0xFFFFFFFF)
        if completion_vector is not None:
            options.completion_vector = number(completion_vector, "completion_vector", 0, 0xFFFFFFFE) + 1
        if compressed_completions:
            options.features = lib.CRPC_FEATURE_CQE_COMPRESSION
        pointer = ffi.new("crpc_context **")
        error = new_error()
        check(lib.crpc_context_open(options, pointer, error), error=error)
        self._method_names: dict[int, str] = {}
        super().__init__(pointer, keep_registered, queues)
        if told is not None:
            try:
                feed = LogFeed(self, told, self.info().device)
                with self._use:
                    self._log_feed = feed
                    through(feed.take, self._pointer)
            except BaseException:
                self.close()
                raise

    # ---- Connections ----

    def _begin(self, kind: type[C], address: bytes, c_options: Any, made: Callable[[int], C]) -> C:
        """Starts to connect. `made` creates the object for the handle."""
        with self._use as pointer:
            handle = ffi.new(kind._kind + " *")
            error = new_error()
            check(kind._function("connect")(pointer, address, c_options, handle, error), error=error)
            connection = made(handle.bits)
            self._rearm()
        return connection

    def _offer(self, kind: type[C], c_options: Any, made: Callable[[int], C]) -> tuple[C, bytes]:
        """Creates a connection that will be joined, and its blob."""
        with self._use as pointer:
            handle = ffi.new(kind._kind + " *")
            room = ffi.new("uint8_t[]", lib.CRPC_BLOB_BYTES_MAX)
            size = ffi.new("uint32_t *", lib.CRPC_BLOB_BYTES_MAX)
            error = new_error()
            check(kind._function("blob")(pointer, c_options, handle, room, size, error), "blob", error)
            return made(handle.bits), bytes(ffi.buffer(room, size[0]))

    def _begin_connect(self, address: Addresses, options: Optional[EndpointOptions], arrays: bool) -> Endpoint:
        where = addresses_bytes(address)
        given = endpoint_options(options)
        kind = endpoint_class(given)
        endpoint = self._begin(kind, where, given.to_c(MARK if arrays else 0), lambda bits: kind(self, bits, given))
        endpoint._target = where.decode()
        return endpoint

    def connect(
        self, address: Addresses, options: Optional[EndpointOptions] = None, *, timeout: Optional[float] = None, arrays: bool = False
    ) -> Endpoint:
        """Connects to "host:port" and waits until that is done. `timeout` limits the wait, in
        addition to options.connect_timeout (5 s). With `arrays`, poll() returns the peer's
        requests. Returns the endpoint. Raises Timeout, Refused, Unreachable and others.

        With options.reconnect, `address` may be several, as a list or with commas between them. It waits for the first connection
        as long as `timeout` says; then it raises why the last attempt has failed, and gives up."""
        limit = timeout_ns(timeout)
        return self._begin_connect(address, options, arrays)._establish(limit, _connecting_to(address))

    async def aconnect(
        self, address: Addresses, options: Optional[EndpointOptions] = None, *, timeout: Optional[float] = None, arrays: bool = False
    ) -> Endpoint:
        """Does the same as connect, for coroutines."""
        timeout_ns(timeout)
        await _asyncio.ready(self)
        return await self._begin_connect(address, options, arrays)._aestablish_in_time(timeout, _connecting_to(address))

    def listen(
        self,
        address: Optional[str],
        options: Optional[EndpointOptions] = None,
        *,
        backlog: int = 0,
        auto_accept: bool = True,
        arrays: bool = False,
        spread: Sequence[Listener] = (),
    ) -> Listener:
        """Listens on "192.0.2.1:port", "*:port" or "[::]:port"; port 0 takes any free port.
        `options` apply to accepted connections. With `arrays`, poll() returns their requests.

        With `spread`, this listener and those in `spread` take the peers in turn, each in its own
        context, with its own options. Those are of other contexts, which other threads may be
        using; one that is closed, or cannot take a peer, is passed over. A listener whose address
        is None has no peers but those that other listeners hand over to it."""
        where = address_bytes(address) if address is not None else None
        given = endpoint_options(options)
        given.to_c(0)  # wrong ones are told here, not when somebody connects
        if given.reconnect:
            raise error_of(lib.CRPC_E_INVALID, "reconnect is for connect: only the side that connects can do so again")
        with self._use:
            return Listener(self, where, backlog, given, spread, auto_accept, arrays)

    def blob(self, options: Optional[EndpointOptions] = None, *, arrays: bool = False) -> tuple[Endpoint, bytes]:
        """Creates an endpoint that connects without rdma_cm. Returns the endpoint and its blob. The
        application carries the blob to the peer, and passes the peer's blob to Endpoint.join. With
        `arrays`, poll() returns the peer's requests."""
        given = endpoint_options(options)
        kind = endpoint_class(given)
        return self._offer(kind, given.to_c(MARK if arrays else 0), lambda bits: kind(self, bits, given))

    # ---- Channels ----

    def _begin_channel(self, address: str, options: Optional[ChannelOptions]) -> Channel:
        where = address_bytes(address)
        return self._begin(Channel, where, channel_options(options).to_c(0), lambda bits: Channel(self, bits))

    def connect_channel(
        self, address: str, options: Optional[ChannelOptions] = None, *, timeout: Optional[float] = None
    ) -> Channel:
        """Connects a channel to "host:port", an address of the peer's rail 0. The context must have
        been opened with `rails`."""
        limit = timeout_ns(timeout)
        return self._begin_channel(address, options)._establish(limit, f"connecting to {address}")

    async def aconnect_channel(self, address: str, options: Optional[ChannelOptions] = None) -> Channel:
        """Does the same as connect_channel, for coroutines."""
        await _asyncio.ready(self)
        return await self._begin_channel(address, options)._aestablish()

    def listen_channels(
        self,
        address: Optional[str],
        options: Optional[ChannelOptions] = None,
        *,
        backlog: int = 0,
        spread: Sequence[ChannelListener] = (),
    ) -> ChannelListener:
        """Listens for channels on an address of rail 0. `options` apply to accepted channels. For
        `spread`, and an address that is None, see listen."""
        where = address_bytes(address) if address is not None else None
        given = channel_options(options)
        given.to_c(0)  # wrong ones are told here, not when somebody connects
        with self._use:
            return ChannelListener(self, where, backlog, given, spread)

    def channel_blob(self, options: Optional[ChannelOptions] = None) -> tuple[Channel, bytes]:
        """Creates a channel that connects without rdma_cm, by Channel.join, as blob does for
        endpoints."""
        return self._offer(Channel, channel_options(options).to_c(0), lambda bits: Channel(self, bits))

    # ---- Queues ----

    def _begin_queue(self, address: str, options: Optional[QueueOptions]) -> Queue:
        where = address_bytes(address)
        given = queue_options(options)
        return self._begin(Queue, where, given.to_c(), lambda bits: Queue(self, bits, given))

    def queue_connect(
        self, address: str, options: Optional[QueueOptions] = None, *, timeout: Optional[float] = None
    ) -> Queue:
        """Connects a queue to "host:port", where any program accepts reliable connections by rdma_cm.
        The context must have been opened with `queues`."""
        limit = timeout_ns(timeout)
        return self._begin_queue(address, options)._establish(limit, f"connecting to {address}")

    async def aqueue_connect(self, address: str, options: Optional[QueueOptions] = None) -> Queue:
        """Does the same as queue_connect, for coroutines."""
        await _asyncio.ready(self)
        return await self._begin_queue(address, options)._aestablish()

    def listen_queues(
        self,
        address: Optional[str],
        options: Optional[QueueOptions] = None,
        *,
        backlog: int = 0,
        spread: Sequence[QueueListener] = (),
    ) -> QueueListener:
        """Listens for queues. `options` apply to accepted queues. For `spread`, and an address that
        is None, see listen."""
        where = address_bytes(address) if address is not None else None
        given = queue_options(options)
        given.to_c()  # wrong ones are told here, not when somebody connects
        with self._use:
            return QueueListener(self, where, backlog, given, spread)

    def queue_blob(self, options: Optional[QueueOptions] = None) -> tuple[Queue, bytes]:
        """Creates a queue that connects without rdma_cm, by Queue.join, as blob does for endpoints;
        or by Queue.join_address. Receives may be posted before that."""
        given = queue_options(options)
        return self._offer(Queue, given.to_c(), lambda bits: Queue(self, bits, given))

    def queue_open(self, options: QueueOptions) -> SharedReceiveQueue:
        """Makes receives that several queues share, as QueueOptions.receive_queue. Of the options, it
        has receives and receive_pieces."""
        c_options = queue_options(options).to_c(lib.CRPC_QUEUE_KIND_SRQ)
        with self._use as pointer:
            handle = ffi.new("crpc_queue *")
            error = new_error()
            check(lib.crpc_queue_open(pointer, c_options, handle, error), "queue_open", error)
            return SharedReceiveQueue(self, handle.bits, options)

    def _open_queue(self, kind: type[Q], number_of_kind: int, options: Optional[QueueOptions], what: str) -> Q:
        """Makes a queue that is usable at once."""
        given = queue_options(options)
        c_options = given.to_c(number_of_kind)
        with self._use as pointer:
            handle = ffi.new("crpc_queue *")
            error = new_error()
            check(lib.crpc_queue_open(pointer, c_options, handle, error), what, error)
            return kind(self, handle.bits, given)

    def datagram_queue(self, options: Optional[QueueOptions] = None) -> DatagramQueue:
        """Makes a queue for datagrams, which is usable at once. Of the options, those of connections
        have no meaning for it."""
        return self._open_queue(DatagramQueue, lib.CRPC_QUEUE_KIND_UD, options, "datagram_queue")

    def dci_queue(self, options: Optional[QueueOptions] = None) -> DCIQueue:
        """Makes a DCI, which sends to many DCTs, and is usable at once. Of the options, it has those of sends, the
        retries, reads_max, streams and stream_failures_max. Raises Unsupported if the device has no DC: only mlx5
        devices do; or not as many streams."""
        return self._open_queue(DCIQueue, lib.CRPC_QUEUE_KIND_DCI, options, "dci_queue")

    def dct_queue(self, options: QueueOptions) -> DCTQueue:
        """Makes a DCT, to which the DCIs of any programs send. Of the options, it has receive_queue, which it needs,
        and access_key. Raises Unsupported if the device has no DC."""
        return self._open_queue(DCTQueue, lib.CRPC_QUEUE_KIND_DCT, options, "dct_queue")

    def tagged_queue(self, options: QueueOptions) -> TaggedReceiveQueue:
        """Makes receives that several queues share, whose device matches tags. Of the options, it has
        receives, receive_pieces and tags. Raises Unsupported if the device does not match tags."""
        return open_tagged_queue(self, queue_options(options))

    def target(
        self, address: QueueAddress, *, queue_key: int = 0, access_key: Optional[int] = None, service_level: int = 0
    ) -> Target:
        """Makes a target of the address of a queue for datagrams, of any program, and of its key (0
        means the library's default); or with an `access_key`, which may be 0, of the address of a DCT. It may take
        as long as the network needs to find the way."""
        return target_of_address(self, address, queue_key, service_level, access_key)

    def rails(self) -> list[RailInfo]:
        """Returns the ports that channels stripe over."""
        found: list[RailInfo] = []
        with self._use as pointer:
            while True:
                struct = sized("crpc_rail_info")
                status = lib.crpc_rail_get_info(pointer, len(found), struct)
                if status == lib.CRPC_E_NOT_FOUND:
                    return found
                check(status, "rails")
                found.append(rail_info(struct))

    def cache_info(self) -> CacheInfo:
        """Describes the registrations of buffers without a Region."""
        with self._use as pointer:
            struct = sized("crpc_cache_info")
            check(lib.crpc_cache_get_info(pointer, struct), "cache_info")
            return cache_info(struct)

    def forget(self, buffer: Optional[Buffer] = None) -> int:
        """Removes registrations that `keep_registered` or ops in arrays have left: those of a
        buffer, or all. Returns how many. Raises InvalidArgument while a channel uses one of
        them."""
        pinned = pin(buffer, "what is to be forgotten") if buffer is not None else ffi.NULL
        size = len(pinned) if buffer is not None else 0
        with self._use as pointer:
            if buffer is not None and size == 0:
                return 0
            return check(lib.crpc_cache_forget(pointer, pinned, size), "forget")

    # ---- Regions ----

    def register(self, buffer: Buffer, *access: str) -> Region:
        """Registers a writable buffer with the device. `access` is any of local_write,
        remote_write, remote_read and remote_atomic. Channels can only receive into a region that
        has the first two; a receive or read of a queue needs the first. Until the region is closed, channels use it for all buffers that lie in
        this memory."""
        flags = 0
        for word in access:
            flags |= choice(word, "access", ACCESSES)
        memory = pin_writable(buffer, "registered memory")
        with self._use as pointer:
            handle = ffi.new("crpc_region *")
            error = new_error()
            check(lib.crpc_region_register(pointer, memory, len(memory), flags, handle, error), "register", error)
            region = Region(self, memory, handle, flags, int(ffi.cast("uintptr_t", memory)), len(memory))
            insort(self._regions, region)
            return region

    def register_dmabuf(self, descriptor: int, size: int, *access: str, offset: int = 0, address: int = 0) -> Region:
        """Registers `size` bytes from `offset` of a dma-buf, which is memory of another device,
        such as a GPU. Ops in arrays use `address` for the start of this memory. The caller may
        close the descriptor afterwards. `access` may also have host: then `address` is where the processor can
        read this memory, and write it with local_write, and short payloads are copied."""
        flags = 0
        for word in access:
            flags |= choice(word, "access", REGION_ACCESSES)
        number(descriptor, "descriptor", 0, 0x7FFFFFFF)
        for value, name in ((size, "size"), (offset, "offset"), (address, "address")):
            number(value, name, 0, (1 << 64) - 1)
        with self._use as pointer:
            handle = ffi.new("crpc_region *")
            error = new_error()
            status = lib.crpc_region_register_dmabuf(pointer, descriptor, offset, size, address, flags, handle, error)
            check(status, "register_dmabuf", error)
            region = Region(self, None, handle, flags, address, size)
            insort(self._regions, region)
            return region

    def register_device(self, address: int, size: int, *access: str) -> Region:
        """Registers `size` bytes of another device's memory, such as a GPU's, at its address in this process: what
        data_ptr() of a tensor gives. It needs a driver that lets the NIC reach this memory, as nvidia-peermem
        does. The processor never touches it. The memory stays the caller's, and must not be freed until the region is
        closed. Raises as register, also if the NIC cannot reach it."""
        flags: int = lib.CRPC_ACCESS_DEVICE
        for word in access:
            flags |= choice(word, "access", ACCESSES)
        for value, name in ((address, "address"), (size, "size")):
            number(value, name, 1, (1 << 64) - 1)
        with self._use as pointer:
            handle = ffi.new("crpc_region *")
            error = new_error()
            status = lib.crpc_region_register(pointer, ffi.cast("void *", address), size, flags, handle, error)
            check(status, "register_device", error)
            region = Region(self, None, handle, flags, address, size)
            insort(self._regions, region)
            return region

    # ---- Arrays ----

    def submit(
        self, ops: Union[OpArray, ChannelOpArray], count: Optional[int] = None, payload: Buffer = b"", first: int = 0
    ) -> int:
        """Submits `count` ops of the array from index `first`, with one call of the library.
        Payloads lie in `payload`; ops of channels name addresses. Returns how many were accepted.
        It accepts fewer if there was no room: poll, and then submit the rest. Raises an exception
        if the first op was refused for another reason."""
        if not isinstance(ops, (OpArray, ChannelOpArray)):
            raise TypeError(f"ops is an OpArray or a ChannelOpArray, not {type(ops).__name__}")
        if count is None:
            count = len(ops) - first
        if not 0 <= first <= len(ops) or not 0 <= count <= len(ops) - first:
            raise ValueError(f"{count} ops from {first} on are not in an array of {len(ops)}")
        pinned = pin(payload)
        with self._use as pointer:
            at = ops._ops + first if first else ops._ops
            if isinstance(ops, ChannelOpArray):
                taken = lib.copyrpc_native_channel_submit_array(pointer, at, count, self._reason)
            else:
                taken = lib.copyrpc_native_submit_array(pointer, at, count, pinned, len(pinned), self._reason)
            if taken <= 0 < count and self._reason[0] != lib.CRPC_E_AGAIN:
                raise error_of(self._reason[0], "submit")
            if self._sleeping or self._attachment is not None:
                self._rearm()
        return int(taken)

    def poll(self, completions: CompletionArray) -> int:
        """Fills the array with completions of submitted ops and with requests of connections made
        with `arrays`, with one call of the library. Never waits. Ends the views of payloads.
        Returns how many completions there are."""
        if not isinstance(completions, CompletionArray):
            raise TypeError(f"completions is a CompletionArray, not {type(completions).__name__}")
        with self._use:
            return completions._fill(self)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Sends what has gathered, and sleeps until poll() may have something to return. Returns
        False if the time is over."""
        limit = timeout_ns(timeout)
        deadline = time.monotonic_ns() + limit if limit else None
        with self._use:
            if self._backlog or self._sorted.poll.left:
                return True
            if self._leader is not None:
                return self._wait(lambda: bool(self._backlog), deadline)
            if not self._arm():
                return True
            leader = Waiter(lambda: bool(self._backlog))
            with Last(self._leave, leader):
                self._leader = leader
                self._sleep(deadline)
            return deadline is None or time.monotonic_ns() < deadline

    def fileno(self) -> int:
        """Returns a descriptor that becomes readable after arm(). The caller must neither read nor
        close it."""
        with self._use:
            return int(self._fd)

    def arm(self) -> bool:
        """Requests one wake-up through fileno(). Returns False if there is something to poll
        already."""
        with self._use:
            return self._arm()

    # ---- Looking ----

    def info(self) -> ContextInfo:
        """Describes the context and its device."""
        with self._use as pointer:
            struct = sized("crpc_context_info")
            check(lib.crpc_context_get_info(pointer, struct))
            return options_module.context_info(struct)

    def stats(self) -> Stats:
        with self._use as pointer:
            struct = sized("crpc_stats")
            check(lib.crpc_context_get_stats(pointer, struct))
            return options_module.stats(struct)

    def metrics_text(self, endpoints: bool = False) -> str:
        """Gives all metrics as text in the format of Prometheus (text/plain; version=0.0.4). With `metrics` of the context
        there are also calls and requests, by method and status; with `endpoints`, all of each endpoint, too. Methods that a
        Router or name_method has named have these names."""
        flags = lib.CRPC_METRICS_ENDPOINTS if endpoints else 0
        with self._use as pointer:
            for method, name in list(router_names.items()):
                if method not in self._method_names:
                    check(lib.crpc_context_name_method(pointer, method, name.encode()[:255].decode(errors="ignore").encode()))
                    self._method_names[method] = name
            return read_text(lambda text, room: lib.crpc_context_metrics(pointer, flags, text, room))

    def name_method(self, method: int, name: str) -> None:
        """Names a method in metrics_text and in spans of copyrpc.opentelemetry, where it is its number otherwise."""
        index = number(method, "method", 0, 0xFFFF)
        if not isinstance(name, str) or "\0" in name:
            raise TypeError("a name is a str without zeros")
        with self._use as pointer:
            check(lib.crpc_context_name_method(pointer, index, name.encode()))
            self._method_names[index] = name

    def log(self) -> list[LogEntry]:
        """Takes the entries out of the log and returns them, oldest first. log_level decides which
        entries the log keeps. With `logger`, they go there, and few are left for this."""
        with self._use as pointer:
            entries = ffi.new("crpc_log_entry[256]")
            count = check(lib.crpc_context_log(pointer, entries, 256))
            return [options_module.log_entry(entries[index]) for index in range(count)]

    @property
    def device_status(self) -> int:
        """The last status that the device or its port reported; 0 means good."""
        return self._device_status

    @property
    def closed(self) -> bool:
        return self._pointer is None

    # ---- The end ----

    def close(self) -> None:
        """Closes the context and everything made from it. Everything under way raises Closed.
        Closing twice does no harm."""
        self._close()

    def __del__(self) -> None:
        if self._pointer is not None:
            warnings.warn("a copyrpc.Context was not closed; use `with`, or close()", ResourceWarning, stacklevel=2, source=self)
            try:
                self._close(lock_timeout=0)
            except BufferError:
                pass  # a payload is still looked at: rather leak than let it read what is gone


def _in_own_context(device: str, make: Callable[[Context], T], rails: Rails = False) -> T:
    """Makes something in a context of its own, which is closed together with it."""
    context = Context(device, rails=rails)
    try:
        made = make(context)
    except BaseException:
        context.close()
        raise
    made._owns_context = True
    return made


def connect(
    address: Addresses, options: Optional[EndpointOptions] = None, *, device: str = "", timeout: Optional[float] = None
) -> Endpoint:
    """Connects to "host:port" in a context of its own: see Context.connect. Closing the endpoint also closes the
    context."""
    return _in_own_context(device, lambda context: context.connect(address, options, timeout=timeout))


def listen(
    address: Optional[str] = "*:7471", options: Optional[EndpointOptions] = None, *, device: str = "", spread: Sequence[Listener] = ()
) -> Listener:
    """Listens on an address in a context of its own, or without an address: see Context.listen.
    Closing the listener also closes the context."""
    return _in_own_context(device, lambda context: context.listen(address, options, spread=spread))


def connect_channel(
    address: str, options: Optional[ChannelOptions] = None, *, device: str = "", rails: Rails = True
) -> Channel:
    """Connects a channel to "host:port" in a context of its own. Closing the channel also closes
    the context."""
    return _in_own_context(device, lambda context: context.connect_channel(address, options), rails)


def listen_channels(
    address: Optional[str] = "*:7472",
    options: Optional[ChannelOptions] = None,
    *,
    device: str = "",
    rails: Rails = True,
    spread: Sequence[ChannelListener] = (),
) -> ChannelListener:
    """Listens for channels on an address in a context of its own, or without an address: see
    Context.listen. Closing the listener also closes the context and the channels."""
    return _in_own_context(device, lambda context: context.listen_channels(address, options, spread=spread), rails)


def devices() -> list[DeviceInfo]:
    """Returns the ports of all RDMA devices of this machine."""
    found: list[DeviceInfo] = []
    struct = sized("crpc_device_info")
    error = new_error()
    while True:
        status = lib.crpc_device_query(len(found), struct, error)
        if status == lib.CRPC_E_NO_DEVICE:
            return found
        check(status, error=error)
        found.append(options_module.device_info(struct))
        struct.struct_size = ffi.sizeof("crpc_device_info")


def version() -> tuple[int, int, int]:
    """Returns the version of the loaded library."""
    number_ = lib.crpc_version()
    return number_ >> 16, number_ >> 8 & 0xFF, number_ & 0xFF
