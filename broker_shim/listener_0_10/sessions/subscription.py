"""One consumer of a session: from its queue to the wire, in order, as far as there is credit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.definitions import (
    MessageAcceptMode,
    MessageAcquireMode,
)
from broker_shim.broker.delivery.browse_cursor import BrowseCursor
from broker_shim.broker.delivery.consumer_delivery import ConsumerDelivery
from broker_shim.broker.delivery.copy_delivery import CopyDelivery
from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.broker.flow.settlement import OnRemoved
from broker_shim.broker.queues.consumer_credit import ConsumerCredit
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.framing.assembly import TransferRun
from broker_shim.framing.sequences import Ranges, after
from broker_shim.listener_0_10.messages.message_headers import written_header
from broker_shim.selectors import Selector
from broker_shim.sockets.served_connection import LinkFacts
from broker_shim.store.interface import Entry, MessageHeader

if TYPE_CHECKING:
    from broker_shim.listener_0_10.sessions.session import Amqp010Session
    from broker_shim.listener_0_10.sessions.subscriptions import Subscriptions

INFINITE = 0xFFFFFFFF
_UNDER_WAY = 1_000
"""Messages that are brought at once, at most."""


@dataclass(slots=True, eq=False)
class SentTransfers:
    """Messages that were sent together, and that the client has not said all about.

    A cut costs the same however long it is: all parts share the columns.

    Attributes:
        subscription: The consumer that they were sent to.
        number: The number of the first command. See `Numbered`.
        ids: The ids of the messages, of which `begin` to `end` are in this part.
        sizes: The bytes of each, as its window counts them.
        entry: What the service told of one that was only shown, at a member.
        is_acquired: False of one that was only shown (not-acquired).
        released: They were accepted in a transaction that is not committed, and released after
            that, as redelivered or not: a rollback gives them back.
    """

    subscription: SessionConsumer
    number: int
    ids: Sequence[int]
    sizes: Sequence[int]
    begin: int
    end: int
    entry: Entry | None = None
    is_acquired: bool = True
    released: bool | None = None

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def message_ids(self) -> Sequence[int]:
        """The ids of the messages."""
        return self.ids[self.begin : self.end]

    def cut(self, count: int) -> SentTransfers:
        """Keep the first `count` messages, and return the rest."""
        rest = replace(self, number=self.number + count, begin=self.begin + count)
        self.end = rest.begin
        return rest

    @property
    def ranges(self) -> Ranges:
        """The numbers of its commands."""
        return ((after(self.number, 0), after(self.number, len(self) - 1)),)

    def moved_on(self) -> None:
        """Tell the consumer that its client has taken the messages in."""
        self.subscription.moved_on(len(self), sum(self.sizes[self.begin : self.end]))

    def give_back(self, *, failed: bool, on_done: OnRemoved | None = None) -> None:
        """Make the messages available again."""
        self.subscription.holdings.give_back(self.message_ids, on_done, failed=failed)


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
        owner: Subscriptions,
        session: Amqp010Session,
        holder: str,
        queue: QueueDispatch,
        command: c.MessageSubscribe,
        selector: Selector | None,
    ) -> None:
        self._owner, self._session, self._broker = owner, session, session.broker
        self.name, self.queue, self.holder = command.destination or "", queue, holder
        self.is_exclusive = command.exclusive
        take_back = partial(owner.take_back, holder)
        self.holdings = self._broker.holdings(queue, holder, take_back)
        self._selector = selector
        self._look = BrowseCursor(self._broker, queue, selector, self.look)
        self._is_browser = command.acquire_mode == MessageAcquireMode.NOT_ACQUIRED
        self._is_settled = command.accept_mode == MessageAcceptMode.NONE and not self._is_browser
        self._transfer = c.MessageTransfer(self.name, command.accept_mode, command.acquire_mode)
        self._written: tuple[MessageHeader, bool, bytes] | None = None
        self._is_window = True
        self._credit = ConsumerCredit()
        self._grant_number = 0
        self._granted: deque[int] = deque()
        self._is_taking = False
        self._on_flushed, self._on_stopped = list[Any](), list[Any]()
        self._has_ended = False
        self._delivery = ConsumerDelivery(
            self.holdings, self._broker.undelivered, self, self, is_settled=self._is_settled
        )
        self._copies = CopyDelivery(self._broker, queue, holder, self, is_whole=True)

    def start(self) -> None:
        """Take a place at the queue."""
        if self._is_browser:
            self.queue.browsers.append(self)
        else:
            self.queue.add_measuring(self, self._selector)

    def gone(self) -> None:
        """End the consumer: what was not sent yet goes back as its answers come."""
        if self._has_ended:
            return
        self._has_ended = True
        self._look.let_go()
        self._credit.stop()
        if self._is_browser:
            self.queue.browsers.remove(self)
        else:
            self.queue.discard(self)
        self._give_back_granted()
        self._copies.gone()
        self._delivery.gone()

    def queue_deleted(self) -> None:
        """Tell the session that the queue is deleted. See `Consumer`."""
        self._owner.queue_deleted(self)

    def turned_away(self, reason: str) -> None:
        """Tell the session that another consumer has the queue alone. See `Consumer`."""
        self._owner.turned_away(self, reason)

    @property
    def is_gone(self) -> bool:
        """True once the consumer has ended. See `Outlet`."""
        return self._has_ended

    @property
    def _under_way(self) -> int:
        return self._delivery.count + self._copies.count

    def facts(self, unsettled: int) -> LinkFacts:
        """Describe the consumer, of which so many messages are not settled."""
        mode = f"sender {'settled' if self._is_settled else 'unsettled'}, receiver first"
        return LinkFacts(self.name, "receiver", self.queue.name, self.credit, unsettled, mode)

    @property
    def credit(self) -> int:
        """The messages that the consumer takes now. See `Consumer`."""
        is_full = self._delivery.is_full or self._granted
        if self._has_ended or is_full or not self._session.may_send:
            return 0
        # What a service hands out it does not measure: one at a time, which may have to wait here.
        most = 1 if self.measures and self._broker.is_member else _UNDER_WAY
        room = min(most, self._owner.unsettled_room) - self._under_way
        return max(0, min(self._credit.count, room))

    @property
    def measures(self) -> bool:
        """True if the client gave credit in bytes, too. See `MeasuringConsumer`."""
        return self._credit.content_bytes is not None

    def takes(self, message_id: int) -> bool:
        """Tell whether the credit in bytes covers this message. See `MeasuringConsumer`."""
        return not self.measures or self._credit.covers(self._bytes_of(message_id))

    def _bytes_of(self, message_id: int) -> int:
        """Get the bytes of a message's header and body, as the store has them."""
        entry = self._look.entries.get(message_id)
        entry = entry or self._broker.calls.entry(self.queue.name, message_id)
        return 0 if entry is None else entry.message_bytes

    @property
    def is_draining(self) -> bool:
        """True while a flush waits for what there is. See `Consumer`."""
        return bool(self._on_flushed)

    def set_mode(self, *, is_window: bool) -> None:
        """Set the credit mode, which takes all credit back."""
        self._is_window = is_window
        self._take_back()

    def grant(self, value: int, *, is_bytes: bool) -> None:
        """Give so much more credit; INFINITE is without end."""
        more = None if value == INFINITE else value
        if is_bytes:
            self._credit.grant_bytes(more)
        else:
            self._credit.grant_messages(more)
        self._take_granted()
        self._wanted()

    def _take_back(self) -> None:
        self._credit.stop()
        self._grant_number += 1
        self._give_back_granted()
        self._owner.close_window(self)

    def moved_on(self, count: int, byte_count: int) -> None:
        """Count messages of the window, of so many bytes, as taken in by the client."""
        if not self._has_ended and self._is_window:
            self._credit.restore(byte_count, count)
            self._take_granted()
            self._wanted()

    def has_room(self) -> None:
        """Go on to send, as there is room to write again."""
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
        """End a flush, if nothing is under way. See `Consumer`."""
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
        """Take messages from the queue to their delivery. See `Consumer`."""
        if not self.queue.is_acquired(message_ids[0]):
            return self._delivery.take(message_ids)
        self._granted += message_ids
        self._take_granted()
        return len(message_ids)

    def _take_granted(self) -> None:
        """Take what a service acquired for this consumer, as far as there is credit in bytes.

        One that is in memory is sent at once, which asks for the next: that is taken by this loop.
        """
        if self._is_taking:
            return
        self._is_taking = True
        try:
            while self._granted and not self._delivery.is_full and self.takes(self._granted[0]):
                self._delivery.take((self._granted.popleft(),))
        finally:
            self._is_taking = False

    def _give_back_granted(self) -> None:
        while self._granted:
            self.holdings.give_back((self._granted.popleft(),), failed=False)

    def look(self) -> None:
        """Copy what waits after the cursor, as far as there is credit. See `Browser`."""
        ready = self._look.ready
        while self.credit > 0:
            if not ready and not self._look.go_on():
                break
            if ready and not self.takes(ready[0]):
                break
            if ready:
                self._copies.show(ready[0], self._look.entries.get(ready.popleft()))
        if not self._look.is_reading:
            self._settle_line()

    def took(self, run: TakenRun) -> None:
        """Spend credit now, so that no more is handed out than it covers. See `Outlet`."""
        run.charge = self._grant_number
        self._credit.spend(run.held_bytes, len(run))

    def unsent(self, run: TakenRun) -> None:
        """Give credit back, unless all of it was taken back meanwhile. See `Outlet`."""
        for message_id in run.message_ids:
            self._look.entries.pop(message_id, None)
        if run.charge == self._grant_number:
            self._credit.restore(run.held_bytes, len(run))

    @property
    def room(self) -> int:
        """Any number may go: the credit is spent already. See `Outlet`."""
        return INFINITE

    def fits(self, run: TakenRun) -> Sequence[bool]:
        """True always: a message may be of any size. See `Outlet`."""
        return [True] * len(run)

    def send(self, run: TakenRun, failures: Sequence[int]) -> None:
        """Send messages as transfers, in this order. See `Outlet.send`."""
        headers = [
            self._header(header, is_redelivered=count > 0)
            for header, count in zip(run.headers, failures, strict=True)
        ]
        self._write(run, headers, is_acquired=True)
        run.release()

    def copy(self, run: TakenRun, failures: int) -> bool:
        """Send a copy of a message as a transfer. See `CopyOutlet.copy`."""
        entry = self._look.entries.pop(run.message_ids[0], None)
        header = self._header(run.headers[0], is_redelivered=failures > 0)
        self._write(run, [header], is_acquired=False, entry=entry)
        return True

    def _header(self, header: MessageHeader, *, is_redelivered: bool) -> bytes:
        """Write a header; that of the message before is the same if both share it."""
        last = self._written
        if last is None or last[0] is not header or last[1] != is_redelivered:
            last = header, is_redelivered, written_header(header, is_redelivered=is_redelivered)
            self._written = last
        return last[2]

    def _write(
        self,
        run: TakenRun,
        headers: Sequence[bytes],
        *,
        is_acquired: bool,
        entry: Entry | None = None,
    ) -> None:
        """Send messages; an empty body is a segment, too: clients tell it from none."""
        transfers = TransferRun(
            self._session.channel, self._transfer, headers=headers, bodies=run.bodies
        )
        number, sizes = self._session.transmit(transfers), run.facts.message_bytes
        sent = SentTransfers(self, number, run.message_ids, sizes, 0, len(run), entry, is_acquired)
        self._owner.sent(sent, is_settled=self._is_settled, is_window=self._is_window)

    def went(self) -> None:
        """Take more from the queue, and end a flush that is over. See `Outlet`."""
        self._take_granted()
        self._wanted()
        if not self._under_way and (self._on_flushed or self._on_stopped):
            self._broker.later(0.0, self._settle_line)
