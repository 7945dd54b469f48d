"""Messages that never come whole take so much memory and no more, whoever begins them."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_shim.amqp_1_0.composites import Detach, Target
from broker_shim.broker.settings import BrokerSettings
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.rules.permissions import rule_of
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.sockets.access import Access
from tests.support.amqp.link_clients import Client, House, Place

LIMIT, UNAUTHORIZED = "amqp:resource-limit-exceeded", "amqp:unauthorized-access"
PIECE = b"\x00\x53\x75\xb0\x00\x10\x00\x00" + b"x" * 20_000
"""The beginning of a message of 1 MiB that is not durable."""


@pytest.fixture
def house(tmp_path: Path) -> House:
    settings = BrokerSettings(
        max_message_bytes=50_000, max_unfinished_bytes=70_000, max_unfinished_bytes_in_all=100_000
    )
    return House(Place("memory", tmp_path), settings)


def sender(house: House, links: int, name: str = "client") -> Client:
    """A client that has begun a message of 20,000 bytes on each of so many links."""
    client = Client(house, name)
    for handle in range(links):
        client.attach(f"link {handle}", handle, target=Target("q"), is_receiver=False)
        client.deliver_piece(b"0", PIECE, handle, more=True)
        client._delivery_id += 1
    return client


def ended(client: Client) -> list[tuple[int, str]]:
    """Handle and condition of the links that were ended."""
    return [(told.handle, str(told.error.condition)) for told, _ in client.taken(Detach)]


def test_beyond_the_limit_of_all_whoever_has_most_gives_it_up(house: House) -> None:
    greedy, modest = sender(house, 3, "greedy"), sender(house, 1, "modest")
    assert ended(greedy) == []
    assert house.broker.unfinished.total_bytes == 4 * len(PIECE)
    late = sender(house, 1, "late")
    assert ended(greedy) == [(0, LIMIT)]
    assert ended(modest) == ended(late) == []
    assert house.broker.unfinished.total_bytes == 4 * len(PIECE)
    for client in (greedy, modest, late):
        client.vanish()
    assert house.broker.unfinished.total_bytes == 0
    assert not house.broker.unfinished._of
    assert not house.broker.unfinished._sums


def test_beyond_the_limit_of_a_connection_its_own_link_ends(house: House) -> None:
    client = sender(house, 4)
    assert ended(client) == [(3, LIMIT)]
    assert house.broker.unfinished.total_bytes == 3 * len(PIECE)


@pytest.mark.parametrize(
    ("name", "is_let"), [("reader", False), ("writer", True), ("admin", True), ("nobody", False)]
)
def test_who_may_write_nowhere_has_no_link_to_send_anywhere(
    house: House, name: str, *, is_let: bool
) -> None:
    rules = [
        {"who": ["reader"], "address": "#", "allow": ["read", "create"]},
        {"who": ["writer"], "address": "orders", "allow": ["write"]},
        {"who": ["admin"], "address": "orders", "allow": ["admin"]},
    ]
    settings = SecuritySettings(permissions=tuple(map(rule_of, rules)))
    guard = Guard(settings, ("EXTERNAL",), lambda _event, **_details: None)
    client = Client(house, name, Access(guard, Remote(certificate_name=name)))
    client.attach("relay", target=Target(), is_receiver=False)
    assert ended(client) == ([] if is_let else [(0, UNAUTHORIZED)])
