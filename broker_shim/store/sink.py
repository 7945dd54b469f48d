"""Where a store's kept records go, and what fires its completions: one interface, three sinks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Protocol

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from sparkstore.core.records import MessageHeader, Run
from sparkstore.log.completions import fire_once


class Sink(Protocol):
    """Takes records in order; fires completions in order, on a thread of its own."""

    def append(self, runs: Sequence[Run], on_complete: OnComplete) -> int:
        """Take runs of records that become durable together; may be none.

        Returns:
            The position of the first, or of the next record if there is none.

        Raises:
            StoreError: Nothing was taken, and `on_complete` will not fire.
        """

    def finish(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire a completion in its turn, without a record. Never raises."""

    def flush(self, on_complete: OnComplete) -> None:
        """Fire a completion when everything before it is where queries see it."""

    def load(self, message_id: int) -> tuple[MessageHeader, bytes]:
        """Get the header and the content of a kept message.

        Raises:
            InvalidRequest: There is no such message.
        """

    def read_ahead(self, message_ids: Sequence[int]) -> None:
        """Bring kept messages into memory together, as far as that has room.

        What cannot be read is left out, and `load` says why.
        """

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, tuple[MessageHeader, bytes]]:
        """Get the headers and contents of those kept messages that are in memory."""

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """A part of the content of a kept message; neither number is negative.

        Raises:
            InvalidRequest: There is no such message.
        """

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Get the headers of kept messages, in that order; None for one that is not there."""

    def close(self) -> None:
        """Fire what is open, then stop."""


class NoContent:
    """The reads of a sink that takes no content."""

    def load(self, message_id: int) -> tuple[MessageHeader, bytes]:
        """Refuse every id, as no content was ever taken."""
        message = f"unknown message {message_id}"
        raise InvalidRequest(message)

    def read_ahead(self, _message_ids: Sequence[int]) -> None:
        """Bring nothing, as no content was ever taken."""

    def at_hand(self, _message_ids: Sequence[int]) -> dict[int, tuple[MessageHeader, bytes]]:
        """Find nothing, as no content was ever taken."""
        return {}

    def read(self, message_id: int, _offset: int, _length: int) -> bytes:
        """Refuse every id, as no content was ever taken."""
        return self.load(message_id)[1]

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Find no header, as no content was ever taken."""
        return [None] * len(message_ids)


class Completions:
    """Fires completions in order on a thread of its own, so that they may call the store."""

    def __init__(self) -> None:
        self._turns: SimpleQueue[tuple[OnComplete, StoreError | None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="completions", daemon=True)
        self._thread.start()

    def put(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire one after those before it."""
        self._turns.put((on_complete, error))

    def close(self) -> None:
        """Fire what is open, then stop."""
        self._turns.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (turn := self._turns.get()) is not None:
            fire_once(*turn)
