"""_lane_work.py: ops of lanes under way, one by one."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Optional, TypeVar, cast

from ._grant import Grant, place_of
from ._native import lib
from ._options import number
from ._records import LANE_OP, MARK
from ._work import Piece, Work, bits_of, piece_of, pieces_of, post_as
from .errors import CopyrpcError, error_of

if TYPE_CHECKING:
    from ._lane import Lane

WRITE: int = lib.CRPC_LANE_WRITE
READ: int = lib.CRPC_LANE_READ
COMPARE_SWAP: int = lib.CRPC_LANE_COMPARE_SWAP
FETCH_ADD: int = lib.CRPC_LANE_FETCH_ADD
GRANT: int = lib.CRPC_LANE_GRANT
REVOKE: int = lib.CRPC_LANE_REVOKE
FENCE: int = lib.CRPC_LANE_FENCE
_INLINE: int = lib.CRPC_LANE_INLINE
_PIECES: int = lib.CRPC_LANE_PIECES

_names = {
    WRITE: "write", READ: "read", COMPARE_SWAP: "compare_swap", FETCH_ADD: "fetch_add", GRANT: "grant", REVOKE: "revoke",
}  # fmt: skip
#: Rights of the peer's with which it fills memory of this side.
_FILLS: int = lib.CRPC_ACCESS_REMOTE_WRITE | lib.CRPC_ACCESS_REMOTE_ATOMIC
_LOCAL_WRITE: int = lib.CRPC_ACCESS_LOCAL_WRITE
_UINT64_MAX = (1 << 64) - 1
#: Ops that one crossing takes at the most: as many as most lanes have room for.
CHUNK = 128

R = TypeVar("R")  # None, int, or Grant


class LaneWork(Work[R]):
    """An op of an endpoint's lane under way."""

    __slots__ = ("_there", "_offset", "_access", "_given", "_abandoned")
    _opcode_names: ClassVar[dict[int, str]] = _names

    def __init__(
        self,
        endpoint: Lane,
        opcode: int,
        places: Any = None,
        there: Any = None,
        *,
        fence: bool = False,
        access: int = 0,
        compare: int = 0,
        operand: int = 0,
    ) -> None:
        """With the lock. `there` is a place at the peer, or what is to be revoked."""
        name = _names[opcode]
        flags = FENCE if fence else 0
        pieces: list[Piece] = []
        filled = opcode == READ or access & _FILLS != 0
        if opcode in (WRITE, READ):
            pieces, is_inline = pieces_of(endpoint._pump, places, name, filled, lib.CRPC_LANE_PIECES_MAX)
            flags |= (_INLINE if is_inline else 0) | (_PIECES if isinstance(places, (list, tuple)) else 0)
        elif opcode == GRANT:
            pieces = [piece_of(endpoint._pump, places, name, filled)]
            if pieces[0].region is None and pieces[0].size:
                raise error_of(lib.CRPC_E_INVALID, "grant: memory that is granted lies in a region, see Context.register")
        for piece in pieces:
            if piece.size > 0xFFFFFFFF:
                raise error_of(lib.CRPC_E_TOO_BIG, f"{name} of {piece.size} bytes")
            if filled and piece.region is not None and not piece.region._access & _LOCAL_WRITE:
                raise error_of(lib.CRPC_E_INVALID, f"{name}: memory that is filled lies in a region with local_write")
        self._there, self._offset = place_of(there, endpoint, name) if opcode != GRANT else (0, 0)
        self._access = access
        self._compare = number(compare, "compare", 0, _UINT64_MAX)
        self._operand = number(operand, "operand", 0, _UINT64_MAX)
        self._given: Optional[Grant] = None
        self._abandoned = False
        self._begin(endpoint, opcode, flags, pieces)

    @property
    def _endpoint(self) -> Lane:
        return cast("Lane", self._queue)

    # ---- With the lock ----

    def _pack(self, view: Any, index: int, pieces: list[tuple[int, int, int, int]]) -> None:
        region, address, size = 0, 0, 0
        if self._flags & _PIECES:
            address, size = len(pieces), len(self._pieces)
            pieces.extend((bits_of(piece), piece.address, piece.size, 0) for piece in self._pieces)
        elif self._pieces:
            region, address, size = bits_of(self._pieces[0]), self._pieces[0].address, self._pieces[0].size
        LANE_OP.pack_into(
            view, index * 64, self._opcode, self._flags, self._access, size, MARK | self._id, region, address, self._there,
            self._offset, self._compare, self._operand,
        )  # fmt: skip

    def _arrived(self, record: tuple[int, ...]) -> None:
        super()._arrived(record)
        if self._abandoned:
            self._revoke_unheard()

    def _abandon(self) -> None:
        if self._opcode == GRANT:
            self._abandoned = True
            if self._status is not None:
                self._revoke_unheard()

    def _revoke_unheard(self) -> None:
        """Nobody knows what was granted, the peer neither, so nobody waits for its answer. May be called again if it was cut: a
        second REVOKE is refused."""
        endpoint = self._endpoint
        if self._status == 0 and endpoint._error is None:
            endpoint._box(self).waiting.append(LaneWork(endpoint, REVOKE, None, self._grant(), operand=1))
            self._abandoned = False
            endpoint._box(self).pour()

    # ---- With the lock or without ----

    def _grant(self) -> Grant:
        if self._given is None:
            self._given = Grant(self._endpoint, self._record[6], self._pieces[0].size, self._access, False)
        return self._given

    def _value(self) -> Any:
        if self._opcode == READ:
            return sum(piece.size for piece in self._pieces)
        if self._opcode == GRANT:
            return self._grant()
        if self._opcode in (COMPARE_SWAP, FETCH_ADD):
            return self._record[6]
        return None

    def _error(self) -> CopyrpcError:
        name = _names[self._opcode]
        if self._status == lib.CRPC_E_TOO_BIG and self._flags & _INLINE:
            name += f" of {sum(piece.size for piece in self._pieces)} bytes that lie in no region: see Context.register"
        error = self._queue._refusal(self._status or 0, name)
        error.vendor_syndrome = self._record[9] if self._record else 0
        return error


def post(endpoint: Lane, works: list[LaneWork[Any]], taken: Any) -> tuple[int, int]:
    """Submits works, as post of _work.py does."""
    return post_as("crpc_lane_op[]", lib.copyrpc_native_lane_submit_noted, endpoint, works, taken)
