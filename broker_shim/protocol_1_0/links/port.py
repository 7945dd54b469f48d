"""Share a session's channel out, windows, numbers and deliveries among its links.

The session feeds it what frames tell of the session as a whole; links write by it. Ids of transfer
frames and of deliveries are the session's, so what waits for a window, and which deliveries an id
names, is known here and not by one link.

A broker settles deliveries one at a time, as its store reports; a disposition each would cost more
than the deliveries themselves. So they are kept until output is taken, and consecutive ids with
one state become one frame. Their order among each other means nothing (2.7.6); whoever ends a link
or a session flushes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.composites import (
    Begin,
    Composite,
    Disposition,
    Flow,
    Received,
    TransactionalState,
)
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.protocol_1_0.budget import UNLIMITED
from broker_shim.protocol_1_0.codec.encoder import NULL, write
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation, Scope
from broker_shim.protocol_1_0.codec.frames import plain_transfer
from broker_shim.protocol_1_0.links.credit import SenderCredit
from broker_shim.protocol_1_0.links.link import (
    DeliveriesReceived,
    Delivery,
    DeliveryAborted,
    Link,
    TransferPiece,
)
from broker_shim.protocol_1_0.links.outgoing_delivery import Outgoing
from broker_shim.protocol_1_0.links.unsettled import Unsettled
from broker_shim.protocol_1_0.output import MOST_TRANSFER_BYTES, Output
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.protocol_1_0.serial import WRAP, FreeNumbers, distance, plus
from broker_shim.protocol_1_0.windows import IncomingWindow, OutgoingWindow


class DispositionBatch:
    """Dispositions of one session that are not written yet: states, and the ids of each."""

    def __init__(self) -> None:
        self._state: object = None
        self._encoded = NULL
        self._said: dict[tuple[bool, bool, bytes], tuple[object, list[int]]] = {}

    def add(
        self, delivery_ids: list[int], state: object, *, is_incoming: bool, is_settled: bool
    ) -> None:
        """Say `state` of deliveries, one at least, and whether they are settled.

        Raises:
            InvalidCommand: The state cannot be encoded.
        """
        if state is not self._state:  # most often it is the one `Accepted` of the caller
            self._state, self._encoded = state, write(state)
        key = (is_incoming, is_settled, self._encoded)
        self._said.setdefault(key, (state, []))[1].extend(delivery_ids)

    def take(self) -> list[Disposition]:
        """Hand out dispositions of all of them, in ranges, and start over."""
        taken, self._said = self._said, {}
        return [
            Disposition(
                role=is_incoming,
                first=first,
                last=None if last == first else last,
                settled=is_settled,
                state=state,
            )
            for (is_incoming, is_settled, _), (state, ids) in taken.items()
            for first, last in ranges(ids)
        ]


def ranges(ids: list[int]) -> list[tuple[int, int]]:
    """Return consecutive delivery ids as (first, last), in order; ids wrap around at 2³²."""
    base = (ids[0] - _HALF) % WRAP
    offsets = sorted([(delivery_id - base) % WRAP for delivery_id in ids])
    pairs: list[tuple[int, int]] = []
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            pairs.append(((base + first) % WRAP, (base + last) % WRAP))
            first = offset
        last = offset
    return [*pairs, ((base + first) % WRAP, (base + last) % WRAP)]


_HALF = WRAP >> 1


_MOST_LEFT = 1_024
"""Ranges of deliveries that went with their links, of one session; older ones are forgotten."""

OUTGOING_WINDOW = (1 << 31) - 1
"""We never wait for our own memory: a link sends what its caller hands it."""


class Disposed(NamedTuple):
    """The result of a disposition.

    Attributes:
        changed: Deliveries of which it told something new.
        delivery_count: How many deliveries it named.
        rest: Where the part of its range begins that is still to be told; None if there is none.
    """

    changed: list[Delivery]
    delivery_count: int
    rest: int | None


class SessionPort:
    """A session as its links see it, which the module describes.

    Attributes:
        channel: The number by which our frames name the session.
        tell: Takes what comes of deliveries.
        handles: The numbers that our ends of links take, and give back when they end.
        is_answered: True once our begin was written, which goes before all else on the channel.
        is_open: True until either side ended the session, or the connection is over.
        last_incoming_id: Delivery id of the last that came; None before the first.
        waiting_bytes: Payload that was handed over and waits for the session's window, or credit.
    """

    def __init__(
        self,
        channel: int,
        begin: Begin,
        output: Output,
        tell: Callable[[TransferPiece | DeliveriesReceived | DeliveryAborted], None],
        settings: Settings,
    ) -> None:
        self.channel = channel
        self.tell = tell
        self.handles = FreeNumbers()
        self.incoming = IncomingWindow(settings.session_window, begin.next_outgoing_id)
        self.outgoing = OutgoingWindow(begin.incoming_window)
        self.is_answered = False
        self.is_open = True
        self.waiting_bytes = 0
        self._held_back = 0
        self._output = output
        self._waiting: deque[Outgoing] = deque()
        self._batch = DispositionBatch()
        self._left: list[tuple[int, int]] = []
        self._next_delivery_id = 0
        self.last_incoming_id: int | None = None
        self._sent = Unsettled()
        self._received = Unsettled()

    @property
    def max_frame_bytes(self) -> int:
        """The size of the largest frame that the peer takes."""
        return self._output.max_frame_bytes

    @property
    def unsettled_count(self) -> int:
        """Count the unsettled deliveries that the peer was sent."""
        return len(self._sent)

    def emit(self, performative: Composite) -> None:
        """Write a frame without payload, after the dispositions that wait."""
        self.flush()
        self._output.frame(performative, self.channel)

    def flush(self) -> None:
        """Write the dispositions that wait."""
        for disposition in self._batch.take():
            self._output.frame(disposition, self.channel)

    def hold_back(self, *, is_held: bool) -> None:
        """Leave the peer with the window that it has, until all who held it back let go."""
        self._held_back += 1 if is_held else -1

    def open_window(self) -> None:
        """Tell the peer of more window if it may run short."""
        if self.incoming.is_low and not self._held_back:
            self.flow()

    def flow(self, **link_fields: Any) -> None:
        """Tell how the session stands, and one of its links if `link_fields` say so."""
        if not self._held_back:
            self.incoming.reopen()
        self._output.frame(
            Flow(
                next_incoming_id=self.incoming.next_id,
                incoming_window=self.incoming.left,
                next_outgoing_id=self.outgoing.next_id,
                outgoing_window=OUTGOING_WINDOW,
                **link_fields,
            ),
            self.channel,
        )

    def send_whole(
        self,
        deliveries: Sequence[Delivery],
        credit: SenderCredit,
        payloads: Sequence[Sequence[bytes | memoryview]],
    ) -> int:
        """Send deliveries of a link that fit one frame each and have nothing to wait for, as most.

        Args:
            deliveries: Whole, with no state to tell, all settled or none; `byte_count` is that of
                the payload.
            credit: Credit of their link; charged with those that are sent.
            payloads: The pieces of each; not copied.

        Returns:
            How many are sent, the first ones: the others have to wait, or are longer.
        """
        output, channel, delivery_id = self._output, self.channel, self._next_delivery_id
        room = 0 if self._waiting else min(self.outgoing.left, credit.left)
        most, made, sent = output.max_frame_bytes - MOST_TRANSFER_BYTES, output.made_bytes, 0
        chunks: list[bytes | memoryview] = []
        for delivery, pieces in zip(deliveries, payloads, strict=True):
            size = delivery.byte_count
            if sent >= room or size > most:
                break
            tag, handle, settled = delivery.tag, delivery.link.handle, delivery.is_settled
            head = plain_transfer(channel, handle, delivery_id, tag, size, settled=settled)
            made += len(head) + size
            delivery.delivery_id, delivery.ends_at = delivery_id, made
            delivery_id = (delivery_id + 1) % WRAP
            chunks.append(head)
            chunks += pieces
            sent += 1
        if sent:
            self._next_delivery_id = delivery_id
            self._sent.extend(() if deliveries[0].is_settled else deliveries[:sent])
            credit.sent(sent)
            self.outgoing.take(sent)
            output.write_all(chunks, made - output.made_bytes)
        return sent

    def enqueue(self, outgoing: Outgoing) -> None:
        """Send a piece of a delivery as soon as the session's window has room."""
        self._waiting.append(outgoing)
        self.waiting_bytes += outgoing.size
        self.pump()

    def pump(self) -> None:
        """Send what waits, as far as the window and each link's credit allow.

        Credit can be gone that was there when a delivery was handed over, if the peer took it
        back: such a delivery waits, and so does what comes after it on its link, and nobody else.
        """
        held: deque[Outgoing] = deque()
        held_links: set[Link] = set()
        while self._waiting and self.outgoing.left:
            outgoing = self._waiting[0]
            link = outgoing.delivery.link
            if link in held_links or not self._may_send(outgoing):
                held.append(self._waiting.popleft())
                held_links.add(link)
                continue
            size = outgoing.size
            if self._send_frame(outgoing):
                self._waiting.popleft()
            self.waiting_bytes -= size - outgoing.size
        self._waiting.extendleft(reversed(held))

    def withdraw(self, delivery: Delivery) -> None:
        """Drop what waits of a delivery."""
        self._keep(waiting for waiting in self._waiting if waiting.delivery is not delivery)

    def begin_incoming(self, delivery: Delivery, delivery_id: int) -> None:
        """Remember a delivery whose first frame came.

        Raises:
            ProtocolViolation: Its id is not after the last one (2.6.12).
        """
        self.pass_over(delivery_id)
        delivery.delivery_id = delivery_id
        self._received.extend((delivery,))

    def began_incoming(self, deliveries: Sequence[Delivery]) -> None:
        """Remember deliveries that came whole, whose ids are next, and that the window has room."""
        if deliveries:
            self.incoming.take_many(len(deliveries))
            self.last_incoming_id = deliveries[-1].delivery_id
            self._received.extend([delivery for delivery in deliveries if not delivery.is_settled])

    def pass_over(self, delivery_id: int) -> None:
        """Remember of a delivery whose first frame came nothing but its id.

        Raises:
            ProtocolViolation: Its id is not after the last one (2.6.12).
        """
        last = self.last_incoming_id
        if last is not None and distance(last, delivery_id) <= 0:
            text = f"delivery-id {delivery_id} after {last}"
            raise ProtocolViolation(AmqpError.INVALID_FIELD, text, Scope.SESSION)
        self.last_incoming_id = delivery_id

    def dispose(
        self, link: Link, deliveries: Iterable[Delivery], state: Any, *, settled: bool
    ) -> None:
        """Tell the peer a state of a link's deliveries, and settle them or not: see `Delivery`."""
        if link.is_gone:
            return
        left = [delivery for delivery in deliveries if not delivery.is_settled]
        ids = [delivery.delivery_id for delivery in left if delivery.delivery_id is not None]
        if ids:
            self._batch.add(ids, state, is_incoming=link.is_receiver, is_settled=settled)
        for delivery in left:
            delivery.state = state
        if settled:
            self._forget(link, left, ids)

    def disposed(
        self, first: int, last: int, state: Any, *, ours: bool, settled: bool, most: int = UNLIMITED
    ) -> Disposed:
        """Take a state that the peer told of a range, of what we sent (`ours`) or of what it sent.

        Only the first `most` deliveries of it are told now.
        """
        if state is None and not settled:
            return Disposed([], 0, None)
        known = self._sent if ours else self._received
        some, rest = known.between(first, last, most)
        # `received` is told each time: with it a receiver says that it is still at work.
        is_news = settled or isinstance(state, Received)
        changed = [one for one in some if is_news or one.remote_state != state]
        if state is not None:
            for delivery in changed:
                delivery.remote_state = state
        if settled:
            for delivery in changed:
                delivery.is_settled = True
                del delivery.link.unsettled[delivery.tag]
            known.discard([one.delivery_id for one in changed if one.delivery_id is not None])
        return Disposed(changed, len(some), rest)

    def forget(self, delivery: Delivery) -> None:
        """Forget a delivery: it is settled here."""
        ids = () if delivery.delivery_id is None else (delivery.delivery_id,)
        self._forget(delivery.link, (delivery,), ids)

    def _forget(self, link: Link, deliveries: Iterable[Delivery], ids: Iterable[int]) -> None:
        unsettled = link.unsettled
        for delivery in deliveries:
            delivery.is_settled = True
            unsettled.pop(delivery.tag, None)
        (self._received if link.is_receiver else self._sent).discard(ids)

    def forget_link(self, link: Link) -> None:
        """Forget the deliveries of a link that ended; the link keeps them (`unsettled`)."""
        self._keep(waiting for waiting in self._waiting if waiting.delivery.link is not link)
        begun = {
            delivery.delivery_id: delivery
            for delivery in link.unsettled.values()
            if delivery.delivery_id is not None
        }
        (self._received if link.is_receiver else self._sent).discard(begun)
        left = [
            delivery_id
            for delivery_id, delivery in begun.items()
            if not (link.is_receiver or isinstance(delivery.remote_state, TransactionalState))
        ]
        if left:
            self._left += ranges(left)
            del self._left[:-_MOST_LEFT]

    def has_left(self, first: int, last: int) -> bool:
        """Return True if a range names a delivery that went with its link, undecided."""
        span = distance(first, last)
        return any(
            0 <= distance(first, begin) <= span
            or 0 <= distance(begin, first) <= distance(begin, end)
            for begin, end in self._left
        )

    def close(self) -> None:
        """End with the session: drop what waits, and send nothing any more."""
        self.is_open = False
        self._keep(())
        self._sent.clear()
        self._received.clear()
        self._left.clear()

    def _keep(self, waiting: Iterable[Outgoing]) -> None:
        self._waiting = deque(waiting)
        self.waiting_bytes = sum(waiting.size for waiting in self._waiting)

    def _may_send(self, outgoing: Outgoing) -> bool:
        """True if a frame of it may go now."""
        return self.outgoing.left > 0 and not outgoing.waits_for_credit

    def _send_frame(self, outgoing: Outgoing) -> bool:
        """Send one frame; True if that was all of it.

        Ids are given with the first frame of a delivery: peers expect them without gaps.
        """
        delivery = outgoing.delivery
        if delivery.delivery_id is None:
            delivery.delivery_id = self._next_delivery_id
            self._next_delivery_id = plus(self._next_delivery_id, 1)
            if not delivery.is_settled:
                self._sent.extend((delivery,))
            if not outgoing.is_free:
                outgoing.credit.sent()
            outgoing.is_settled |= delivery.is_settled  # while it waited here
        self.outgoing.take()
        is_all = outgoing.send_frame(self._output, self.channel)
        if is_all and outgoing.is_last:
            delivery.ends_at = self._output.made_bytes
        return is_all
