"""A message on its way from a queue to a client."""

from __future__ import annotations

import time
from collections.abc import Sequence

from broker_shim.errors import StoreError
from broker_shim.messages.message import Message, Messages
from broker_shim.messages.reference import Interest
from broker_shim.messages.residency import LoadedMessage
from broker_shim.store.interface import Entry


class SessionDelivery:
    """A reference to one message, and an interest in its content, which `load` takes.

    Attributes:
        message_id: The id of the message.
        message: The one object of it.
        byte_count: What it costs of credit in bytes.
        expires_at: On its queue, UTC µs: a queue may limit what the message asks for.
        credit_turn: Which of its consumer's credits it was taken by; see `SessionConsumer`.
        loaded: Header and content once they are here, or why they never come.
        is_ours: False if somebody else acquired it.
        entry: What the service told of it, if it was only shown, at a member.
        interest: In its content, from `load` on.
    """

    def __init__(self, message: Message, byte_count: int, holder: str, entry: Entry | None) -> None:
        self.message_id, self.message, self.byte_count = message.message_id, message, byte_count
        self.entry = entry
        self.expires_at: int | None = None
        self.credit_turn = 0
        self.loaded: LoadedMessage | StoreError | None = None
        self.is_ours = True
        self.interest: Interest | None = None
        self._reference = message.reference(holder)

    @property
    def has_expired(self) -> bool:
        """True if nobody is to get it any more."""
        return self.expires_at is not None and self.expires_at <= time.time_ns() // 1000

    def release(self) -> None:
        """It was sent, or is not."""
        if self.interest is not None:
            self.interest.release()
        self._reference.release()


def load(messages: Messages, batch: Sequence[SessionDelivery], holder: str) -> None:
    """Have the content of messages brought into memory, together."""
    interests = messages.interests([taken.message for taken in batch], holder)
    for taken, interest in zip(batch, interests, strict=True):
        taken.interest = interest
