"""Frames that are read as runs, and are cut, damaged, out of order or mixed: as one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import Accepted, Disposition, End, Transfer
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.codec.frames import encoded_frame, transfer_frame
from tests.support.amqp.amqp_1_0 import Client, one_by_one, server

_WRAP = 1 << 32


def _client() -> Client:
    client = Client(server()).opened()
    client.begun()
    for handle in (0, 1):
        client.sending(handle, credit=100)
    client.events.clear()
    client.read()
    return client


def _frames(ids: Sequence[int], handle: int = 0) -> list[bytes]:
    frames = []
    for index, number in enumerate(ids):
        tag, body = b"%08x-%d" % (number, index), b"payload %d" % number
        frames.append(transfer_frame(0, Transfer(handle, number, tag, 0, False), len(body)) + body)
    return frames


def _said(client: Client, *reads: bytes, together: bool = True) -> list[Any]:
    """What a client's bytes lead to: events, and what it is answered."""
    if not together:
        client.peer._decoder.next_deliveries = lambda _most: None  # type: ignore[method-assign]
    happened: list[events.Event] = []
    for received in reads:
        client.peer.receive_data(received, now_s=0.0)
        happened += one_by_one(client.peer.events())
    said: list[Any] = []
    for event in happened:
        if isinstance(event, events.TransferPiece):
            delivery = event.delivery
            number, _count = delivery.place
            said.append((delivery.link.handle, number % _WRAP, delivery.tag, event.payload))
        else:
            said.append((type(event).__name__, str(getattr(event, "error", ""))))
    return [*said, client.performatives()]


@pytest.mark.parametrize("first_id", [0, 250, _WRAP - 2])
def test_a_run_that_is_cut_at_any_byte_brings_what_it_brings_whole(first_id: int) -> None:
    stream = b"".join(_frames([(first_id + number) % _WRAP for number in range(4)]))
    whole = _said(_client(), stream)
    assert len(whole) == 5
    for place in range(1, len(stream)):
        assert _said(_client(), stream[:place], stream[place:]) == whole


@pytest.mark.parametrize("place", range(len(_frames([7])[0])))
@pytest.mark.parametrize("byte", [0x00, 0x40, 0x70, 0xC0, 0xFF])
def test_a_frame_of_a_run_that_lies_is_taken_as_by_itself(place: int, byte: int) -> None:
    frames = _frames(range(6, 10))
    frames[1] = frames[1][:place] + bytes([byte]) + frames[1][place + 1 :]
    stream = b"".join(frames)
    assert _said(_client(), stream) == _said(_client(), stream, together=False)


def test_an_id_out_of_order_ends_the_session_and_what_came_before_is_there() -> None:
    *said, answers = _said(_client(), b"".join(_frames([0, 1, 2, 1, 3])))
    assert [delivery_id for _handle, delivery_id, *_ in said[:3]] == [0, 1, 2]
    assert [name for name, _error in said[3:]] == ["SessionFailed"]
    (end,) = answers
    assert isinstance(end, End)
    assert end.error.condition == AmqpError.INVALID_FIELD


def test_ids_may_leave_some_out_and_wrap_in_the_middle_of_a_read() -> None:
    ids = [_WRAP - 3, _WRAP - 2, _WRAP - 1, 0, 1, 5, 6]
    client = _client()
    client.peer.receive_data(b"".join(_frames(ids)), now_s=0.0)
    runs = client.peer.events()
    assert [run.delivery.length for run in runs if isinstance(run, events.DeliveriesReceived)] == [
        5,
        2,
    ]
    for run in runs:
        assert isinstance(run, events.DeliveriesReceived)
        run.delivery.link.dispose([run.delivery], Accepted())
    answers = client.performatives()
    assert [(answer.first, answer.last) for answer in answers] == [(_WRAP - 3, 1), (5, 6)]
    assert all(isinstance(answer, Disposition) for answer in answers)


def test_a_frame_of_another_link_in_between_keeps_the_order() -> None:
    stream = [*_frames([0, 1]), *_frames([2], handle=1), *_frames([3, 4])]
    *said, _answers = _said(_client(), b"".join(stream))
    assert [(handle, delivery_id) for handle, delivery_id, *_ in said] == [
        (0, 0),
        (0, 1),
        (1, 2),
        (0, 3),
        (0, 4),
    ]


@pytest.mark.parametrize("ends", [False, True])
def test_what_its_sender_settled_in_the_same_read_is_settled_when_the_run_is_looked_at(
    *, ends: bool
) -> None:
    """The run was cut before its owner heard of it; once its link ended nothing more is settled."""
    client = _client()
    settled = Disposition(role=False, first=_WRAP - 1, last=0, settled=True)
    stream = [*_frames([_WRAP - 2, _WRAP - 1, 0, 1]), encoded_frame(settled)]
    client.peer.receive_data(b"".join(stream), now_s=0.0)
    came, heard = client.peer.events()
    assert isinstance(came, events.DeliveriesReceived)
    assert isinstance(heard, events.DispositionReceived)
    if ends:
        came.delivery.link.detach(closed=False)
        client.performatives()
    singles = [came.delivery.part(at, 1) for at in range(4)]
    assert [single.is_settled for single in singles] == [False, True, True, False]
    assert len({single.tag for single in singles}) == 4
    for single in reversed(singles):
        single.answer(Accepted())
    answers = [(answer.first, answer.last) for answer in client.performatives()]
    assert answers == ([] if ends else [(_WRAP - 2, None), (1, None)])
