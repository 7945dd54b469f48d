"""A consumer's messages from the queue to its outlet: acquired, in memory, sent in order.

Decision: a message is sent when its acquire has completed, not before. At-least-once would bear
sending early (a crash only delivers again). But the completion is also where the store refuses, and
a message that another member acquired first must not be seen here. The price is one group commit of
latency for a delivery, not throughput, as all credit is acquired at once.

A consumer that settles at once gets a message that has left its queue (at most once). So the
content has to be in memory before that: content first, then the dequeue.

What becomes of a message that cannot be sent is decided once, for every protocol: here, and by
`Undelivered`. If the store does not answer, it is given back after a while; if the client takes no
message of its size, this consumer never gets it again.

Invariant: each message that was taken and is not yet with the outlet is in exactly one of: a call
of the store, the line for content, the large one that is being sent. Or it is just being decided
about, and `_arrived` raises nothing, so that those which came with it are not lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from broker_shim.broker.delivery.content_line import ContentLine
from broker_shim.broker.delivery.holdings import ConsumerHoldings
from broker_shim.broker.delivery.outlet import Outlet, ResumingOutlet
from broker_shim.broker.delivery.taken_run import TakenRun, taken
from broker_shim.broker.delivery.undelivered_messages import Undelivered
from broker_shim.broker.flow.settlement import one_by_one
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.broker.storage.loop import wall_us
from broker_shim.completion import after
from broker_shim.errors import CorruptData, NotNow, StoreError
from sparkstore.core.state_machine.call_values import AcquireCall, DequeueCall

_log = logging.getLogger(__name__)

_MOST_BYTES = 4 << 20
"""Under way, and one message more: those that a consumer wants settled, or whole, are never sent in
pieces, however large."""


class ConsumerDelivery:
    """Brings one consumer what its queue holds for it. On the loop's thread only.

    Attributes:
        count: Messages under way: taken, and not sent or given back.
        byte_count: How many bytes of them are in memory.
    """

    def __init__(
        self,
        holdings: ConsumerHoldings,
        undelivered: Undelivered,
        consumer: Consumer,
        outlet: Outlet,
        *,
        is_settled: bool,
        resuming: ResumingOutlet | None = None,
        now_us: Callable[[], int] = wall_us,
    ) -> None:
        """Begin with no message on its way.

        Args:
            holdings: What the consumer holds of its queue.
            undelivered: Decides what becomes of what is not sent.
            consumer: Who takes its messages.
            outlet: Where they go out.
            is_settled: A message leaves its queue before it is sent; so it is never in pieces.
            resuming: The outlet, if its client has messages in pieces, and again.
            now_us: Tells the time, UTC µs.
        """
        served, self._locks = holdings.served, holdings.locks
        self._served, self._queue, self._outlet = served, holdings.queue, outlet
        self._calls, self._metrics = served.calls, served.metrics
        self._settlement, self._undelivered = holdings.settlement, undelivered
        self._consumer, self._holder = consumer, consumer.holder
        self._resuming, self._now_us = resuming, now_us
        self._is_settled, self._is_whole = is_settled, is_settled or resuming is None
        self._line = ContentLine(served.calls, self._arrived, self._failed, self._went)
        self._returning = 0
        self.count = self.byte_count = 0
        self._is_gone = self._is_let_go = False

    @property
    def is_full(self) -> bool:
        """True while nothing is to be taken.

        Much is under way, or messages go back to their places because the client took its credit
        back. What came before they are there would overtake them.
        """
        return self._returning > 0 or self.byte_count > _MOST_BYTES

    def take(self, message_ids: Sequence[int]) -> int:
        """Bring messages that the queue holds for the consumer.

        Returns:
            How many are brought, the first ones: no more than may be under way.
        """
        runs = self._taken(message_ids)
        for run in runs:
            self._outlet.took(run)
        count, name = sum(map(len, runs)), self._queue.name
        if self._is_settled:
            self._line.add(runs)
        elif self._queue.is_acquired(message_ids[0]):
            self._acquired(runs, [None] * count)
        else:
            ids = runs[0].message_ids if len(runs) == 1 else message_ids[:count]
            done = partial(self._acquired, runs)
            self._calls.make_each(AcquireCall(ids, name, self._holder), done)
        return count

    def take_again(self, message_id: int) -> None:
        """Bring a message that the consumer was sent before, and holds: it waits for it."""
        self._line.add(self._taken((message_id,), is_again=True))

    def _taken(self, message_ids: Sequence[int], *, is_again: bool = False) -> list[TakenRun]:
        runs = taken(
            self._calls.messages,
            self._calls.entries(self._queue.name),
            message_ids,
            self._holder,
            whole=self._is_whole,
            most_bytes=max(0, _MOST_BYTES - self.byte_count),
            is_again=is_again,
        )
        for run in runs:
            self._line.ask(run)
        self.count += sum(map(len, runs))
        self.byte_count += sum([run.held_bytes for run in runs])
        return runs

    def gone(self) -> None:
        """Give back what waits for its content; the rest comes back by the store's answer."""
        for run in self._line.clear():
            self._put_back(run)
        self._is_gone = True
        self._let_go()

    def _let_go(self) -> None:
        """Let the outlet go after the end, once nothing is under way.

        The outlet holds this, which holds it no more.

        Else each consumer that ends would be a cycle, which only Python's collector finds.
        """
        if self._is_gone and not (self.count or self._is_let_go):
            self._is_let_go = True
            self._line.let_go()
            del self._outlet, self._consumer, self._resuming

    def _went(self) -> None:
        """Tell the outlet that something was sent, or went back."""
        if not self._is_let_go:
            self._outlet.went()
            self._let_go()

    def _acquired(self, runs: Sequence[TakenRun], outcomes: Sequence[StoreError | None]) -> None:
        is_over, at = self._is_over, 0
        for run in runs:
            some = outcomes[at : at + len(run)]
            at += len(run)
            for error, part in run.parts(some) if any(some) else ((None, run),):
                if error is not None:
                    self._failed(part, error)
                elif is_over:
                    self._put_back(part)
                else:
                    self._line.add((part,))
        self._went()

    @property
    def _is_over(self) -> bool:
        return self._outlet.is_gone or self._served.is_stopping

    def _arrived(self, run: TakenRun) -> None:
        """Decide about messages whose turn it is: what is true of all of a run is decided once."""
        if self._is_over:
            self._put_back(run)
        elif run.is_again:  # whatever its age: its client has it, and waits for it
            self._send_fitting(run)
        else:
            for has_expired, part in run.parts(run.has_expired(self._now_us())):
                if has_expired:
                    self._undelivered.expired(len(part))
                    self._put_back(part)  # from the queue it goes as the queue says
                else:
                    self._send_fitting(part)

    def _send_fitting(self, run: TakenRun) -> None:
        """Send what the client takes by its size; the others it never gets again."""
        for fits, part in run.parts(self._outlet.fits(run)):
            if not fits:
                for message_id in part.message_ids:
                    self._queue.refuse(message_id, self._consumer)
                self._put_back(part)
            elif self._is_settled:
                done = partial(self._dequeued, part)
                call = DequeueCall(part.message_ids, self._queue.name, self._holder)
                self._calls.make_each(call, done)
            else:
                self._send_covered(part)

    def _send_covered(self, run: TakenRun) -> None:
        """Send as many as there is credit for, if nothing goes back that they would overtake."""
        if run.is_again:
            assert self._resuming is not None
            room = int(self._resuming.may_send_again())
        else:
            room = 0 if self._returning else max(0, self._outlet.room)
        rest = run.cut(room) if 0 < room < len(run) else None
        if room:
            self._send(run, self._queue.delivery_counts(run.message_ids))
        else:
            rest = run
        if rest is not None:
            self._take_back(rest)

    def _dequeued(self, run: TakenRun, outcomes: Sequence[StoreError | None]) -> None:
        """Send messages that are off their queue: now, or nobody gets them."""
        for error, part in run.parts(outcomes):
            if error is not None:
                self._failed(part, error)
                continue
            # Read before they leave the queue, which forgets the counts with them.
            failures = self._queue.delivery_counts(part.message_ids)
            self._queue.removed(part.message_ids, "accepted")
            if self._outlet.is_gone:  # a stop waits for it: nobody else would get it
                self._done(part)
            else:
                self._send(part, failures)
        self._went()

    def _send(self, run: TakenRun, failures: Sequence[int]) -> None:
        """Send messages, but for what cannot be read: one must not stop the others."""
        ids, count, byte_count = run.message_ids, len(run), run.held_bytes
        came_at = run.facts.came_at
        try:
            if run.is_large:
                assert self._resuming is not None
                self._resuming.begin(run, failures[0])
            else:
                self._outlet.send(run, failures)
        except Exception as error:  # noqa: BLE001  # one message must not stop the others
            self._not_sent(run, failures, error)
            return
        if run.is_large:
            self._line.hold()
            return
        if not self._is_settled and self._queue.arguments.lock_timeout_ms is not None:
            self._locks.begin(ids)
        self._metrics.sent(came_at, self._now_us())
        self._is_through(count, byte_count)

    def _not_sent(self, run: TakenRun, failures: Sequence[int], error: Exception) -> None:
        """Find out which message of a run cannot be sent, and decide about that."""
        if len(run) > 1:
            _log.debug("%d messages of %r go singly: %s", len(run), self._queue.name, error)
            for part, count in zip(run.singles(), failures, strict=True):
                self._send(part, (count,))
        elif isinstance(error, StoreError):
            self._failed(run, error)
        else:
            self._left_held(run, error)

    def large_ended(self, run: TakenRun, *, is_sent: bool) -> None:
        """Count a large message that the outlet has sent, or broken off."""
        self._is_through(1, 0)
        if is_sent:
            self._locks.begin(run.message_ids)
            self._metrics.sent(run.facts.came_at, self._now_us())
            self._line.go()
        else:
            self._served.later(0.0, self._line.go)
            self._let_go()

    def large_failed(self, run: TakenRun, error: StoreError) -> None:
        """Decide about a large message that was broken off, as its rest cannot be read."""
        self._served.later(0.0, self._line.go)
        self._failed(run, error)
        self._let_go()

    def _is_through(self, count: int, byte_count: int) -> None:
        """Subtract messages that are not under way any more from what is."""
        self.count -= count
        self.byte_count -= byte_count

    def _done(self, run: TakenRun) -> None:
        """Let messages go that are not under way any more, and were not sent."""
        self._line.forget(run)
        self._is_through(len(run), run.held_bytes)
        self._outlet.unsent(run)
        run.release()

    def _put_back(self, run: TakenRun, *, delay_s: float = 0.0) -> None:
        """Let messages wait again that were not sent.

        If they were never acquired, that is only the queue's affair.
        """
        self._done(run)
        ids, name = run.message_ids, self._queue.name
        if run.is_again:
            assert self._resuming is not None
            self._resuming.keep(ids[0], delay_s)
            return
        if self._is_settled:  # at a member it was granted, unless another has it by now
            taken_ids, ids = ids, [i for i in ids if self._queue.is_acquired(i)]
            for message_id in taken_ids:
                if not self._queue.is_acquired(message_id):
                    not_taken = partial(self._undelivered.not_taken, self._queue, message_id)
                    self._served.later(delay_s, not_taken)
        if ids:
            give_back = self._settlement.give_back
            give_back(ids, name, self._holder, failed=False, delay_s=delay_s)

    def _take_back(self, run: TakenRun) -> None:
        """Give back messages whose credit the client has taken back."""
        if run.is_again:
            self._put_back(run)
            return
        self._returning += 1
        byte_count = run.held_bytes
        run.release()

        def are_back(_error: StoreError | None) -> None:
            self._returning -= 1
            self._is_through(len(run), byte_count)
            self._went()

        give_back, name = self._settlement.give_back, self._queue.name
        is_back = one_by_one(after(len(run), are_back))
        give_back(run.message_ids, name, self._holder, failed=False, on_done=is_back)

    def _failed(self, run: TakenRun, error: StoreError) -> None:
        """Decide about messages that the store refused, or whose content cannot be read."""
        if isinstance(error, NotNow):
            for message_id in run.message_ids:
                _log.warning("message %d of %r: %s", message_id, self._queue.name, error)
            self._put_back(run, delay_s=self._served.settings.probe_interval_s)
        elif isinstance(error, CorruptData):
            self._left_held(run, error)
        else:
            self._done(run)
            for message_id in run.message_ids:
                _log.debug("message %d of %r: %s", message_id, self._queue.name, error)
                self._undelivered.lost(self._queue, message_id)

    def _left_held(self, run: TakenRun, error: Exception) -> None:
        for message_id in run.message_ids:
            self._undelivered.damaged(self._queue, message_id, error)
        self._done(run)
