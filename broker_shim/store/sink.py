"""Where a store's kept records go, and what fires its completions: one interface, three sinks."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from typing import Protocol

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from sparkstore.records import MessageHeader, Record

_log = logging.getLogger(__name__)


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

    def close(self) -> None:
        """Fire what is open, then stop."""


class MemorySink:
    """Keeps nothing; the sink of tier 0."""

    def __init__(self) -> None:
        self._turns: queue.SimpleQueue[tuple[OnComplete, StoreError | None] | None]
        self._turns = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="completions", daemon=True)
        self._thread.start()
        self._position = 1

    def append(self, records: Sequence[Record], on_complete: OnComplete) -> int:
        """Complete at once."""
        first = self._position
        self._position += len(records)
        self._turns.put((on_complete, None))
        return first

    def finish(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire it in its turn."""
        self._turns.put((on_complete, error))

    def flush(self, on_complete: OnComplete) -> None:
        """Nothing is anywhere."""
        self._turns.put((on_complete, None))

    def load(self, message_id: int) -> tuple[MessageHeader, bytes]:
        """No content was ever taken."""
        message = f"unknown message {message_id}"
        raise InvalidRequest(message)

    def close(self) -> None:
        """Fire what is open, then stop."""
        self._turns.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (turn := self._turns.get()) is not None:
            fire(*turn)


def fire(on_complete: OnComplete, error: StoreError | None) -> None:
    """Call a completion; its own failure is logged and stops nothing."""
    try:
        on_complete(error)
    except Exception:  # noqa: BLE001 - a broker's bug must not stop everybody's completions
        _log.exception("a completion callback failed")
