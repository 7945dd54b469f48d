"""One consumer of a session: from its queue to the wire, in order, as far as there is credit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.definitions import (
    MessageAcceptMode,
    MessageAcquireMode,
)
from broker_shim.broker.queues.consumer_credit import ConsumerCredit
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.errors import StoreError, Unavailable
from broker_shim.framing.segments import BodySegment
from broker_shim.listener_0_10.messages import written_header
from broker_shim.listener_0_10.sending.holdings import ConsumerHoldings
from broker_shim.listener_0_10.sending.look import BrowserLook
from broker_shim.listener_0_10.sending.session_delivery import SessionDelivery, load
from broker_shim.listener_0_10.sending.subscribing_session import SubscribingSession
from broker_shim.messages.residency import LoadedMessage
from broker_shim.selectors import Selector
from broker_shim.store.interface import Entry

INFINITE = 0xFFFFFFFF
_UNDER_WAY, _MOST_BYTES = 1_000, 4 << 20
"""Messages that are brought at once, and their bytes: one message more at most."""


@dataclass(slots=True, eq=False)
class SentMessage:
    """A message that the client was sent and has not decided about.

    Attributes:
        subscription: The consumer that it was sent to.
        message_id: The id of the message.
        is_acquired: False of one that was only shown (not-acquired).
        entry: What the service told of one that was only shown, at a member.
        in_transaction: It was accepted in a transaction that is not committed.
    """

    subscription: SessionConsumer
    message_id: int
    is_acquired: bool
    entry: Entry | None = None
    in_transaction: bool = False


class SubscriptionOwner(Protocol):
    """All consumers of the session, and what it was sent."""

    @property
    def unsettled_room(self) -> int:
        """How many more the client may leave undecided."""

    def sent(
        self, number: int, sent: SentMessage | None, in_window: tuple[SessionConsumer, int] | None
    ) -> None:
        """A message went out."""

    def close_window(self, subscription: SessionConsumer) -> None:
        """What a consumer was sent before counts for its window no more."""

    def queue_deleted(self, subscription: SessionConsumer) -> None:
        """The queue of a consumer is deleted."""

    def turned_away(self, subscription: SessionConsumer, reason: str) -> None:
        """Another consumer has the queue of this one alone."""


class SessionConsumer:
    """One consumer: from its queue to the wire, in order.

    Attributes:
        name: The destination that the client gave it.
        queue: What it consumes or looks at.
        holder: What the store knows it by.
        holdings: What it holds, to be settled.
        is_exclusive: Nobody else may consume from the queue.
    """

    def __init__(
        self,
        owner: SubscriptionOwner,
        session: SubscribingSession,
        holder: str,
        queue: QueueDispatch,
        command: c.MessageSubscribe,
        selector: Selector | None,
    ) -> None:
        self._owner, self._session, self._broker = owner, session, session.broker
        self.name, self.queue, self.holder = command.destination or "", queue, holder
        self.is_exclusive = command.exclusive
        self.holdings = ConsumerHoldings(session.broker, queue, holder)
        self._selector = selector
        self._look = BrowserLook(self._broker, queue, selector, self.look)
        self._is_browser = command.acquire_mode == MessageAcquireMode.NOT_ACQUIRED
        self._is_settled = command.accept_mode == MessageAcceptMode.NONE and not self._is_browser
        self._transfer = c.MessageTransfer(self.name, command.accept_mode, command.acquire_mode)
        self._is_window = True
        self._credit, self._credit_turn = ConsumerCredit(), 0
        self._line: deque[SessionDelivery] = deque()
        self._under_way = self._bytes_under_way = 0
        self._granted: deque[int] = deque()
        self._on_flushed: list[Any] = []
        self._on_stopped: list[Any] = []
        self._has_ended = False

    def start(self) -> None:
        """Take a place at the queue."""
        if self._is_browser:
            self.queue.browsers.append(self)
        else:
            self.queue.add_measuring(self, self._selector)

    def gone(self) -> None:
        """It ended: what was not sent yet goes back as its answers come."""
        if self._has_ended:
            return
        self._has_ended = True
        self._credit.stop()
        if self._is_browser:
            self.queue.browsers.remove(self)
        else:
            self.queue.discard(self)
        self._give_back_granted()
        for each in list(self._line):
            each.loaded = each.loaded or Unavailable("the subscriber is gone")
        self._send_line()

    def queue_deleted(self) -> None:
        """See `Consumer`."""
        self._owner.queue_deleted(self)

    def turned_away(self, reason: str) -> None:
        """See `Consumer`."""
        self._owner.turned_away(self, reason)

    @property
    def credit(self) -> int:
        """See `Consumer`."""
        is_full = self._bytes_under_way > _MOST_BYTES
        if self._has_ended or is_full or self._granted or not self._session.may_send:
            return 0
        # What a service hands out it does not measure: one at a time, which may have to wait here.
        most = 1 if self.measures and self._broker.is_member else _UNDER_WAY
        room = min(most, self._owner.unsettled_room) - self._under_way
        return max(0, min(self._credit.count, room))

    @property
    def measures(self) -> bool:
        """See `MeasuringConsumer`."""
        return self._credit.content_bytes is not None

    def takes(self, message_id: int) -> bool:
        """See `MeasuringConsumer`."""
        return not self.measures or self._credit.covers(self._bytes_of(message_id))

    def _bytes_of(self, message_id: int) -> int:
        """Header and body of a message, as the store has them."""
        entry = self._entry_of(message_id)
        return 0 if entry is None else entry.message_bytes

    def _entry_of(self, message_id: int) -> Entry | None:
        entry = self._look.entries.get(message_id)
        return entry or self._broker.calls.entry(self.queue.name, message_id)

    @property
    def is_draining(self) -> bool:
        """See `Consumer`: a flush waits for what there is."""
        return bool(self._on_flushed)

    def set_mode(self, *, is_window: bool) -> None:
        """Credit begins anew."""
        self._is_window = is_window
        self._take_back()

    def grant(self, value: int, *, is_bytes: bool) -> None:
        """So much more credit; INFINITE is without end."""
        more = None if value == INFINITE else value
        if is_bytes:
            self._credit.grant_bytes(more)
        else:
            self._credit.grant_messages(more)
        self._take_granted()
        self._wanted()

    def _take_back(self) -> None:
        self._credit.stop()
        self._credit_turn += 1
        self._give_back_granted()
        self._owner.close_window(self)

    def moved_on(self, byte_count: int) -> None:
        """The client has taken in one message of the window."""
        if not self._has_ended and self._is_window:
            self._credit.restore(byte_count)
            self._take_granted()
            self._wanted()

    def has_room(self) -> None:
        """There is room to write again."""
        self._wanted()

    def _wanted(self) -> None:
        if self._has_ended:
            return
        if not self._session.may_send:
            self._session.wait_to_send(self)
        self._broker.wanted(self.queue.name)

    def flush(self, on_flushed: Any) -> None:
        """Send what there is, then take the credit back."""
        self._on_flushed.append(on_flushed)
        self._broker.wanted(self.queue.name)
        self._broker.dispatch()
        self.caught_up()

    def stop(self, on_stopped: Any) -> None:
        """Take the credit back; tell when nothing is on its way."""
        self._take_back()
        self._on_stopped.append(on_stopped)
        self._settle_line()

    def caught_up(self) -> None:
        """See `Consumer`: a flush may be over."""
        self._settle_line()

    def _settle_line(self) -> None:
        if self._under_way:
            return
        if self._on_flushed and self._has_all():
            flushed, self._on_flushed = self._on_flushed, []
            self._take_back()
            for call in flushed:
                call()
        stopped, self._on_stopped = self._on_stopped, []
        for call in stopped:
            call()

    def _has_all(self) -> bool:
        if self._has_ended or self.credit == 0:
            return True
        if self._is_browser:
            return self._look.is_at_end
        return self.queue.has_caught_up(self)

    def assign(self, message_ids: Sequence[int]) -> int:
        """See `Consumer`."""
        if self.queue.is_acquired(message_ids[0]):
            self._granted += message_ids
            self._take_granted()
            return len(message_ids)
        taken: list[SessionDelivery] = []
        for message_id in message_ids:
            taken.append(self._take_up(message_id))
            if self._bytes_under_way > _MOST_BYTES:
                break
        self._load(taken)
        if self._is_settled:
            self._bring(taken, [None] * len(taken))
        else:
            ids, acquired = message_ids[: len(taken)], partial(self._bring, taken)
            self._broker.calls.acquire_each(ids, self.queue.name, self.holder, acquired)
        return len(taken)

    def _take_granted(self) -> None:
        """What a service acquired for this consumer, as far as there is credit in bytes."""
        taken: list[SessionDelivery] = []
        while self._granted and self.takes(self._granted[0]):
            taken.append(self._take_up(self._granted.popleft()))
        if taken:
            self._load(taken)
            self._bring(taken, [None] * len(taken))

    def _give_back_granted(self) -> None:
        while self._granted:
            self.holdings.give_back(self._granted.popleft(), failed=False)

    def look(self) -> None:
        """See `Browser`."""
        found = self._look.found
        while self.credit > 0:
            if not found and not self._look.go_on():
                break
            if found and not self.takes(found[0]):
                break
            if found:
                taken = self._take_up(found.popleft())
                self._load((taken,))
                self._bring((taken,), (None,))
        if not self._look.is_reading:
            self._settle_line()

    def _take_up(self, message_id: int) -> SessionDelivery:
        there = self._entry_of(message_id)
        byte_count = 0 if there is None else there.message_bytes
        self._credit.spend(byte_count)
        self._under_way += 1
        self._bytes_under_way += byte_count
        message = self._broker.calls.messages.get(message_id)
        entry = self._look.entries.pop(message_id, None)
        taken = SessionDelivery(message, byte_count, self.holder, entry)
        taken.expires_at = None if there is None else there.expires_at
        taken.credit_turn = self._credit_turn
        self._line.append(taken)
        return taken

    def _load(self, batch: Sequence[SessionDelivery]) -> None:
        load(self._broker.calls.messages, batch, self.holder)

    def _bring(
        self, batch: Sequence[SessionDelivery], outcomes: Sequence[StoreError | None]
    ) -> None:
        """They are ours, or were refused: have their content in memory."""
        ids = [taken.message_id for taken in batch if not self._has_ended]
        here = self._broker.calls.messages.residency.wanted_here(ids)
        for taken, error in zip(batch, outcomes, strict=True):
            if error is not None:
                taken.loaded, taken.is_ours = error, False
            elif self._has_ended:
                taken.loaded = taken.loaded or Unavailable("the subscriber is gone")
            else:
                taken.loaded = here.get(taken.message_id)
                if taken.loaded is None:
                    taken.message.when_here(partial(self._is_here, taken))
        self._send_line()

    def _is_here(self, taken: SessionDelivery, loaded: LoadedMessage | StoreError) -> None:
        taken.loaded = loaded
        self._send_line()

    def _send_line(self) -> None:
        leaving: list[tuple[SessionDelivery, LoadedMessage]] = []
        has_sent = False
        while self._line and (loaded := self._line[0].loaded) is not None:
            taken = self._line.popleft()
            if not isinstance(loaded, LoadedMessage) or self._has_ended or self._broker.is_stopping:
                self._over(taken)
                self._put_back(taken)
            elif taken.has_expired:
                self._over(taken)
                self._end_expired(taken)
                has_sent = True
            elif self._is_settled:
                leaving.append((taken, loaded))
            else:
                self._over(taken)
                self._send(taken, loaded)
                has_sent = True
        if leaving:
            ids = [taken.message_id for taken, _loaded in leaving]
            left = partial(self._dequeued, leaving)
            self._broker.calls.dequeue_each(ids, self.queue.name, self.holder, left)
        if has_sent:
            self._wanted()
        if not self._line and (self._on_flushed or self._on_stopped):
            self._broker.later(0.0, self._settle_line)

    def _dequeued(
        self,
        leaving: Sequence[tuple[SessionDelivery, LoadedMessage]],
        outcomes: Sequence[StoreError | None],
    ) -> None:
        """They are off their queue: now they are sent, or nobody gets them."""
        for (taken, loaded), error in zip(leaving, outcomes, strict=True):
            self._over(taken)
            if error is not None:
                self._put_back(taken)
                continue
            self.queue.removed((taken.message_id,))
            if not self._has_ended:
                self._send(taken, loaded)
        self._wanted()
        self._settle_line()

    def _over(self, taken: SessionDelivery) -> None:
        self._under_way -= 1
        self._bytes_under_way -= taken.byte_count
        taken.release()

    def _end_expired(self, taken: SessionDelivery) -> None:
        """It is not sent; from the queue it goes as the queue says."""
        self._broker.metrics.expired += 1
        self._put_back(taken)

    def _put_back(self, taken: SessionDelivery) -> None:
        """It was not sent: its credit is there for another, unless that was taken back."""
        if taken.credit_turn == self._credit_turn and not self._has_ended:
            self._credit.restore(taken.byte_count)
        if self._is_browser:
            return
        if not taken.is_ours and not isinstance(taken.loaded, Unavailable):
            self.queue.removed((taken.message_id,))  # another member of the store has it
        elif self._is_settled and not self.queue.is_acquired(taken.message_id):
            self._broker.settlement.released(taken.message_id, self.queue, failed=False)
        else:
            delay_s = self._broker.settings.probe_interval_s if not self._has_ended else 0.0
            self.holdings.give_back(taken.message_id, failed=False, delay_s=delay_s)

    def _send(self, taken: SessionDelivery, loaded: LoadedMessage) -> None:
        failures = self.queue.delivery_count(taken.message_id)
        header = written_header(loaded.header, is_redelivered=failures > 0)
        # An empty body is a segment, too: clients tell it from none.
        body = BodySegment(loaded.body)
        number = self._session.command(self._transfer, header, body)
        sent = None
        if not self._is_settled:
            is_acquired = not self._is_browser
            sent = SentMessage(self, taken.message_id, is_acquired, taken.entry)
        self._owner.sent(number, sent, (self, taken.byte_count) if self._is_window else None)
        self._broker.metrics.delivered += 1
