"""Who holds a message, and who wants its content in memory: two holds of one shape.

Why a hold ends exactly once: `release` asks the finalizer to let go of what it would call, which
only the first caller gets; the garbage collector goes by the same finalizer. A finalizer may run on
any thread, in the middle of anything, so what it calls must only note what is to be done: the
owner hands in a function that posts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self
from weakref import finalize

_log = logging.getLogger(__name__)


class Hold:
    """A named hold on a message, until `release`.

    Attributes:
        holder: Who has it: for people who look for what keeps a message.
        message_id: What.
    """

    __slots__ = ("__weakref__", "_end", "_finalizer", "holder", "message_id")

    _WHAT = "hold"

    def __init__(
        self,
        message_id: int,
        holder: str,
        end: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        """Begin to hold.

        Args:
            message_id: What.
            holder: Who.
            end: Called once, by `release`.
            lost: Called instead if the hold is garbage and was never released: on any thread.
        """
        self.message_id = message_id
        self.holder = holder
        self._end = end
        self._finalizer = finalize(self, _garbage, self._WHAT, message_id, holder, lost)
        self._finalizer.atexit = False

    def release(self) -> None:
        """Let go; again does nothing."""
        if self._finalizer.detach() is not None:
            self._end()

    @property
    def is_released(self) -> bool:
        """True once it was let go of."""
        return not self._finalizer.alive

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

    _WHAT = "reference to"


class Interest(Hold):
    """Somebody will soon read the content: it is loaded, and stays in memory until released."""

    __slots__ = ()

    _WHAT = "interest in"


def _garbage(what: str, message_id: int, holder: str, lost: Callable[[], None]) -> None:
    _log.warning("%s message %d by %r was never released: a fault", what, message_id, holder)
    lost()
