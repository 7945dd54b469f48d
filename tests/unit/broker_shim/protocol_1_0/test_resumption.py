"""Resumed links of our AMQP 1.0 machine: the maps of both attaches, and deliveries that go on."""

from __future__ import annotations

from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Received,
    Rejected,
    Released,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.definitions import TerminusDurability
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.codec.errors import InvalidCommand
from broker_shim.protocol_1_0.links.resumption import ResumptionStep, decide, to_tell
from tests.support.amqp.amqp_1_0 import Client, attach, flow, server

ABSENT = object()

EXAMPLE: list[tuple[int, Any, Any, ResumptionStep]] = [
    (1, None, ABSENT, ResumptionStep.SEND_AGAIN),
    (2, None, Received(3, 0), ResumptionStep.RESUME),
    (3, None, Accepted(), ResumptionStep.SETTLE),
    (4, None, None, ResumptionStep.RESUME),
    (5, Received(3, 0), ABSENT, ResumptionStep.SEND_AGAIN),
    (6, Received(3, 0), Received(7, 0), ResumptionStep.RESUME),
    (7, Received(7, 0), Received(3, 0), ResumptionStep.ABORT),
    (8, Received(3, 0), Accepted(), ResumptionStep.SETTLE),
    (9, Received(3, 0), None, ResumptionStep.ABORT),
    (10, Accepted(), ABSENT, ResumptionStep.FORGET),
    (11, Accepted(), Received(3, 0), ResumptionStep.ABORT),
    (12, Accepted(), Accepted(), ResumptionStep.SETTLE),
    (13, Accepted(), Released(), ResumptionStep.RESTATE),
    (14, Accepted(), None, ResumptionStep.ABORT),
]
"""The specification's (2.6.13): its number, the sender's state, the receiver's."""


@pytest.mark.parametrize(("number", "ours", "theirs", "step"), EXAMPLE)
def test_a_sender_decides_as_in_the_specifications_example(
    number: int, ours: Any, theirs: Any, step: ResumptionStep
) -> None:
    tag = b"%d" % number
    named = {} if theirs is ABSENT else {tag: theirs}
    assert decide(is_receiver=False, ours={tag: ours}, theirs=named) == {tag: step}


@pytest.mark.parametrize(("number", "theirs", "ours", "_step"), EXAMPLE)
def test_a_receiver_keeps_what_the_sender_has_and_leaves_the_rest_to_it(
    number: int, theirs: Any, ours: Any, _step: ResumptionStep
) -> None:
    tag = b"%d" % number
    held = {} if ours is ABSENT else {tag: ours}
    expected = ResumptionStep.IGNORE if ours is ABSENT else ResumptionStep.KEEP
    assert decide(is_receiver=True, ours=held, theirs={tag: theirs}) == {tag: expected}


def test_a_receiver_forgets_what_the_sender_has_settled() -> None:
    ours = {b"a": Accepted(), b"b": None}
    decided = decide(is_receiver=True, ours=ours, theirs={b"b": None})
    assert decided == {b"a": ResumptionStep.FORGET, b"b": ResumptionStep.KEEP}
    assert to_tell(decided, ours) == {b"b": None}


@pytest.mark.parametrize("is_receiver", [True, False])
def test_an_incomplete_map_proves_nothing(*, is_receiver: bool) -> None:
    ours = {b"a": Accepted(), b"b": None}
    decided = decide(is_receiver=is_receiver, ours=ours, theirs={}, is_complete=False)
    assert set(decided.values()) == {ResumptionStep.KEEP}


@pytest.fixture
def client() -> Client:
    client = Client(server()).opened(max_frame_size=512)
    client.begun()
    client.read()
    return client


def resumed(client: Client, ours: dict[bytes, Any], **fields: Any) -> Any:
    """The machine's end of a link that holds `ours`, attached again; its attach is not read."""
    client.send(attach(0, **fields))
    link = client.take(events.LinkAttached).link
    link.attach(source=link.remote.source, target=link.remote.target, unsettled=ours)
    return link


def shut() -> tuple[Client, Any]:
    """A link that holds a delivery `t`, with a credit of one and no window to use it."""
    client = Client(server()).opened()
    client.begun(window=0)
    link = resumed(client, {b"t": None}, is_receiver=True)
    client.send(flow(0, 1, incoming_window=0))
    client.read()
    return client, link


def test_both_maps_cross_with_the_attaches(client: Client) -> None:
    theirs = {b"t": None, b"u": Received(2, 10), b"v": Accepted()}
    link = resumed(client, {b"t": Accepted(), b"w": None}, unsettled=theirs)
    (answer,) = client.performatives()
    assert link.remote.unsettled == theirs
    assert answer.unsettled == {b"t": Accepted(), b"w": None}
    assert not answer.incomplete_unsettled
    assert link.earlier == answer.unsettled


@pytest.mark.parametrize("is_receiver", [True, False])
def test_a_map_that_does_not_fit_is_told_as_far_as_it_does(
    client: Client, *, is_receiver: bool
) -> None:
    ours = {b"tag-%04d" % n: Accepted() for n in range(100)}
    link = resumed(client, ours, is_receiver=is_receiver)
    (answer,) = client.performatives()  # 512 bytes at most, or it could not be written
    assert answer.incomplete_unsettled
    assert 20 < len(answer.unsettled) < 35
    assert list(answer.unsettled) == list(ours)[: len(answer.unsettled)]
    assert link.is_incomplete
    assert len(link.earlier) == 100


@pytest.mark.parametrize(
    "unsettled", [{"text": None}, {b"t" * 33: None}, {b"t": "accepted"}, {b"t": Target("q")}]
)
def test_a_map_that_is_none_is_refused(client: Client, unsettled: Any) -> None:
    client.send(attach(0, unsettled=unsettled))
    assert "unsettled map" in (client.take(events.LinkFailed).error.description or "")
    assert [type(each) for each in client.performatives()] == [Attach, Detach]


def again(tag: bytes, delivery_id: int = 0, **fields: Any) -> Transfer:
    return Transfer(0, delivery_id, tag, 0, resume=True, **fields)


def test_a_resumed_delivery_needs_no_credit_and_asks_for_the_senders_count(client: Client) -> None:
    link = resumed(client, {b"t": None}, unsettled={b"t": None})
    client.read()
    client.transfer(again(b"t", more=True), b"he")
    client.transfer(Transfer(0), b"llo")
    pieces = [client.take(events.TransferPiece), client.take(events.TransferPiece)]
    assert b"".join(each.payload for each in pieces) == b"hello"
    assert pieces[0].delivery.is_resumed
    assert (link.credit, link.earlier, list(link.unsettled)) == (0, {}, [b"t"])
    (asked,) = client.performatives()
    assert (asked.handle, asked.delivery_count, asked.echo) == (0, 0, True)
    client.send(flow(0, 0, delivery_count=7))
    link.flow(2)
    (given,) = client.performatives()
    assert (given.delivery_count, given.link_credit, given.echo) == (7, 2, False)
    pieces[0].delivery.dispose(Accepted())
    assert client.performatives() == [
        Disposition(role=True, first=0, settled=True, state=Accepted())
    ]


def test_a_delivery_that_was_taken_before_comes_without_its_bytes(client: Client) -> None:
    link = resumed(client, {b"t": Accepted()}, unsettled={b"t": None})
    client.transfer(again(b"t"), b"all of it, once more")
    piece = client.take(events.TransferPiece)
    assert (piece.payload, piece.is_last, piece.delivery.run.state) == (b"", True, Accepted())
    assert link.unsettled == {b"t": piece.delivery.run}


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        ({"settled": True, "state": Accepted()}, events.TransferPiece),
        ({"aborted": True}, events.DeliveryAborted),
    ],
)
def test_a_resumed_delivery_that_its_sender_ends_is_settled(
    client: Client, fields: dict[str, Any], event: type[Any]
) -> None:
    link = resumed(client, {b"t": Accepted()}, unsettled={b"t": None})
    client.transfer(again(b"t", **fields), b"")
    assert client.take(event).delivery.is_settled
    assert (link.unsettled, link.earlier) == ({}, {})


def test_what_the_receiver_does_not_hold_is_read_past(client: Client) -> None:
    link = resumed(client, {})
    link.flow(1)
    client.transfer(again(b"unknown", more=True), b"x")
    client.transfer(Transfer(0, more=True), b"y")
    client.transfer(Transfer(0), b"z")
    client.transfer(again(b"unknown too", 1, aborted=True, more=True), b"")
    assert client.events == []
    assert link.credit == 1
    client.transfer(Transfer(0, 2, b"t", 0), b"new")
    assert client.take(events.TransferPiece).payload == b"new"


def test_new_deliveries_wait_until_the_maps_are_complete(client: Client) -> None:
    link = resumed(client, {b"%04d" % n: None for n in range(100)}, is_receiver=True)
    client.send(flow(0, 10))
    assert link.credit == 0
    with pytest.raises(InvalidCommand, match="only resumed"):
        link.transfer(b"new", [b"x"], waits=True)
    assert link.resume(b"0000", [b"x"]).delivery_id == 0


def test_a_new_delivery_after_an_incomplete_map_ends_the_link(client: Client) -> None:
    resumed(client, {}, unsettled={b"t": None}, incomplete_unsettled=True).flow(1)
    client.transfer(Transfer(0, 0, b"n", 0), b"new")
    assert client.take(events.LinkFailed).error.condition == "amqp:illegal-state"


def test_a_sender_resumes_what_it_told_and_nothing_else(client: Client) -> None:
    link = resumed(client, {b"t": None, b"u": None}, is_receiver=True)
    client.send(flow(0, 3))
    delivery = link.resume(b"t", [b"hello"], state=Received(0, 0))
    link.transfer(b"new", [b"x"])
    link.resume(b"u", state=Accepted()).dispose(Accepted(), settled=True)
    assert (link.credit, link.earlier) == (1, {})
    told = [each for each in client.performatives() if not isinstance(each, Attach)]
    assert told == [
        Transfer(0, 0, b"t", 0, settled=False, resume=True, state=Received(0, 0)),
        Transfer(0, 1, b"new", 0, settled=False),
        Transfer(0, 2, b"u", 0, settled=False, resume=True, state=Accepted()),
        Disposition(role=False, first=2, settled=True, state=Accepted()),
    ]
    client.send(Disposition(role=True, first=0, settled=True, state=Rejected()))
    assert client.events[-1].deliveries == (delivery,)  # type: ignore[union-attr]
    assert delivery.is_settled
    client.send(flow(0, 3, echo=True))
    (counted,) = client.performatives()
    assert (counted.delivery_count, counted.link_credit) == (2, 1)
    with pytest.raises(InvalidCommand, match="earlier attachment"):
        link.resume(b"t")


def test_a_resumed_delivery_with_payload_waits_for_credit(client: Client) -> None:
    link = resumed(client, {b"t": None, b"u": None}, is_receiver=True)
    with pytest.raises(InvalidCommand, match="no credit"):
        link.resume(b"t", [b"x"])
    client.send(flow(0, 1))
    with pytest.raises(InvalidCommand, match="to be resumed"):
        link.transfer(b"t", [b"x"])
    link.resume(b"t", [b"x"], more=True)
    with pytest.raises(InvalidCommand, match="unfinished"):
        link.resume(b"u")
    link.abort()
    assert link.credit == 0
    assert [each.aborted for each in client.performatives()[1:]] == [False, True]


def test_a_resumed_delivery_given_up_before_its_first_frame_is_aborted_all_the_same() -> None:
    client, link = shut()
    link.resume(b"t", [b"x"], more=True)
    link.abort()
    assert link.credit == 1
    client.send(flow(incoming_window=10))
    assert client.performatives() == [
        Transfer(0, 0, b"t", 0, settled=True, resume=True, aborted=True)
    ]


def test_what_was_settled_while_it_waited_for_the_window_is_told_settled() -> None:
    client, link = shut()
    link.resume(b"t", state=Accepted()).dispose(Accepted(), settled=True)
    client.send(flow(incoming_window=10))
    assert client.performatives() == [
        Transfer(0, 0, b"t", 0, settled=True, resume=True, state=Accepted())
    ]


def test_a_link_that_may_be_resumed_asks_its_sender_for_the_count_once(client: Client) -> None:
    link = resumed(client, {}, target=Target("q", durable=TerminusDurability.UNSETTLED_STATE))
    link.flow(5)
    link.flow(6)
    asked = [each.echo for each in client.performatives() if isinstance(each, Flow)]
    assert asked == [True, False]
    client.send(flow(0, 0, delivery_count=100))  # fe2o3-amqp: it counts from where it was
    assert link.credit == 0
    link.flow(6)
    assert client.performatives()[-1].delivery_count == 100
    client.transfer(Transfer(0, 0, b"t", 0), b"x")
    assert client.events[-1].payload == b"x"  # type: ignore[union-attr]
