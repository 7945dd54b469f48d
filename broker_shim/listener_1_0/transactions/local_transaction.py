"""One local transaction of a client: what it sends and what it settles, all of it or nothing.

Its work waits in a unit (`broker.transactions`) until it is discharged. An operation that was
refused spoils it (`TransactionStanding`).

If the transaction is undone, what the client has forgotten is given back as a failed delivery. What
it has not is the client's to decide again, unless it was acquired in the transaction, too
(`Acquisitions`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_1_0.composites import TransactionalState
from broker_shim.broker.flow.publications import Publication
from broker_shim.broker.transactions.posted_message import Posting
from broker_shim.broker.transactions.unit_of_work import SettledWork
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete, after, nobody
from broker_shim.errors import StoreError, Unavailable
from broker_shim.transactions.standing import TransactionStanding
from broker_shim.transactions.transaction_refusals import TransactionRefused, rolled_back

if TYPE_CHECKING:
    from broker_shim.listener_1_0.transactions.acquisitions import Acquisitions

EndLink = Callable[[TransactionRefused], None]
"""end_link(refusal): end a coordinator's link, as the refusal says."""


class LocalTransaction:
    """One transaction, from its declare to its discharge. On the loop's thread only.

    Attributes:
        standing: What it may still do.
        end_link: Ends the coordinator's link that it was declared on.
    """

    def __init__(
        self,
        broker: Broker,
        standing: TransactionStanding,
        end_link: EndLink,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.standing, self.end_link = standing, end_link
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

    def post_run(self, run: Publication) -> bool:
        """Add messages that came whole; False if that is to be decided of each: none is added."""
        count, content_bytes = len(run.contents), sum(map(len, run.contents))
        if not self.standing.fits(content_bytes, count) or not self._work.post_run(run):
            return False
        self.standing.take(content_bytes, self._clock(), count)
        return True

    def retire(self, retirement: SettledWork) -> None:
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

    def parted(self, retirement: SettledWork, rest: SettledWork) -> None:
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
