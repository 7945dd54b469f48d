"""Who holds a message, and who wants its content in memory: two holds of one shape.

Why a hold ends exactly once: the first `release` marks it, on the one thread that has it; what is
garbage has nobody left who could release it, and is asked for that mark. Garbage may be collected
on any thread, in the middle of anything, so what is called then must only note what is to be done:
the owner hands in a function that posts.
"""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import Protocol, Self

_log = logging.getLogger(__name__)


class Owner(Protocol):
    """What is held: it is told when a hold ends."""

    @property
    def message_id(self) -> int:
        """Which message."""

    def released(self, hold: Hold) -> None:
        """This hold was let go of."""

    def lost(self, number: int) -> None:
        """The hold of this number is garbage; on any thread."""


class Hold:
    """A named hold on a message, until `release`.

    Attributes:
        is_released: True once it was let go of.
        number: Of the message's holds.
        holder: Who has it: for people who look for what keeps a message.
    """

    __slots__ = ("_owner", "holder", "is_released", "number")

    def __init__(self, owner: Owner, number: int, holder: str) -> None:
        self._owner, self.number, self.holder = owner, number, holder
        self.is_released = False

    def release(self) -> None:
        """Let go; again does nothing."""
        if not self.is_released:
            self.is_released = True
            self._owner.released(self)

    def __del__(self) -> None:
        if not self.is_released and not sys.is_finalizing():
            text = "message %d was held by %r, who never released it: a fault"
            _log.warning(text, self._owner.message_id, self.holder)
            self._owner.lost(self.number)

    def __enter__(self) -> Self:
        """Hold for as long as the block runs."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go."""
        self.release()


class Reference(Hold):
    """Somebody has the message: it is in the list of holders until this is released."""

    __slots__ = ()


class Interest(Hold):
    """Somebody will soon read the content: it is loaded, and stays in memory until released."""

    __slots__ = ()
