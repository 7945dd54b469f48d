"""A link's messages from the queue to the wire: acquired, content in memory, sent in order.

Decision: a delivery is sent when the acquire has completed, not before. At-least-once would bear
sending early (a crash only delivers again), but the completion is also where the store refuses:
a message that another member acquired first must not be seen here. The price is one group commit
of latency for a delivery, not throughput, as all credit is acquired at once.

On a link that asked for settled deliveries a message leaves its queue before it is sent (at most
once), so its content has to be in memory before that: content first, then the dequeue.

Invariant: each message that was assigned and is not yet with the link as a delivery is in exactly
one of: a call of the store, the line for content, the large delivery; or it is just being decided
about, and `_is_here` raises nothing, so that those which came with it are not lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.completion import OnComplete
from broker_shim.errors import CorruptData, StoreError, Unavailable
from broker_shim.listener_1_0.connection import Connection
from broker_shim.listener_1_0.sending.outgoing_message import (
    Arrived,
    ContentLine,
    OutgoingMessage,
    Wire,
    load,
)
from broker_shim.listener_1_0.transactions.link_deliveries import Acquisitions
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.store.interface import Entry, MessageHeader

_log = logging.getLogger(__name__)

_MOST_BYTES = 4 << 20
"""Under way, and one message more: those of a link that wants them settled are never sent in
pieces, however large."""


class DispatchingLink(Protocol):
    """The link that is dispatched to.

    Attributes:
        queue: What it consumes.
        holder: What the store knows it by.
    """

    queue: QueueDispatch
    holder: str

    @property
    def is_gone(self) -> bool:
        """True once nothing can be sent on it any more."""

    def wait_for_room(self) -> None:
        """Have `on_flow` called when there is room to write again."""

    def refresh(self) -> None:
        """Less is under way: more may be taken, and a drain may be over."""

    def sent(self, deliveries: Sequence[Delivery], batch: Sequence[OutgoingMessage]) -> None:
        """Deliveries are on their way to the peer, or begin to be."""

    def drop(self, delivery: Delivery) -> None:
        """A delivery was broken off: nothing is to be decided about it any more."""

    def refuse(self, message_id: int) -> None:
        """The link must not get a message again."""

    def give_back(
        self,
        message_id: int,
        *,
        failed: bool,
        delay_s: float = 0.0,
        on_done: OnComplete | None = None,
    ) -> None:
        """Make a message that the link holds available again."""

    def send_later(self, message_id: int, delay_s: float) -> None:
        """A message that the link holds from before could not be sent again now."""


class Dispatch:
    """Brings one link what its queue holds for it. On the loop's thread only.

    Attributes:
        count: Messages under way: assigned, and not sent or given back.
        is_full: True while nothing is to be assigned: much is under way, or messages go back to
            their places because the peer took its credit back. What came before they are there
            would overtake them, so what was assigned before them goes back, too.
    """

    def __init__(
        self,
        owner: DispatchingLink,
        connection: Connection,
        link: SenderLink,
        acquisitions: Acquisitions,
        *,
        is_settled: bool,
    ) -> None:
        """Begin.

        Args:
            owner: The link's endpoint.
            connection: The connection that the link is on.
            link: Of the protocol.
            acquisitions: What the link acquires in transactions.
            is_settled: The peer asked for settled deliveries.
        """
        self._owner, self._connection, self._link = owner, connection, link
        self._broker, self._queue, self._holder = connection.broker, owner.queue, owner.holder
        self._acquisitions = acquisitions
        self._is_settled = is_settled
        self._line = ContentLine(self._broker.calls, self._are_here, self._is_here, self._went)
        self._wire = Wire(link)
        self._resumed: set[int] = set()
        self._returning = 0
        self._byte_count = 0
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be assigned now."""
        return self._returning > 0 or self._byte_count > _MOST_BYTES

    def assign(self, message_ids: Sequence[int]) -> int:
        """The queue holds these messages for the link: bring them there.

        Returns:
            How many are brought, the first ones: no more than may be under way.
        """
        entry_of, name = self._broker.calls.entries(self._queue.name).get, self._queue.name
        batch: list[OutgoingMessage] = []
        for message_id in message_ids:
            batch.append(self._taken(message_id, entry_of(message_id)))
            if self._byte_count > _MOST_BYTES:
                break
        load(self._broker.calls.messages, batch, self._holder)
        if self._is_settled:
            self._line.add(batch)
        elif self._queue.is_acquired(message_ids[0]):
            self._acquired(batch, [None] * len(batch))
        else:
            ids = message_ids[: len(batch)]
            done = partial(self._acquired, batch)
            self._broker.calls.acquire_each(ids, name, self._holder, done)
        return len(batch)

    def resume(self, message_id: int) -> None:
        """The link holds this message from an earlier attachment: send it again."""
        self._resumed.add(message_id)
        entry = self._broker.calls.entry(self._queue.name, message_id)
        taken = self._taken(message_id, entry)
        load(self._broker.calls.messages, (taken,), self._holder)
        self._line.add((taken,))

    def _taken(self, message_id: int, entry: Entry | None) -> OutgoingMessage:
        message = self._broker.calls.messages.get(message_id)
        taken = OutgoingMessage(message, self._holder, entry, whole=self._is_settled)
        self.count += 1
        self._byte_count += taken.held_bytes
        return taken

    def _is_through(self, taken: OutgoingMessage) -> None:
        """It is not under way any more."""
        self.count -= 1
        self._byte_count -= taken.held_bytes

    def gone(self) -> None:
        """The link ended: what waits for its content goes back; the rest comes by its answer."""
        for taken in self._line.clear():
            self._put_back(taken)
        if self._wire.large is not None:
            self._is_through(self._wire.large)
            self._wire.drop()

    def write(self) -> None:
        """There is room again: go on with the large message that is being sent, if any."""
        taken = self._wire.large
        if taken is None or self._owner.is_gone:
            return
        try:
            is_written = self._wire.go_on(self._connection.room_bytes(self._link))
        except StoreError as error:
            self._owner.drop(self._break_off())
            self._failed(taken, error)
            return
        if is_written:
            self._is_through(taken)
            self._broker.metrics.delivered += 1
            self._line.go()
        else:
            self._owner.wait_for_room()
        self._connection.has_output()

    @property
    def is_sending(self) -> bool:
        """True while a delivery is begun and not sent whole."""
        return self._wire.large is not None

    def decided(self, delivery: Delivery) -> bool:
        """The peer decided about a delivery; True if it was not sent whole, and is broken off."""
        if not self._wire.is_sending(delivery):
            return False
        assert self._wire.large is not None
        self._is_through(self._wire.large)
        self._break_off()
        return True

    def _break_off(self) -> Delivery:
        self._broker.later(0.0, self._line.go)
        return self._wire.break_off()

    def _acquired(
        self, batch: Sequence[OutgoingMessage], outcomes: Sequence[StoreError | None]
    ) -> None:
        is_over = self._owner.is_gone or self._broker.is_stopping
        if not is_over and not any(outcomes):
            self._line.add(batch)
        for taken, error in zip(batch, outcomes, strict=True) if is_over or any(outcomes) else ():
            if error is not None:
                self._failed(taken, error)
            elif is_over:
                self._put_back(taken)
            else:
                self._line.add((taken,))
        self._owner.refresh()

    def _are_here(self, arrived: Sequence[Arrived]) -> None:
        """Their content is in memory, and they are first in line."""
        if len(arrived) > 1 and self._are_plain(arrived) and self._deliver_all(arrived):
            return
        for taken, content in arrived:
            self._is_here(taken, content.header, None)

    def _are_plain(self, arrived: Sequence[Arrived]) -> bool:
        """True if nothing is to be done about them but to send them, as most: together."""
        link, now_us = self._link, self._connection.now_us()
        if self._owner.is_gone or self._broker.is_stopping or self._is_settled:
            return False
        if self._resumed or self._returning or link.credit < len(arrived):
            return False
        return self._acquisitions.state is None and all(
            (taken.expires_at is None or taken.expires_at > now_us)
            and (not link.remote.max_message_size or self._wire.takes(taken, content.header))
            for taken, content in arrived
        )

    def _deliver_all(self, arrived: Sequence[Arrived]) -> bool:
        """Send them; False if one of them cannot be, which is found by sending them singly."""
        batch = [taken for taken, _content in arrived]
        failures = self._queue.delivery_counts([taken.message_id for taken in batch])
        try:
            deliveries = self._wire.begin_all(arrived, failures, self._connection.now_us())
        except Exception as error:  # noqa: BLE001  # one message must not stop the others
            _log.debug("%d messages of %r go singly: %s", len(batch), self._queue.name, error)
            return False
        interests = [taken.interest for taken in batch if taken.interest is not None]
        self._broker.calls.messages.release(interests)
        self._owner.sent(deliveries, batch)
        self._broker.metrics.delivered += len(batch)
        self.count -= len(batch)
        self._byte_count -= sum([taken.held_bytes for taken in batch])
        return True

    def _is_here(
        self, taken: OutgoingMessage, header: MessageHeader | None, error: StoreError | None
    ) -> None:
        """It is its turn, and its content is in memory, or it is a large one."""
        if header is None:
            assert error is not None
            self._failed(taken, error)
        elif self._owner.is_gone or self._broker.is_stopping:
            self._put_back(taken)
        elif taken.expires_at is not None and self._has_expired(taken):
            self._broker.metrics.expired += 1
            self._put_back(taken)  # from the queue it goes as the queue says
        elif self._link.remote.max_message_size and not self._wire.takes(taken, header):
            self._owner.refuse(taken.message_id)
            self._put_back(taken)
        elif self._is_settled:
            done = partial(self._dequeued, taken, header)
            calls, name = self._broker.calls, self._queue.name
            calls.dequeue(taken.message_id, name, self._holder, done)
        elif not self._may_go(taken):
            self._take_back(taken)
        else:
            self._deliver(taken, header)

    def _went(self) -> None:
        """Something was sent, or went back."""
        self._connection.has_output()
        self._owner.refresh()

    def _has_expired(self, taken: OutgoingMessage) -> bool:
        """What the peer was sent before it gets again: it waits for it."""
        if taken.expires_at is None or taken.message_id in self._resumed:
            return False
        return taken.expires_at <= self._connection.now_us()

    def _may_go(self, taken: OutgoingMessage) -> bool:
        """Whether there is credit for it, and nothing goes back that it would overtake."""
        if self._resumed and taken.message_id in self._resumed:
            return self._link.resume_credit > 0
        return self._link.credit > 0 and not self._returning

    def _dequeued(
        self, taken: OutgoingMessage, header: MessageHeader, error: StoreError | None
    ) -> None:
        """It is off its queue: now it is sent, or nobody gets it."""
        if error is not None:
            self._failed(taken, error)
        else:
            self._queue.removed((taken.message_id,))
            if not self._owner.is_gone:  # a stop waits for it: nobody else would get it
                self._deliver(taken, header)
            else:
                self._done(taken)
        self._went()

    def _deliver(self, taken: OutgoingMessage, header: MessageHeader) -> None:
        """Send it, or not if it cannot be read: one message must not stop the others."""
        message_id = taken.message_id
        try:
            delivery = self._wire.begin(
                message_id.to_bytes(8, "big"),
                taken,
                header,
                failures=self._queue.delivery_count(message_id),
                now_us=self._connection.now_us(),
                is_first=taken.detail is None,
                # What is off its queue already cannot be given back: it waits for credit.
                waits=self._is_settled,
                state=self._acquisitions.state,
            )
        except StoreError as error:
            self._failed(taken, error)
            return
        except Exception as error:  # noqa: BLE001  # one message must not stop the others
            self._left_held(taken, error)
            return
        self._resumed.discard(taken.message_id)
        self._owner.sent((delivery,), (taken,))
        if taken.is_large:
            self._line.hold()
            self._broker.later(0.0, self.write)
        else:
            self._broker.metrics.delivered += 1
            self._is_through(taken)

    def _done(self, taken: OutgoingMessage) -> None:
        self._is_through(taken)
        taken.release()

    def _put_back(self, taken: OutgoingMessage, *, delay_s: float = 0.0) -> None:
        """It was not sent: it waits again. What was never acquired is only the queue's affair."""
        self._done(taken)
        if taken.message_id in self._resumed:
            self._resumed.discard(taken.message_id)
            self._owner.send_later(taken.message_id, delay_s)
        elif self._is_settled and not self._queue.is_acquired(taken.message_id):

            def back() -> None:
                self._queue.released(taken.message_id, delivery_failed=False)
                self._broker.wanted(self._queue.name)
                self._broker.bulk.end_if_due(self._queue, taken.message_id)

            self._broker.later(delay_s, back)
        else:
            self._owner.give_back(taken.message_id, failed=False, delay_s=delay_s)

    def _take_back(self, taken: OutgoingMessage) -> None:
        """The peer has taken the credit back that this one was meant for."""
        if taken.message_id in self._resumed:
            self._put_back(taken)
            return
        self._returning += 1
        taken.release()
        self._owner.give_back(taken.message_id, failed=False, on_done=partial(self._is_back, taken))

    def _is_back(self, taken: OutgoingMessage, _error: StoreError | None) -> None:
        self._returning -= 1
        self._is_through(taken)
        self._owner.refresh()

    def _failed(self, taken: OutgoingMessage, error: StoreError) -> None:
        """The store refused, or the content cannot be read: now, for ever, or it is not ours."""
        if isinstance(error, Unavailable):
            _log.warning("message %d of %r: %s", taken.message_id, self._queue.name, error)
            self._put_back(taken, delay_s=self._broker.settings.probe_interval_s)
        elif isinstance(error, CorruptData):
            self._left_held(taken, error)
        else:
            _log.debug("message %d of %r: %s", taken.message_id, self._queue.name, error)
            self._done(taken)
            self._broker.lost(self._queue, taken.message_id)

    def _left_held(self, taken: OutgoingMessage, error: Exception) -> None:
        text = "message %d of %r cannot be read, it is left held: %s"
        _log.error(text, taken.message_id, self._queue.name, error)
        self._done(taken)
