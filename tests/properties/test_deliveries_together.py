"""Deliveries that are taken together are taken as their frames one by one: events, and answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker_shim.amqp_1_0.composites import Accepted, Transfer
from broker_shim.amqp_1_0.definitions import ReceiverSettleMode, SenderSettleMode
from broker_shim.protocol_1_0.codec.frames import transfer_frame
from broker_shim.protocol_1_0.events import TransferPiece
from tests.support.amqp.amqp_1_0 import SETTINGS, Client, one_by_one, server

_TRANSFERS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 2]),  # handle; nothing is attached by 2
        st.sampled_from([1, 1, 1, 2, 0, -1, 1 << 31]),  # what the id rises by
        st.binary(min_size=1, max_size=2) | st.sampled_from([b"", b"t" * 33]),
        st.sampled_from([False, False, True, None]),
        st.sampled_from([False, False, False, True]),  # more
        st.sampled_from([False] * 9 + [True]),  # aborted
        st.sampled_from([b"", b"xy", b"x" * 9]),
    ),
    max_size=12,
)
_MODES = st.sampled_from([*SenderSettleMode]), st.sampled_from([*ReceiverSettleMode])


def _client(window: int, credit: int, modes: tuple[int, int]) -> Client:
    client = Client(server(replace(SETTINGS, session_window=window))).opened()
    client.begun()
    snd, rcv = modes
    for handle in (0, 1):
        link = client.sending(handle, credit=credit, snd_settle_mode=snd, rcv_settle_mode=rcv)
        link._max_message_bytes = 8
    return client


def _came(event: Any) -> tuple[Any, ...]:
    if not isinstance(event, TransferPiece):
        return (type(event).__name__, str(getattr(event, "error", "")))
    delivery = event.delivery
    said = (delivery.tag, delivery.place, delivery.is_settled, delivery.run.is_second)
    return (*said, delivery.link.handle, event.payload, event.is_last)


def _answers(client: Client, said: bytes) -> list[Any]:
    client.peer.receive_data(said, now_s=0.0)
    events = one_by_one(client.peer.events())
    pieces = [each for each in events if isinstance(each, TransferPiece) and each.is_last]
    for piece in pieces:
        piece.delivery.answer(Accepted())
    links = [link for session in client.peer.sessions for link in session.links]
    left = [(link.credit, sorted(link.unsettled)) for link in links]
    return [*map(_came, events), left, client.performatives()]


@given(_TRANSFERS, st.integers(1, 12), st.integers(1, 12), st.tuples(*_MODES), st.integers(0, 1))
def test_what_is_taken_together_is_taken_as_one_by_one(
    transfers: list[Any], window: int, credit: int, modes: tuple[int, int], channel: int
) -> None:
    said, delivery_id = b"", (1 << 32) - 3
    for number, (handle, step, tag, settled, more, aborted, payload) in enumerate(transfers):
        delivery_id = (delivery_id + step) % (1 << 32)
        its = Transfer(handle, delivery_id, tag, 0, settled, more, aborted=aborted)
        at = channel if number == 9 else 0
        said += transfer_frame(at, its, len(payload)) + payload
    together, unbatched_calls = _client(window, credit, modes), _client(window, credit, modes)
    unbatched_calls.peer._decoder.next_deliveries = lambda _most: None  # type: ignore[method-assign]
    assert _answers(together, said) == _answers(unbatched_calls, said)
