"""Links of our AMQP 1.0 machine: credit, deliveries in pieces, settlement, and what ends them."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    End,
    Error,
    Received,
    Rejected,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.definitions import ReceiverSettleMode, SenderSettleMode
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.codec.errors import InvalidCommand
from broker_shim.protocol_1_0.peer_settings import Settings
from tests.support.amqp.amqp_1_0 import Client, attach, flow, server

THEY_RECEIVE, THEY_SEND = True, False


@pytest.fixture
def client() -> Client:
    client = Client(server()).opened()
    client.begun()
    client.read()
    return client


def first(delivery_id: int = 0, *, handle: int = 0, **fields: Any) -> Transfer:
    return Transfer(handle, delivery_id, b"tag-%d" % delivery_id, 0, **fields)


def failed(client: Client, condition: str) -> None:
    """The link was detached for this, and the session lives on."""
    event = client.events.pop()
    assert isinstance(event, events.LinkFailed), event
    assert event.error.condition == condition
    assert client.performatives()[-1] == Detach(event.link.handle, closed=True, error=event.error)
    assert event.link.is_gone
    assert not client.peer.sessions[0].is_gone


# ---------------------------------------------------------------------------------- attach, detach


def test_an_attach_is_answered_with_what_is_granted(client: Client) -> None:
    client.send(attach(5, snd_settle_mode=0, rcv_settle_mode=1, unsettled={b"t": Accepted()}))
    link = client.take(events.LinkAttached).link
    assert link.remote.unsettled == {b"t": Accepted()}
    link.attach(target=Target("q", durable=1), max_message_size=100, unsettled={b"t": None})  # type: ignore[call-arg]
    (told,) = client.performatives()
    assert told == Attach(
        "link-5",
        0,
        THEY_RECEIVE,
        0,
        1,
        None,
        Target("q", durable=1),
        unsettled={b"t": None},
        max_message_size=100,
    )


def test_a_refused_link_is_attached_without_a_terminus_and_detached(client: Client) -> None:
    client.send(attach(0, is_receiver=True))
    client.take(events.LinkAttached).link.refuse(Error("amqp:not-found", "no q"))
    told = client.performatives()
    assert told == [
        Attach("link-0", 0, THEY_SEND, initial_delivery_count=0),
        Detach(0, closed=True, error=Error("amqp:not-found", "no q")),
    ]


@pytest.mark.parametrize(
    "wrong",
    [{"source": None, "target": None}, {"initial_delivery_count": None}],
    ids=["no terminus", "no count"],
)
def test_an_attach_that_makes_no_link_is_refused_by_itself(
    client: Client, wrong: dict[str, Any]
) -> None:
    client.send(attach(0, **wrong))
    failed(client, "amqp:invalid-field")


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_frees_the_handle_and_is_answered(client: Client, *, closed: bool) -> None:
    link = client.sending(3)
    client.send(Detach(3, closed=closed, error=Error("x")))
    assert client.take(events.LinkDetached) == events.LinkDetached(link, closed, Error("x"))
    assert not link.is_over
    link.detach(closed=closed)
    assert link.is_over
    assert client.performatives() == [Detach(0, closed=closed)]
    again = client.sending(3)
    assert again.handle == 0


def test_a_second_detach_ends_nothing(client: Client) -> None:
    """fe2o3-amqp answers a refused attach with two; its handle may be used again."""
    client.send(attach(0), Detach(0), Detach(0, closed=True), attach(0))
    client.take(events.LinkAttached)
    client.take(events.LinkDetached)
    assert not client.take(events.LinkAttached).link.is_gone
    assert client.events == []


def test_a_handle_of_the_peer_may_be_used_again_before_we_answered(client: Client) -> None:
    old = client.sending(3)
    client.send(Detach(3))
    client.take(events.LinkDetached)
    new = client.sending(3)
    assert (old.handle, new.handle) == (0, 1)
    old.detach()
    assert not new.is_gone


def test_a_link_that_was_detached_before_it_was_answered_is_answered_twice(client: Client) -> None:
    client.send(attach(0), Detach(0))
    client.take(events.LinkAttached).link.detach()
    assert [type(each) for each in client.performatives()] == [Attach, Detach]


def test_commands_out_of_turn_are_refused(client: Client) -> None:
    client.send(attach(0), attach(1, is_receiver=True))
    receiver, sender = client.take(events.LinkAttached).link, client.take(events.LinkAttached).link
    for command in (
        lambda: receiver.flow(1),  # type: ignore[union-attr]
        lambda: sender.transfer(b"", []),  # type: ignore[union-attr]
        receiver.detach,
    ):
        with pytest.raises(InvalidCommand, match="begun by the peer"):
            command()
    receiver.attach()
    with pytest.raises(InvalidCommand, match="cannot answer"):
        receiver.attach()
    receiver.detach()
    with pytest.raises(InvalidCommand, match="ended by us"):
        receiver.detach()


def test_a_link_of_mode_first_takes_no_delivery_of_mode_second(client: Client) -> None:
    client.sending(credit=1)
    client.transfer(first(0, rcv_settle_mode=1), b"x")
    failed(client, "amqp:invalid-field")


@pytest.mark.parametrize("ours", [True, False])
def test_nothing_is_heard_of_deliveries_of_a_link_that_ended(client: Client, *, ours: bool) -> None:
    link = client.receiving()
    delivery = link.transfer(b"t", [b"x"])
    client.read()
    if ours:
        link.detach()
    else:
        client.send(Detach(0))
        client.take(events.LinkDetached)
    client.send(Disposition(THEY_RECEIVE, 0, settled=True, state=Accepted()))
    assert client.events == []
    assert link.unsettled == {b"t": delivery}
    assert not delivery.is_settled


# ----------------------------------------------------------------------------------- we receive


def test_a_message_comes_as_one_piece_and_is_settled(client: Client) -> None:
    link = client.sending()
    client.transfer(first(0, settled=False), b"hello")
    piece = client.take(events.TransferPiece)
    delivery = piece.delivery
    assert (piece.payload, piece.is_last, delivery.tag) == (b"hello", True, b"tag-0")
    assert link.unsettled == {b"tag-0": delivery.run}
    assert link.credit == 9
    delivery.dispose(Accepted())
    assert client.performatives() == [
        Disposition(THEY_RECEIVE, 0, None, settled=True, state=Accepted())
    ]
    assert link.unsettled == {}
    delivery.dispose(Rejected())
    assert client.performatives() == []


def test_a_message_comes_in_pieces_as_they_come(client: Client) -> None:
    client.sending()
    client.transfer(first(0, more=True), b"a")
    client.transfer(Transfer(0, more=True), b"")
    client.transfer(Transfer(0, 0, b"tag-0", settled=True), b"b")
    pieces = [client.take(events.TransferPiece) for _ in range(3)]
    assert [(each.payload, each.is_last) for each in pieces] == [
        (b"a", False),
        (b"", False),
        (b"b", True),
    ]
    assert len({each.delivery for each in pieces}) == 1
    assert pieces[0].delivery.is_settled  # said with the last frame (2.7.5)
    assert pieces[0].delivery.run.byte_count == 2


def test_many_settled_one_by_one_are_told_in_ranges(client: Client) -> None:
    client.sending(credit=10)
    for number in range(6):
        client.transfer(first(number), b"x")
    deliveries = [client.take(events.TransferPiece).delivery for _ in range(6)]
    for number in (0, 2, 1, 5):
        deliveries[number].dispose(Accepted())
    assert [(each.first, each.last) for each in client.performatives()] == [(0, 2), (5, None)]


def test_dispositions_go_before_the_detach_that_follows_them(client: Client) -> None:
    link = client.sending()
    client.transfer(first(), b"x")
    client.take(events.TransferPiece).delivery.dispose(Accepted())
    link.detach()
    assert [type(each) for each in client.performatives()] == [Disposition, Detach]


def test_what_is_unsettled_when_a_link_ends_stays_with_the_link(client: Client) -> None:
    link = client.sending()
    client.transfer(first(), b"x")
    delivery = client.take(events.TransferPiece).delivery
    client.send(Detach(0))
    link.detach(closed=False)
    client.read()
    delivery.dispose(Accepted())
    assert client.performatives() == []
    assert link.unsettled == {b"tag-0": delivery.run}


def test_an_aborted_delivery_is_forgotten_and_costs_its_credit(client: Client) -> None:
    link = client.sending(credit=2)
    client.transfer(first(0, more=True), b"a")
    delivery = client.take(events.TransferPiece).delivery
    client.transfer(Transfer(0, aborted=True), b"ignored")
    assert client.take(events.DeliveryAborted).delivery == delivery
    assert delivery.is_settled
    assert link.unsettled == {}
    client.transfer(first(1), b"b")
    assert client.take(events.TransferPiece).is_last
    assert link.credit == 0


def test_a_delivery_may_be_aborted_at_once(client: Client) -> None:
    client.sending()
    client.transfer(first(0, aborted=True), b"")
    client.take(events.DeliveryAborted)
    assert client.events == []


def test_settled_is_said_where_it_is_false(client: Client) -> None:
    """Not every peer assumes the default of a field that was left out."""
    client.sending(rcv_settle_mode=1)
    client.transfer(first(0), b"x")
    client.take(events.TransferPiece).delivery.dispose(Accepted(), settled=False)
    (encoded,) = client.peer.data_to_send(now_s=0.0)
    assert bytes(encoded).endswith(b"\x41\x43\x40\x42\0\x53\x24\x45")  # role, first, last, settled


def test_second_settle_mode_waits_for_the_sender(client: Client) -> None:
    link = client.sending(rcv_settle_mode=1)
    assert link.rcv_settle_mode is ReceiverSettleMode.SECOND
    client.transfer(first(0), b"x")
    delivery = client.take(events.TransferPiece).delivery
    delivery.dispose(Accepted(), settled=False)
    assert client.performatives() == [Disposition(THEY_RECEIVE, 0, None, state=Accepted())]
    client.send(Disposition(THEY_SEND, 0, settled=True))
    assert client.take(events.DispositionReceived).deliveries == (delivery.run,)
    assert delivery.is_settled


def test_a_state_told_with_a_transfer_is_kept(client: Client) -> None:
    client.sending()
    client.transfer(first(0, state=Received(0, 0)), b"x")
    assert client.take(events.TransferPiece).delivery.remote_state == Received(0, 0)


@pytest.mark.parametrize(
    ("frames", "condition", "fields"),
    [
        ([first(0), first(1), first(2)], "amqp:link:transfer-limit-exceeded", {"credit": 2}),
        ([first(0)], "amqp:link:transfer-limit-exceeded", {"credit": 0}),
        ([Transfer(0, None, b"t", 0)], "amqp:invalid-field", {}),
        ([Transfer(0, 0, None, 0)], "amqp:invalid-field", {}),
        ([Transfer(0, 0, b"t" * 33, 0)], "amqp:invalid-field", {}),
        ([Transfer(0, 0, b"t"), Transfer(0, 1, b"t")], "amqp:invalid-field", {}),
        ([first(0, more=True), Transfer(0, 1)], "amqp:invalid-field", {}),
        ([first(0, more=True), Transfer(0, 0, b"u")], "amqp:invalid-field", {}),
        ([first(0, more=True), Transfer(0, message_format=1)], "amqp:invalid-field", {}),
        ([first(0, rcv_settle_mode=1)], "amqp:invalid-field", {}),
        ([first(0, settled=True)], "amqp:invalid-field", {"snd_settle_mode": 0}),
        ([first(0)], "amqp:invalid-field", {"snd_settle_mode": 1}),
    ],
)
def test_what_breaks_a_link_detaches_it_and_no_more(
    client: Client, frames: list[Transfer], condition: str, fields: dict[str, Any]
) -> None:
    client.sending(**fields)
    for frame in frames:
        client.transfer(frame, b"x")
    failed(client, condition)


@pytest.mark.parametrize("frames", [[b"123456"], [b"123", b"45", b"", b"6", b"7"]])
def test_a_message_that_is_too_large_ends_the_link_where_it_becomes_so(
    client: Client, frames: list[bytes]
) -> None:
    client.send(attach(0))
    link = client.take(events.LinkAttached).link
    link.attach(max_message_size=5)  # type: ignore[call-arg]
    link.flow(1)  # type: ignore[union-attr]
    client.transfer(first(0, more=True), b"")
    for payload in frames:
        client.transfer(Transfer(0, more=True), payload)
    failed(client, "amqp:link:message-size-exceeded")
    assert sum(len(each.payload) for each in client.events) <= 5  # type: ignore[union-attr]


def test_a_message_may_be_as_large_as_was_granted(client: Client) -> None:
    client.send(attach(0))
    link: Any = client.take(events.LinkAttached).link
    link.attach(max_message_size=5)
    link.flow(2)
    for number in range(2):
        client.transfer(first(number, more=True), b"123")
        client.transfer(Transfer(0), b"45")
    assert [each.is_last for each in client.events] == [False, True] * 2  # type: ignore[union-attr]


def test_the_format_of_a_message_is_told(client: Client) -> None:
    client.sending()
    client.transfer(Transfer(0, 0, b"a", 7), b"x")
    client.transfer(Transfer(0, 1, b"b"), b"x")
    formats = [each.delivery.run.message_format for each in client.events]  # type: ignore[union-attr]
    assert formats == [7, 0]
    client.events.clear()
    client.receiving(1).transfer(b"c", [b"x"], message_format=9)
    assert client.performatives()[-1].message_format == 9


@pytest.mark.parametrize("settled", [True, False])
def test_a_transfer_before_our_attach_has_no_credit(client: Client, *, settled: bool) -> None:
    """A link begins without any (2.6.7), and nothing says that settled deliveries need none."""
    client.send(attach(0))
    client.transfer(first(0, settled=settled), b"x")
    failed(client, "amqp:link:transfer-limit-exceeded")


def test_the_format_may_be_said_again_and_the_mode_of_what_comes_settled_is_ignored(
    client: Client,
) -> None:
    client.sending()
    told = first(0, more=True, settled=True, rcv_settle_mode=1)
    client.transfer(told, b"x")
    client.transfer(Transfer(0, message_format=0), b"y")
    assert client.take(events.TransferPiece).delivery.run.message_format == 0
    assert client.take(events.TransferPiece).is_last


def test_transfers_of_a_receiver_are_not_allowed(client: Client) -> None:
    client.receiving()
    client.transfer(first(0), b"x")
    failed(client, "amqp:not-allowed")


@pytest.mark.parametrize("delivery_id", [0, 2**32 - 1])
def test_delivery_ids_only_rise(client: Client, delivery_id: int) -> None:
    client.sending()
    client.transfer(first(0), b"x")
    client.take(events.TransferPiece)
    client.transfer(Transfer(0, delivery_id, b"other", 0), b"x")
    event = client.take(events.SessionFailed)
    assert event.error.condition == "amqp:invalid-field"
    assert client.performatives() == [End(event.error)]


def test_transfers_on_their_way_to_a_link_that_failed_are_read_past(client: Client) -> None:
    client.sending(0, credit=1)
    other = client.sending(1)
    for number in range(5):
        client.transfer(first(number), b"x")
    client.take(events.TransferPiece)
    failed(client, "amqp:link:transfer-limit-exceeded")
    client.send(flow(0, 5), Detach(0, closed=True))
    assert isinstance(client.take(events.LinkDetached).link.is_over, bool)
    client.transfer(first(9, handle=1), b"x")
    assert client.take(events.TransferPiece).delivery.link is other


def test_transfers_against_better_knowledge_end_the_session() -> None:
    client = Client(server(Settings("b", session_window=4, requires_sasl=False))).opened()
    client.begun()
    client.sending(credit=0)
    client.transfer(first(0), b"x")
    failed(client, "amqp:link:transfer-limit-exceeded")
    for _ in range(3):  # that much window was left when we detached
        client.transfer(Transfer(0), b"x")
        client.read()  # the window is told to be open again, after the detach
    assert client.events == []
    client.transfer(Transfer(0), b"x")
    assert client.take(events.SessionFailed).error.condition == "amqp:session:errant-link"


def test_credit_is_told_and_a_drain_is_noticed(client: Client) -> None:
    link = client.sending(credit=0)
    assert link.credit == 0
    link.flow(5, drain=True, echo=True)
    (told,) = client.performatives()
    assert (told.delivery_count, told.link_credit, told.drain, told.echo) == (0, 5, True, True)
    assert link.is_draining
    client.transfer(first(0), b"x")
    client.take(events.TransferPiece)
    client.send(flow(0, 0, delivery_count=5, drain=True))
    assert client.take(events.FlowReceived).link is link
    assert (link.credit, link.is_draining) == (0, False)
    client.transfer(first(1), b"x")
    failed(client, "amqp:link:transfer-limit-exceeded")


def test_an_echo_is_answered_with_the_credit_that_is_left(client: Client) -> None:
    client.sending(credit=5)
    client.transfer(first(0), b"x")
    client.send(flow(0, 5, delivery_count=0, echo=True))
    (told,) = client.performatives()
    assert (told.handle, told.delivery_count, told.link_credit) == (0, 1, 4)


# -------------------------------------------------------------------------------------- we send


def test_a_message_goes_with_its_first_id_and_is_settled_by_the_peer(client: Client) -> None:
    link = client.receiving(credit=2)
    one = link.transfer(b"a", [b"he", b"llo"])
    two = link.transfer(b"b", [], settled=True)
    (channel, transfer, payload), (_, settled, empty) = client.read()
    assert transfer == Transfer(0, 0, b"a", 0, settled=False)
    assert settled == Transfer(0, 1, b"b", 0, settled=True)
    assert (channel, payload, empty) == (0, b"hello", b"")
    assert link.unsettled == {b"a": one}
    assert two.is_settled
    client.send(Disposition(THEY_RECEIVE, 0, 1, settled=True, state=Accepted()))
    told = client.take(events.DispositionReceived)
    assert (told.deliveries, told.state, told.is_settled) == ((one,), Accepted(), True)
    assert one.is_settled
    assert one.remote_state == Accepted()
    assert link.unsettled == {}


def test_a_state_without_settlement_is_answered_by_ours(client: Client) -> None:
    link = client.receiving()
    sent = [link.transfer(b"%d" % number, [b"x"]) for number in range(3)]
    client.read()
    client.send(Disposition(THEY_RECEIVE, 0, 2, state=Accepted()))
    told = client.take(events.DispositionReceived)
    assert told.deliveries == tuple(sent)
    assert not sent[0].is_settled
    for delivery in told.deliveries:
        delivery.dispose(Accepted())
    assert client.performatives() == [Disposition(THEY_SEND, 0, 2, settled=True, state=Accepted())]


def test_what_is_settled_is_not_heard_of_again(client: Client) -> None:
    client.receiving(0).transfer(b"t", [b"x"])
    client.sending(1, rcv_settle_mode=1)
    client.transfer(first(0, handle=1), b"x")
    client.take(events.TransferPiece)
    for role in (THEY_RECEIVE, THEY_SEND):
        client.send(Disposition(role, 0, settled=True, state=Accepted()))
        client.take(events.DispositionReceived)
        client.send(Disposition(role, 0, settled=True, state=Rejected()))
        client.send(Disposition(role, 0, 2**31 - 1, settled=True, state=Rejected()))
    assert client.events == []


def test_a_range_that_spans_everything_costs_what_is_there(client: Client) -> None:
    link = client.receiving()
    sent = [link.transfer(b"%d" % number, [b"x"]) for number in range(3)]
    client.send(Disposition(THEY_RECEIVE, 1, 2**31 - 1, settled=True, state=Accepted()))
    assert client.take(events.DispositionReceived).deliveries == tuple(sent[1:])


def test_a_large_message_is_cut_to_the_peers_frames() -> None:
    client = Client(server()).opened(max_frame_size=512)
    client.begun()
    link = client.receiving()
    payload = bytes(range(256)) * 20
    link.transfer(b"t", [payload[:3], payload[3:3_000], payload[3_000:]])
    frames = client.read()
    assert b"".join(each[2] for each in frames) == payload
    assert [each[1].more for each in frames] == [True] * (len(frames) - 1) + [False]
    assert frames[0][1].delivery_id == 0
    assert frames[1][1].delivery_id is None
    assert 5_120 // 512 < len(frames) < 13


@pytest.mark.parametrize(("theirs", "most"), [(4_096, 4_096), (1 << 30, 65_536)])
def test_frames_are_as_large_as_both_sides_take(theirs: int, most: int) -> None:
    client = Client(server()).opened(max_frame_size=theirs)
    client.begun()
    client.receiving().transfer(b"t", [bytes(100_000)])
    sizes = [len(payload) for _, _, payload in client.read()]
    assert sum(sizes) == 100_000
    assert most - 64 < sizes[0] < most


def test_a_message_goes_in_pieces_as_they_are_handed_over(client: Client) -> None:
    link = client.receiving()
    other = client.receiving(1)
    link.transfer(b"t", [b"a"], more=True)
    other.transfer(b"o", [b"x"])
    link.transfer_more([], more=True)
    link.transfer_more([b"b"])
    assert [(each.handle, each.more, payload) for _, each, payload in client.read()] == [
        (0, True, b"a"),
        (1, False, b"x"),
        (0, True, b""),
        (0, False, b"b"),
    ]
    with pytest.raises(InvalidCommand, match="no delivery"):
        link.transfer_more([b"c"])


def test_a_delivery_that_began_is_aborted_on_the_wire(client: Client) -> None:
    link = client.receiving(credit=2)
    delivery = link.transfer(b"t", [b"a"], more=True)
    link.abort()
    told = client.performatives()
    assert told == [
        Transfer(0, 0, b"t", 0, settled=False, more=True),
        Transfer(0, settled=True, aborted=True),
    ]
    assert delivery.is_settled
    assert (link.unsettled, link.credit) == ({}, 1)
    link.transfer(b"t", [b"again"])


def test_a_delivery_that_never_began_is_aborted_in_silence() -> None:
    client = Client(server()).opened()
    client.begun(window=0)
    link = client.receiving(credit=0)
    client.send(flow(0, 2, incoming_window=0))
    link.transfer(b"t", [b"a"], more=True)
    link.abort()
    assert link.credit == 2
    link.transfer(b"u", [b"b"])
    client.send(flow(0, 2))
    told = client.performatives()
    assert told == [Transfer(0, 0, b"u", 0, settled=False)]


def test_frames_wait_for_the_sessions_window() -> None:
    client = Client(server()).opened(max_frame_size=512)
    client.begun(window=2)
    link = client.receiving(credit=0)
    client.send(flow(0, 5, incoming_window=2))
    link.transfer(b"t", [b"x" * 2_000])
    link.transfer(b"u", [b"y"])
    assert len(client.read()) == 2
    client.send(flow(next_incoming_id=1, incoming_window=2))
    assert len(client.read()) == 1
    client.send(flow(next_incoming_id=3, incoming_window=100))
    rest = client.read()
    assert sum(len(each[2]) for each in rest) > 500
    assert (rest[-1][1].delivery_id, rest[-1][2]) == (1, b"y")


@given(
    st.lists(st.integers(0, 900), min_size=1, max_size=8),
    st.integers(0, 9),
    st.booleans(),
)
def test_deliveries_that_are_started_together_go_as_they_would_one_by_one(
    sizes: list[int], window: int, is_settled: bool
) -> None:
    told = []
    for is_together in (False, True):
        client = Client(server()).opened(max_frame_size=512)
        client.begun(window=window)
        link = client.receiving(credit=0)
        client.send(flow(0, 8, incoming_window=window))
        new = [(b"%d" % size + b"-%d" % at, [b"a" * size]) for at, size in enumerate(sizes)]
        if is_together:
            tags, payloads = [[*column] for column in zip(*new, strict=True)]
            columns = [[piece for piece, *_ in payloads], [b""] * len(tags)]
            started = link.transfer_all(tags, columns, settled=is_settled)
        else:
            started = [link.transfer(tag, pieces, settled=is_settled) for tag, pieces in new]
        heard = [client.read(), link.credit, link.port.unsettled_count, [*link.unsettled]]
        client.send(flow(next_incoming_id=window, incoming_window=100))
        places = [(run.number + at, run.ends[at]) for run in started for at in range(len(run))]
        heard += [client.read(), places]
        told.append(heard)
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("new", "why"),
    [
        ([(b"1", [b"x"]), (b"2", [b"x"]), (b"3", [b"x"])], "no credit"),
        ([(b"1", [b"x"]), (b"1", [b"x"])], "differs from all"),
        ([(b"1", [b"x"]), (b"there", [b"x"])], "differs from all"),
        ([(b"1", [b"x"]), (b"t" * 33, [b"x"])], "at most 32 bytes"),
        ([(b"1", [b"x"]), (b"2", [b"x" * 101])], "101 bytes: the peer takes 100"),
        ([(b"1", [b"x"]), (b"before", [b"x"])], "is to be resumed"),
    ],
)
def test_of_deliveries_that_are_started_together_none_goes_if_one_may_not(
    client: Client, new: list[tuple[bytes, list[bytes]]], why: str
) -> None:
    link = client.receiving(credit=0, max_message_size=100)
    link.earlier = {b"before": None}
    client.send(flow(0, 3))
    link.transfer(b"there", [b"x"])
    client.read()
    with pytest.raises(InvalidCommand, match=why):
        link.transfer_all([tag for tag, _ in new], [[piece for _, (piece,) in new]])
    assert client.read() == []
    assert (link.credit, [*link.unsettled]) == (2, [b"there"])


def test_nothing_is_started_while_a_delivery_is_unfinished(client: Client) -> None:
    link = client.receiving()
    link.transfer(b"1", [b"x"], more=True)
    with pytest.raises(InvalidCommand, match="unfinished"):
        link.transfer_all([b"2"], [[b"x"]])


def test_what_waits_for_the_window_goes_away_with_its_link_and_leaves_no_gap() -> None:
    client = Client(server()).opened()
    client.begun(window=0)
    one, two = client.receiving(0, credit=0), client.receiving(1, credit=0)
    client.send(flow(0, 5, incoming_window=0), flow(1, 5, incoming_window=0))
    one.transfer(b"a", [b"a"])
    two.transfer(b"b", [b"b"])
    one.detach()
    client.send(flow(incoming_window=10))
    told = client.performatives()
    assert [type(each) for each in told] == [Detach, Transfer]
    assert (told[1].handle, told[1].delivery_id, told[1].delivery_tag) == (1, 0, b"b")


def test_credit_that_was_taken_back_holds_what_waits_on_that_link_alone() -> None:
    client = Client(server()).opened()
    client.begun(window=0)
    one, two = client.receiving(0, credit=0), client.receiving(1, credit=0)
    client.send(flow(0, 5, incoming_window=0), flow(1, 5, incoming_window=0))
    for tag in count(1):
        one.transfer(b"%d" % tag, [b"1"])
        two.transfer(b"%d" % tag, [b"2"])
        if tag == 2:
            break
    client.send(flow(0, 1, incoming_window=0), flow(incoming_window=10))
    assert [each[2] for each in client.read()] == [b"1", b"2", b"2"]
    client.send(flow(0, 1, delivery_count=1, incoming_window=10, next_incoming_id=3))
    assert [each[2] for each in client.read()] == [b"1"]


def test_drained_credit_is_given_up(client: Client) -> None:
    link = client.receiving(credit=0)
    assert not link.is_draining
    client.send(flow(0, 7, drain=True))
    assert client.events.pop().link.is_draining  # type: ignore[union-attr]
    link.transfer(b"a", [b"x"])
    link.drained(available=3)
    told = client.performatives()[-1]
    assert (told.delivery_count, told.link_credit, told.available, told.drain) == (7, 0, 3, True)
    assert link.credit == 0
    client.send(flow(0, 2, delivery_count=7))
    assert link.credit == 2


def test_an_echo_to_a_sender_is_answered(client: Client) -> None:
    link = client.receiving(credit=3)
    link.transfer(b"a", [b"x"])
    client.read()
    client.send(flow(0, 3, echo=True))
    (told,) = client.performatives()
    assert (told.handle, told.delivery_count, told.link_credit) == (0, 1, 2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda link: link.transfer(b"t" * 33, []), "32 bytes"),
        (lambda link: link.transfer(b"used", []), "differs"),
        (lambda link: link.transfer(b"t", [b"x" * 101]), "takes 100"),
        (lambda link: link.transfer(b"t", [], state=Rejected(Error("x" * 300))), "256"),
        (lambda link: link.transfer(b"t", [], state=object()), "not a value"),
        (lambda link: link.abort(), "unfinished"),
    ],
)
def test_a_delivery_that_cannot_go_is_the_callers_fault(
    client: Client, call: Any, says: str
) -> None:
    link = client.receiving(credit=2, max_message_size=100)
    link.transfer(b"used", [b"x"])
    client.read()
    with pytest.raises(InvalidCommand, match=says):
        call(link)
    assert client.read() == []
    assert link.credit == 1


def test_without_credit_nothing_starts_and_what_started_goes_on(client: Client) -> None:
    link = client.receiving(credit=1)
    link.transfer(b"a", [b"x"], more=True)
    with pytest.raises(InvalidCommand, match="unfinished"):
        link.transfer(b"b", [])
    link.transfer_more([b"y"])
    with pytest.raises(InvalidCommand, match="no credit"):
        link.transfer(b"b", [])


@pytest.mark.parametrize(
    ("mode", "settled"), [(SenderSettleMode.SETTLED, False), (SenderSettleMode.UNSETTLED, True)]
)
def test_what_we_granted_binds_us(client: Client, mode: SenderSettleMode, *, settled: bool) -> None:
    client.send(attach(0, is_receiver=True, snd_settle_mode=mode))
    link: Any = client.take(events.LinkAttached).link
    link.attach()
    client.send(flow(0, 1))
    with pytest.raises(InvalidCommand, match="snd-settle-mode"):
        link.transfer(b"t", [], settled=settled)
    link.transfer(b"t", [], settled=not settled)


def test_views_of_a_delivery_in_pieces_are_sent_as_they_are_and_not_copied(client: Client) -> None:
    link = client.receiving()
    payload = bytearray(b"hello")
    link.transfer(b"t", [memoryview(payload)], more=True)
    payload[:] = b"HELLO"
    assert client.read()[0][2] == b"HELLO"
