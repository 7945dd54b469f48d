"""One local transaction of a client: what it sends and what it settles, all of it or nothing.

Decision: its work waits here until it is discharged, and goes to the store then, as one
transaction of the store. Were it given to the store as it comes, a queue that is destroyed while
the client thinks (a subscriber leaves) would undo the whole of it, and content would wait in the
store as it waits here. Large content does go to the store as it comes, and is forgotten if it is
never enqueued.

Why it is all or nothing: the commit of the store is one group of the log and one Delta commit.
A crash before that group is on disk leaves nothing of it: what was sent is nowhere, and what was
settled is on its queue, acquired by a link that is gone, as if nothing had been said about it. A
crash after it leaves all. An operation that was refused spoils the transaction
(`TransactionStanding`).

When it is visible: what was sent may be dispatched when the commit has completed, and SQL sees it
from that Delta commit on. The client is told after that, so whoever it tells finds the messages.

Why nobody else gets what is settled in it: the message stays held by the link for the queue, and
acquired by it for the store, until the transaction ends: a purge, a move or another consumer take
what waits only. If the transaction is undone, what the client has forgotten is given back as a
failed delivery; what it has not is the client's to decide again, unless it was acquired in the
transaction, too (`Acquisitions`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from broker_shim.broker.dead_letters import Rejection
from broker_shim.broker.delivery.taken_message import TakenMessage
from broker_shim.broker.last_value_queues import Replaced, Value
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.storage.store_puts import Operation, Staged
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError, Unavailable
from broker_shim.listener_1_0.outcomes import kept_of, rejection
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.store.interface import (
    MessageHeader,
    MessageStore,
    StoredMessage,
    TransactionContext,
)
from broker_shim.transactions.refusals import TransactionRefused, rolled_back
from broker_shim.transactions.standing import TransactionStanding

OUTCOMES = (Accepted, Rejected, Released, Modified)


class Controller(Protocol):
    """Our end of a control link."""

    def end(self, refusal: TransactionRefused) -> None:
        """Terminate it: what was declared on it is rolled back."""


class RetiringLink(Protocol):
    """The link that a retired delivery was sent on; it may have ended meanwhile."""

    @property
    def queue(self) -> QueueDispatch:
        """Where the link's messages are."""

    @property
    def holder(self) -> str:
        """What the store knows the link by."""

    def refuse(self, message_id: int) -> None:
        """The link must not get a message again."""

    def retired(self, retirement: Retirement) -> None:
        """A retirement is committed."""

    def taken_back(self, retirement: Retirement, on_done: OnComplete) -> None:
        """A retirement is rolled back; `on_done` when its message is available again."""


class Acquirer(Protocol):
    """A link on which messages are acquired in transactions."""

    def over(self, transaction: LocalTransaction) -> list[Delivery]:
        """A transaction ended: the deliveries that were acquired in it, and are now in none."""

    def give_back(self, delivery: Delivery, on_done: OnComplete) -> None:
        """The transaction is undone that a delivery was acquired in."""


@dataclass(slots=True, eq=False)
class Retirement:
    """One delivery within one transaction; until that ends nobody else decides about it.

    Attributes:
        link: That it was sent on; it may have ended meanwhile.
        delivery: Of the protocol.
        taken: The message that was delivered.
        outcome: What the client chose, one of `OUTCOMES`.
        is_settled: The client has forgotten the delivery.
        rejection: What becomes of the message, if it is rejected.
    """

    link: RetiringLink
    delivery: Delivery
    taken: TakenMessage
    outcome: Any
    is_settled: bool
    rejection: Rejection | None = None

    @property
    def removes(self) -> bool:
        """True if the outcome takes the message off its queue; else it is available again."""
        return isinstance(self.outcome, Accepted | Rejected)

    @property
    def failed(self) -> bool:
        """True if an outcome that gives the message back raises its delivery count."""
        return isinstance(self.outcome, Modified) and self.outcome.delivery_failed is True

    @property
    def is_undeliverable(self) -> bool:
        """True if the link must not get the message again."""
        return isinstance(self.outcome, Modified) and self.outcome.undeliverable_here is True

    def operations(self, broker: Broker) -> list[Operation]:
        """The calls of the store that do it, decided on what is true now.

        A dead-letter queue that is not there is created by an earlier call of the store.
        """
        message_id, queue, holder = self.taken.message_id, self.link.queue, self.link.holder
        outcome, failed = self.outcome, self.failed
        if isinstance(outcome, Rejected):
            self.rejection = Rejection(broker, queue, message_id, holder, rejection(outcome))
            self.rejection.make_target(_nobody)  # if that is refused, so is what needs it
            try:
                steps = self.rejection.steps()
            except StoreError as reason:
                return [partial(_refuse, reason)]
            return [broker.calls.operation(*each) for each in steps]
        kept = None
        if isinstance(outcome, Modified):
            kept = kept_of(broker, queue.name, message_id, outcome)

        def remove(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
            store.dequeue(message_id, queue.name, holder, note, transaction)

        def release(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
            place = (message_id, queue.name, holder, note, transaction)
            store.release(*place, delivery_failed=failed, annotations=kept)

        return [remove if self.removes else release]


class Posting:
    """A message that a client sends within a transaction; end it once, by `ended`.

    It has its place among the others from the end of its transfer, as its content may come to the
    store after that of messages that were sent later.

    Attributes:
        queues: Names of those that it goes to; none if no subscription selects it.
        values: For each last-value queue among them.
        message: None until all its content is with the store, where that is needed.
        is_under_way: True until `ended`.
        error: Why it cannot be sent; then the transaction cannot be committed.
    """

    def __init__(self, broker: Broker, on_ended: Callable[[], None]) -> None:
        self._broker, self._on_ended = broker, on_ended
        self.queues: tuple[str, ...] = ()
        self.values: list[Value] = []
        self.message: StoredMessage | None = None
        self.is_under_way = True
        self.error: StoreError | None = None

    def publish(
        self,
        header: MessageHeader,
        content: bytes | Staged,
        queues: Iterable[str],
        on_done: OnComplete,
    ) -> None:
        """As `Broker.publish`, but for the commit; `on_done` when the message is taken in."""
        names = self._broker.selecting(queues, header)
        if not names:
            on_done(None)
            return
        self.queues, self.values = names, self._broker.last_value_queues.values(header, names)

        def ready(error: StoreError | None, message: StoredMessage | None) -> None:
            self.message = message
            on_done(error)

        may_stage = self._broker.all_keep(names)
        self._broker.calls.puts.prepare(header, content, ready, may_stage=may_stage)

    def ended(self, error: StoreError | None) -> None:
        """It is taken in, or was refused."""
        self.is_under_way, self.error = False, error
        self._on_ended()

    def operations(self) -> list[Operation]:
        """The calls of the store that put it on its queues, as far as these are still there.

        Raises:
            TransactionRefused: None of them is.
        """
        if self.message is None:
            return []
        there = tuple(name for name in self.queues if name in self._broker.queues)
        if not there:
            text = f"queue {self.queues[0]!r} was destroyed"
            raise rolled_back(text)
        self.queues = there
        return [_enqueue(self.message, name) for name in there]

    def arrived(self) -> None:
        """It is on its queues, durably."""
        if self.message is None:
            return
        self._broker.metrics.enqueued += len(self.queues)
        for name in self.queues:
            header = self.message.header
            durable = header.durable
            self._broker.arrived(name, self.message.message_id, header.priority, durable=durable)

    def came(self) -> list[tuple[int, Value]]:
        """The message with its values, as `LastValueQueues.end` takes it."""
        if self.message is None:
            return []
        return [(self.message.message_id, value) for value in self.values]


class LocalTransaction:
    """One transaction, from its declare to its discharge. On the loop's thread only.

    Attributes:
        standing: What it may still do.
        owner: The coordinator's link that it was declared on.
    """

    def __init__(
        self,
        broker: Broker,
        standing: TransactionStanding,
        owner: Controller,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.standing, self.owner = standing, owner
        self._broker, self._clock = broker, clock
        self._postings: list[Posting] = []
        self._retirements: list[Retirement] = []
        self._acquirers: dict[Acquirer, None] = {}
        self._on_discharged: OnComplete | None = None

    def post(self, content_bytes: int) -> Posting:
        """A message came whole: it is of this transaction, in its place.

        Args:
            content_bytes: So much of it waits in memory.

        Raises:
            TransactionRefused: The transaction takes no more.
        """
        self.standing.take(content_bytes, self._clock())
        self._postings.append(Posting(self._broker, self._commit_if_ready))
        return self._postings[-1]

    def retire(self, retirement: Retirement) -> None:
        """Take in what a client decided about a delivery: from now on it is this transaction's.

        Also one that can only be rolled back holds it: given back at once, the message would come
        to the client again and again before its discharge.
        """
        try:
            self.standing.take(0, self._clock())
        except TransactionRefused:
            if len(self._retirements) >= self.standing.limits.operation_count:
                retirement.link.taken_back(retirement, _nobody)
                return
        self._retirements.append(retirement)

    def acquire(self, acquiring: Acquirer) -> None:
        """A link acquired a message in it; one that can only be rolled back gives it back then."""
        with suppress(TransactionRefused):
            self.standing.take(0, self._clock())
        self._acquirers[acquiring] = None

    def spoil(self, reason: str) -> None:
        """An operation in it was refused."""
        self.standing.spoil(rolled_back(reason))

    def expire(self, now_s: float) -> None:
        """Undo it if it was open for too long; the client is told at its discharge."""
        if self.standing.expire(now_s):
            self._undo(_nobody)

    def commit(self, on_done: OnComplete) -> None:
        """Do all of it; `on_done` when that is durable and visible, or all is undone.

        Raises:
            TransactionRefused: It can only be rolled back; nothing was done.

        Completes with:
            Unavailable: It is not known whether it was done.
            StoreError: It is undone.
        """
        self.standing.commit()
        self._on_discharged = on_done
        self._commit_if_ready()

    def rollback(self, on_done: OnComplete) -> None:
        """Undo it; `on_done` when what it took is available again."""
        self._over(committed=False)
        self._undo(on_done)

    def _commit_if_ready(self) -> None:
        """Go on with a commit once all messages are taken in, those sent in pieces, too."""
        if self._on_discharged is None or any(each.is_under_way for each in self._postings):
            return
        refused = next((each.error for each in self._postings if each.error is not None), None)
        if refused is not None:
            self._refused(rolled_back(str(refused)))
            return
        values = [*dict.fromkeys(value for each in self._postings for value in each.values)]
        self._broker.last_value_queues.begin(values, partial(self._commit, values))

    def _commit(self, values: list[Value], replaced: Replaced) -> None:
        """Nothing else is under way with these values: hand everything to the store."""

        def decided(error: StoreError | None) -> None:
            came = [each for posting in self._postings for each in posting.came()]
            self._broker.last_value_queues.end(values, replaced, came, error)
            self._decided(error)

        try:
            operations = [each for posting in self._postings for each in posting.operations()]
        except TransactionRefused as refusal:
            decided(refusal)
            return
        for each in self._retirements:
            operations += each.operations(self._broker)
        operations += self._replace(replaced)
        if operations:
            self._broker.calls.transact(operations, decided)
        else:
            decided(None)

    def _replace(self, replaced: Replaced) -> Iterator[Operation]:
        newest = {value: number for each in self._postings for number, value in each.came()}
        for older, name in replaced:
            last_values = self._broker.queues[name].last_values
            value = None if last_values is None else last_values.value(older)
            if value is not None:
                yield _take_place(older, name, newest[name, value])

    def _decided(self, error: StoreError | None) -> None:
        if error is not None:
            self._refused(error)
            return
        self._over(committed=True)
        for posting in self._postings:
            posting.arrived()
        for retirement in self._retirements:
            self._retired(retirement)
        for acquiring in self._acquirers:
            acquiring.over(self)
        self._acquirers.clear()
        self._discharged(None)

    def _retired(self, retirement: Retirement) -> None:
        queue, message_id = retirement.link.queue, retirement.taken.message_id
        if self._broker.queues.get(queue.name) is queue:
            if retirement.is_undeliverable:
                retirement.link.refuse(message_id)
            if retirement.removes:
                queue.removed((message_id,))
                if retirement.rejection is not None:
                    retirement.rejection.is_done()
            else:
                self._broker.metrics.released += 1
                self._broker.settlement.released(message_id, queue, failed=retirement.failed)
        retirement.taken.release()
        retirement.link.retired(retirement)

    def _refused(self, error: StoreError) -> None:
        """The store refused the commit, or did not answer: then nobody waits for what goes back."""
        self._over(committed=False)
        if isinstance(error, Unavailable):
            self._undo(_nobody)
            self._discharged(error)
        else:
            self._undo(lambda _error: self._discharged(error))

    def _over(self, *, committed: bool) -> None:
        self.standing.end()
        if self.standing.operation_count:
            self._broker.metrics.transactions_committed += committed
            self._broker.metrics.transactions_rolled_back += not committed

    def _undo(self, on_done: OnComplete) -> None:
        """Forget what was sent, give back what was settled, then what was acquired."""
        self._postings.clear()
        retirements, self._retirements = self._retirements, []
        acquirers, self._acquirers = self._acquirers, {}
        left = 1  # this call

        def given_back(_error: StoreError | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                on_done(None)

        for retirement in retirements:
            left += 1
            retirement.link.taken_back(retirement, given_back)
        for acquiring in acquirers:
            for delivery in acquiring.over(self):
                left += 1
                acquiring.give_back(delivery, given_back)
        given_back(None)

    def _discharged(self, error: StoreError | None) -> None:
        on_discharged, self._on_discharged = self._on_discharged, None
        self._postings.clear()
        self._retirements.clear()
        if on_discharged is not None:
            on_discharged(error)


def within(transaction: LocalTransaction | None, outcome: Any) -> Any:
    """An outcome as it is told: within a transaction it holds when that is committed."""
    if transaction is None:
        return outcome
    return TransactionalState(transaction.standing.txn_id, outcome)


def _enqueue(message: StoredMessage, queue: str) -> Operation:
    def call(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
        store.enqueue(message, queue, note, transaction)

    return call


def _take_place(older: int, queue: str, newer: int) -> Operation:
    outcome = {"outcome": "replaced", "by": newer}

    def call(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
        store.dequeue(older, queue, None, note, transaction, outcome)

    return call


def _refuse(
    reason: StoreError, _store: MessageStore, _note: OnComplete, _within: TransactionContext
) -> None:
    """The call of the store that cannot be made: so its transaction cannot be committed."""
    raise reason


def _nobody(_error: StoreError | None) -> None:
    """Nobody waits."""
