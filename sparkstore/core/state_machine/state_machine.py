"""Decide the calls of a `BrokerStore`: refuse, or make records. Pure: no clock, no thread.

The state is the fold of the records that were made here, so what a store answers while it lives
and what it recovers are one thing. What the store does not keep (by tier) goes through the same
fold with position 0 and is written nowhere: an entry at position 0 is transient.

The caller holds the store's lock around a decision, the append of its records to the log, and
`apply`: that alone makes decisions, positions and the order of the log agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from sparkstore.core import fold, policies, records
from sparkstore.core.annotations import Annotations, as_detail, given_back
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.queue_arguments import QueueTerms, terms_of
from sparkstore.core.records import Kind, MessageHeader, Record
from sparkstore.core.state_machine import definitions
from sparkstore.core.state_machine.admission import Admission, dropped_of
from sparkstore.core.state_machine.arguments import (
    check_body,
    check_entry,
    check_header,
    check_message,
    check_new,
    check_switch,
    check_taken,
)
from sparkstore.core.state_machine.call_values import (
    RecordStep,
    StoredMessage,
    Transaction,
    number_of,
)
from sparkstore.core.state_machine.in_doubt import InDoubtStateMachine
from sparkstore.core.state_machine.recent_ids import RecentIds
from sparkstore.core.state_machine.room import RoomStateMachine
from sparkstore.errors import InvalidRequest, NotAcquired

ID_BLOCK = 100_000
"""Message ids are reserved in blocks; the reservation comes before every use of it in the log, so
a power cut that loses it loses all records of messages with these ids too."""

_KEPT_MESSAGES = TerminusDurability.UNSETTLED_STATE
_new = tuple.__new__  # a NamedTuple's own constructor is a call of Python for each


class StoreStateMachine(InDoubtStateMachine, RoomStateMachine):
    """State of one store, and the rules of its calls. Methods that return steps change nothing.

    A call that is given an open transaction has no steps yet: it claims its entry, and waits in the
    transaction for the commit (`transactions`).

    Attributes:
        volatile: Messages on a queue whose content is not in the log.
        next_id: The id of the next message.
        fresh: Messages that were never enqueued; True once the content was given.
    """

    def __init__(
        self,
        state: fold.State,
        durability: TerminusDurability,
        now_us: Callable[[], int],
        link_durability: TerminusDurability | None = None,
    ) -> None:
        super().__init__(state, durability, now_us, link_durability)
        self.volatile: dict[int, StoredMessage] = {}
        self.recent_ids, self.recent_values = RecentIds(), dict[tuple[str, str], int]()
        self.next_id = state.next_message_id
        self.fresh: dict[int, bool] = {}
        self.terms = {name: self._terms_of(queue.detail) for name, queue in state.queues.items()}

    def message(self, header: MessageHeader, body: bytes) -> tuple[StoredMessage, list[RecordStep]]:
        """Make a new message, and the record that reserves ids if one is due."""
        check_header(header)
        if type(body) is not bytes:
            check_body(body)  # which says so
        message_id = self.next_id
        self.next_id += 1
        steps: list[RecordStep] = []
        if message_id >= self.state.next_message_id:
            record = records.ids_reserved(self.now_us(), message_id + ID_BLOCK)
            steps.append(RecordStep(record, self.durability >= _KEPT_MESSAGES))
        self.fresh[message_id] = bool(body)
        size, header_bytes = len(body), len(header.header or b"")
        if header.body_bytes != size or header.header_bytes != header_bytes:
            header = header._replace(header_bytes=header_bytes, body_bytes=size)
        return _new(StoredMessage, (message_id, header, body, False)), steps

    def adopt(self, message: StoredMessage) -> list[RecordStep] | None:
        """Trust that a message is one that another store made, so that it may be enqueued here.

        Returns:
            The reservation of ids if one is due; None if the message is here already.
        """
        check_message(message)
        message_id = message.message_id
        is_here = message_id in self.state.messages or message_id in self.volatile
        if is_here or self.fresh.get(message_id, False):
            return None
        self.fresh[message_id] = bool(message.body)
        self.next_id = max(self.next_id, message_id + 1)
        if message_id < self.state.next_message_id:
            return []
        record = records.ids_reserved(self.now_us(), message_id + ID_BLOCK)
        return [RecordStep(record, self.durability >= _KEPT_MESSAGES)]

    def reserve(self, count: int) -> tuple[int, list[RecordStep]]:
        """Give out ids that only a member of the service will use; the first, and the record."""
        first = self.next_id
        self.next_id += count
        if self.next_id <= self.state.next_message_id:
            return first, []
        record = records.ids_reserved(self.now_us(), self.next_id)
        return first, [RecordStep(record, self.durability >= _KEPT_MESSAGES)]

    def is_reserved(self, message_id: int) -> bool:
        """True if an id was given out, now or before a restart."""
        return 0 <= message_id < self.next_id

    def trust(self, message_id: int) -> bool:
        """Trust a member that an id, of no message on a queue, is that of a new one.

        Returns:
            False if the id was never given out; then it is not trusted.
        """
        if message_id not in self.state.messages:
            if message_id >= self.next_id:
                return False
            self.fresh[message_id] = True
        return True

    def is_fresh(self, message_id: int) -> bool:
        """True if a message was made, with its content, and never put on a queue."""
        return self.fresh.get(message_id, False)

    def begin_content(self, message: StoredMessage) -> bool:
        """True if content that comes in pieces goes to the log as it comes.

        Until `end_content` the message cannot be enqueued: half of its content may be there.

        Raises:
            InvalidRequest: The message has content already.
        """
        if self.fresh.get(message.message_id, True):
            refusal = f"message {message.message_id} has its content already: make a new message"
            raise InvalidRequest(refusal)
        del self.fresh[message.message_id]
        return self.durability >= _KEPT_MESSAGES and message.header.durable

    def end_content(self, message: StoredMessage) -> list[RecordStep]:
        """Make the message of pieces that have all come, each by a step of its own."""
        self.fresh[message.message_id] = True
        return []

    def abort_staging(self, message_id: int) -> list[RecordStep]:
        """Give up a message that was staged with its header: it will not be enqueued.

        Raises:
            InvalidRequest: It is not staged.
        """
        self.check_free(message_id)
        if message_id not in self.state.staged:
            refusal = f"message {message_id} is not staged"
            raise InvalidRequest(refusal)
        return [RecordStep(records.staging_aborted(self.now_us(), message_id), is_kept=True)]

    def enqueue(
        self,
        message: StoredMessage,
        queue: str,
        admission: Admission | None = None,
        asked: tuple[str | None, int | None] = (None, None),
        annotations: Annotations | None = None,
        delivery_count: int = 0,
    ) -> list[RecordStep]:
        """Put any message on a queue, if it may be; a call by itself is a batch of one.

        Args:
            message: The message to put there; its content, too, unless the log has it.
            queue: Name of the queue, which must exist.
            admission: Of the batch or transaction that it is of: gets the steps.
            asked: Which member asked, and the number of its request.
            annotations: What the entry adds to those of its message.
            delivery_count: Failed deliveries that the entry begins with.

        Raises:
            InvalidRequest: The message may not be put there, or is not as it was made.
            Full: There is no room for it.
        """
        admission, message_id = admission or Admission(self), message.message_id
        if self.in_doubt or self.promised:
            self.check_place(queue, message_id)
        if message_id in self.queue(queue).entries and (queue, message_id) not in admission.taken:
            refusal = f"message {message_id} is on queue {queue!r} already"
            raise InvalidRequest(refusal)
        is_logged = message_id in admission.brought
        if not is_logged and message_id not in self.fresh and message_id not in self.volatile:
            if message_id not in self.state.messages and message_id not in self.state.staged:
                refusal = f"message {message_id} left its last queue: make a new message"
                raise InvalidRequest(refusal)
            is_logged = message_id in self.state.messages
        if message_id in self.fresh:
            check_new(message)
        detail = None if annotations is None else as_detail(annotations)
        admission.admit(message, queue, detail, *asked, is_logged=is_logged)
        if delivery_count:
            admission.count_failures(queue, message_id, delivery_count)
        return admission.steps

    def dequeue(
        self,
        message_id: int,
        queue: str,
        holder: str | None,
        outcome: Mapping[str, Any] | None,
        transaction: Transaction | None = None,
    ) -> list[RecordStep]:
        """Remove an entry for good; one that is available needs no acquire first."""
        check_taken(message_id, queue, holder)
        entry, acquired_by = self._claimable(queue, message_id, transaction)
        if acquired_by is not None and acquired_by != holder:
            raise _held(queue, message_id, acquired_by)
        detail = None if outcome is None else definitions.as_json(outcome)
        record = records.message_dequeued(
            self.now_us(), queue, message_id, holder, detail, number_of(transaction)
        )
        return self._decided(record, entry, transaction, holder)

    def acquire(
        self, message_id: int, queue: str, holder: str, transaction: Transaction | None = None
    ) -> list[RecordStep]:
        """Reserve an available entry; if the transaction aborts, it is available again."""
        check_entry(message_id, queue, holder)
        entry, acquired_by = self._claimable(queue, message_id, transaction)
        if acquired_by is not None:
            raise _held(queue, message_id, acquired_by)
        record = records.message_acquired(
            self.now_us(), queue, message_id, holder, number_of(transaction)
        )
        return self._decided(record, entry, transaction, holder)

    def release(
        self,
        message_id: int,
        queue: str,
        holder: str,
        *,
        delivery_failed: bool,
        annotations: Annotations | None = None,
        transaction: Transaction | None = None,
    ) -> list[RecordStep]:
        """Give an acquired entry back; in a transaction, maybe not for the first time."""
        check_entry(message_id, queue, holder)
        check_switch("delivery_failed", delivery_failed)
        entry, acquired_by = self._claimable(queue, message_id, transaction)
        _check_holder(queue, message_id, acquired_by, holder)
        count, before = entry.delivery_count, entry.detail
        if transaction is not None:
            count, before = transaction.given_back.get((queue, message_id), (count, before))
        count += delivery_failed
        detail = given_back(before, annotations)
        if delivery_failed:
            detail = self.delayed(queue, before, detail, count)
        if transaction is not None:
            given = before if detail is None else detail
            transaction.given_back[queue, message_id] = count, given
        record = records.message_released(
            self.now_us(), queue, message_id, count, number_of(transaction), detail
        )
        return self._decided(record, entry, transaction, None)

    def apply(self, steps: Sequence[RecordStep], position: int) -> None:
        """Apply steps to the state; `position` is that of the first that is kept."""
        for step in steps:
            run, is_kept = step.run, step.is_kept
            fold.apply(self.state, position if is_kept else 0, run)
            after = self._AFTER.get(run.record.kind)
            if after is not None:
                after(self, step)
            position += run.rows if is_kept else 0
        self.state.position = position - 1  # transient steps have none
        if self.has_dropped:
            self.has_dropped = False
            self.on_dropped(dropped_of(steps))

    def entry(self, queue: str, message_id: int) -> fold.Entry:
        """Find an entry, whoever has it.

        Raises:
            InvalidRequest: Unknown queue; the message is not on it.
        """
        entry = self.queue(queue).entries.get(message_id)
        if entry is None:
            message = f"message {message_id} is not on queue {queue!r}"
            raise InvalidRequest(message)
        return entry

    def end_fresh(self, message_id: int) -> None:
        """Forget a new message: the log has its content, or it was refused."""
        self.fresh.pop(message_id, None)

    def _claimable(
        self, queue: str, message_id: int, transaction: Transaction | None
    ) -> tuple[fold.Entry, str | None]:
        """An entry that nobody else has a claim on, and who holds it as the caller sees it."""
        if transaction is not None:
            transaction.check_open()
        entry = self.entry(queue, message_id)
        if transaction is not None and (queue, message_id) in transaction.taken:
            message = f"message {message_id} on queue {queue!r} is dequeued by this transaction"
            raise InvalidRequest(message)
        claimant = self.claims.get((queue, message_id)) if self.claims else None
        if claimant is None:
            return entry, entry.acquired_by
        if claimant is not transaction:
            raise _held(queue, message_id, "a transaction")
        return entry, claimant.claims[queue, message_id]

    def _decided(
        self, record: Record, entry: fold.Entry, transaction: Transaction | None, holder: str | None
    ) -> list[RecordStep]:
        """The step of a decided call; in a transaction, its claim, which `holder` has now."""
        if transaction is None:
            return [RecordStep(record, entry.position > 0)]
        self.claim(record, transaction, holder)
        return []

    def _terms_of(self, detail: str) -> QueueTerms:
        return terms_of(detail)._replace(keeps_messages=self.keeps(detail, _KEPT_MESSAGES))

    def _after_created(self, step: RecordStep) -> None:
        record = step.record
        if record.queue is not None:
            self.terms[record.queue] = self._terms_of(record.detail or "{}")

    def _after_configured(self, step: RecordStep) -> None:
        if step.record.exchange == policies.CATEGORY:
            self.policies = policies.policies_of(self.state.configured)

    def _after_destroyed(self, step: RecordStep) -> None:
        if step.record.queue is not None:
            del self.terms[step.record.queue]
            self.recent_ids.forget(step.record.queue)
            for key in [key for key in self.claims if key[0] == step.record.queue]:
                del self.claims[key]
            for message_id in [*self.volatile]:
                self._forget(message_id)

    def _after_enqueued(self, step: RecordStep) -> None:
        message, header = step.message, step.record.message
        if step.identity is not None or step.value is not None:
            self.note_names(step)
        for message_id in step.run.message_ids if self.fresh or self.volatile else ():
            self.fresh.pop(message_id, None)
            if step.is_kept:
                self.volatile.pop(message_id, None)
        if step.is_kept or message is None or header is None:
            return
        if header.protocol is not None:
            self.volatile[message.message_id] = message._replace(header=header)

    def _after_entries(self, step: RecordStep) -> None:
        for message_id in step.run.message_ids if self.fresh or self.volatile else ():
            self.fresh.pop(message_id, None)
            self._forget(message_id)

    def _forget(self, message_id: int) -> None:
        if message_id not in self.state.messages:
            self.volatile.pop(message_id, None)

    _AFTER: ClassVar[dict[Kind, Callable[[StoreStateMachine, RecordStep], None]]] = {
        Kind.CONFIGURED: _after_configured,
        Kind.UNCONFIGURED: _after_configured,
        Kind.CREATED: _after_created,
        Kind.ALTERED: _after_created,
        Kind.DESTROYED: _after_destroyed,
        Kind.ENQUEUED: _after_enqueued,
        Kind.DEQUEUED: _after_entries,
        Kind.DETACHED: InDoubtStateMachine.after_detached,
    }


def _held(queue: str, message_id: int, holder: str) -> NotAcquired:
    """Make the refusal of a message that another holder has."""
    return NotAcquired(f"message {message_id} on queue {queue!r} is held by {holder}")


def _check_holder(queue: str, message_id: int, acquired_by: str | None, holder: str) -> None:
    """Only the one who holds an entry may give it back.

    Raises:
        InvalidRequest: Nobody holds it.
        NotAcquired: Somebody else than `holder` holds it.
    """
    if acquired_by is None:
        message = f"message {message_id} on queue {queue!r} is not acquired"
        raise InvalidRequest(message)
    if acquired_by != holder:
        raise _held(queue, message_id, acquired_by)
