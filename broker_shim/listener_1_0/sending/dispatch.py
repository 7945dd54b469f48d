"""A link's messages from the queue to the wire: acquired, content in memory, sent in order.

Decision: a delivery is sent when the acquire has completed, not before. At-least-once would bear
sending early (a crash only delivers again), but the completion is also where the store refuses:
a message that another member acquired first must not be seen here. The price is one group commit
of latency for a delivery, not throughput, as all credit is acquired at once.

On a link that asked for settled deliveries a message leaves its queue before it is sent (at most
once), so its content has to be in memory before that: content first, then the dequeue.

Invariant: each message that was assigned and is not yet with the link as a delivery is in exactly
one of: a call of the store, the line for content, the large delivery.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from broker_shim.errors import CorruptData, StoreError, Unavailable
from broker_shim.listener_1_0.sending.outgoing_message import InOrder, Taken
from broker_shim.listener_1_0.sending.wire import Wire
from broker_shim.protocol_1_0.links.deliveries import Delivery
from broker_shim.store.interface import MessageHeader

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink

_log = logging.getLogger(__name__)

_MOST_BYTES = 4 << 20
"""Under way, and one message more: those of a link that wants them settled are never sent in
pieces, however large."""


class Delivering:
    """See above.

    Attributes:
        count: Messages under way: assigned, and not sent or given back.
        is_full: True while nothing is to be assigned: much is under way, or messages go back to
            their places because the peer took its credit back. What came before they are there
            would overtake them, so what was assigned before them goes back, too.
    """

    def __init__(self, owner: OutgoingLink, *, is_settled: bool) -> None:
        self._owner, self._broker, self._queue = owner, owner.broker, owner.queue
        self._is_settled = is_settled
        self._line = InOrder(self._broker, self._is_here)
        self._wire = Wire(owner.link)
        self._resumed: set[int] = set()
        self._returning = 0
        self._byte_count = 0
        self.count = 0

    @property
    def is_full(self) -> bool:
        """See above."""
        return self._returning > 0 or self._byte_count > _MOST_BYTES

    def assign(self, message_id: int) -> None:
        """The queue holds this message for the link: bring it there."""
        taken = self._taken(message_id)
        if self._is_settled:
            self._line.add(taken)
        else:
            done = partial(self._acquired, taken)
            self._broker.calls.acquire(message_id, self._queue.name, self._owner.holder, done)

    def resume(self, message_id: int) -> None:
        """The link holds this message from an earlier attachment: send it again."""
        self._resumed.add(message_id)
        self._line.add(self._taken(message_id))

    def _taken(self, message_id: int) -> Taken:
        entry = self._broker.calls.entry(self._queue.name, message_id)
        message = self._broker.calls.messages.get(message_id)
        taken = Taken(message, self._owner.holder, entry, whole=self._is_settled)
        self.count += 1
        self._byte_count += taken.held_bytes
        return taken

    def _is_through(self, taken: Taken) -> None:
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
            is_written = self._wire.go_on(self._owner.room_bytes)
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
        self._owner.has_output()

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

    def _acquired(self, taken: Taken, error: StoreError | None) -> None:
        if error is not None:
            self._failed(taken, error)
        elif self._owner.is_gone or self._broker.is_stopping:
            self._put_back(taken)
        else:
            self._line.add(taken)
        self._owner.refresh()

    def _is_here(
        self, taken: Taken, header: MessageHeader | None, error: StoreError | None
    ) -> None:
        """Its content is in memory, and it is first in line."""
        if header is None:
            assert error is not None
            self._failed(taken, error)
        elif self._owner.is_gone or self._broker.is_stopping:
            self._put_back(taken)
        elif self._has_expired(taken):
            self._broker.metrics.expired += 1
            self._put_back(taken)  # from the queue it goes as the queue says
        elif not self._wire.takes(taken, header):
            self._queue.refuse(taken.message_id, self._owner)
            self._put_back(taken)
        elif self._is_settled:
            done = partial(self._dequeued, taken, header)
            calls, name = self._broker.calls, self._queue.name
            calls.dequeue(taken.message_id, name, self._owner.holder, done)
            return
        elif not self._has_credit(taken) or self._overtakes(taken):
            self._take_back(taken)
        else:
            self._deliver_or_not(taken, header)
        self._owner.refresh()

    def _has_expired(self, taken: Taken) -> bool:
        """What the peer was sent before it gets again: it waits for it."""
        if taken.expires_at is None or taken.message_id in self._resumed:
            return False
        return taken.expires_at <= self._owner.now_us()

    def _has_credit(self, taken: Taken) -> bool:
        link = self._owner.link
        return bool(link.resume_credit if taken.message_id in self._resumed else link.credit)

    def _overtakes(self, taken: Taken) -> bool:
        return self._returning > 0 and taken.message_id not in self._resumed

    def _dequeued(self, taken: Taken, header: MessageHeader, error: StoreError | None) -> None:
        """It is off its queue: now it is sent, or nobody gets it."""
        if error is not None:
            self._failed(taken, error)
        else:
            self._queue.removed(taken.message_id)
            if not self._owner.is_gone:  # a stop waits for it: nobody else would get it
                self._deliver_or_not(taken, header)
            else:
                self._done(taken)
        self._owner.refresh()

    def _deliver_or_not(self, taken: Taken, header: MessageHeader) -> None:
        try:
            self._deliver(taken, header)
        except StoreError as error:
            self._failed(taken, error)
        except Exception as error:  # noqa: BLE001  # one message must not stop the others
            self._left_held(taken, error)

    def _deliver(self, taken: Taken, header: MessageHeader) -> None:
        tag = taken.message_id.to_bytes(8, "big")
        failures, now_us = self._queue.delivery_count(taken.message_id), self._owner.now_us()
        # What is off its queue already cannot be given back: it waits if there is no credit.
        waits = self._is_settled
        delivery = self._wire.begin(
            tag,
            taken,
            header,
            failures=failures,
            now_us=now_us,
            is_first=taken.detail is None,
            waits=waits,
            state=self._owner.acquiring.state,
        )
        self._resumed.discard(taken.message_id)
        self._owner.sent(delivery, taken)
        if taken.is_large:
            self._line.hold()
            self._broker.later(0.0, self.write)
        else:
            self._broker.metrics.delivered += 1
            self._is_through(taken)

    def _done(self, taken: Taken) -> None:
        self._is_through(taken)
        taken.release()

    def _put_back(self, taken: Taken, *, delay_s: float = 0.0) -> None:
        """It was not sent: it waits again. What was never acquired is only the queue's affair."""
        self._done(taken)
        if taken.message_id in self._resumed:
            self._resumed.discard(taken.message_id)
            assert self._owner.resuming is not None
            self._owner.resuming.send_later(taken.message_id, delay_s)
        elif self._is_settled:

            def back() -> None:
                self._queue.released(taken.message_id, delivery_failed=False)
                self._broker.wanted(self._queue.name)
                self._broker.bulk.end_if_due(self._queue, taken.message_id)

            self._broker.later(delay_s, back)
        else:
            self._owner.give_back(taken.message_id, failed=False, delay_s=delay_s)

    def _take_back(self, taken: Taken) -> None:
        """The peer has taken the credit back that this one was meant for."""
        if taken.message_id in self._resumed:
            self._put_back(taken)
            return
        self._returning += 1
        taken.release()
        self._owner.give_back(taken.message_id, failed=False, on_done=partial(self._is_back, taken))

    def _is_back(self, taken: Taken, _error: StoreError | None) -> None:
        self._returning -= 1
        self._is_through(taken)
        self._owner.refresh()

    def _failed(self, taken: Taken, error: StoreError) -> None:
        """The store refused, or the content cannot be read: now, for ever, or it is not ours."""
        if isinstance(error, Unavailable):
            _log.warning("message %d of %r: %s", taken.message_id, self._queue.name, error)
            self._put_back(taken, delay_s=self._broker.settings.probe_interval_s)
        elif isinstance(error, CorruptData):
            self._left_held(taken, error)
        else:
            text = "message %d of %r is not ours: %s"
            _log.warning(text, taken.message_id, self._queue.name, error)
            self._done(taken)
            self._queue.removed(taken.message_id)

    def _left_held(self, taken: Taken, error: Exception) -> None:
        text = "message %d of %r cannot be read, it is left held: %s"
        _log.error(text, taken.message_id, self._queue.name, error)
        self._done(taken)
