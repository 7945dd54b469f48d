"""Our AMQP 1.0 machine and proton's engine in random conversations: nothing is lost or reordered.

Frames of 512 bytes and a session window of 8 of them, so that every message meets every limit.
We never take credit back here: proton 0.40 counts what it has left without a sign, so a delivery
that crosses our flow leaves it with 2³² - 1 and it sends on, without credit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Delivery

from broker_shim.amqp_1_0.composites import Accepted, Received
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.peer_settings import Settings
from tests.support.amqp.amqp_1_0 import ProtonClient

SETTINGS = Settings("ours", max_frame_bytes=512, session_window=8, requires_sasl=False)


class Conversation:
    """One link each way; what each side sent, and what the other has of it."""

    def __init__(self) -> None:
        self.client = ProtonClient(SETTINGS, max_frame_bytes=512)
        session, _ = self.client.begun(incoming_capacity=4 * 512)
        self.to_us, self.our_receiver = self._attached(session.sender("to-us"))
        self.to_them, self.our_sender = self._attached(session.receiver("to-them"))
        self.they_sent: list[bytes] = []
        self.we_received: list[bytes] = []
        self.we_sent: list[bytes] = []
        self.they_received: list[bytes] = []
        self._pieces: list[bytes] = []
        self._to_settle: list[Any] = []
        self._their_deliveries: list[Any] = []
        self._their_sent: list[Any] = []
        self._their_pieces: list[bytes] = []
        self._number = 0

    def _attached(self, theirs: Any) -> tuple[Any, Any]:
        theirs.source.address = theirs.target.address = "q"
        theirs.open()
        self.client.exchange()
        ours: Any = self.client.take(events.LinkAttached).link
        ours.attach(source=ours.remote.source, target=ours.remote.target)
        self.client.exchange()
        return theirs, ours

    def message(self, size: int) -> bytes:
        self._number += 1
        return (b"%d:" % self._number).ljust(size, b".")

    # What may happen, in any order. Nothing moves between the sides but by `exchange`.

    def they_send(self, size: int) -> None:
        body = self.message(size)
        self._their_sent.append(self.to_us.delivery(b"%d" % self._number))
        self.to_us.send(body)
        self.to_us.advance()
        self.they_sent.append(body)

    def we_give_credit(self, count: int) -> None:
        self.our_receiver.flow(max(count, self.our_receiver.credit))

    def we_drain(self, count: int) -> None:
        self.our_receiver.flow(max(count, self.our_receiver.credit), drain=True)

    def we_accept(self, count: int) -> None:
        for _ in range(min(count, len(self._to_settle))):
            self._to_settle.pop(count % len(self._to_settle)).dispose(Accepted())

    def we_say_more(self, count: int) -> None:
        for delivery in self._to_settle[:count]:
            delivery.dispose(Received(0, count), settled=False)

    def we_send(self, size: int) -> None:
        if self.our_sender.credit:
            body = self.message(size)
            half = size // 2
            tag = b"%d" % self._number
            self.our_sender.transfer(tag, [body[:half]], more=True)
            self.our_sender.transfer_more([memoryview(body)[half:]])
            self.we_sent.append(body)

    def we_abort(self, size: int) -> None:
        if self.our_sender.credit:
            self.our_sender.transfer(b"aborted", [bytes(size)], more=True)
            self.our_sender.abort()

    def they_give_credit(self, count: int) -> None:
        self.to_them.flow(count)

    def they_drain(self, count: int) -> None:
        self.to_them.drain(count)

    def they_accept(self, count: int) -> None:
        for _ in range(min(count, len(self._their_deliveries))):
            delivery = self._their_deliveries.pop(count % len(self._their_deliveries))
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()

    def exchange(self, _count: int = 0) -> None:
        self.client.exchange()
        self._hear()
        self._they_hear()
        if self.our_sender.is_draining:
            self.our_sender.drained()
        self.client.exchange()
        self._hear()
        self._they_hear()

    def _hear(self) -> None:
        for event in self.client.events:
            match event:
                case events.TransferPiece(delivery, payload, is_last):
                    self._pieces.append(payload)
                    if is_last:
                        self.we_received.append(b"".join(self._pieces))
                        self._pieces.clear()
                        self._to_settle.append(delivery)
                case events.DispositionReceived() | events.FlowReceived():
                    pass
                case _:
                    raise AssertionError(event)
        self.client.events.clear()

    def _they_hear(self) -> None:
        assert self.to_them.credit >= 0
        if self.to_us.drain_mode:
            self.to_us.drained()
        while (delivery := self.to_them.current) is not None:
            if delivery.aborted:
                self._their_pieces.clear()
                self.to_them.advance()
                delivery.settle()
                continue
            if delivery.pending:
                self._their_pieces.append(bytes(self.to_them.recv(delivery.pending)))
            if delivery.partial:
                break
            self.they_received.append(b"".join(self._their_pieces))
            self._their_pieces.clear()
            self._their_deliveries.append(delivery)
            self.to_them.advance()
        for each in [each for each in self._their_sent if each.settled]:
            each.settle()
            self._their_sent.remove(each)

    def finish(self) -> None:
        """Enough credit for all, and everything accepted."""
        self.exchange()
        self.we_give_credit(100)
        self.they_give_credit(100)
        for _ in range(200):
            self.exchange()
            self.we_accept(100)
            self.they_accept(100)
            is_done = self.we_received == self.they_sent and self.they_received == self.we_sent
            if is_done and not self._their_sent and not self.our_sender.unsettled:
                break


STEPS: list[Callable[[Conversation, int], None]] = [
    Conversation.they_send,
    Conversation.we_give_credit,
    Conversation.we_drain,
    Conversation.we_accept,
    Conversation.we_say_more,
    Conversation.we_send,
    Conversation.we_abort,
    Conversation.they_give_credit,
    Conversation.they_drain,
    Conversation.they_accept,
    Conversation.exchange,
]


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*STEPS, Conversation.exchange, Conversation.exchange]),
            st.integers(0, 6) | st.integers(400, 3_000),
        ),
        min_size=30,
        max_size=80,
    )
)
def test_what_either_side_sends_comes_whole_in_order_and_is_settled(
    steps: list[tuple[Callable[[Conversation, int], None], int]],
) -> None:
    conversation = Conversation()
    for step, number in steps:
        step(conversation, number)
    conversation.finish()
    assert conversation.client.transport.condition is None
    assert not conversation.client.peer.is_over
    assert conversation.we_received == conversation.they_sent
    assert conversation.they_received == conversation.we_sent
    assert conversation.our_receiver.unsettled == {}
    assert conversation.our_sender.unsettled == {}
