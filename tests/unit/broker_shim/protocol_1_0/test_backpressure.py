"""What holds a peer back, and what is held back by it: windows shut on purpose, bytes that wait."""

from __future__ import annotations

import pytest

from broker_shim.amqp_1_0.composites import Flow, Transfer
from broker_shim.protocol_1_0.codec.errors import InvalidCommand
from tests.support.amqp.amqp_1_0 import SETTINGS, Client, flow, server

WINDOW = 4


@pytest.fixture
def client() -> Client:
    it = Client(server())
    it.opened()
    it.begun()
    return it


def transfer(number: int) -> Transfer:
    return Transfer(0, number, b"%d" % number, 0, settled=False)


def windows(client: Client) -> list[int]:
    return [each.incoming_window for each in client.performatives() if isinstance(each, Flow)]


def test_a_window_that_is_held_back_is_opened_again_when_all_have_let_go(client: Client) -> None:
    link = client.sending(credit=2_000)
    for _ in range(2):
        link.port.hold_back(is_held=True)
    half = SETTINGS.session_window // 2
    for number in range(half):
        client.transfer(transfer(number), b"x")
    assert windows(client) == []
    link.flow(1_000)
    assert windows(client) == [half]
    link.port.hold_back(is_held=False)
    assert windows(client) == []
    link.port.hold_back(is_held=False)
    assert windows(client) == [SETTINGS.session_window]


def test_what_waits_for_the_peers_window_is_counted_until_it_went(client: Client) -> None:
    link = client.receiving(credit=0)
    client.send(flow(0, 10, incoming_window=WINDOW))
    for number in range(WINDOW + 2):
        link.transfer(b"%d" % number, (b"12345",))
    assert link.port.waiting_bytes == 10
    client.send(flow(0, 10, next_incoming_id=WINDOW, incoming_window=1))
    assert link.port.waiting_bytes == 5
    link.detach()
    assert link.port.waiting_bytes == 0


def test_a_large_delivery_counts_for_what_of_it_did_not_go() -> None:
    client = Client(server()).opened(max_frame_size=512)
    client.begun()
    link = client.receiving(credit=0)
    client.send(flow(0, 1, incoming_window=2))
    link.transfer(b"t", (bytes(1_500),), more=True)
    assert 1_500 - 2 * 512 < link.port.waiting_bytes < 1_500 - 2 * 400
    link.abort()
    assert link.port.waiting_bytes == 0


def test_without_credit_only_what_may_wait_is_taken_and_it_goes_with_the_next(
    client: Client,
) -> None:
    link = client.receiving(credit=0)
    with pytest.raises(InvalidCommand, match="no credit"):
        link.transfer(b"a", (b"x",))
    link.transfer(b"a", (b"x",), waits=True)
    assert client.performatives() == []
    client.send(flow(0, 1))
    assert [each.delivery_tag for each in client.performatives()] == [b"a"]
    assert link.credit == 0


def test_nothing_can_be_said_once_close_was() -> None:
    client = Client(server()).opened()
    assert not client.peer.is_closed
    client.peer.close()
    assert client.peer.is_closed
    assert not client.peer.is_over
