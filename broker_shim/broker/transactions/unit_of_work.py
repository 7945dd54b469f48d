"""The work of a client in one transaction: all of it happens, or nothing.

Decision: the work waits here until it is committed, and goes to the store then, as one transaction
of the store. Were it given to the store as it comes, a queue that is destroyed while the client
thinks (a subscriber leaves) would undo the whole of it. And content would wait in the store as it
waits here. Large content does go to the store as it comes, and is forgotten if it is not enqueued.

Why it is all or nothing: the commit of the store is one group of the log and one Delta commit. A
crash before that group is on disk leaves nothing of it. What was sent is nowhere; what was settled
is on its queue, acquired by a consumer that is gone, as if nothing had been said about it. A crash
after it leaves all.

When it is visible: what was sent may be dispatched when the commit has completed, and SQL sees it
from that Delta commit on. The client is told after that, so whoever it tells finds the messages.

Why nobody else gets what is settled in it: until the unit ends, the message stays held by the
consumer for the queue, and acquired by it for the store. A purge, a move or another consumer take
only what waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from broker_shim.broker.flow.last_value_queues import LastValueQueues, Replaced, Value
from broker_shim.broker.flow.publications import Publication, waits_only
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.transactions.posted_message import Posting
from broker_shim.completion import OnComplete, after, nobody
from broker_shim.errors import StoreError, Unavailable
from broker_shim.transactions.transaction_refusals import rolled_back
from sparkstore.core.state_machine.call_values import DequeueCall, StoreCall

Promise = Callable[[list[StoreCall], list[tuple[str, Sequence[int]]], OnComplete], None]
"""promise(calls, what they take by queue and message ids, on_done)"""


class SettledWork(Protocol):
    """A client's decision about deliveries.

    Until its unit ends, nobody else decides about those deliveries.

    """

    def __len__(self) -> int:
        """The number of deliveries."""

    @property
    def place(self) -> tuple[str, Sequence[int]]:
        """The queue, and the ids of the messages on it that are decided about."""

    def operations(self, served: ServedQueues) -> Sequence[StoreCall]:
        """Make the calls of the store that do it, decided on what is true now.

        Raises:
            StoreError: One of them cannot be made: then the unit cannot be committed.
        """

    def committed(self, served: ServedQueues) -> None:
        """Make the decision true for the broker, as it is durable."""

    def promised(self) -> None:
        """Note that a branch has the decision durably. The consumer has the message no longer."""

    def undone(self, on_done: OnComplete) -> None:
        """Undo the decision; `on_done` when the message is somebody's again, or available."""


class UnitOfWork:
    """One unit, from its first operation to its end. On the loop's thread only.

    Attributes:
        settled_count: The number of deliveries that were decided about.
    """

    def __init__(self, served: ServedQueues, last_values: LastValueQueues) -> None:
        self._served, self._last_values = served, last_values
        self._postings: list[Posting] = []
        self._settled: list[SettledWork] = []
        self._rests: dict[SettledWork, SettledWork | None] = {}  # what was cut off, by its first
        self._posted_count = self.settled_count = 0
        self._on_ready: Callable[[StoreError | None], None] | None = None

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        sends = any(posting.queues or posting.is_under_way for posting in self._postings)
        return not sends and not self._settled

    @property
    def operation_count(self) -> int:
        """The number of messages that were sent and decided about in it."""
        return self._posted_count + self.settled_count

    def post(self) -> Posting:
        """Give a message its place: it came whole, and is taken in by what this returns."""
        self._posted_count += 1
        return self._new_posting()

    def post_run(self, run: Publication) -> bool:
        """Take in messages that came whole, behind the others to the same queues.

        Returns:
            False if one of them needs more than an enqueue: `post` each.
        """
        if not waits_only(self._served, run):
            return False
        if not (self._postings and self._postings[-1].takes(run)):
            self._new_posting()
        self._postings[-1].join(run)
        self._posted_count += len(run.contents)
        return True

    def _new_posting(self) -> Posting:
        self._postings.append(posting := Posting(self._served, self._last_values, self._go_on))
        return posting

    def settle(self, work: SettledWork) -> None:
        """Take in what the client decided about a delivery."""
        self._settled.append(work)
        self._rests[work] = None
        self.settled_count += len(work)

    def parted(self, work: SettledWork, rest: SettledWork) -> None:
        """Take in the rest of a decision that was cut, unless it is not in here any more.

        It comes next to it, as rejected messages keep their order among the dead letters.
        """
        if work in self._rests:
            self._rests[rest], self._rests[work] = self._rests[work], rest

    def commit(self, on_done: OnComplete) -> None:
        """Do all of it; `on_done` when that is durable and visible, or all is undone.

        Completes with:
            Unavailable: It is not known whether it was done.
            StoreError: It is undone.
        """

        def ready(error: StoreError | None) -> None:
            if error is None:
                values = [*dict.fromkeys(value for one in self._postings for value in one.values)]
                self._last_values.begin(values, partial(self._hand_over, values, on_done))
            else:
                self._refused(error, on_done)

        self._when_ready(ready)

    def prepare(self, promise: Promise, on_done: OnComplete) -> None:
        """Promise all of it, as a branch that is decided by its xid alone; else it is undone."""

        def promised(error: StoreError | None) -> None:
            if error is not None:
                self._refused(error, on_done)
                return
            for work in self._decisions():
                work.promised()
            self._forget()
            on_done(None)

        def ready(error: StoreError | None) -> None:
            if error is not None:
                self._refused(error, on_done)
                return
            try:
                operations = self._operations()
            except StoreError as refusal:
                self._served.calls.answer((promised, refusal))
            else:
                promise(operations, [work.place for work in self._decisions()], promised)

        self._when_ready(ready)

    def undo(self, on_done: OnComplete) -> None:
        """Forget what was sent, give back what was settled; `on_done` when that is over."""
        settled = self._decisions()
        self._forget()
        given_back = after(len(settled) + 1, on_done)
        for work in settled:
            work.undone(given_back)
        given_back(None)

    def _decisions(self) -> list[SettledWork]:
        """List what was decided about deliveries, in its order."""
        decisions = list[SettledWork]()
        for work in self._settled:
            part: SettledWork | None = work
            while part is not None:
                decisions.append(part)
                part = self._rests[part]
        return decisions

    def _forget(self) -> None:
        self._on_ready = None
        self._postings, self._settled, self._rests = [], [], {}
        self._posted_count = self.settled_count = 0

    def _when_ready(self, call: Callable[[StoreError | None], None]) -> None:
        """Call once all messages are taken in, also those that come in pieces."""
        self._on_ready = call
        self._go_on()

    def _go_on(self) -> None:
        if self._on_ready is None or any(posting.is_under_way for posting in self._postings):
            return
        on_ready, self._on_ready = self._on_ready, None
        refused = next((post.error for post in self._postings if post.error is not None), None)
        on_ready(None if refused is None else rolled_back(str(refused)))

    def _operations(self, replaced: Replaced | None = None) -> list[StoreCall]:
        """Make all calls of the store. Raises StoreError.

        What leaves a queue comes first: it makes room there for what the transaction brings.
        """
        brought = [operation for posting in self._postings for operation in posting.operations()]
        decisions, served = self._decisions(), self._served
        taken = [operation for work in decisions for operation in work.operations(served)]
        return [*taken, *self._replace(replaced or []), *brought]

    def _hand_over(self, values: Sequence[Value], on_done: OnComplete, replaced: Replaced) -> None:
        """Hand everything to the store, while nothing else is under way with these values."""

        def decided(error: StoreError | None) -> None:
            came = [value for posting in self._postings for value in posting.came()]
            self._last_values.end(values, replaced, came, error)
            if error is None:
                self._committed(on_done)
            else:
                self._refused(error, on_done)

        try:
            operations = self._operations(replaced)
        except StoreError as refusal:
            self._served.calls.answer((decided, refusal))
            return
        if operations:
            self._served.calls.transact(operations, decided)
        else:
            decided(None)

    def _replace(self, replaced: Replaced) -> Iterator[StoreCall]:
        newest = {value: number for posting in self._postings for number, value in posting.came()}
        for older, name in replaced:
            last_values = self._served.queues[name].last_values
            value = None if last_values is None else last_values.value(older)
            if value is not None:
                outcome = {"outcome": "replaced", "by": newest[name, value]}
                yield DequeueCall((older,), name, None, outcome)

    def _committed(self, on_done: OnComplete) -> None:
        postings, settled = self._postings, self._decisions()
        self._forget()
        for posting in postings:
            posting.arrived()
        for work in settled:
            work.committed(self._served)
        on_done(None)

    def _refused(self, error: StoreError, on_done: OnComplete) -> None:
        """The store refused, or did not answer: then nobody waits for what goes back."""
        if isinstance(error, Unavailable):
            self.undo(nobody)
            on_done(error)
        else:
            self.undo(lambda _error: on_done(error))
