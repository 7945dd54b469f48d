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
about, and `_decide` raises nothing, so that those which came with it are not lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from broker_shim.broker.delivery.content_line import ContentLine
from broker_shim.broker.delivery.delivery_locks import ConsumerLocks
from broker_shim.broker.delivery.outlet import Outlet, ResumingOutlet
from broker_shim.broker.delivery.taken_message import Arrived, TakenMessage, load, wall_us
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import CorruptData, NotNow, StoreError
from broker_shim.messages.residency import LoadedMessage
from broker_shim.store.interface import Entry, MessageHeader

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
        broker: Broker,
        queue: QueueDispatch,
        consumer: Consumer,
        outlet: Outlet,
        locks: ConsumerLocks,
        *,
        is_settled: bool,
        resuming: ResumingOutlet | None = None,
        now_us: Callable[[], int] = wall_us,
    ) -> None:
        """Begin with no message on its way.

        Args:
            broker: The virtual host.
            queue: The queue that is consumed.
            consumer: Who takes its messages.
            outlet: Where they go out.
            locks: Told what the consumer has to settle.
            is_settled: A message leaves its queue before it is sent; so it is never in pieces.
            resuming: The outlet, if its client has messages in pieces, and again.
            now_us: Tells the time, UTC µs.
        """
        self._broker, self._queue, self._outlet = broker, queue, outlet
        self._locks = locks
        self._calls, self._metrics = broker.calls, broker.metrics
        self._settlement, self._undelivered = broker.settlement, broker.undelivered
        self._consumer, self._holder = consumer, consumer.holder
        self._resuming, self._now_us = resuming, now_us
        self._is_settled, self._is_whole = is_settled, is_settled or resuming is None
        self._line = ContentLine(broker.calls, self._arrived, self._single, self._went)
        self._kept: set[int] = set()
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
        calls, name = self._calls, self._queue.name
        entry_of = calls.entries(name).get
        batch: list[TakenMessage] = []
        for message_id in message_ids:
            batch.append(self._taken(message_id, entry_of(message_id)))
            if self.byte_count > _MOST_BYTES:
                break
        self._outlet.took(batch)
        load(calls.messages, batch, self._holder)
        if self._is_settled:
            self._line.add(batch)
        elif self._queue.is_acquired(message_ids[0]):
            self._acquired(batch, [None] * len(batch))
        else:
            ids = message_ids[: len(batch)]
            calls.acquire_each(ids, name, self._holder, partial(self._acquired, batch))
        return len(batch)

    def take_again(self, message_id: int) -> None:
        """Bring a message that the consumer was sent before, and holds: it waits for it."""
        self._kept.add(message_id)
        calls = self._calls
        taken = self._taken(message_id, calls.entry(self._queue.name, message_id))
        load(calls.messages, (taken,), self._holder)
        self._line.add((taken,))

    def _taken(self, message_id: int, entry: Entry | None) -> TakenMessage:
        message = self._calls.messages.get(message_id)
        taken = TakenMessage(message, self._holder, entry, whole=self._is_whole)
        self.count += 1
        self.byte_count += taken.held_bytes
        return taken

    def gone(self) -> None:
        """Give back what waits for its content; the rest comes back by the store's answer."""
        for taken in self._line.clear():
            self._put_back(taken)
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

    def _acquired(
        self, batch: Sequence[TakenMessage], outcomes: Sequence[StoreError | None]
    ) -> None:
        is_over = self._is_over
        if not is_over and not any(outcomes):
            self._line.add(batch)
        for taken, error in zip(batch, outcomes, strict=True) if is_over or any(outcomes) else ():
            if error is not None:
                self._failed(taken, error)
            elif is_over:
                self._put_back(taken)
            else:
                self._line.add((taken,))
        self._went()

    @property
    def _is_over(self) -> bool:
        return self._outlet.is_gone or self._broker.is_stopping

    def _arrived(self, arrived: Sequence[Arrived]) -> None:
        """Send messages that are first in line and in memory: together if they are plain."""
        if len(arrived) > 1 and self._are_plain(arrived):
            if self._is_settled:
                self._dequeue(arrived)
                return
            ids = [taken.message_id for taken, _content in arrived]
            if self._sent_all(arrived, self._queue.delivery_counts(ids)):
                return
        for taken, content in arrived:
            self._decide(taken, content.header, content)

    def _single(
        self, taken: TakenMessage, header: MessageHeader | None, error: StoreError | None
    ) -> None:
        """Decide about a large message, or one that cannot be read, whose turn it is."""
        if header is None:
            assert error is not None
            self._failed(taken, error)
        else:
            self._decide(taken, header, None)

    def _are_plain(self, arrived: Sequence[Arrived]) -> bool:
        """True if nothing is to be done about them but to send them, as most: together."""
        if self._is_over or self._kept or self._returning:
            return False
        now_us = self._now_us()
        for taken, _content in arrived:
            if taken.expires_at is not None and taken.expires_at <= now_us:
                return False
        return self._outlet.may_send_all(arrived)

    def _sent_all(self, arrived: Sequence[Arrived], failures: Sequence[int]) -> bool:
        """Send messages together; False if one cannot be sent, which is found by sending singly."""
        count = len(arrived)
        try:
            self._outlet.send(arrived, failures)
        except Exception as error:  # noqa: BLE001  # one message must not stop the others
            _log.debug("%d messages of %r go singly: %s", count, self._queue.name, error)
            return False
        self._lock(arrived)
        self._metrics.sent([taken.came_at for taken, _content in arrived], self._now_us())
        self.count -= count
        self.byte_count -= sum([taken.held_bytes for taken, _content in arrived])
        return True

    def _lock(self, arrived: Sequence[Arrived]) -> None:
        if not self._is_settled and self._queue.arguments.lock_timeout_ms is not None:
            self._locks.begin([taken.message_id for taken, _content in arrived])

    def _are_sent(self, arrived: Sequence[Arrived], failures: Sequence[int]) -> bool:
        """Send what left its queue together, if there is credit for all of it."""
        is_batch = len(arrived) > 1 and self._outlet.may_send_all(arrived)
        return is_batch and self._sent_all(arrived, failures)

    def _decide(
        self, taken: TakenMessage, header: MessageHeader, content: LoadedMessage | None
    ) -> None:
        """Decide about a message whose turn it is; `content` is None for a large one."""
        if self._is_over:
            self._put_back(taken)
        elif self._has_expired(taken):
            self._undelivered.expired()
            self._put_back(taken)  # from the queue it goes as the queue says
        elif not self._outlet.fits(taken, header):
            self._queue.refuse(taken.message_id, self._consumer)
            self._put_back(taken)
        elif self._is_settled:
            assert content is not None
            self._dequeue(((taken, content),))
        elif not self._may_go(taken):
            self._take_back(taken)
        else:
            self._send(taken, header, content, self._queue.delivery_count(taken.message_id))

    def _has_expired(self, taken: TakenMessage) -> bool:
        """Tell whether a message has expired; one that its client was sent before has not."""
        return taken.message_id not in self._kept and taken.has_expired(self._now_us())

    def _may_go(self, taken: TakenMessage) -> bool:
        """Whether there is credit for it, and nothing goes back that it would overtake."""
        if self._resuming is not None and taken.message_id in self._kept:
            return self._resuming.may_send_again()
        return not self._returning and self._outlet.may_send()

    def _dequeue(self, arrived: Sequence[Arrived]) -> None:
        """Take messages off their queue: only then they are sent, at most once."""
        ids = [taken.message_id for taken, _content in arrived]
        done = partial(self._dequeued, arrived)
        self._calls.dequeue_each(ids, self._queue.name, self._holder, done)

    def _dequeued(self, arrived: Sequence[Arrived], outcomes: Sequence[StoreError | None]) -> None:
        """Send messages that are off their queue: now, or nobody gets them."""
        for (taken, _content), error in zip(arrived, outcomes, strict=True):
            if error is not None:
                self._failed(taken, error)
        if any(outcomes):
            results = zip(arrived, outcomes, strict=True)
            arrived = [delivery for delivery, error in results if error is None]
        ids = [taken.message_id for taken, _content in arrived]
        # Read before they leave the queue, which forgets the counts with them.
        failures = self._queue.delivery_counts(ids)
        self._queue.removed(ids)
        if self._outlet.is_gone:  # a stop waits for it: nobody else would get it
            for taken, _content in arrived:
                self._done(taken)
        elif not self._are_sent(arrived, failures):
            for (taken, content), count in zip(arrived, failures, strict=True):
                self._send(taken, content.header, content, count)
        self._went()

    def _send(
        self,
        taken: TakenMessage,
        header: MessageHeader,
        content: LoadedMessage | None,
        failures: int,
    ) -> None:
        """Send a message, unless it cannot be read: one must not stop the others."""
        try:
            if content is None:
                assert self._resuming is not None
                self._resuming.begin(taken, header, failures)
            else:
                self._outlet.send(((taken, content),), (failures,))
        except StoreError as error:
            self._failed(taken, error)
            return
        except Exception as error:  # noqa: BLE001  # one message must not stop the others
            self._left_held(taken, error)
            return
        self._kept.discard(taken.message_id)
        if content is None:
            self._line.hold()
        else:
            self._lock(((taken, content),))
            self._metrics.sent((taken.came_at,), self._now_us())
            self._is_through(taken)

    def large_ended(self, taken: TakenMessage, *, is_sent: bool) -> None:
        """Count a large message that the outlet has sent, or broken off."""
        self._is_through(taken)
        if is_sent:
            self._locks.begin((taken.message_id,))
            self._metrics.sent((taken.came_at,), self._now_us())
            self._line.go()
        else:
            self._broker.later(0.0, self._line.go)
            self._let_go()

    def large_failed(self, taken: TakenMessage, error: StoreError) -> None:
        """Decide about a large message that was broken off, as its rest cannot be read."""
        self._broker.later(0.0, self._line.go)
        self._failed(taken, error)
        self._let_go()

    def _is_through(self, taken: TakenMessage) -> None:
        """Subtract a message that is not under way any more from what is."""
        self.count -= 1
        self.byte_count -= taken.held_bytes

    def _done(self, taken: TakenMessage) -> None:
        """Let a message go that is not under way any more, and was not sent."""
        self._is_through(taken)
        self._kept.discard(taken.message_id)
        self._outlet.unsent(taken)
        taken.release()

    def _put_back(self, taken: TakenMessage, *, delay_s: float = 0.0) -> None:
        """Let a message wait again that was not sent.

        If it was never acquired, that is only the queue's affair.
        """
        message_id = taken.message_id
        is_kept = message_id in self._kept
        self._done(taken)
        if is_kept:
            assert self._resuming is not None
            self._resuming.keep(message_id, delay_s)
        elif self._is_settled and not self._queue.is_acquired(message_id):
            not_taken = partial(self._undelivered.not_taken, self._queue, message_id)
            self._broker.later(delay_s, not_taken)
        else:
            give_back = self._settlement.give_back
            give_back(message_id, self._queue.name, self._holder, failed=False, delay_s=delay_s)

    def _take_back(self, taken: TakenMessage) -> None:
        """Give back a message whose credit the client has taken back."""
        if taken.message_id in self._kept:
            self._put_back(taken)
            return
        self._returning += 1
        taken.release()

        def is_back(_error: StoreError | None) -> None:
            self._returning -= 1
            self._is_through(taken)
            self._went()

        give_back, name = self._settlement.give_back, self._queue.name
        give_back(taken.message_id, name, self._holder, failed=False, on_done=is_back)

    def _failed(self, taken: TakenMessage, error: StoreError) -> None:
        """Decide about a message that the store refused, or whose content cannot be read."""
        if isinstance(error, NotNow):
            _log.warning("message %d of %r: %s", taken.message_id, self._queue.name, error)
            self._put_back(taken, delay_s=self._broker.settings.probe_interval_s)
        elif isinstance(error, CorruptData):
            self._left_held(taken, error)
        else:
            _log.debug("message %d of %r: %s", taken.message_id, self._queue.name, error)
            self._done(taken)
            self._undelivered.lost(self._queue, taken.message_id)

    def _left_held(self, taken: TakenMessage, error: Exception) -> None:
        self._undelivered.damaged(self._queue, taken.message_id, error)
        self._done(taken)
