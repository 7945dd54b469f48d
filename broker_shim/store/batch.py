"""Many calls decided under one holding of a store's lock, and handed to the log as one item.

Why nothing is lost, and nothing half done: the log was asked for room before the batch began, and
the lock is held until its end, so nobody else takes a position meanwhile. The records of a call
are packed, which alone can refuse them, before its steps become true; what was packed is appended
at the end of the batch, whatever happened in between. So at every moment outside the lock the
state is the fold of what the log has taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol

from broker_shim.completion import OnComplete
from broker_shim.errors import Closed, StoreError
from broker_shim.store.sink import Sink
from sparkstore.core.records import Record
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.state_machine.values import RecordStep, Transaction


class PackingSink(Sink, Protocol):
    """A sink that lets records be packed one by one, and taken together."""

    next_position: int

    def check(self) -> None:
        """Raise what `append` would, whatever the records."""

    def pack(self, record: Record) -> bytes:
        """A record as `append_packed` takes it; InvalidRequest if it cannot be written."""

    def append_packed(self, records: list[Record], packed: bytes, on_complete: OnComplete) -> int:
        """Take what was packed, after `check`; it refuses nothing."""


class Batch:
    """Entered, it holds the store's lock; left, its records are on their way to the log.

    Attributes:
        machine: Decides; its methods change nothing.
    """

    def __init__(
        self,
        machine: StoreStateMachine,
        sink: PackingSink,
        lock: threading.Lock,
        is_closed: Callable[[], bool],
        next_transaction: Callable[[], int],
    ) -> None:
        self.machine = machine
        self._sink, self._lock, self._is_closed = sink, lock, is_closed
        self._next_transaction = next_transaction
        self._records: list[Record] = []
        self._packed: list[bytes] = []
        self._position = 0
        self._on_complete: OnComplete = _nobody

    def __enter__(self) -> Batch:
        """Raises what the log cannot take records for; then nothing is held."""
        self._lock.acquire()
        try:
            if self._is_closed():
                raise Closed("the store is closed: open a new one")
            self._sink.check()
        except StoreError:
            self._lock.release()
            raise
        self._position = self._sink.next_position
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Hand everything over, also if a decision failed: what was taken is true already."""
        try:
            self._sink.append_packed(self._records, b"".join(self._packed), self._on_complete)
        finally:
            self._lock.release()

    def take(self, steps: Iterable[RecordStep]) -> None:
        """Make decided steps true.

        Raises:
            InvalidRequest: A record cannot be written; none of the steps is true.
        """
        steps = [*steps]
        kept = [step.record for step in steps if step.is_kept]
        self._packed += [*map(self._sink.pack, kept)]
        self._records += kept
        self.machine.apply(steps, self._position)
        self._position += len(kept)

    def take_enqueued(self, step: RecordStep) -> None:
        """`take` of a single enqueue: the hottest call."""
        record, is_kept, _message = step
        if is_kept:
            self._packed.append(self._sink.pack(record))
            self._records.append(record)
        self.machine.apply_enqueued(step, self._position)
        self._position += is_kept

    def begin(self) -> Transaction:
        """A new transaction."""
        return Transaction(self._next_transaction(), self.machine)

    def finish(self, on_complete: OnComplete) -> None:
        """Called when all that was taken is durable, in its turn among the store's completions."""
        self._on_complete = on_complete


def _nobody(_error: StoreError | None) -> None:
    """Nobody waits."""
