"""_context.py: a context: one opened device, and everything made from it."""
from __future__ import annotations

import asyncio
import time
import warnings
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from . import _asyncio
from . import _options as options_module
from ._arrays import CompletionArray, OpArray
from ._closing import Closing
from ._endpoint import Endpoint
from ._listener import Listener
from ._native import ffi, lib
from ._options import (
    ContextInfo,
    DeviceInfo,
    EndpointOptions,
    LogEntry,
    RegionInfo,
    Stats,
    address_bytes,
    endpoint_options,
    number,
    pin,
    sized,
    timeout_ns,
)
from ._pump import Pump, Waiter
from ._records import MARK
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
_accesses = {
    "local_write": lib.CRPC_ACCESS_LOCAL_WRITE,
    "remote_write": lib.CRPC_ACCESS_REMOTE_WRITE,
    "remote_read": lib.CRPC_ACCESS_REMOTE_READ,
    "remote_atomic": lib.CRPC_ACCESS_REMOTE_ATOMIC,
}


def _choice(value: str, name: str, choices: dict[str, int]) -> int:
    if not isinstance(value, str):
        raise TypeError(f"{name} is one of {', '.join(choices)}, not {type(value).__name__}")
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
    return choices[value]


T = TypeVar("T", Endpoint, Listener)


class Region(Closing):
    """Registered memory: see Context.register."""

    def __init__(self, context: Context, memory: Any, handle: Any) -> None:
        self._context = context
        self._memory = memory  # pinned: it must stay where it is
        self._handle = handle
        self._closed = False

    def info(self) -> RegionInfo:
        """Where it lies, and the keys that the device gave it."""
        with self._context._use as pointer:
            struct = sized("crpc_region_info")
            check(lib.crpc_region_get_info(pointer, self._handle[0], struct), "region")
            words = tuple(word for word, flag in _accesses.items() if struct.access & flag)
            return options_module.region_info(struct, words)

    def close(self) -> None:
        """Deregisters it. Once is enough; more does no harm."""
        if self._closed:
            return
        if self._context._pointer is not None:
            with self._context._use as pointer:
                check(lib.crpc_region_deregister(pointer, self._handle[0]), "deregister")
                if self in self._context._regions:
                    self._context._regions.remove(self)
        self._closed = True
        self._memory = None


class Context(Closing, Pump):
    """One opened device. Threads may share it; it serves them one at a time. An event loop may use it, one at a time."""

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
    ) -> None:
        """Opens `device`, or the first with an active port. 0 is the library's default; copyrpc.h explains each.

        `compressed_completions`: where the device can; info().features tells whether it does."""
        if not isinstance(device, str):
            raise TypeError(f"a device is a name such as 'mlx5_0', not {type(device).__name__}")
        options = sized("crpc_context_options")
        name = device.encode()
        if len(name) >= len(options.device):
            raise NoDevice(f"no device has a name of {len(name)} bytes", lib.CRPC_E_NO_DEVICE)
        options.device = name
        options.driver = _choice(driver, "driver", _drivers)
        options.log_level = _choice(log_level, "log_level", _log_levels)
        options.port = number(port, "port", 0, 0xFFFFFFFF)
        if gid_index is not None:
            options.flags = lib.CRPC_CONTEXT_GID_INDEX
            options.gid_index = number(gid_index, "gid_index", 0, 0xFFFFFFFF)
        options.endpoints_max = number(endpoints_max, "endpoints_max", 0, 0xFFFFFFFF)
        options.receive_depth = number(receive_depth, "receive_depth", 0, 0xFFFFFFFF)
        options.signal_interval = number(signal_interval, "signal_interval", 0, 0xFFFFFFFF)
        if compressed_completions:
            options.features = lib.CRPC_FEATURE_CQE_COMPRESSION
        pointer = ffi.new("crpc_context **")
        error = new_error()
        check(lib.crpc_context_open(options, pointer, error), error=error)
        super().__init__(pointer[0])

    # ---- Connections ----

    def _begin_connect(self, address: str, options: Optional[EndpointOptions], arrays: bool) -> Endpoint:
        where = address_bytes(address)
        given = endpoint_options(options)
        c_options = given.to_c(MARK if arrays else 0)
        with self._use as pointer:
            handle = ffi.new("crpc_endpoint *")
            error = new_error()
            check(lib.crpc_endpoint_connect(pointer, where, c_options, handle, error), error=error)
            endpoint = Endpoint(self, handle.bits, given)
            self._rearm()
        return endpoint

    def connect(
        self, address: str, options: Optional[EndpointOptions] = None, *, timeout: Optional[float] = None, arrays: bool = False
    ) -> Endpoint:
        """Connects to "host:port". `timeout` is that of the waiting; options.connect_timeout, 5 s, holds as well. With `arrays`,
        requests of the peer's come by poll()."""
        limit = timeout_ns(timeout)
        endpoint = self._begin_connect(address, options, arrays)
        try:
            with self._use:
                deadline = time.monotonic_ns() + limit if limit else None
                if not self._wait(endpoint._settled, deadline):
                    raise error_of(lib.CRPC_E_TIMEOUT, f"connecting to {address}")
                endpoint._check()
        except BaseException:
            endpoint.close()
            raise
        return endpoint

    async def aconnect(self, address: str, options: Optional[EndpointOptions] = None, *, arrays: bool = False) -> Endpoint:
        """connect for coroutines."""
        _asyncio.attach(self, asyncio.get_running_loop())
        endpoint = self._begin_connect(address, options, arrays)
        try:
            await _asyncio.wait(self, endpoint._settled)
            endpoint._check()
        except BaseException:
            endpoint.close()
            raise
        return endpoint

    def listen(
        self,
        address: str,
        options: Optional[EndpointOptions] = None,
        *,
        backlog: int = 0,
        auto_accept: bool = True,
        arrays: bool = False,
    ) -> Listener:
        """Listens on "192.0.2.1:port", "*:port" or "[::]:port"; port 0 is any free one. `options` are those of accepted
        connections. With `arrays`, their requests come by poll()."""
        where = address_bytes(address)
        given = endpoint_options(options)
        given.to_c(0)  # wrong ones are told here, not when somebody connects
        with self._use:
            return Listener(self, where, backlog, given, auto_accept, arrays)

    def blob(self, options: Optional[EndpointOptions] = None) -> tuple[Endpoint, bytes]:
        """An endpoint to be connected without rdma_cm, and what its peer needs to know: carry that to the peer, and give the
        peer's to Endpoint.join."""
        given = endpoint_options(options)
        c_options = given.to_c(0)
        with self._use as pointer:
            handle = ffi.new("crpc_endpoint *")
            room = ffi.new("uint8_t[]", lib.CRPC_BLOB_BYTES_MAX)
            size = ffi.new("uint32_t *", lib.CRPC_BLOB_BYTES_MAX)
            error = new_error()
            check(lib.crpc_endpoint_blob(pointer, c_options, handle, room, size, error), "blob", error)
            return Endpoint(self, handle.bits, given), bytes(ffi.buffer(room, size[0]))

    def register(self, buffer: Buffer, *access: str) -> Region:
        """Registers a writable buffer with the device. `access` is any of local_write, remote_write, remote_read and
        remote_atomic."""
        flags = 0
        for word in access:
            flags |= _choice(word, "access", _accesses)
        try:
            memory = ffi.from_buffer("uint8_t[]", buffer, require_writable=True)
        except (TypeError, BufferError, ValueError):
            pin(buffer, "registered memory")  # says what else is wrong
            raise BufferError("registered memory must be writable: a bytearray, for example") from None
        with self._use as pointer:
            handle = ffi.new("crpc_region *")
            error = new_error()
            check(lib.crpc_region_register(pointer, memory, len(memory), flags, handle, error), "register", error)
            region = Region(self, memory, handle)
            self._regions.append(region)
            return region

    # ---- Arrays ----

    def submit(self, ops: OpArray, count: Optional[int] = None, payload: Buffer = b"", first: int = 0) -> int:
        """Submits `count` ops of the array, from `first` on, whose payloads lie in `payload`: one crossing. Gives how many were
        taken; fewer than asked if there was no room: poll, then submit the rest. Raises if the first cannot be taken for another
        reason."""
        if not isinstance(ops, OpArray):
            raise TypeError(f"ops is an OpArray, not {type(ops).__name__}")
        if count is None:
            count = len(ops) - first
        if not 0 <= first <= len(ops) or not 0 <= count <= len(ops) - first:
            raise ValueError(f"{count} ops from {first} on are not in an array of {len(ops)}")
        pinned = pin(payload)
        with self._use as pointer:
            at = ops._ops + first if first else ops._ops
            taken = lib.copyrpc_native_submit_array(pointer, at, count, pinned, len(pinned), self._reason)
            if taken <= 0 < count and self._reason[0] != lib.CRPC_E_AGAIN:
                raise error_of(self._reason[0], "submit")
            if self._sleeping or self._attachment is not None:
                self._rearm()
        return int(taken)

    def poll(self, completions: CompletionArray) -> int:
        """Fills the array with what has come of submitted ops, and with requests of connections made with `arrays`: one crossing.
        Gives how many. Never waits. Views of payloads end."""
        if not isinstance(completions, CompletionArray):
            raise TypeError(f"completions is a CompletionArray, not {type(completions).__name__}")
        with self._use:
            return completions._fill(self)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Sends what has gathered, and sleeps until poll() may have something to give. False if the time is over."""
        limit = timeout_ns(timeout)
        deadline = time.monotonic_ns() + limit if limit else None
        with self._use:
            if self._backlog or self._sorted.left:
                return True
            if self._leader is not None:
                return self._wait(lambda: bool(self._backlog), deadline)
            if not self._arm():
                return True
            self._leader = Waiter(lambda: bool(self._backlog))
            try:
                self._sleep(deadline)
            finally:
                self._leader = None
                self._hand_on()
            return deadline is None or time.monotonic_ns() < deadline

    def fileno(self) -> int:
        """A descriptor that polls readable after arm(); never read or close it."""
        with self._use:
            return int(self._fd)

    def arm(self) -> bool:
        """Asks for one wake-up of fileno(). False if there is something to poll already."""
        with self._use:
            return self._arm()

    # ---- Looking ----

    def info(self) -> ContextInfo:
        """What the context runs on."""
        with self._use as pointer:
            struct = sized("crpc_context_info")
            check(lib.crpc_context_get_info(pointer, struct))
            return options_module.context_info(struct)

    def stats(self) -> Stats:
        with self._use as pointer:
            struct = sized("crpc_stats")
            check(lib.crpc_context_get_stats(pointer, struct))
            return options_module.stats(struct)

    def log(self) -> list[LogEntry]:
        """Takes what the log has kept, oldest first: see log_level."""
        with self._use as pointer:
            entries = ffi.new("crpc_log_entry[256]")
            count = check(lib.crpc_context_log(pointer, entries, 256))
            return [options_module.log_entry(entries[index]) for index in range(count)]

    @property
    def device_status(self) -> int:
        """The status that the device or its port told of last; 0 is good."""
        return self._device_status

    @property
    def closed(self) -> bool:
        return self._pointer is None

    # ---- The end ----

    def close(self) -> None:
        """Closes everything made from it: what is under way raises Closed. Once is enough; more does no harm."""
        self._close()

    def __del__(self) -> None:
        if self._pointer is not None:
            warnings.warn("a copyrpc.Context was not closed; use `with`, or close()", ResourceWarning, source=self)
            try:
                self._close(lock_timeout=0)
            except BufferError:
                pass  # a payload is still looked at: rather leak than let it read what is gone


def _in_own_context(device: str, make: Callable[[Context], T]) -> T:
    """What is made in a context of its own, which is closed with it."""
    context = Context(device)
    try:
        made = make(context)
    except BaseException:
        context.close()
        raise
    made._owns_context = True
    return made


def connect(address: str, options: Optional[EndpointOptions] = None, *, device: str = "") -> Endpoint:
    """Connects to "host:port", in a context of its own, which is closed with it."""
    return _in_own_context(device, lambda context: context.connect(address, options))


def listen(address: str = "*:7471", options: Optional[EndpointOptions] = None, *, device: str = "") -> Listener:
    """Listens on an address, in a context of its own, which is closed with it."""
    return _in_own_context(device, lambda context: context.listen(address, options))


def devices() -> list[DeviceInfo]:
    """The ports of the RDMA devices of this machine."""
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
    """That of the library which was loaded."""
    number_ = lib.crpc_version()
    return number_ >> 16, number_ >> 8 & 0xFF, number_ & 0xFF
