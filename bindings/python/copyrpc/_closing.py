"""_closing.py: `with` and `async with` for objects that end when they are closed."""
from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from typing_extensions import Self


class Closing:
    """Has a close() that is quick, so that `async with` can call it, too."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()
