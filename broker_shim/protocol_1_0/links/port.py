"""Share a session's channel out, windows, numbers and deliveries among its links.

The session feeds it what frames tell of the session as a whole; links write by it. Ids of transfer
frames and of deliveries are the session's, so what waits for a window, and which deliveries an id
names, is known here and not by one link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, islice
from operator import add
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.composites import (
    Begin,
    Composite,
    Flow,
    Received,
    TransactionalState,
)
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.protocol_1_0.budget import UNLIMITED
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation, Scope
from broker_shim.protocol_1_0.codec.frames import plain_transfers
from broker_shim.protocol_1_0.links.credit import SenderCredit
from broker_shim.protocol_1_0.links.dispositions import DispositionBatch, joined, span_of
from broker_shim.protocol_1_0.links.link import (
    DeliveriesReceived,
    DeliveryAborted,
    Link,
    TransferPiece,
)
from broker_shim.protocol_1_0.links.outgoing_delivery import Outgoing
from broker_shim.protocol_1_0.links.runs import Place, Run, UnsettledRuns
from broker_shim.protocol_1_0.output import MOST_TRANSFER_BYTES, Output
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.protocol_1_0.serial import WRAP, FreeNumbers, distance, plus
from broker_shim.protocol_1_0.windows import IncomingWindow, OutgoingWindow

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

    changed: Sequence[Run]
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
        self.last_incoming_id: int | None = None
        self._sent, self._received = UnsettledRuns(), UnsettledRuns()
        self._received.next_number = WRAP  # so all numbers are over 0, whatever id comes first

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

    def whole_count(self, credit: SenderCredit, sizes: Sequence[int]) -> int:
        """Count the first deliveries of these sizes that fit one frame each and need not wait."""
        room = 0 if self._waiting else max(0, min(self.outgoing.left, credit.left, len(sizes)))
        most = self._output.max_frame_bytes - MOST_TRANSFER_BYTES
        if max(sizes) > most:
            room = min(room, next(at for at, size in enumerate(sizes) if size > most))
        return room

    def send_whole(
        self,
        run: Run,
        credit: SenderCredit,
        sizes: Sequence[int],
        columns: Sequence[Sequence[bytes | memoryview]],
    ) -> None:
        """Send deliveries that fit one frame each and have nothing to wait for, in one piece.

        Args:
            run: They are new and whole, and have no state to tell.
            credit: Credit of their link; charged with them.
            sizes: How long the payload of each is.
            columns: The pieces of the payloads: the first of each, then the second of each, …
        """
        output = self._output
        self._sent.add(run)
        heads = plain_transfers(
            self.channel, run.link.handle, run.number, run.tags, sizes, settled=run.is_settled
        )
        ends = accumulate(map(add, map(len, heads), sizes), initial=output.made_bytes)
        run.ends = [*islice(ends, 1, None)]
        credit.sent(len(run))
        self.outgoing.take(len(run))
        output.write(b"".join(chain.from_iterable(zip(heads, *columns, strict=True))))

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
            link = outgoing.run.link
            if link in held_links or not self._may_send(outgoing):
                held.append(self._waiting.popleft())
                held_links.add(link)
                continue
            size = outgoing.size
            if self._send_frame(outgoing):
                self._waiting.popleft()
            self.waiting_bytes -= size - outgoing.size
        self._waiting.extendleft(reversed(held))

    def withdraw(self, run: Run) -> None:
        """Drop what waits of a delivery."""
        self._keep(waiting for waiting in self._waiting if waiting.run is not run)

    def begin_incoming(self, run: Run, delivery_id: int) -> None:
        """Remember deliveries whose first frames came; this is the id of the first.

        Raises:
            ProtocolViolation: Its id is not after the last one (2.6.12).
        """
        self.pass_over(delivery_id)
        self._received.add(run)
        self.last_incoming_id = plus(delivery_id, len(run) - 1)

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
        self._received.next_number = self._received.number_of(delivery_id)

    def dispose(self, link: Link, places: Iterable[Place], state: Any, *, settled: bool) -> None:
        """Tell the peer a state of deliveries that are not settled, and settle them or not.

        Args:
            link: The link that all of them are made on.
            places: Where they are (`Run.place`).
            state: The state to tell.
            settled: They are settled by this.
        """
        if link.is_gone:
            return
        for place in places:
            runs = self._runs_at(link, place)
            if runs and runs[0].number >= 0:
                spans = map(span_of, runs)
                self._batch.add(spans, state, is_incoming=link.is_receiver, is_settled=settled)
            for run in runs:
                run.state = state
                if settled:
                    self.forget(run)

    def part(self, run: Run, start: int, count: int) -> Run:
        """Cut some deliveries out of an unsettled run that is longer."""
        (part,), _rest = self._sent.between(run.number + start, count, count, is_taken=False)
        return part

    def _runs_of(self, link: Link) -> UnsettledRuns:
        return self._received if link.is_receiver else self._sent

    def _runs_at(self, link: Link, place: Place) -> Sequence[Run]:
        """Find what is not settled of some deliveries."""
        if isinstance(place, Run):
            if place.number < 0:  # it is told as it is by then, when it goes
                return () if place.is_settled else (place,)
            place = place.number, len(place)
        return self._runs_of(link).between(*place, place[1], is_taken=False)[0]

    def is_unsettled(self, number: int) -> bool:
        """True if the delivery of this number came, and nobody has settled it."""
        return self._received.has(number)

    def disposed(
        self, first: int, last: int, state: Any, *, ours: bool, settled: bool, most: int = UNLIMITED
    ) -> Disposed:
        """Take a state that the peer told of a range, of what we sent (`ours`) or of what it sent.

        Only the first `most` deliveries of it are told now.
        """
        if state is None and not settled:
            return Disposed([], 0, None)
        # `received` is told each time: with it a receiver says that it is still at work.
        is_news = settled or isinstance(state, Received)
        among = self._sent if ours else self._received
        number, count = among.number_of(first), distance(first, last) + 1
        runs, left = among.between(number, count, most, is_taken=settled)
        changed = [run for run in runs if is_news or run.remote_state != state]
        for run in changed:
            if state is not None:
                run.remote_state = state
            if settled:
                run.link.settled_by_peer(run)
        return Disposed(changed, sum(map(len, runs)), None if left is None else left % WRAP)

    def forget(self, run: Run) -> None:
        """Forget deliveries: they are settled here."""
        self._runs_of(run.link).discard(run)
        run.link.settled(run)

    def forget_link(self, link: Link) -> None:
        """Forget the deliveries of a link that ended; the link keeps them (`runs`)."""
        self._keep(waiting for waiting in self._waiting if waiting.run.link is not link)
        begun = [run for run in link.runs if run.number >= 0 and not run.is_settled]
        for run in begun:
            self._runs_of(link).discard(run)
        left = [run for run in begun if not isinstance(run.remote_state, TransactionalState)]
        if left and not link.is_receiver:
            self._left += joined([*map(span_of, left)])
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
        run = outgoing.run
        if run.number < 0:
            self._sent.add(run)
            if not outgoing.is_free:
                outgoing.credit.sent()
            outgoing.is_settled |= run.is_settled  # while it waited here
        self.outgoing.take()
        is_all = outgoing.send_frame(self._output, self.channel)
        if is_all and outgoing.is_last:
            run.ends.append(self._output.made_bytes)
        return is_all
