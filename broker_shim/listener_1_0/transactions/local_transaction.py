"""One local transaction of a client: what it sends and what it settles, all of it or nothing.

Its work waits in a unit (`broker.transactions`) until it is discharged. An operation that was
refused spoils it (`TransactionStanding`).

If the transaction is undone, what the client has forgotten is given back as a failed delivery. What
it has not is the client's to decide again, unless it was acquired in the transaction, too
(`Acquisitions`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from broker_shim.broker.delivery.rejection import Rejection
from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.storage.store_puts import Operation
from broker_shim.broker.transactions.posted_message import Posting
from broker_shim.broker.transactions.unit_of_work import nobody
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete, after
from broker_shim.errors import StoreError, Unavailable
from broker_shim.listener_1_0.outcomes import DecidedRun, kept_of, rejection
from broker_shim.store.interface import Annotations, MessageStore, TransactionContext
from broker_shim.transactions.standing import TransactionStanding
from broker_shim.transactions.transaction_refusals import TransactionRefused, rolled_back

if TYPE_CHECKING:
    from broker_shim.listener_1_0.transactions.coordinator import CoordinatorLink
    from broker_shim.listener_1_0.transactions.link_deliveries import Acquisitions, Retirements

OUTCOMES = (Accepted, Rejected, Released, Modified)


@dataclass(slots=True, eq=False)
class Retirement:
    """Deliveries within one transaction; until that ends nobody else decides about them.

    Attributes:
        link: That they were sent on; it may have ended meanwhile.
        transaction: What is committed or undone as a whole.
        decided: The deliveries, and their messages.
        taken: The messages, as their link has them.
        outcome: What the client chose, one of `OUTCOMES`.
        is_settled: The client has forgotten the deliveries.
        rejections: What becomes of each message, if they are rejected.
    """

    link: Retirements
    transaction: LocalTransaction
    decided: DecidedRun
    taken: TakenRun
    outcome: Any
    is_settled: bool
    rejections: list[Rejection] = field(default_factory=list)

    def __len__(self) -> int:
        """The number of deliveries."""
        return len(self.decided.message_ids)

    def cut(self, rest: TakenRun) -> Retirement:
        """Part it, as the client forgets some of the deliveries. See `Decision`."""
        count, end = len(self) - len(rest), len(self)
        decided = self.decided.part(count, end)
        parted = replace(self, decided=decided, taken=rest, rejections=self.rejections[count:])
        self.decided, self.rejections = self.decided.part(0, count), self.rejections[:count]
        self.transaction.parted(self, parted)
        return parted

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

    def operations(self, served: ServedQueues) -> list[Operation]:
        """Make the calls of the store that do it, decided on what is true now.

        A dead-letter queue that is not there is created by an earlier call of the store.
        """
        holdings, outcome, ids = self.link.holdings, self.outcome, self.decided.message_ids
        queue, holder = holdings.queue, holdings.holder
        if isinstance(outcome, Rejected):
            reason = rejection(outcome)
            self.rejections = [holdings.rejection(i, reason) for i in ids]
            operations = []
            for rejected in self.rejections:
                rejected.make_target(nobody)  # if that is refused, so is what needs it
                try:
                    steps = rejected.steps()
                except StoreError as reason_why:
                    return [partial(_refuse, reason_why)]
                operations += [served.calls.operation(*step) for step in steps]
            return operations
        if self.removes:
            return [partial(_remove, message_id, queue.name, holder) for message_id in ids]
        kept: Annotations | None = None
        operations = []
        for message_id in ids:
            if isinstance(outcome, Modified):
                kept = kept_of(served.calls, queue.name, message_id, outcome)
            options = {"delivery_failed": self.failed, "annotations": kept}
            operations.append(partial(_release, message_id, queue.name, holder, options))
        return operations

    @property
    def places(self) -> list[tuple[str, int]]:
        """The queue and the id of each delivery's message. See `SettledWork`."""
        return [
            (self.link.holdings.queue.name, message_id) for message_id in self.decided.message_ids
        ]

    def committed(self, served: ServedQueues) -> None:
        """Take the messages off their queue, or let them wait again, as was decided.

        See `SettledWork`.
        """
        queue, ids = self.link.holdings.queue, self.decided.message_ids
        if served.serves(queue):
            for message_id in ids if self.is_undeliverable else ():
                self.link.refuse(message_id)
            if self.removes:
                is_accepted = isinstance(self.outcome, Accepted)
                queue.removed(ids, "accepted" if is_accepted else "other")
                for rejected in self.rejections:
                    rejected.is_done()
            else:
                self.link.holdings.released(ids, failed=self.failed)
        self.taken.release()
        self.link.retired(self)

    def promised(self) -> None:
        """Do nothing: AMQP 1.0 serves no distributed transactions. See `SettledWork`."""

    def undone(self, on_done: OnComplete) -> None:
        """Have the link take the delivery back. See `SettledWork`."""
        self.link.taken_back(self, on_done)


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
        owner: CoordinatorLink,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.standing, self.owner = standing, owner
        self._metrics, self._clock = broker.metrics, clock
        self._work = broker.unit_of_work()
        self._acquirers: dict[Acquisitions, None] = {}

    def post(self, content_bytes: int) -> Posting:
        """Add a message that came whole to the transaction, in its place.

        Args:
            content_bytes: So much of it waits in memory.

        Raises:
            TransactionRefused: The transaction takes no more.
        """
        self.standing.take(content_bytes, self._clock())
        return self._work.post()

    def retire(self, retirement: Retirement) -> None:
        """Take in what a client decided about a delivery: from now on it is this transaction's.

        Also one that can only be rolled back holds it: given back at once, the message would come
        to the client again and again before its discharge. It holds as many deliveries as may be in
        it, and less than one run more: it is asked before a run is added, which is never parted.
        """
        try:
            self.standing.take(0, self._clock(), len(retirement))
        except TransactionRefused:
            if self._work.settled_count >= self.standing.limits.operation_count:
                retirement.undone(nobody)
                return
        self._work.settle(retirement)

    def parted(self, retirement: Retirement, rest: Retirement) -> None:
        """Take in the rest of a retirement that was cut."""
        self._work.parted(retirement, rest)

    def acquire(self, acquiring: Acquisitions) -> None:
        """A link acquired a message in it; one that can only be rolled back gives it back then."""
        with suppress(TransactionRefused):
            self.standing.take(0, self._clock())
        self._acquirers[acquiring] = None

    def spoil(self, reason: str) -> None:
        """Let the transaction only be rolled back, as an operation in it was refused."""
        self.standing.spoil(rolled_back(reason))

    def expire(self, now_s: float) -> None:
        """Undo the transaction if it was open for too long; its discharge tells the client."""
        if self.standing.expire(now_s):
            self._undo(nobody)

    def commit(self, on_done: OnComplete) -> None:
        """Do all of it; `on_done` when that is durable and visible, or all is undone.

        Raises:
            TransactionRefused: It can only be rolled back; nothing was done.

        Completes with:
            Unavailable: It is not known whether it was done.
            StoreError: It is undone.
        """
        self.standing.commit()
        self._work.commit(partial(self._decided, on_done))

    def rollback(self, on_done: OnComplete) -> None:
        """Undo the transaction; `on_done` when what it took is available again."""
        self._over(committed=False)
        self._undo(on_done)

    def _decided(self, on_done: OnComplete, error: StoreError | None) -> None:
        """The work is done, or undone; or it is not known: then nobody waits for what goes back."""
        self._over(committed=error is None)
        if error is None:
            for acquiring in self._acquirers:
                acquiring.over(self)
            self._acquirers.clear()
            on_done(None)
        elif isinstance(error, Unavailable):
            self._undo(nobody)
            on_done(error)
        else:
            self._undo(lambda _error: on_done(error))

    def _over(self, *, committed: bool) -> None:
        self.standing.end()
        if self.standing.operation_count:
            self._metrics.transaction_ended(committed=committed)

    def _undo(self, on_done: OnComplete) -> None:
        """Forget what was sent, give back what was settled, then what was acquired."""
        acquirers, self._acquirers = self._acquirers, {}
        undone = after(2, on_done)
        self._work.undo(undone)
        acquired = [(link, delivery) for link in acquirers for delivery in link.over(self)]
        given_back = after(len(acquired) + 1, undone)
        for acquiring, delivery in acquired:
            acquiring.give_back(delivery, given_back)
        given_back(None)


def within(transaction: LocalTransaction | None, outcome: Any) -> Any:
    """An outcome as it is told: within a transaction it holds when that is committed."""
    if transaction is None:
        return outcome
    return TransactionalState(transaction.standing.txn_id, outcome)


def _remove(
    message_id: int,
    queue: str,
    holder: str,
    store: MessageStore,
    note: OnComplete,
    transaction: TransactionContext,
) -> None:
    store.dequeue(message_id, queue, holder, note, transaction)


def _release(
    message_id: int,
    queue: str,
    holder: str,
    options: Mapping[str, Any],
    store: MessageStore,
    note: OnComplete,
    transaction: TransactionContext,
) -> None:
    store.release(message_id, queue, holder, note, transaction, **options)


def _refuse(
    reason: StoreError, _store: MessageStore, _note: OnComplete, _within: TransactionContext
) -> None:
    """The call of the store that cannot be made: so its transaction cannot be committed."""
    raise reason
