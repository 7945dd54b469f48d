"""A resumed link in memory: a client and a broker of few lines each, and a line that can be cut.

The broker is our machine with just what decides over a delivery: what it stored, and what it holds
unsettled, outlives a crash; its store completes when it is told. The client keeps its own unsettled
map by the same table (`resumption.decide`, from the other side) and writes its frames by hand, as
the machine only answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.definitions import ReceiverSettleMode
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    FrameDecoder,
    encoded_frame,
    transfer_frame,
)
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.protocol_1_0.links.resumption import ResumptionStep, decide, is_outcome, to_tell
from broker_shim.protocol_1_0.links.runs import Run
from broker_shim.protocol_1_0.links.sender import SenderLink
from tests.support.amqp.amqp_1_0 import one_by_one, server

FRAME = 512
"""What the client takes: few entries of a map fit it with the rest of an attach."""

Write = Callable[[], None]


class Broker:
    """Our end of one link over any number of connections.

    Attributes:
        is_receiver: Whether we receive.
        stored: Messages that we took, in order; or that are left to send.
        unsettled: Of the link, durable: tag → state.
        writes: What the store has taken and not completed.
    """

    def __init__(self, *, is_receiver: bool, messages: list[bytes], credit: int = 4) -> None:
        self.is_receiver = is_receiver
        self._credit = credit
        self.stored = list(messages)
        self.unsettled: dict[bytes, Any] = {}
        self.payloads: dict[bytes, bytes] = {}
        self.writes: list[Write] = []
        self._gathered: dict[Run, bytes] = {}
        self._next_tag = 0
        self.machine = server()

    def connect(self, *, is_killed: bool) -> None:
        """Begin anew; what the store has not completed goes on, or is lost with the process."""
        if is_killed:
            self.writes.clear()
        self._gathered.clear()
        self.machine = server()

    def write(self) -> None:
        """Complete what the store has taken."""
        while self.writes:
            self.writes.pop(0)()

    def receive(self, encoded: bytes) -> None:
        self.machine.receive_data(encoded, now_s=0.0)
        for event in one_by_one(self.machine.events()):
            self._on(event)

    def _on(self, event: events.Event) -> None:
        match event:
            case events.ConnectionOpened():
                self.machine.open()
            case events.SessionBegun(session):
                session.begin()
            case events.LinkFailed() | events.SessionFailed() | events.ConnectionFailed():
                raise AssertionError(event)
            case _:
                self._on_link(event)

    def _on_link(self, event: events.Event) -> None:
        match event:
            case events.LinkAttached(link):
                self.write()  # an answer while a store call is on its way would lie
                self._attached(link)
            case events.TransferPiece(delivery, payload, is_last):
                self._gathered[delivery.run] = self._gathered.get(delivery.run, b"") + payload
                if is_last:
                    self._took(delivery, self._gathered.pop(delivery.run))
            case events.DispositionReceived():
                for run in event.parts:
                    self._decided(run, event.state)
            case events.FlowReceived(link):
                self._flow(link)
            case events.LinkDetached(link):
                link.detach(closed=False)

    def _flow(self, link: ReceiverLink | SenderLink) -> None:
        if isinstance(link, SenderLink):
            self._send(link)
        else:
            self._give(link)

    def _attached(self, link: ReceiverLink | SenderLink) -> None:
        remote = link.remote
        decided = decide(
            is_receiver=self.is_receiver,
            ours=self.unsettled,
            theirs=remote.unsettled or {},
            is_complete=not remote.incomplete_unsettled,
        )
        ours = to_tell(decided, self.unsettled)
        for tag in self.unsettled.keys() - ours.keys():
            del self.unsettled[tag]
            if decided[tag] is ResumptionStep.SEND_AGAIN:
                self.stored.insert(0, self.payloads.pop(tag))
        link.attach(source=remote.source, target=remote.target, unsettled=ours)
        if isinstance(link, ReceiverLink):
            link.flow(self._credit)
            return
        for tag, step in decided.items():
            if step is ResumptionStep.RESUME:
                link.resume(tag, [self.payloads[tag]], waits=True)
            elif step is ResumptionStep.SETTLE:
                outcome = (remote.unsettled or {})[tag]
                self._done(link.resume(tag, state=outcome), outcome)

    def _give(self, link: ReceiverLink) -> None:
        if link.credit < self._credit // 2 and not (link.is_gone or link.is_incomplete):
            link.flow(self._credit)

    def output(self) -> bytes:
        return b"".join(self.machine.data_to_send(now_s=0.0))

    def _took(self, delivery: Delivery, message: bytes) -> None:
        link = delivery.link
        assert isinstance(link, ReceiverLink)
        if is_outcome(delivery.run.state):
            if delivery.is_settled:
                self.unsettled.pop(delivery.tag, None)
            else:
                self._answer(delivery)
            return

        def write() -> None:
            self.stored.append(message)
            self.unsettled[delivery.tag] = Accepted()
            self._answer(delivery)

        self.writes.append(write)
        self._give(link)

    def _answer(self, delivery: Delivery) -> None:
        is_first = delivery.link.rcv_settle_mode is ReceiverSettleMode.FIRST
        delivery.dispose(Accepted(), settled=is_first)

    def _decided(self, delivery: Run, state: Any) -> None:
        """The peer said a state, or settled."""
        if self.is_receiver:
            if delivery.is_settled:
                self.unsettled.pop(delivery.tag, None)
        elif is_outcome(state):
            self._done(delivery, state)

    def _done(self, delivery: Run, outcome: Any) -> None:
        """What we sent has an outcome at the peer: take it from the queue, then settle."""

        def write() -> None:
            if self.unsettled.pop(delivery.tag, outcome) is None:
                del self.payloads[delivery.tag]
            delivery.dispose(outcome, settled=True)

        self.writes.append(write)

    def _send(self, link: SenderLink) -> None:
        while link.credit and self.stored:
            tag = b"%d" % self._next_tag
            self._next_tag += 1
            self.payloads[tag], self.unsettled[tag] = self.stored.pop(0), None
            link.transfer(tag, [self.payloads[tag]])


class Client:
    """The other end, by hand; what it knows of the link outlives its connections.

    Attributes:
        unsettled: Tag → state.
        outcomes: Of what it sent: message → how often it was told an outcome.
        taken: What it received and decided to accept, in order.
        incomplete_count: Attaches of the broker's that did not name all that it holds.
    """

    def __init__(
        self,
        *,
        is_receiver: bool,
        messages: list[bytes],
        mode: ReceiverSettleMode,
        credit: int = 4,
        frame_bytes: int = FRAME,
    ) -> None:
        self.is_receiver = is_receiver
        self.unsettled: dict[bytes, Any] = {}
        self.payloads: dict[bytes, bytes] = {}
        self.outcomes: dict[bytes, int] = {}
        self.taken: list[bytes] = []
        self.incomplete_count = 0
        self.out = b""
        self._mode = mode
        self._full_credit = credit
        self._frame_bytes = frame_bytes
        self._left = list(messages)
        self._next_tag = 0
        self._begin()

    def _begin(self) -> None:
        self._decoder = FrameDecoder(self._frame_bytes)
        self._has_header = False
        self._credit = 0
        self._count = 0
        self._next_id = 0
        self._ids: dict[int, bytes] = {}
        self._again: list[bytes] = []
        self._current: tuple[bytes, int, bytes] | None = None
        self._frames_in = self._frames_out = self._frames_allowed = 0
        self._frames: list[bytes] = []
        self.is_incomplete = False

    def connect(self) -> None:
        """Write all that needs no answer; nothing of an earlier connection is left."""
        self._begin()
        self.out = AMQP_HEADER.encoded()
        self._say(Open("client", max_frame_size=self._frame_bytes))
        self._say(Begin(next_outgoing_id=0, incoming_window=999, outgoing_window=999))
        self._attach()

    @property
    def is_done(self) -> bool:
        """True if nothing is left to send, and nothing unsettled."""
        return not (self._left or self.unsettled)

    def add(self, messages: list[bytes]) -> None:
        """More to send."""
        self._left += messages

    def attach_again(self) -> None:
        """Detach and attach once more, as after an incomplete map."""
        self._say(Detach(0, closed=False))
        self._credit = self._count = 0
        self._again.clear()
        self._attach()

    def _attach(self) -> None:
        attach = Attach(
            "link",
            0,
            self.is_receiver,
            rcv_settle_mode=self._mode,
            source=Source("q", durable=2, expiry_policy="never"),
            target=Target("q", durable=2, expiry_policy="never"),
            unsettled=self.unsettled or None,
            initial_delivery_count=None if self.is_receiver else 0,
        )
        self._say(attach)

    def receive(self, encoded: bytes) -> None:
        self._decoder.feed(encoded)
        if not self._has_header:
            if self._decoder.next_header() is None:
                return
            self._has_header = True
        while (frame := self._decoder.next_frame()) is not None:
            performative, at = read_performative(frame.encoded, frame.start, frame.end)
            self._on(performative, frame.encoded[at : frame.end])

    def _on(self, performative: Any, payload: bytes) -> None:
        match performative:
            case Begin():
                self._allow(performative.incoming_window)
            case Attach():
                self._attached(performative)
            case Flow():
                self._flow(performative)
            case Transfer():
                self._frames_in += 1
                self._transfer(performative, payload)
            case Disposition():
                self._disposition(performative)
            case Detach() | End() | Close():
                assert performative.error is None, performative

    def _put(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._allow(self._frames_allowed)

    def _allow(self, count: int) -> None:
        """So many transfer frames may go since the session began."""
        self._frames_allowed = count
        while self._frames and self._frames_out < count:
            self.out += self._frames.pop(0)
            self._frames_out += 1

    def _attached(self, attach: Attach) -> None:
        theirs = attach.unsettled or {}
        self.is_incomplete = attach.incomplete_unsettled
        self.incomplete_count += attach.incomplete_unsettled
        decided = decide(
            is_receiver=self.is_receiver,
            ours=self.unsettled,
            theirs=theirs,
            is_complete=not attach.incomplete_unsettled,
        )
        for tag, step in decided.items():
            if step is ResumptionStep.FORGET:
                del self.unsettled[tag]
            elif step is ResumptionStep.SEND_AGAIN:
                self._again.append(tag)
            elif step is ResumptionStep.RESUME:
                self._write_transfer(tag, is_resumed=True)
            elif step is ResumptionStep.SETTLE:
                self._told(tag)
                self._settle_earlier(tag, theirs[tag])
            else:
                assert step in {ResumptionStep.KEEP, ResumptionStep.IGNORE}, step
        if self.is_receiver:
            self._give()

    def _settle_earlier(self, tag: bytes, state: Any) -> None:
        head = Transfer(0, self._take_id(tag), tag, 0, settled=True, resume=True, state=state)
        self._put(transfer_frame(0, head, 0))

    # As a sender.

    def _flow(self, flow: Flow) -> None:
        self._allow((flow.next_incoming_id or 0) + flow.incoming_window)
        if self.is_receiver or flow.handle is None:
            return
        seen = flow.delivery_count or 0
        self._credit = max(0, seen + (flow.link_credit or 0) - self._count)
        if flow.echo:
            self._say(self._flow_frame(self._credit))
        if self.is_incomplete:
            return
        while self._credit and self._again:
            self._start(self._again.pop(0))
        while self._credit and self._left:
            tag = b"%d" % self._next_tag
            self._next_tag += 1
            self.payloads[tag] = self._left.pop(0)
            self._start(tag)

    def _start(self, tag: bytes) -> None:
        self._credit -= 1
        self._count += 1
        self.unsettled[tag] = None
        self._write_transfer(tag, is_resumed=False)

    def _write_transfer(self, tag: bytes, *, is_resumed: bool) -> None:
        payload, size = self.payloads[tag], self._frame_bytes // 2
        head = Transfer(0, self._take_id(tag), tag, 0, resume=is_resumed)
        while True:
            piece, payload = payload[:size], payload[size:]
            head.more = bool(payload)
            self._put(transfer_frame(0, head, len(piece)) + piece)
            if not payload:
                return
            head = Transfer(0)

    def _take_id(self, tag: bytes) -> int:
        self._next_id += 1
        self._ids[self._next_id - 1] = tag
        return self._next_id - 1

    def _disposition(self, disposition: Disposition) -> None:
        last = disposition.first if disposition.last is None else disposition.last
        for delivery_id in range(disposition.first, last + 1):
            self._disposed(delivery_id, disposition)

    def _disposed(self, delivery_id: int, disposition: Disposition) -> None:
        tag = self._ids.get(delivery_id)
        if tag is None or tag not in self.unsettled:
            return
        if self.is_receiver:
            if disposition.settled:
                del self.unsettled[tag]
        elif is_outcome(disposition.state):
            self._told(tag)
            if not disposition.settled:
                self._say(
                    Disposition(
                        role=False, first=delivery_id, settled=True, state=disposition.state
                    )
                )

    def _told(self, tag: bytes) -> None:
        """An outcome came for what we sent."""
        del self.unsettled[tag]
        message = self.payloads.pop(tag)
        self.outcomes[message] = self.outcomes.get(message, 0) + 1

    # As a receiver.

    def _give(self) -> None:
        self._credit = self._full_credit
        self._say(self._flow_frame(self._credit))

    def _transfer(self, transfer: Transfer, payload: bytes) -> None:
        if self._current is None:
            assert transfer.delivery_id is not None
            assert transfer.delivery_tag is not None
            tag = transfer.delivery_tag
            self._ids[transfer.delivery_id] = tag
            self._current = (tag, transfer.delivery_id, b"")
            if not (transfer.resume and is_outcome(self.unsettled.get(tag))):
                self._credit -= 1
                self._count += 1
        tag, delivery_id, gathered = self._current
        self._current = (tag, delivery_id, gathered + payload)
        if transfer.more:
            return
        self._current = None
        if not is_outcome(self.unsettled.get(tag)):
            self._take(tag, delivery_id, gathered + payload)
        if self._credit < self._full_credit // 2:
            self._give()

    def _take(self, tag: bytes, delivery_id: int, message: bytes) -> None:
        self.taken.append(message)
        is_first = self._mode is ReceiverSettleMode.FIRST
        if not is_first:
            self.unsettled[tag] = Accepted()
        self._say(Disposition(role=True, first=delivery_id, settled=is_first, state=Accepted()))

    def _flow_frame(self, credit: int) -> Flow:
        return Flow(
            next_incoming_id=self._frames_in,
            incoming_window=999,
            next_outgoing_id=self._frames_out,
            outgoing_window=999,
            handle=0,
            delivery_count=self._count,
            link_credit=credit,
        )

    def _say(self, performative: Composite) -> None:
        self.out += encoded_frame(performative)


class BrokerEnd(Protocol):
    """What a line leads to."""

    @property
    def writes(self) -> list[Write]:
        """What the store has taken, and the broker does not know as done."""

    def connect(self, *, is_killed: bool) -> None:
        """A new connection; the last one was lost, or the broker was killed."""

    def receive(self, encoded: bytes) -> None:
        """Bytes of the client's."""

    def output(self) -> bytes:
        """Bytes for the client."""


class Line:
    """Carries bytes both ways, until it is cut."""

    def __init__(self, client: Client, broker: BrokerEnd) -> None:
        self.client = client
        self.broker = broker
        self.to_client = b""

    def connect(self, *, is_killed: bool = False) -> None:
        """A connection, after the one before was cut; its bytes on the way are lost."""
        self.to_client = b""
        self.broker.connect(is_killed=is_killed)
        self.client.connect()

    def carry_up(self, count: int) -> int:
        """So many bytes of the client's at most; how many there were."""
        carried, self.client.out = self.client.out[:count], self.client.out[count:]
        if carried:
            self.broker.receive(carried)
        return len(carried)

    def carry_down(self, count: int) -> int:
        """So many bytes of the broker's at most; how many there were."""
        self.to_client += self.broker.output()
        carried, self.to_client = self.to_client[:count], self.to_client[count:]
        if carried:
            self.client.receive(carried)
        return len(carried)

    def finish(self) -> None:
        """Carry until nothing moves, and attach again as often as maps were incomplete."""
        self.settle()
        while self.client.is_incomplete:
            self.client.attach_again()
            self.settle()

    def settle(self, count: int | None = None) -> int:
        """Carry until nothing moves, or `count` bytes went; how many did."""
        most = 1 << 30 if count is None else count
        went = 0
        while went < most:
            moved = self.carry_up(most - went)
            moved += self.carry_down(most - went - moved)
            went += moved
            if not moved:
                if not self.broker.writes:
                    break
                self.broker.writes.pop(0)()
        return went
