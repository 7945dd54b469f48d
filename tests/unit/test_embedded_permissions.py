"""What users may do to each other's queues, frame by frame; each came by a certificate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import Detach, Source, Target
from broker_shim.embedded.access import Access
from broker_shim.embedded.settings import BrokerSettings
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.permissions import rule_of
from broker_shim.security.settings import SecuritySettings
from tests.link_clients import Client, House, Place

RULES = (
    {"who": ["bob"], "address": "orders.#", "allow": ["read", "write", "create"]},
    {"who": ["*"], "address": "temporary", "allow": ["read", "write", "create"]},
)
"""As in the README."""
NOT_FOUND, UNAUTHORIZED = "amqp:not-found", "amqp:unauthorized-access"
User = Callable[[str], Client]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(Place("memory", tmp_path), BrokerSettings())


@pytest.fixture
def user(house: House) -> User:
    """A client of a user, with the rules above."""
    settings = SecuritySettings(permissions=tuple(map(rule_of, RULES)))
    guard = Guard(settings, ("EXTERNAL", "ANONYMOUS"), lambda _event, **_details: None)
    return lambda name: Client(house, name, Access(guard, Remote(certificate_name=name)))


def refusal(client: Client, **fields: Any) -> str | None:
    """Why a link is refused, as a condition; None if it is not."""
    client.attach("link", **fields)
    detached = client.taken(Detach)
    return str(detached[0][0].error.condition) if detached else None


@pytest.mark.parametrize("address", ["temporary-x::orders.eu", "temporary-x", "temporary-"])
def test_who_may_have_temporary_queues_takes_no_name_from_others(
    house: House, user: User, address: str
) -> None:
    mallory, bob = user("mallory"), user("bob")
    assert refusal(mallory, source=Source(address)) in {NOT_FOUND, UNAUTHORIZED}
    assert not house.broker.queues
    assert refusal(bob, target=Target("orders.eu"), is_receiver=False) is None
    assert set(house.broker.queues) == {"orders.eu"}


def test_what_is_on_an_address_like_a_temporary_one_is_not_judged_as_temporary(
    house: House, user: User
) -> None:
    """A root may have such a queue: an older version made it on demand."""
    house.broker.destinations.addresses.add("temporary-x::old")
    assert refusal(user("mallory"), source=Source("temporary-x::old")) == UNAUTHORIZED
