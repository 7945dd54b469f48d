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
transaction, too (`Acquiring`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker_shim.broker.last_value_queues import Replaced, Value
from broker_shim.broker.storage.store_puts import Operation
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError, Unavailable
from broker_shim.listener_1_0.transactions.retirement import Retirement
from broker_shim.listener_1_0.transactions.sent_message import Posting
from broker_shim.store.interface import MessageStore, TransactionContext
from broker_shim.transactions.refusals import TransactionRefused, rolled_back
from broker_shim.transactions.standing import TransactionStanding

if TYPE_CHECKING:
    from broker_shim.broker.virtual_host import Broker
    from broker_shim.listener_1_0.transactions.acquisition import Acquiring


class Controller(Protocol):
    """Our end of a control link."""

    def end(self, refusal: TransactionRefused) -> None:
        """Terminate it: what was declared on it is rolled back."""


class LocalTransaction:
    """See above. On the loop's thread only.

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
        self._acquirers: dict[Acquiring, None] = {}
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

    def acquire(self, acquiring: Acquiring) -> None:
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
                queue.removed(message_id)
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


def _take_place(older: int, queue: str, newer: int) -> Operation:
    outcome = {"outcome": "replaced", "by": newer}

    def call(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
        store.dequeue(older, queue, None, note, transaction, outcome)

    return call


def _nobody(_error: StoreError | None) -> None:
    """Nobody waits."""
