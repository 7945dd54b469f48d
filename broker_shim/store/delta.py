"""Tier 2, the product: what the state machine decides goes to the log, and from there to Delta."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from broker_shim.completion import Completion
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.store.batch import Batch
from broker_shim.store.interface import StoredMessage
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.memory import now_us
from sparkstore.config import StoreConfig
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.log.metrics import LogBacklog, LogMetrics
from sparkstore.log.start import open_log
from sparkstore.tables.root import Root


class DeltaMessageStore(LocalMessageStore):
    """A `MessageStore` whose queues are Delta tables."""

    def __init__(
        self,
        root: str | Path,
        config: StoreConfig | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """Open the root for writing, or create it. See `log.start.open_log` for what it raises."""
        config = config or StoreConfig()
        opened = open_log(root, config)
        self._log = opened.log
        machine = StoreStateMachine(opened.state, TerminusDurability.UNSETTLED_STATE, clock)
        super().__init__(machine, opened.log, config.max_message_bytes)

    @property
    def root(self) -> Root:
        """Where it lives."""
        return self._log.root

    @property
    def failure(self) -> StoreError | None:
        """What the log stopped with for good, if it has."""
        return self._log.failure

    def catch_up(self) -> None:
        """Wait until Delta has all that was decided before.

        Raises:
            StoreError: What the log stopped with.
        """
        flushed = Completion()
        self.flush(flushed.finish)
        flushed.complete()

    def batch(self) -> Batch:
        """Many calls of a member under one holding of the lock: for the store service."""
        return Batch(
            self._machine, self._log, self._lock, lambda: self._is_closed, self._next_transaction
        )

    @contextmanager
    def look(self) -> Iterator[StoreStateMachine]:
        """Hold the lock and look at what was decided. It needs no room in the log, as calls do.

        Raises:
            Closed: The store is closed.
            StoreError: What the log stopped with: not all that was decided will be durable.
        """
        with self._lock:
            self._check_open()
            if self.failure is not None:
                raise self.failure.with_traceback(None)
            yield self._machine

    def _next_transaction(self) -> int:
        self._transactions += 1
        return self._transactions

    @property
    def metrics(self) -> LogMetrics:
        """Counters since it was opened."""
        return self._log.metrics

    @property
    def refusal(self) -> StoreError | None:
        """What a record would be refused with now: no room, or what the log stopped with."""
        try:
            self._log.check()
        except StoreError as refusal:
            return refusal
        return None

    @property
    def backlog(self) -> LogBacklog:
        """What was taken and is still on its way."""
        return self._log.backlog

    def load_anywhere(self, message_id: int) -> StoredMessage:
        """`load`, also of a message that is on no queue: not yet, or not any more.

        Not yet: it was staged with its header. Not any more: its last queue let go of it, and who
        still holds it reads it. Its records outlive it: the journal's are moved to history, which
        keeps them for `history_days`. Ids are never given out twice, so what is found is this
        message or nothing.

        Raises:
            InvalidRequest: There is no record of it (any more), or not all pieces of it came.
        """
        with self._lock:
            self._check_open()
            if (message := self._machine.volatile.get(message_id)) is not None:
                return message
        return StoredMessage(message_id, *self._log.load(message_id))
