"""Our AMQP 1.0 machine and proton's engine, wired back to back in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from proton import Delivery, Endpoint, Link, Message

from broker_shim.amqp_1_0.composites import Accepted, Error, Modified, Rejected, Released
from broker_shim.amqp_1_0.definitions import SenderSettleMode
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.peer_settings import Settings
from tests.support.amqp.amqp_1_0 import SETTINGS, ProtonClient

MEGABYTE = bytes(range(256)) * 4_096


def whole(encoded: bytes) -> Iterable[bytes]:
    return [encoded]


def by_7(encoded: bytes) -> Iterable[bytes]:
    return [encoded[at : at + 7] for at in range(0, len(encoded), 7)]


def attached(client: ProtonClient, theirs: Any, **fields: Any) -> tuple[Any, Any]:
    """Proton's link opened and answered; both ends."""
    theirs.open()
    client.exchange()
    ours: Any = client.take(events.LinkAttached).link
    ours.attach(source=ours.remote.source, target=ours.remote.target, **fields)
    client.exchange()
    assert theirs.state & Endpoint.REMOTE_ACTIVE
    return theirs, ours


def sender(client: ProtonClient, session: Any, credit: int = 10, **fields: Any) -> tuple[Any, Any]:
    """Proton sends, we receive."""
    theirs = session.sender("to-us")
    theirs.source.address, theirs.target.address = "here", "q"
    for name, value in fields.items():
        setattr(theirs, name, value)
    theirs, ours = attached(client, theirs)
    if credit:
        ours.flow(credit)
        client.exchange()
        assert theirs.credit == credit
    return theirs, ours


def receiver(
    client: ProtonClient, session: Any, credit: int = 10, **fields: Any
) -> tuple[Any, Any]:
    """Proton receives, we send."""
    theirs = session.receiver("from-us")
    theirs.source.address = "q"
    for name, value in fields.items():
        setattr(theirs, name, value)
    theirs, ours = attached(client, theirs)
    if credit:
        theirs.flow(credit)
        client.exchange()
        client.take(events.FlowReceived)
        assert ours.credit == credit
    return theirs, ours


def no_complaint(client: ProtonClient) -> None:
    assert client.transport.condition is None
    assert not any(
        isinstance(each, events.LinkFailed | events.SessionFailed | events.ConnectionFailed)
        for each in client.events
    )


@pytest.mark.parametrize("cut", [whole, by_7])
@pytest.mark.parametrize("requires_sasl", [True, False])
def test_a_connection_lives_from_header_to_close(
    cut: Callable[[bytes], Iterable[bytes]], *, requires_sasl: bool
) -> None:
    client = ProtonClient(Settings("ours", requires_sasl=requires_sasl), cut=cut)
    theirs, ours = client.begun()
    assert client.connection.remote_container == "ours"
    assert client.peer.remote is not None
    assert client.peer.remote.container_id == "proton"
    theirs.close()
    client.exchange()
    client.take(events.SessionEnded)
    ours.end()
    client.connection.close()
    client.exchange()
    client.take(events.ConnectionClosed)
    client.peer.close()
    client.exchange()
    assert client.connection.state & Endpoint.REMOTE_CLOSED
    assert theirs.state & Endpoint.REMOTE_CLOSED
    assert client.peer.is_over
    no_complaint(client)


@pytest.mark.parametrize("cut", [whole, by_7])
def test_messages_from_proton_come_as_proton_encoded_them(
    cut: Callable[[bytes], Iterable[bytes]],
) -> None:
    client = ProtonClient(cut=cut)
    theirs, _ = sender(client, client.begun()[0])
    encoded = [Message(body=f"m{number}", properties={"n": number}).encode() for number in range(3)]
    sent = []
    for number, each in enumerate(encoded):
        sent.append(theirs.delivery(b"%d" % number))
        theirs.send(each)
        theirs.advance()
    client.exchange()
    pieces = [client.take(events.TransferPiece) for _ in range(3)]
    assert [each.payload for each in pieces] == encoded
    assert [each.delivery.tag for each in pieces] == [b"0", b"1", b"2"]
    for each in pieces:
        each.delivery.dispose(Accepted())
    client.exchange()
    assert all(each.settled and each.remote_state == Delivery.ACCEPTED for each in sent)
    no_complaint(client)


@pytest.mark.parametrize(
    ("state", "theirs"),
    [
        (Accepted(), Delivery.ACCEPTED),
        (Rejected(Error("amqp:not-found", "no q")), Delivery.REJECTED),
        (Released(), Delivery.RELEASED),
        (Modified(delivery_failed=True, undeliverable_here=True), Delivery.MODIFIED),
    ],
)
def test_outcomes_mean_the_same_on_both_sides(state: Any, theirs: Any) -> None:
    client = ProtonClient()
    session, _ = client.begun()
    to_us, _ = sender(client, session)
    sent = to_us.delivery(b"a")
    to_us.send(b"x")
    to_us.advance()
    client.exchange()
    client.take(events.TransferPiece).delivery.dispose(state)
    client.exchange()
    assert (sent.remote_state, sent.settled) == (theirs, True)

    from_us, ours = receiver(client, session)
    delivery = ours.transfer(b"b", [b"y"])
    client.exchange()
    received = from_us.current
    assert from_us.recv(10) == b"y"
    from_us.advance()
    if isinstance(state, Rejected):
        received.local.condition = None
    if isinstance(state, Modified):
        received.local.failed = received.local.undeliverable = True
    received.update(theirs)
    received.settle()
    client.exchange()
    told = client.take(events.DispositionReceived)
    assert told.deliveries == (delivery,)
    assert type(told.state) is type(state)
    if isinstance(state, Modified):
        assert told.state == state
    no_complaint(client)


def test_a_megabyte_comes_in_many_frames_and_leaves_in_many() -> None:
    client = ProtonClient(
        Settings("ours", max_frame_bytes=4_096, requires_sasl=False), max_frame_bytes=2_048
    )
    session, _ = client.begun()
    theirs, _ = sender(client, session)
    theirs.delivery(b"big")
    theirs.send(MEGABYTE)
    theirs.advance()
    client.exchange()
    pieces = [each for each in client.events if isinstance(each, events.TransferPiece)]
    client.events.clear()
    assert len(pieces) > 256
    assert b"".join(each.payload for each in pieces) == MEGABYTE
    assert [each.is_last for each in pieces] == [False] * (len(pieces) - 1) + [True]
    pieces[-1].delivery.dispose(Accepted())

    back, ours = receiver(client, session)
    ours.transfer(b"big", [MEGABYTE[:100], MEGABYTE[100:]])
    client.exchange()
    assert not back.current.partial
    assert back.recv(2 << 20) == MEGABYTE
    no_complaint(client)


def test_many_deliveries_are_settled_in_ranges_that_proton_understands() -> None:
    client = ProtonClient()
    theirs, ours = sender(client, client.begun()[0], credit=200)
    sent = []
    for number in range(200):
        sent.append(theirs.delivery(b"%d" % number))
        theirs.send(b"x")
        theirs.advance()
    client.exchange()
    deliveries = [client.take(events.TransferPiece).delivery for _ in range(200)]
    for delivery in deliveries[::2] + deliveries[1::2]:
        delivery.dispose(Accepted())
    written = b"".join(client.peer.data_to_send(now_s=0.0))
    assert len(written) < 50
    client.transport.push(written)
    assert all(each.settled and each.remote_state == Delivery.ACCEPTED for each in sent)
    assert ours.unsettled == {}
    no_complaint(client)


def test_proton_settles_ours_in_any_order() -> None:
    client = ProtonClient()
    theirs, ours = receiver(client, client.begun()[0], credit=50)
    sent = [ours.transfer(b"%d" % number, [b"%d" % number]) for number in range(50)]
    client.exchange()
    received = []
    for number in range(50):
        received.append(theirs.current)
        assert theirs.recv(10) == b"%d" % number
        theirs.advance()
    for each in received[::-1]:
        each.update(Delivery.ACCEPTED)
        each.settle()
    client.exchange()
    settled = [each for told in client.events for each in told.deliveries]  # type: ignore[union-attr]
    assert set(settled) == set(sent)
    assert ours.unsettled == {}
    no_complaint(client)


def test_credit_runs_out_and_comes_again() -> None:
    client = ProtonClient()
    theirs, ours = sender(client, client.begun()[0], credit=2)
    for number in range(5):
        theirs.delivery(b"%d" % number)
        theirs.send(b"x")
        theirs.advance()
    client.exchange()
    assert len(client.events) == 2
    assert ours.credit == 0
    ours.flow(10)
    client.exchange()
    assert len(client.events) == 5
    assert ours.credit == theirs.credit == 7
    no_complaint(client)


def test_we_drain_proton() -> None:
    client = ProtonClient()
    theirs, ours = sender(client, client.begun()[0], credit=0)
    ours.flow(10, drain=True)
    client.exchange()
    theirs.delivery(b"1")
    theirs.send(b"x")
    theirs.advance()
    theirs.drained()
    client.exchange()
    assert [type(each) for each in client.events] == [events.TransferPiece, events.FlowReceived]
    assert (ours.credit, ours.is_draining) == (0, False)
    ours.flow(3)
    client.exchange()
    assert theirs.credit == 3
    no_complaint(client)


def test_proton_drains_us() -> None:
    client = ProtonClient()
    theirs, ours = receiver(client, client.begun()[0], credit=0)
    theirs.drain(10)
    client.exchange()
    client.take(events.FlowReceived)
    assert ours.is_draining
    ours.transfer(b"1", [b"x"])
    ours.drained()
    client.exchange()
    assert theirs.recv(10) == b"x"
    assert theirs.credit - theirs.queued == 0
    assert not theirs.draining()
    theirs.advance()
    theirs.flow(2)
    client.exchange()
    assert ours.credit == 2
    no_complaint(client)


@pytest.mark.parametrize(
    ("mode", "settled"), [(Link.SND_SETTLED, True), (Link.SND_UNSETTLED, False)]
)
def test_settle_modes_of_the_sender_are_granted_and_kept(mode: int, *, settled: bool) -> None:
    client = ProtonClient()
    session, _ = client.begun()
    theirs, _ = sender(client, session, snd_settle_mode=mode)
    assert theirs.remote_snd_settle_mode == mode
    sent = theirs.delivery(b"1")
    theirs.send(b"x")
    if settled:
        sent.settle()
    theirs.advance()
    client.exchange()
    assert client.take(events.TransferPiece).delivery.is_settled is settled

    back, out = receiver(client, session, snd_settle_mode=mode)
    assert out.snd_settle_mode == SenderSettleMode(mode)
    out.transfer(b"1", [b"y"], settled=settled)
    client.exchange()
    assert back.current.settled is settled
    no_complaint(client)


def test_second_receiver_settle_mode_settles_in_three_steps() -> None:
    client = ProtonClient()
    session, _ = client.begun()
    theirs, ours = receiver(client, session, rcv_settle_mode=Link.RCV_SECOND)
    delivery = ours.transfer(b"1", [b"x"])
    client.exchange()
    received = theirs.current
    received.update(Delivery.ACCEPTED)
    client.exchange()
    told = client.take(events.DispositionReceived)
    assert (told.is_settled, delivery.is_settled) == (False, False)
    delivery.dispose(Accepted())
    client.exchange()
    assert received.settled
    received.settle()
    client.exchange()
    assert client.events == []
    no_complaint(client)


def test_a_delivery_that_proton_aborts_is_forgotten() -> None:
    client = ProtonClient(Settings("ours", max_frame_bytes=512, requires_sasl=False))
    theirs, ours = sender(client, client.begun()[0])
    sent = theirs.delivery(b"1")
    theirs.send(b"x" * 2_000)
    client.exchange()
    sent.abort()
    client.exchange()
    assert isinstance(client.events[0], events.TransferPiece)
    assert isinstance(client.events[-1], events.DeliveryAborted)
    assert ours.unsettled == {}
    theirs.delivery(b"2")
    theirs.send(b"y")
    theirs.advance()
    client.exchange()
    assert client.events[-1].payload == b"y"  # type: ignore[union-attr]
    no_complaint(client)


def test_proton_forgets_a_delivery_that_we_abort() -> None:
    client = ProtonClient()
    theirs, ours = receiver(client, client.begun()[0])
    ours.transfer(b"1", [b"half"], more=True)
    client.exchange()
    assert theirs.current.partial
    ours.abort()
    client.exchange()
    assert theirs.current.aborted
    theirs.current.settle()
    ours.transfer(b"2", [b"whole"])
    client.exchange()
    assert theirs.recv(10) == b"whole"
    no_complaint(client)


def test_links_are_detached_closed_and_refused() -> None:
    client = ProtonClient()
    session, _ = client.begun()
    theirs, ours = sender(client, session)
    theirs.close()
    client.exchange()
    told = client.take(events.LinkDetached)
    assert (told.link, told.is_closed) == (ours, True)
    ours.detach()
    client.exchange()
    assert theirs.state & Endpoint.REMOTE_CLOSED

    back, out = receiver(client, session)
    out.detach(error=Error("amqp:resource-deleted", "gone"))
    client.exchange()
    assert back.remote_condition.name == "amqp:resource-deleted"
    back.close()
    client.exchange()
    assert client.take(events.LinkDetached).link.is_over

    refused = session.receiver("no")
    refused.open()
    client.exchange()
    client.take(events.LinkAttached).link.refuse(Error("amqp:not-found", "no q"))
    client.exchange()
    assert refused.remote_source.address is None
    assert refused.remote_condition.description == "no q"
    no_complaint(client)


def test_errors_of_sessions_and_connections_are_told() -> None:
    client = ProtonClient()
    theirs, ours = client.begun()
    ours.end(Error("amqp:resource-limit-exceeded", "enough"))
    client.exchange()
    assert theirs.remote_condition.name == "amqp:resource-limit-exceeded"
    client.peer.close(Error("amqp:connection:forced", "we stop"))
    client.exchange()
    assert client.connection.remote_condition.description == "we stop"


def test_a_message_beyond_what_we_granted_is_refused_while_it_comes() -> None:
    client = ProtonClient(Settings("ours", max_frame_bytes=4_096, requires_sasl=False))
    session, _ = client.begun()
    theirs = session.sender("s")
    theirs.target.address = "q"
    theirs, ours = attached(client, theirs, max_message_size=10_000)
    ours.flow(5)
    client.exchange()
    assert theirs.remote_max_message_size == 10_000
    theirs.delivery(b"1")
    theirs.send(MEGABYTE)
    theirs.advance()
    client.exchange()
    pieces = [each for each in client.events if isinstance(each, events.TransferPiece)]
    assert sum(len(each.payload) for each in pieces) <= 10_000
    assert theirs.remote_condition.name == "amqp:link:message-size-exceeded"
    assert theirs.session.state & Endpoint.REMOTE_ACTIVE


def test_both_beat_for_each_other() -> None:
    client = ProtonClient(Settings("ours", idle_timeout_s=4.0, requires_sasl=False))
    client.transport.idle_timeout = 2.0
    client.begun()
    client.transport.tick(100.0)
    client.exchange()
    now_s = 0.0
    for now_s in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        client.peer.tick(now_s=now_s)
        beat = b"".join(client.peer.data_to_send(now_s=now_s))
        assert beat
        client.transport.push(beat)
        client.transport.tick(100.0 + now_s)
        pending = client.transport.pending()
        if pending > 0:
            client.peer.receive_data(bytes(client.transport.peek(pending)), now_s=now_s)
            client.transport.pop(pending)
    assert not client.peer.is_over
    no_complaint(client)
    client.transport.tick(109.0)
    client.peer.tick(now_s=now_s + 4.1)
    assert client.peer.is_over


def test_many_sessions_and_links_do_not_get_in_each_others_way() -> None:
    client = ProtonClient()
    sessions = [client.begun()[0]]
    for _ in range(SETTINGS.max_sessions - 1):
        session = client.connection.session()
        session.open()
        client.exchange()
        client.take(events.SessionBegun).session.begin()
        sessions.append(session)
    links = []
    for session in sessions:
        for number in range(4):
            link = session.sender(f"s{number}")
            link.target.address = "q"
            theirs, ours = attached(client, link)
            ours.flow(3)
            links.append((theirs, ours))
    client.exchange()
    for number, (theirs, _) in enumerate(links):
        theirs.delivery(b"t")
        theirs.send(b"%d" % number)
        theirs.advance()
    client.exchange()
    came = {
        each.payload: each.delivery.link
        for each in client.events
        if isinstance(each, events.TransferPiece)
    }
    assert came == {b"%d" % number: ours for number, (_, ours) in enumerate(links)}
    assert all(a != b for a, b in pairwise(came.values()))
    no_complaint(client)
