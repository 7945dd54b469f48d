"""Tier 2, the product: what the state machine decides goes to the log, and from there to Delta."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from broker_shim.completion import Completion, OnComplete, nobody
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.store.interface import StoredMessage
from broker_shim.store.local import LocalMessageStore, Observer, observed
from broker_shim.store.memory import now_us
from broker_shim.store.settlement_times import SettlementTimes
from sparkstore.config import StoreConfig
from sparkstore.core.records import Run, rows_of
from sparkstore.core.state_machine.call_values import RecordStep, Transaction
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.log.log_metrics import LogBacklog, LogMetrics
from sparkstore.log.start import open_log
from sparkstore.log.writer import Log
from sparkstore.recovery.recent_messages import recent_messages
from sparkstore.storage.disk_room import DiskRoom
from sparkstore.tables.root import Root


class Batch:
    """Many calls decided under one holding of a store's lock, and handed to the log as one item.

    Why nothing is lost, and nothing half done: the log was asked for room before the batch began.
    The lock is held until its end, so nobody else takes a position meanwhile. The records of a call
    are packed, which alone can refuse them, before its steps become true. What was packed is
    appended at the end of the batch, whatever happened in between. So at every moment outside the
    lock the state is the fold of what the log has taken.

    Attributes:
        machine: Decides; its methods change nothing.
    """

    def __init__(
        self,
        machine: StoreStateMachine,
        log: Log,
        numbers: Iterator[int],
        observer: Observer | None,
        settlement_times: SettlementTimes,
    ) -> None:
        self.machine = machine
        self._settlement_times = settlement_times
        self._observer = observer
        self._steps: list[RecordStep] = []
        self._log, self._numbers = log, numbers
        self._records: list[Run] = []
        self._packed: list[bytes] = []
        self._position = log.next_position
        self._on_complete: OnComplete = nobody

    def take(self, steps: Iterable[RecordStep]) -> None:
        """Make decided steps true.

        Raises:
            InvalidRequest: A record cannot be written; none of the steps is true.
        """
        steps = [*steps]
        kept = [step.run for step in steps if step.is_kept]
        # Packed first: this alone can refuse the records, and then none of the steps is true.
        self._packed.append(self._log.pack(kept))
        self._records += kept
        self._settlement_times.note(steps)  # before they are true: their entries are still there
        self.machine.apply(steps, self._position)
        self._position += rows_of(kept)
        if self._observer is not None:
            self._steps += steps

    @property
    def position(self) -> int:
        """Position of the newest record that was taken, here or before."""
        return self._position - 1

    def begin(self) -> Transaction:
        """Open a transaction with the next number."""
        return Transaction(next(self._numbers), self.machine)

    def finish(self, on_complete: OnComplete) -> None:
        """Set the completion of all that is taken, in its turn among the store's completions."""
        self._on_complete = on_complete

    def hand_over(self) -> None:
        """End the batch, also if a decision failed: what was taken is true already."""
        on_complete = self._on_complete
        if self._observer is not None and self._steps:
            on_complete = observed(self._observer, self._steps, on_complete)
        self._log.append_packed(self._records, b"".join(self._packed), on_complete)


class DeltaMessageStore(LocalMessageStore):
    """A `BrokerStore` whose queues are Delta tables.

    Attributes:
        opened_position: Position of the record `opened` with which this store began.
    """

    def __init__(
        self,
        root: str | Path,
        config: StoreConfig | None = None,
        clock: Callable[[], int] = now_us,
        *,
        accept_loss: bool = False,
    ) -> None:
        """Open the root for writing, or create it. See `log.start.open_log` for what it raises."""
        config = config or StoreConfig()
        opened = open_log(root, config, accept_loss=accept_loss)
        self._log = opened.log
        machine = StoreStateMachine(opened.state, TerminusDurability.UNSETTLED_STATE, clock)
        machine.next_id = max(machine.next_id, opened.log.root.identity.first_message_id)
        self._log.room.on_change = partial(setattr, machine, "held_back")
        machine.held_back = self._log.room.held_back
        super().__init__(machine, opened.log, config.max_message_bytes)
        self.opened_position = opened.log.next_position - 1
        self._remember_ids(clock())

    def _remember_ids(self, now_us: int) -> None:
        """Read what came of late to queues that detect duplicates, before anything comes."""
        machine, windows = self._machine, dict[str, int]()
        for name, terms in machine.terms.items():
            if terms.arguments.duplicate_window_ms is not None:
                windows[name] = terms.arguments.duplicate_window_ms
        if not windows:
            return
        since_us = now_us - max(windows.values()) * 1000
        for message in recent_messages(self.root, windows, since_us):
            identity = machine.identity_of(message.header)
            if identity is not None:
                machine.note_id(message.queue, identity, message.at)

    @property
    def log(self) -> Log:
        """The log that its records go to; a standby is brought up from it."""
        return self._log

    @property
    def root(self) -> Root:
        """The root directory that the store serves."""
        return self._log.root

    @property
    def failure(self) -> StoreError | None:
        """The error that the log stopped with for good, if it has."""
        return self._log.failure

    def catch_up(self) -> None:
        """Wait until Delta has all that was decided before.

        Raises:
            StoreError: What the log stopped with.
        """
        flushed = Completion()
        self.flush(flushed.finish)
        flushed.complete()

    @contextmanager
    def observe(self, observer: Observer | None) -> Iterator[StoreStateMachine]:
        """Tell an observer of all that members do from now on, and of what all of them share.

        The lock is held meanwhile: what was decided before is in the state that the caller sees,
        whatever is decided later the observer is told of when it is durable.
        """
        with self.look() as machine:
            self._observer = observer
            yield machine

    @contextmanager
    def batch(self, *, is_observed: bool = True) -> Iterator[Batch]:
        """Many calls of a member under one holding of the lock: for the store service.

        Args:
            is_observed: The store's observer is told what they did.

        Raises:
            Closed: The store is closed.
            StoreError: What the log cannot take records for; then nothing is held.
        """
        with self._lock:
            self._check_open()
            self._log.check()
            observer = self._observer if is_observed else None
            numbers, times = self._transactions, self.settlement_times
            batch = Batch(self._machine, self._log, numbers, observer, times)
            try:
                yield batch
            finally:
                batch.hand_over()

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

    @property
    def metrics(self) -> LogMetrics:
        """The counters of the store since it was opened."""
        return self._log.metrics

    @property
    def refusal(self) -> StoreError | None:
        """The error that a record would be refused with now: no room, or the log's end."""
        try:
            self._log.check()
        except StoreError as refusal:
            return refusal
        return None

    @property
    def room(self) -> DiskRoom:
        """The free space on its disks, and whether senders are held back."""
        return self._log.room

    @property
    def backlog(self) -> LogBacklog:
        """The records that were taken and are still on their way."""
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
