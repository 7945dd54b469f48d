"""Hold a message, and want its content in memory: two holds of one shape.

Why a hold ends exactly once: `release` takes its owner away, and whoever finds none does nothing;
it is called on one thread, and what is garbage nobody can call. Garbage is collected on any thread,
in the middle of anything, so what it calls must only note what is to be done: the owner hands in a
function that posts.
"""

from __future__ import annotations

import logging
from sys import is_finalizing
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from broker_shim.messages.message import Message

_log = logging.getLogger(__name__)


class Hold:
    """A named hold on a message, until `release`.

    Attributes:
        owner: What is held; None once it was let go of.
        number: Number of this hold among those of the message.
        holder: The holder's name, for people who look for what keeps a message.
    """

    __slots__ = ("holder", "number", "owner")

    def __init__(self, owner: Message, number: int, holder: str) -> None:
        self.owner: Message | None = owner
        self.number, self.holder = number, holder

    def release(self) -> None:
        """Let go; again does nothing."""
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.released(self)

    def __del__(self) -> None:
        """Report a hold that became garbage without a release: that is a fault."""
        owner = self.owner
        if owner is not None and not is_finalizing():
            text = "message %d was held by %r, who never released it: a fault"
            _log.warning(text, owner.message_id, self.holder)
            owner.lost(self.number)

    def __enter__(self) -> Self:
        """Hold for as long as the block runs."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the hold when the block ends."""
        self.release()


class Reference(Hold):
    """A hold on a message: it is in the list of holders until this is released."""

    __slots__ = ()


class Interest(Hold):
    """A hold on a message's content: it is loaded, and stays in memory until this is released."""

    __slots__ = ()
