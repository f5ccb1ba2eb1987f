"""_grant.py: grants: memory that one side of an endpoint lets the other use, over their lane."""
from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union, cast

from ._closing import Closing
from ._native import ffi, lib
from ._options import number, sized
from .errors import Closed, Disconnected, check

if TYPE_CHECKING:
    from ._endpoint import Endpoint
    from ._lane import Lane

#: What the letters of `access` stand for.
LETTERS: dict[str, int] = {
    "r": lib.CRPC_ACCESS_REMOTE_READ,
    "w": lib.CRPC_ACCESS_REMOTE_WRITE,
    "a": lib.CRPC_ACCESS_REMOTE_ATOMIC,
}
#: Length of the bytes of a grant.
GRANT_BYTES: int = lib.CRPC_GRANT_BYTES
# How long leaving a `with` block waits for the peer to let go of what it was granted.
_LEAVE_SECONDS = 1.0


def access_bits(access: str) -> int:
    if not isinstance(access, str):
        raise TypeError(f"access is made of the letters r, w and a, not {type(access).__name__}")
    if not access or set(access) - set(LETTERS):
        raise ValueError(f"access is made of the letters r (read), w (write) and a (atomics), not {access!r}")
    return sum(LETTERS[letter] for letter in set(access))


class GrantPlace(NamedTuple):
    """A place in the memory of a grant: see Grant.at."""

    grant: Grant
    offset: int


class Grant(Closing):
    """Memory that one side of an endpoint lets the other use. Endpoint.grant makes one of this side, whose
    bytes(grant) go to the peer in any payload; Endpoint.open_grant makes one of those of the peer."""

    def __init__(self, endpoint: Lane, bits: int, size: int, access: int, of_peer: bool) -> None:
        self._endpoint = endpoint
        self._handle = ffi.new("crpc_grant *", {"bits": bits})
        self._size = size
        #: What the peer may do: "r" (read), "w" (write) and "a" (atomics).
        self.access: str = "".join(letter for letter, bit in LETTERS.items() if access & bit)
        #: True if the peer has given it, and False if this side has.
        self.of_peer = of_peer

    @property
    def endpoint(self) -> Endpoint:
        return cast("Endpoint", self._endpoint)

    @property
    def bits(self) -> int:
        """The handle, for the `grant` field of ops in arrays."""
        return int(self._handle.bits)

    def __len__(self) -> int:
        """How much memory it gives."""
        return self._size

    def at(self, offset: int) -> GrantPlace:
        """Returns the place that lies `offset` bytes after its start."""
        return GrantPlace(self, number(offset, "an offset", 0, self._size))

    def __bytes__(self) -> bytes:
        """Returns what the peer of the endpoint has to know, GRANT_BYTES long. It is of no use to anybody
        else."""
        with self._endpoint._pump._use as pointer:
            room = ffi.new("uint8_t[]", GRANT_BYTES)
            check(lib.crpc_grant_get(pointer, self._handle[0], room), "grant")
            return bytes(ffi.buffer(room))

    def _over(self) -> bool:
        """Called with the lock held."""
        info = sized("crpc_grant_info")
        status = lib.crpc_grant_get_info(self._endpoint._pump._pointer, self._handle[0], info)
        return bool(status != 0 or info.over)

    @property
    def over(self) -> bool:
        """True if it was revoked or closed, or if its lane has ended, as far as this side knows."""
        if self._endpoint._pump._pointer is None:
            return True
        with self._endpoint._pump._use:
            return self._over()

    def close(self) -> None:
        """Ends a grant of this side, as Endpoint.revoke does; the peer may take a second to answer. Forgets
        one of the peer: ops that were posted go on. Closing twice does no harm."""
        pump = self._endpoint._pump
        if pump._pointer is None:
            return
        if self.of_peer:
            with pump._use as pointer:
                lib.crpc_grant_close(pointer, self._handle[0])  # CRPC_E_STALE: it has ended
        elif not self.over:
            try:
                self._endpoint.revoke(self, timeout=_LEAVE_SECONDS)
            except (Closed, Disconnected):
                pass  # it has ended one way or the other

    async def __aexit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self.of_peer or self.over:
            self.close()
        else:
            try:
                await self._endpoint.arevoke(self, timeout=_LEAVE_SECONDS)
            except (Closed, Disconnected):
                pass

    def __repr__(self) -> str:
        whose = "of the peer" if self.of_peer else "of this side"
        return f"<copyrpc.Grant {whose}, {self._size} bytes, {self.access!r}>"


Where = Union[Grant, GrantPlace]


def place_of(there: Any, endpoint: Lane, what: str) -> tuple[int, int]:
    """Returns the handle of a grant, and the offset."""
    grant, offset = (there.grant, there.offset) if isinstance(there, GrantPlace) else (there, 0)
    if not isinstance(grant, Grant):
        raise TypeError(f"{what}: a place at the peer is a Grant, or grant.at(offset), not {type(grant).__name__}")
    if grant._endpoint is not endpoint:
        raise ValueError(f"{what}: the grant is of another endpoint")
    return grant.bits, number(offset, "an offset", 0, (1 << 64) - 1)
