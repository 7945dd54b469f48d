"""Where a store's kept records go, and what fires its completions: one interface, three sinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.completions import Completions
from sparkstore.core.records import MessageHeader, Record


class Sink(Protocol):
    """Takes records in order; fires completions in order, on a thread of its own."""

    def append(self, records: Sequence[Record], on_complete: OnComplete) -> int:
        """Take records that become durable together; may be none.

        Returns:
            The position of the first, or of the next record if there is none.

        Raises:
            StoreError: Nothing was taken, and `on_complete` will not fire.
        """

    def finish(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire a completion in its turn, without a record. Never raises."""

    def flush(self, on_complete: OnComplete) -> None:
        """Fire it when everything before it is where queries see it."""

    def load(self, message_id: int) -> tuple[MessageHeader, bytes]:
        """Header and content of a kept message.

        Raises:
            InvalidRequest: There is no such message.
        """

    def at_hand(self, message_id: int) -> tuple[MessageHeader, bytes] | None:
        """Header and content of a kept message, if they are in memory."""

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """A part of the content of a kept message; neither number is negative.

        Raises:
            InvalidRequest: There is no such message.
        """

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Headers of kept messages, in that order; None for one that is not there."""

    def close(self) -> None:
        """Fire what is open, then stop."""


class NoContent:
    """The reads of a sink that takes no content."""

    def load(self, message_id: int) -> tuple[MessageHeader, bytes]:
        """No content was ever taken."""
        message = f"unknown message {message_id}"
        raise InvalidRequest(message)

    def at_hand(self, _message_id: int) -> None:
        """No content was ever taken."""

    def read(self, message_id: int, _offset: int, _length: int) -> bytes:
        """No content was ever taken."""
        return self.load(message_id)[1]

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """No header was ever taken."""
        return [None] * len(message_ids)


class MemorySink(NoContent):
    """Keeps nothing; the sink of tier 0."""

    def __init__(self) -> None:
        self._completions = Completions()
        self._position = 1

    def append(self, records: Sequence[Record], on_complete: OnComplete) -> int:
        """Complete at once."""
        first = self._position
        self._position += len(records)
        self._completions.put(on_complete, None)
        return first

    def finish(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire it in its turn."""
        self._completions.put(on_complete, error)

    def flush(self, on_complete: OnComplete) -> None:
        """Nothing is anywhere."""
        self._completions.put(on_complete, None)

    def close(self) -> None:
        """Fire what is open, then stop."""
        self._completions.close()
