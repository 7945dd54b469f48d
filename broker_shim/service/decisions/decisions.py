"""The meaning of one record, or several together: steps, or a refusal. Pure.

Nothing is changed here but an open transaction; the caller makes the steps true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.service.decisions.arrivals import (
    Fields,
    annotations_of,
    binding_of,
    check_known,
    check_record,
    definition_of,
    link_key_of,
    message_of,
    object_of,
    record_of,
    tag_of,
    tags_of,
)
from broker_shim.service.decisions.staged_content import StagedContents, check_id
from sparkstore.core import records
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.holders import OWN_CATEGORY
from sparkstore.core.link_records import ENDS_WITH_LINK, MEMBER
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine import branches, transactions
from sparkstore.core.state_machine.admission import Admission
from sparkstore.core.state_machine.arguments import check_name, check_size
from sparkstore.core.state_machine.call_values import (
    EnqueueCall,
    Queue,
    RecordStep,
    StoredMessage,
    Transaction,
)
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.xids import xid_from


def holder_of(machine: StoreStateMachine, prefix: str, record: Record) -> str:
    """Name a holder among all members: one of a member has its name before it.

    But a link that is kept with its deliveries is one and the same wherever it comes back. To the
    member both are one holder: what it acquired before the link was kept, or while it was, it still
    has as what it was then.
    """
    holder = record.holder or ""
    now = _held_by(machine, record)
    if now == prefix + holder or (now == holder and holder.startswith("[")):
        return now
    return holder if machine.is_resumable(holder) else prefix + holder


def _held_by(machine: StoreStateMachine, record: Record) -> str | None:
    """Find who holds an entry, or claims it in an open transaction."""
    place = (record.queue or "", record.message_id or 0)
    if (claimant := machine.claims.get(place)) is not None:
        return claimant.claims[place]
    queue = machine.state.queues.get(place[0])
    entry = None if queue is None else queue.entries.get(place[1])
    return None if entry is None else entry.acquired_by


_WIRING = {Kind.CREATED, Kind.ALTERED, Kind.DESTROYED, Kind.BOUND, Kind.UNBOUND}
_DETAIL = Record._fields.index("detail")
_CONFIGURATION = {Kind.CONFIGURED, Kind.UNCONFIGURED}


@dataclass(slots=True)
class Open:
    """A member's transaction: the store's, the messages that it brings, the last ADD to it.

    Attributes:
        began_at_s: By the clock of whoever opened it.
    """

    transaction: Transaction
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    last_request: int = 0
    began_at_s: float = 0.0


class Decisions:
    """The decisions for one member's incarnation.

    Attributes:
        machine: Of the store.
        max_message_bytes: How long the content of a message may be.
        staged: Content that came in pieces.
        own_queues: Names of queues that end with this member, unless it destroyed them.
        is_alone: Nobody else has this root, so its wiring need not be such as all brokers know.
    """

    is_alone = False

    def __init__(self, machine: StoreStateMachine, member: str, max_message_bytes: int) -> None:
        self.machine, self._member, self._prefix = machine, member, f"{member}/"
        self.max_message_bytes = max_message_bytes
        self.staged = StagedContents(machine, max_message_bytes)
        self.own_queues: set[str] = set()

    def enqueued(
        self, fields: Fields, asked: tuple[str, int], admission: Admission | None = None
    ) -> list[RecordStep]:
        """A single enqueue: the hottest call. Its record names who `asked`: member, request."""
        message = self._message(fields, {})
        try:
            added, queue = annotations_of(fields[_DETAIL]), fields[2]
            return self.machine.enqueue(message, queue, admission, asked, added)
        except StoreError:
            self.machine.end_fresh(message.message_id)
            raise

    def holder_of_free(self, holder: str | None) -> str | None:
        """Name who takes what nobody holds, as `holder_of` does for what is held."""
        if holder is None or self.machine.is_resumable(holder):
            return holder
        return self._prefix + holder

    def one(self, fields: Fields) -> list[RecordStep]:
        """A record by itself; each of `_ALONE` says what it completes with in `BrokerStore`."""
        record = record_of(fields)
        if record.kind in _IN_TRANSACTIONS:
            return _IN_TRANSACTIONS[record.kind](self, record, None)
        if not self.is_alone:
            check_known(self.machine.state.exchanges, record)
        decide = _ALONE.get(record.kind)
        return self.staged.piece(fields) if decide is None else decide(self, record)

    def several(
        self, taken: tuple[Fields, ...], begin: Callable[[], Transaction]
    ) -> list[RecordStep]:
        """Decide records that become true together.

        At most one is about wiring, and none about entries then: each is decided on what was
        there before, so two could contradict one another.

        Raises:
            InvalidRequest, NotAcquired: One of them cannot be; nothing of them may be applied.
        """
        kinds = [check_record(fields)[0] for fields in taken]
        wiring_count = sum(kind in _WIRING for kind in kinds)
        entry_count = sum(kind not in _WIRING and kind not in _CONFIGURATION for kind in kinds)
        if wiring_count > 1 or (wiring_count and entry_count):
            raise InvalidRequest("together with a wiring record there may be only configuration")
        opened, staged = Open(begin()), {**self.staged.bytes_of} if Kind.CONTENT in kinds else None
        try:
            others = self._together(taken, opened)
            return [*others[0], *self.end(opened, commit=True), *others[1]]
        except StoreError:
            if opened.transaction.is_open:
                self.end(opened, commit=False)
            if staged is not None:
                self.staged.bytes_of = staged  # its pieces are not in the log
            raise

    def _together(
        self, taken: tuple[Fields, ...], opened: Open
    ) -> tuple[list[RecordStep], list[RecordStep]]:
        """Take entry records into a transaction; steps for what comes before, and after, it."""
        content, others = list[RecordStep](), list[RecordStep]()
        configured: dict[tuple[str, str], bool] = {}
        aborted: set[int] = set()
        for fields in taken:
            kind = fields[0]
            if kind == Kind.CONTENT:
                content += self.staged.piece(fields)
            elif kind in _CONFIGURATION:
                others += _configuration(self.machine, record_of(fields), configured)
            elif kind in _WIRING:
                others += self.one(fields)
            elif kind == Kind.STAGING_ABORTED:
                others += self._aborted_once(fields, aborted, opened)
            else:
                self.added(opened, fields)
        return content, others

    def _aborted_once(self, fields: Fields, aborted: set[int], opened: Open) -> list[RecordStep]:
        message_id = fields[3]
        if message_id in aborted or message_id in opened.messages:
            refusal = f"message {message_id} cannot be staged no more and something else, too"
            raise InvalidRequest(refusal)
        aborted.add(message_id)
        return self.one(fields)

    def added(self, opened: Open, fields: Fields) -> None:
        """Take a record into a transaction; if it is refused, so will be the commit.

        Raises:
            InvalidRequest, NotAcquired: As `MessageStore`.
        """
        try:
            check_record(fields)
            if fields[0] == Kind.ENQUEUED:
                message = self._message(fields, opened.messages)
                opened.messages.setdefault(message.message_id, message)
                notes = annotations_of(fields[_DETAIL])
                call = EnqueueCall(message, fields[2], notes)
                transactions.enqueue(self.machine, call, opened.transaction)
                return
            record = record_of(fields)
            if record.kind not in _IN_TRANSACTIONS:
                message_ = f"a record of kind {record.kind.column} cannot be in a transaction"
                raise InvalidRequest(message_)
            _IN_TRANSACTIONS[record.kind](self, record, opened.transaction)
        except StoreError as refusal:
            opened.transaction.refusal = opened.transaction.refusal or refusal
            raise

    def end(
        self, opened: Open, *, commit: bool, objects: tuple[Fields, ...] = ()
    ) -> list[RecordStep]:
        """End a transaction; its steps, and those of the configured objects that change with it.

        Raises:
            InvalidRequest: See `MessageStore.commit`, or one of `objects` cannot be; it is
                aborted.
        """
        try:
            others = self._objects(objects) if commit else []
        except StoreError:
            self.end(opened, commit=False)
            raise
        try:
            if commit:
                for message_id in opened.messages:
                    self.machine.trust(message_id)
                return [*transactions.commit(self.machine, opened.transaction), *others]
            return transactions.abort(self.machine, opened.transaction)
        finally:
            for message_id in opened.messages:
                self.machine.end_fresh(message_id)

    @contextmanager
    def prepared(self, opened: Open, xid: bytes, *objects: Fields) -> Iterator[list[RecordStep]]:
        """Prepare a transaction; whoever gets its steps makes them true before leaving.

        Raises:
            InvalidRequest: See `BranchCalls.prepare`, or one of `objects` cannot be; it is
                aborted.
        """
        try:
            for message_id in opened.messages:
                self.machine.trust(message_id)
            try:
                named, others = xid_from(xid), self._objects(objects)
            except StoreError:
                transactions.abort(self.machine, opened.transaction)
                raise
            member = self._prefix[:-1]
            yield [*others, *branches.prepare(self.machine, opened.transaction, named, member)]
        except StoreError:
            for message_id in opened.messages:
                self.machine.end_fresh(message_id)
            raise
        branches.accept(self.machine, opened.transaction, named)

    def _objects(self, taken: tuple[Fields, ...]) -> list[RecordStep]:
        configured: dict[tuple[str, str], bool] = {}
        steps: list[RecordStep] = []
        for fields in taken:
            record = record_of(check_record(fields))
            if record.kind not in _CONFIGURATION:
                message = f"a record of kind {record.kind.column} cannot end a transaction"
                raise InvalidRequest(message)
            steps += _configuration(self.machine, record, configured)
        return steps

    def _message(self, fields: Fields, brought: Mapping[int, StoredMessage]) -> StoredMessage:
        """The message of an `enqueued` record, whole if this record brings it."""
        message = message_of(fields)
        message_id, machine = message.message_id, self.machine
        if message.header.protocol is None:
            known = brought.get(message_id) or machine.volatile.get(message_id)
            if known is None and message_id not in machine.state.messages:
                machine.check_free(message_id)
                refusal = f"message {message_id} left its last queue: make a new message"
                raise InvalidRequest(refusal)
            return known or message
        check_size(message.header.body_bytes, self.max_message_bytes)
        if message.is_staged and message_id not in machine.state.messages:
            self.staged.check_whole(message)
        if not machine.trust(message_id):
            check_id(machine, message_id)
        return message

    def _holder(self, record: Record) -> str:
        return holder_of(self.machine, self._prefix, record)

    def created(self, record: Record) -> list[RecordStep]:
        """Decide to create a queue or an exchange. See `WiringCalls.create`."""
        wiring = definition_of(record)
        steps = self.machine.create(wiring)
        is_kept = wiring.durability is not TerminusDurability.NONE
        if not is_kept and isinstance(wiring, Queue) and wiring.arguments.get(ENDS_WITH_LINK):
            self.own_queues.add(wiring.name)
        return steps

    def altered(self, record: Record) -> list[RecordStep]:
        """Decide to give a queue other arguments. See `WiringCalls.alter`."""
        queue = definition_of(record)
        if not isinstance(queue, Queue):
            raise InvalidRequest("only a queue is altered, not an exchange")
        return self.machine.alter(queue)

    def destroyed(self, record: Record) -> list[RecordStep]:
        """Decide to destroy a queue or an exchange. See `WiringCalls.destroy`."""
        wiring = definition_of(record)
        steps = self.machine.destroy(wiring)
        if isinstance(wiring, Queue):
            self.own_queues.discard(wiring.name)
        return steps

    def bound(self, record: Record) -> list[RecordStep]:
        """Decide to bind a queue to an exchange. See `WiringCalls.bind`."""
        arguments = object_of(record.detail or "{}").get("arguments", {})
        if not isinstance(arguments, dict):
            raise InvalidRequest("the arguments of a binding are an object")
        return self.machine.bind(binding_of(record), arguments)

    def unbound(self, record: Record) -> list[RecordStep]:
        """Decide to remove a binding. See `WiringCalls.unbind`."""
        return self.machine.unbind(binding_of(record))

    def dequeued(self, record: Record, transaction: Transaction | None) -> list[RecordStep]:
        """Decide to remove a message from a queue. See `MessageStore.dequeue`."""
        outcome = None if record.detail is None else object_of(record.detail)
        taker = None if record.holder is None else self._holder(record)
        message_id, queue = record.message_id or 0, record.queue or ""
        return self.machine.dequeue(message_id, queue, taker, outcome, transaction)

    def acquired(self, record: Record, transaction: Transaction | None) -> list[RecordStep]:
        """Decide to reserve a message for a holder. See `MessageStore.acquire`."""
        target = (record.message_id or 0, record.queue or "")
        return self.machine.acquire(*target, self._holder(record), transaction)

    def released(self, record: Record, transaction: Transaction | None) -> list[RecordStep]:
        """Decide to make an acquired message available. See `MessageStore.release`."""
        return self.machine.release(
            record.message_id or 0,
            record.queue or "",
            self._holder(record),
            delivery_failed=bool(record.delivery_count),
            annotations=annotations_of(record.detail),
            transaction=transaction,
        )

    def unsettled(self, record: Record, transaction: Transaction | None) -> list[RecordStep]:
        """Decide to remember a delivery of a link. See `LinkCalls.unsettled`."""
        state = None if record.detail is None else object_of(record.detail)
        key, tag = link_key_of(record), tag_of(record.binding_key)
        return self.machine.unsettled(key, tag, state, transaction)

    def settled(self, record: Record, transaction: Transaction | None) -> list[RecordStep]:
        """Decide to forget deliveries of a link. See `LinkCalls.settle`."""
        return self.machine.settle(link_key_of(record), tags_of(record), transaction)

    def attached(self, record: Record) -> list[RecordStep]:
        """Decide that a link is attached, and keep with it at which member. See `Members.lose`."""
        detail = {**object_of(record.detail or ""), MEMBER: self._member}
        return self.machine.attach(link_key_of(record), detail)

    def detached(self, record: Record) -> list[RecordStep]:
        """Decide that a link is detached, or forgotten. See `LinkCalls.detach`."""
        is_closed = record.detail is not None and object_of(record.detail).get("closed") is True
        return self.machine.detach(link_key_of(record), closed=is_closed)

    def staging_aborted(self, record: Record) -> list[RecordStep]:
        """Forget what was staged of a message with its header: it will not be enqueued."""
        return self.staged.abort(record.message_id or 0)

    def configured(self, record: Record) -> list[RecordStep]:
        """Put or remove a configured object."""
        return _configuration(self.machine, record, {})


def _configuration(
    machine: StoreStateMachine, record: Record, configured: dict[tuple[str, str], bool]
) -> list[RecordStep]:
    """Put or remove a configured object; `there` says what steps before it did to others."""
    category, key = record.exchange or "", record.binding_key or ""
    for name in (category, key):
        check_name(name)
    if category.startswith(OWN_CATEGORY):
        message = f"category {category!r} is the service's own"
        raise InvalidRequest(message)
    was_there = configured.get((category, key), (category, key) in machine.state.configured)
    configured[category, key] = record.kind is Kind.CONFIGURED
    if record.kind is Kind.CONFIGURED:
        object_of(record.detail or "")
        made = records.configured(machine.now_us(), category, key, record.detail or "")
    elif was_there:
        made = records.unconfigured(machine.now_us(), category, key)
    else:
        return []
    return [RecordStep(made, is_kept=True)]


_ALONE: Mapping[Kind, Callable[[Decisions, Record], list[RecordStep]]] = {
    Kind.CREATED: Decisions.created,
    Kind.ALTERED: Decisions.altered,
    Kind.DESTROYED: Decisions.destroyed,
    Kind.BOUND: Decisions.bound,
    Kind.UNBOUND: Decisions.unbound,
    Kind.CONFIGURED: Decisions.configured,
    Kind.UNCONFIGURED: Decisions.configured,
    Kind.STAGING_ABORTED: Decisions.staging_aborted,
    Kind.ATTACHED: Decisions.attached,
    Kind.DETACHED: Decisions.detached,
}
_IN_TRANSACTIONS: Mapping[
    Kind, Callable[[Decisions, Record, Transaction | None], list[RecordStep]]
] = {
    Kind.DEQUEUED: Decisions.dequeued,
    Kind.ACQUIRED: Decisions.acquired,
    Kind.RELEASED: Decisions.released,
    Kind.UNSETTLED: Decisions.unsettled,
    Kind.SETTLED: Decisions.settled,
}
"""Of records that may be in a transaction, too."""
