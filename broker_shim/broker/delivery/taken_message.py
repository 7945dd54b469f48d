"""A message that a consumer took from its queue, held by name while it is on its way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import filterfalse
from operator import attrgetter

from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.messages.message import Message, Messages
from broker_shim.messages.reference import Interest
from broker_shim.messages.residency import LoadedMessage
from broker_shim.store.interface import Entry

is_large = attrgetter("is_large")
_message_of = attrgetter("message")


class TakenMessage:
    """A consumer's reference to a message, and its interest in the content.

    `load` takes the interest, of many together.

    Attributes:
        message_id: The id of the message.
        message: The one object of it.
        came_at: When it came to its queue, UTC µs; None: its entry is not known.
        expires_at: On its queue, UTC µs: a queue may limit what the message asks for.
        detail: What its entry there adds to its annotations; None: it was never given back.
        is_large: Its content is not brought into memory whole, but read as it is sent.
        held_bytes: How much of it is in memory on its way.
        interest: In its content, until the consumer has that; None before `load`, and of a
            large one.
    """

    __slots__ = (
        "_reference",
        "came_at",
        "detail",
        "expires_at",
        "held_bytes",
        "interest",
        "is_large",
        "message",
        "message_id",
    )

    def __init__(self, message: Message, holder: str, entry: Entry | None, *, whole: bool) -> None:
        """Take a message up; `whole`: its content is needed in memory at once, however large."""
        is_large = not whole and entry is not None and entry.message_bytes > STAGED_BYTES
        self.message_id, self.message, self.is_large = message.message_id, message, is_large
        self.came_at = None if entry is None else entry.at
        self.expires_at = None if entry is None else entry.expires_at
        self.detail = None if entry is None else entry.detail
        self.held_bytes = 0 if is_large or entry is None else entry.message_bytes
        self._reference = message.reference(holder)
        self.interest: Interest | None = None

    def has_expired(self, now_us: int) -> bool:
        """Tell whether the message is too old to be delivered now, UTC µs."""
        return self.expires_at is not None and self.expires_at <= now_us

    def release(self) -> None:
        """Let go of it: the consumer has it no longer."""
        if self.interest is not None:
            self.interest.release()
        self._reference.release()


def wall_us() -> int:
    """Tell the time of the wall's clock, UTC µs."""
    return time.time_ns() // 1000


Arrived = tuple[TakenMessage, LoadedMessage]
"""A message, and its content, which is in memory."""


def load(messages: Messages, batch: Sequence[TakenMessage], holder: str) -> None:
    """Have the content of messages brought into memory, together, but for large ones."""
    small = [*filterfalse(is_large, batch)]
    interests = messages.interests([*map(_message_of, small)], holder)
    for taken, interest in zip(small, interests, strict=True):
        taken.interest = interest
