"""Connections and sessions of our AMQP 1.0 machine: their lives, limits and errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    Source,
    Transfer,
)
from broker_shim.amqp_1_0.definitions import Role
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.codec.errors import InvalidCommand
from broker_shim.protocol_1_0.codec.frames import AMQP_HEADER, EMPTY_FRAME, encoded_frame
from broker_shim.protocol_1_0.peer_settings import Settings
from tests.support.amqp.amqp_1_0 import SETTINGS, Client, attach, flow, server

BEGIN = Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)


@pytest.fixture
def client() -> Client:
    return Client(server())


def ends_with(client: Client, condition: str) -> str:
    """The connection was closed for this; the description."""
    failed = client.events[-1]
    assert isinstance(failed, events.ConnectionFailed), failed
    assert failed.error.condition == condition
    assert client.peer.is_over
    told = client.performatives()[-1]
    assert isinstance(told, Close)
    assert told.error == failed.error
    return str(failed.error.description)


def test_a_connection_opens_and_closes(client: Client) -> None:
    client.opened(max_frame_size=4_096)
    told = client.performatives()
    assert told == [Open("broker", None, 65_536, 7, 30_000)]
    client.send(Close())
    assert client.take(events.ConnectionClosed) == events.ConnectionClosed(None)
    assert not client.peer.is_over
    client.peer.close()
    assert client.performatives() == [Close()]
    assert client.peer.is_over


def test_we_may_close_first(client: Client) -> None:
    client.opened()
    client.peer.close(Error("amqp:connection:forced", "we stop"))
    assert not client.peer.is_over
    client.send(BEGIN, attach(), flow(0, 1))
    assert client.events == []
    client.send(Close())
    assert client.peer.is_over
    assert client.performatives()[1:] == [Close(Error("amqp:connection:forced", "we stop"))]


@pytest.mark.parametrize("ending", ["close", "lost", "failure"])
def test_after_the_end_of_a_connection_nothing_more_is_written(client: Client, ending: str) -> None:
    client.opened(idle_time_out=1_000)
    session = client.begun()
    sender = client.receiving(0)
    receiver = client.sending(1)
    client.transfer(Transfer(1, 0, b"t", 0), b"x")
    delivery = client.take(events.TransferPiece).delivery
    if ending == "close":
        client.peer.close()
    else:
        client.write(b"" if ending == "lost" else encoded_frame(Open("again")))
    client.read()
    delivery.dispose(Accepted())
    client.peer.tick(now_s=5.0)
    for command in (
        session.end,
        sender.detach,
        sender.drained,
        lambda: sender.transfer(b"t", [b"x"]),
        lambda: receiver.flow(3),
        client.peer.close,
    ):
        with pytest.raises(InvalidCommand):
            command()
    assert client.performatives() == []
    assert sender.credit == 0


@pytest.mark.parametrize("by_end", [True, False])
def test_dispositions_go_before_the_end_that_follows_them(client: Client, *, by_end: bool) -> None:
    client.opened()
    session = client.begun()
    client.sending()
    client.transfer(Transfer(0, 0, b"t", 0), b"x")
    client.take(events.TransferPiece).delivery.dispose(Accepted())
    if by_end:
        session.end()
    else:
        client.peer.close()
    told = client.performatives()
    assert [type(each) for each in told] == [Disposition, End if by_end else Close]


def test_a_connection_that_is_not_open_yet_can_be_closed(client: Client) -> None:
    client.write(AMQP_HEADER.encoded())
    client.peer.close()
    assert [type(each) for each in client.performatives()] == [Open, Close]
    client.send(Open("c"), BEGIN, Close())
    assert client.peer.is_over
    assert client.events == [events.ConnectionClosed(None)]


def test_before_the_protocol_headers_there_is_nothing_to_close(client: Client) -> None:
    with pytest.raises(InvalidCommand, match="hang up"):
        client.peer.close()


def test_commands_out_of_turn_are_refused(client: Client) -> None:
    with pytest.raises(InvalidCommand, match="cannot open what is not open"):
        client.peer.open()
    client.opened()
    with pytest.raises(InvalidCommand, match="cannot open what is opened"):
        client.peer.open()
    session = client.begun()
    with pytest.raises(InvalidCommand, match="cannot answer"):
        session.begin()
    session.end()
    with pytest.raises(InvalidCommand, match="cannot end"):
        session.end()


def test_a_peer_that_hangs_up_is_lost(client: Client) -> None:
    client.opened()
    client.write(b"")
    assert client.events == [events.Lost()]
    assert client.peer.is_over


def test_everything_may_come_before_our_answers(client: Client) -> None:
    client.write(
        AMQP_HEADER.encoded()
        + b"".join(map(encoded_frame, [Open("c"), BEGIN, attach(is_receiver=True), flow(0, 3)]))
    )
    assert [type(each) for each in client.events] == [
        events.ConnectionOpened,
        events.SessionBegun,
        events.LinkAttached,
        events.FlowReceived,
    ]
    client.peer.open()
    client.peer.sessions[0].begin()
    link = client.peer.sessions[0].links[0]
    link.attach()
    assert link.credit == 3
    assert [type(each) for each in client.performatives()] == [Open, Begin, Attach]


def test_a_connection_works_the_same_byte_by_byte(client: Client) -> None:
    stream = AMQP_HEADER.encoded() + b"".join(
        map(encoded_frame, [Open("c"), BEGIN, attach(is_receiver=True), End(), Close()])
    )
    for at in range(len(stream)):
        client.write(stream[at : at + 1])
    assert [type(each) for each in client.events] == [
        events.ConnectionOpened,
        events.SessionBegun,
        events.LinkAttached,
        events.SessionEnded,
        events.ConnectionClosed,
    ]


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        ([Open("c"), Open("c")], "amqp:illegal-state"),
        ([BEGIN], "amqp:illegal-state"),
        ([Close()], "amqp:illegal-state"),
        ([Open("c"), End()], "amqp:illegal-state"),
        ([Open("c"), attach()], "amqp:illegal-state"),
        ([Open("c"), Transfer(0)], "amqp:illegal-state"),
        ([Open("c"), BEGIN, BEGIN], "amqp:illegal-state"),
        ([Open("c"), BEGIN, End(), End()], "amqp:illegal-state"),
        ([Open("c"), BEGIN, End(), attach()], "amqp:illegal-state"),
        ([Open("c"), Begin(5, 0, 1, 1)], "amqp:invalid-field"),
        ([Open("c", max_frame_size=511)], "amqp:connection:framing-error"),
        ([Open("c"), Accepted()], "amqp:not-allowed"),
        ([Open("c"), SaslInit("PLAIN")], "amqp:not-allowed"),
        ([Open("c"), BEGIN, attach(16)], "amqp:connection:framing-error"),
    ],
    ids=lambda value: "-".join(each.NAME for each in value) if isinstance(value, list) else value,
)
def test_a_frame_in_the_wrong_state_closes_the_connection(
    client: Client, frames: list[Composite], condition: str
) -> None:
    client.write(AMQP_HEADER.encoded())
    client.send(*frames)
    ends_with(client, condition)


@pytest.mark.parametrize(
    ("encoded", "condition"),
    [
        (b"\xff\xff\xff\xff\x02\0\0\0", "amqp:connection:framing-error"),
        (b"\0\x01\0\x01\x02\0\0\0", "amqp:connection:framing-error"),
        (b"\0\0\0\x08\x02\x01\0\0", "amqp:connection:framing-error"),
        (b"\0\0\0\x09\x02\0\0\0\x40", "amqp:decode-error"),
        (b"\0\0\0\x0c\x02\0\0\0\0\x53\x19\x45", "amqp:decode-error"),
        (b"\0\0\0\x0c\x02\0\0\0\0\x53\x11\x45", "amqp:decode-error"),
    ],
)
def test_bytes_that_are_no_good_frame_close_the_connection(
    client: Client, encoded: bytes, condition: str
) -> None:
    client.opened()
    client.write(encoded + encoded_frame(BEGIN))
    ends_with(client, condition)


def test_after_a_failure_nothing_is_heard(client: Client) -> None:
    client.opened()
    client.send(Open("again"))
    count = len(client.events)
    client.send(BEGIN)
    client.write(b"")
    assert len(client.events) == count
    assert client.peer.tick(now_s=1e6) > 1e6


def test_a_failure_before_open_is_told_after_an_open_of_ours(client: Client) -> None:
    client.write(AMQP_HEADER.encoded() + b"\xff\xff\xff\xff\x02\0\0\0")
    assert [type(each) for each in client.performatives()] == [Open, Close]


def test_nothing_is_written_before_what_it_follows(client: Client) -> None:
    client.write(
        AMQP_HEADER.encoded()
        + b"".join(map(encoded_frame, [Open("c"), BEGIN, attach(0), attach(1, is_receiver=True)]))
    )
    session = client.peer.sessions[0]
    with pytest.raises(InvalidCommand, match="open the connection first"):
        session.begin()
    client.peer.open()
    with pytest.raises(InvalidCommand, match="begin the session first"):
        session.links[0].attach()
    session.begin()
    session.links[0].attach()
    assert [type(each) for each in client.performatives()] == [Open, Begin, Attach]


@pytest.mark.parametrize(
    ("frames", "ended"),
    [
        ([attach(0, source=None, target=None)], [Attach, Detach]),
        ([attach(0), Transfer(0, 0, b"t"), Transfer(0, 1, b"u"), flow(0)], [Attach, Detach]),
        ([Detach(3), Detach(3)], [End]),
    ],
    ids=["no terminus", "no credit", "unattached"],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_what_breaks_before_our_answer_ends_itself_and_no_more(
    client: Client, frames: list[Composite], ended: list[type], *, is_open: bool
) -> None:
    client.write(AMQP_HEADER.encoded() + encoded_frame(Open("c")))
    if is_open:
        client.peer.open()
    client.send(BEGIN, *frames)
    if not is_open:
        client.peer.open()
    session = client.take_last(events.SessionBegun).session
    if not session.is_gone:
        session.begin()
    told = client.performatives()
    assert [type(each) for each in told] == [Open, Begin, *ended]
    assert told[-1].error is not None
    client.events += client.peer.events()
    kind = events.SessionFailed if ended == [End] else events.LinkFailed
    assert isinstance(client.events[-1], kind)
    assert not client.peer.is_over


def test_what_broke_before_our_answer_and_ended_by_itself_is_answered_once(client: Client) -> None:
    client.write(AMQP_HEADER.encoded() + encoded_frame(Open("c")))
    client.send(BEGIN, attach(0), Transfer(0, 0, b"t"), Detach(0))
    client.send(BEGIN, Detach(3), End(), channel=1)
    client.peer.open()
    begun = [each.session for each in client.events if isinstance(each, events.SessionBegun)]
    begun[0].begin()
    (detached,) = [each for each in client.events if isinstance(each, events.LinkDetached)]
    detached.link.detach()
    begun[1].end()
    told = [type(each) for each in client.performatives()]
    assert told == [Open, Begin, Attach, Detach, Begin, End]


def test_a_clock_is_not_asked_for_again_and_again_once_we_closed(client: Client) -> None:
    client.opened(idle_time_out=2_000)
    client.peer.close()
    assert client.peer.tick(now_s=5.0) == 6.0
    client.peer.tick(now_s=60.0)
    assert client.peer.is_over


def test_open_goes_on_channel_0(client: Client) -> None:
    client.write(AMQP_HEADER.encoded())
    client.send(Open("c"), channel=1)
    ends_with(client, "amqp:connection:framing-error")


@pytest.mark.parametrize("frame", [End(), flow(), attach()])
def test_no_frame_may_come_on_a_channel_beyond_the_limit(client: Client, frame: Composite) -> None:
    client.opened()
    client.send(frame, channel=8)
    ends_with(client, "amqp:connection:framing-error")


@pytest.mark.parametrize(
    ("next_id", "condition"),
    [
        (0, "window-violation"),
        (1, ""),
        (3, ""),
        (2**31, "window-violation"),
        (2050, "window-violation"),
    ],
)
def test_a_flow_tells_of_the_next_transfer_and_not_of_one_that_came(
    client: Client, next_id: int, condition: str
) -> None:
    """What it passes over, the session may know lost; it takes room as if it had come (2.5.6)."""
    client.opened()
    session = client.begun()
    client.sending()
    client.transfer(Transfer(0, 0, b"t", settled=True), b"x")
    client.events.clear()
    client.write(encoded_frame(Flow(0, 2048, next_id, 2048, handle=0, delivery_count=1)))
    if not condition:
        client.take(events.FlowReceived)
        client.write(encoded_frame(Flow(0, 2048, next_id, 2048, echo=True)))
        assert client.performatives()[-1].next_incoming_id == next_id
        return
    failed = client.take(events.SessionFailed)
    assert failed.session is session
    assert failed.error.condition == f"amqp:session:{condition}"


@pytest.mark.parametrize(
    "fields", [{"credit": 1}, {"delivery_count": 1}, {"available": 1}, {"drain": True}]
)
def test_a_flow_without_a_handle_tells_of_no_link(client: Client, fields: dict[str, Any]) -> None:
    client.opened()
    client.begun()
    client.send(flow(**fields))
    assert client.take(events.SessionFailed).error.condition == "amqp:invalid-field"


@pytest.mark.parametrize("channel", [8, 9, 65_535])
def test_a_channel_beyond_the_limit_closes_the_connection(client: Client, channel: int) -> None:
    client.opened()
    client.send(BEGIN, channel=channel)
    assert str(channel) in ends_with(client, "amqp:connection:framing-error")


def test_sessions_are_as_many_as_allowed_and_no_more_of_the_peers_limit() -> None:
    client = Client(server())
    client.opened(channel_max=2)
    for channel in (7, 3, 5):
        assert client.begun(channel).channel in {0, 1, 2}
    client.send(BEGIN, channel=1)
    ends_with(client, "amqp:not-allowed")


def test_65536_channels_are_possible_where_they_are_allowed() -> None:
    client = Client(server(Settings("b", max_sessions=65_536, requires_sasl=False))).opened()
    session = client.begun(65_535)
    assert (session.remote_channel, session.channel) == (65_535, 0)
    client.send(End(), channel=65_535)
    assert client.take(events.SessionEnded).session is session


def test_a_session_ends_by_the_peer_and_its_channel_is_free_again(client: Client) -> None:
    client.opened()
    session = client.begun(4)
    client.receiving(0, channel=4)
    client.send(End(Error("x")), channel=4)
    assert client.take(events.SessionEnded) == events.SessionEnded(session, Error("x"))
    assert client.peer.sessions == []
    with pytest.raises(InvalidCommand, match="session has ended"):
        session.links[0].transfer(b"t", [b"x"])
    assert session.links[0].is_gone
    session.end()
    assert session.is_over
    assert client.performatives()[-1] == End()
    assert client.begun(4).channel == 0


def test_a_session_that_we_ended_reads_past_what_is_on_its_way(client: Client) -> None:
    client.opened()
    session = client.begun()
    client.sending()
    session.end(Error("amqp:internal-error", "x"))
    client.transfer(Transfer(0, 0, b"t", 0), b"x")
    client.send(attach(1), Detach(0), Transfer(77), Disposition(True, 0))
    assert client.events == []
    client.send(End())
    assert client.take(events.SessionEnded).session.is_over
    assert client.performatives() == [End(Error("amqp:internal-error", "x"))]


def test_a_session_may_be_refused_by_an_end(client: Client) -> None:
    client.opened()
    client.read()
    client.send(BEGIN)
    client.take(events.SessionBegun).session.end(Error("amqp:resource-limit-exceeded"))
    assert [type(each) for each in client.performatives()] == [Begin, End]


def test_a_session_that_ended_before_it_was_answered_is_answered_twice(client: Client) -> None:
    client.opened()
    client.read()
    client.send(BEGIN, End())
    client.take(events.SessionBegun).session.end()
    assert [type(each) for each in client.performatives()] == [Begin, End]


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        ([attach(3), attach(3)], "amqp:session:handle-in-use"),
        ([Detach(0)], "amqp:session:unattached-handle"),
        ([Transfer(0)], "amqp:session:unattached-handle"),
        ([flow(0, 1)], "amqp:session:unattached-handle"),
        ([attach(0), Detach(0), flow(0, 1)], "amqp:session:unattached-handle"),
    ],
    ids=lambda value: "-".join(each.NAME for each in value) if isinstance(value, list) else value,
)
def test_what_breaks_a_session_ends_it_and_no_other(
    client: Client, frames: list[Composite], condition: str
) -> None:
    client.opened()
    other, broken = client.begun(1), client.begun(0)
    client.send(*frames)
    failed = client.events[-1]
    assert isinstance(failed, events.SessionFailed)
    assert failed.session is broken
    assert failed.error.condition == condition
    assert client.performatives()[-1] == End(failed.error)
    assert not other.is_gone
    assert not client.peer.is_over
    client.events.clear()
    client.receiving(channel=1)


def test_a_session_that_takes_no_handle_of_ours_is_ended(client: Client) -> None:
    client.opened()
    client.begun(handle_max=0)
    client.receiving(0)
    client.send(attach(1))
    failed = client.take(events.SessionFailed)
    assert failed.error.condition == "amqp:not-allowed"


def test_a_link_name_that_cannot_be_answered_ends_the_session(client: Client) -> None:
    client.opened(max_frame_size=512)
    client.begun()
    client.send(Attach("n" * 400, 0, True, target=None))
    assert client.take(events.SessionFailed).error.condition == "amqp:frame-size-too-small"


def large(size: int) -> Source:
    return Source("q", filter={Symbol("p"): b"x" * size})


def test_what_a_peer_makes_us_remember_is_bounded_and_forgotten() -> None:
    client = Client(server(Settings("b", max_state_bytes=20_000, requires_sasl=False))).opened()
    for _ in range(3):
        session = client.begun()
        for handle in range(4):
            client.receiving(handle, source=large(2_000))
        client.send(Detach(0))
        client.take(events.LinkDetached).link.detach()
        again = attach(0, is_receiver=True, source=large(2_000))
        client.write(EMPTY_FRAME * 500 + encoded_frame(again))  # only the attach counts
        client.take(events.LinkAttached)
        client.send(End())
        client.take(events.SessionEnded)
        session.end()
    client.begun()
    client.begun(1)
    for handle in range(3):
        client.receiving(handle, source=large(4_000))
    client.send(attach(3, source=large(4_000)))
    failed = client.take(events.SessionFailed)
    assert failed.error.condition == "amqp:resource-limit-exceeded"
    client.send(Begin(None, 0, 1, 1, offered_capabilities=(Symbol("x" * 4_000),)), channel=2)
    ends_with(client, "amqp:resource-limit-exceeded")


def test_the_session_window_is_kept_and_told_of_before_it_is_used_up() -> None:
    client = Client(server(Settings("b", session_window=4, requires_sasl=False))).opened()
    client.begun()
    client.sending(credit=100)
    for number in range(2):
        client.transfer(Transfer(0, number, b"%d" % number, 0), b"x")
    (told,) = client.performatives()
    assert (told.next_incoming_id, told.incoming_window) == (2, 4)


def test_a_window_that_was_not_told_of_is_not_there() -> None:
    client = Client(server(Settings("b", session_window=4, requires_sasl=False))).opened()
    client.begun()
    client.sending(credit=100)
    frames = [Transfer(0, n, b"%d" % n, 0) for n in range(5)]
    client.send(*frames)
    failed = client.events[-1]
    assert isinstance(failed, events.SessionFailed)
    assert failed.error.condition == "amqp:session:window-violation"
    assert len(client.events) == 5


def test_an_echo_is_answered_with_how_the_session_stands(client: Client) -> None:
    client.opened()
    client.begun()
    client.read()
    client.send(flow(echo=True))
    (told,) = client.performatives()
    assert (told.next_incoming_id, told.incoming_window, told.handle) == (0, 2_048, None)
    client.send(flow())
    assert client.performatives() == []


def test_a_peer_that_does_not_open_in_time_is_ended(client: Client) -> None:
    assert client.peer.tick(now_s=9.9) == 10.0
    client.write(AMQP_HEADER.encoded()[:4])
    client.peer.tick(now_s=10.0)
    assert isinstance(client.peer.events()[0], events.ConnectionFailed)
    assert client.peer.data_to_send(now_s=10.0) == []


def test_a_silent_peer_is_closed_and_a_beating_one_is_not(client: Client) -> None:
    client.opened()
    client.now_s = 59.0
    client.write(bytes((0, 0, 0, 8, 2, 0, 0, 0)))
    assert client.peer.tick(now_s=118.9) == 119.0
    client.peer.tick(now_s=119.0)
    client.events += client.peer.events()
    ends_with(client, "amqp:resource-limit-exceeded")


def test_what_is_announced_leaves_a_peer_time_before_it_is_cut() -> None:
    """Half of it (2.4.5), so that a beat that is late a little ends nobody."""
    settings = replace(SETTINGS, idle_timeout_s=7.0)
    client = Client(server(settings)).opened()
    announced_ms = client.performatives()[0].idle_time_out
    assert announced_ms == 3_500
    client.peer.tick(now_s=6.9)
    assert not client.peer.is_over
    client.peer.tick(now_s=7.0)
    assert client.peer.is_over


def test_we_beat_when_nothing_else_was_written(client: Client) -> None:
    client.opened(idle_time_out=10_000)
    client.read()
    assert client.peer.tick(now_s=4.9) == 5.0
    assert client.performatives() == []
    client.peer.tick(now_s=5.0)
    assert client.performatives() == [None]
    client.now_s = 9.0
    client.begun()
    client.read()
    client.peer.tick(now_s=10.0)
    assert client.performatives() == []


def test_dispositions_are_ignored_for_what_nobody_knows(client: Client) -> None:
    client.opened()
    client.begun()
    client.send(Disposition(bool(Role.RECEIVER), 0, 2**32 - 1, settled=True, state=Accepted()))
    client.send(Disposition(bool(Role.SENDER), 5, 2))
    assert client.events == []
    assert SETTINGS.max_sessions == 8
