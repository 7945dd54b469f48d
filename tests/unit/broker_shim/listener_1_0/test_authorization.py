"""What users may do to each other's queues, frame by frame; each came by a certificate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from broker_shim.addressing.bindings import Routing
from broker_shim.amqp_1_0.composites import (
    Accepted,
    Coordinator,
    Detach,
    Disposition,
    Rejected,
    Source,
    Target,
)
from broker_shim.broker.settings import AddressSettings, BrokerSettings
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.durability import TerminusDurability
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.rules.permissions import rule_of
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.sockets.access import Access
from broker_shim.store.interface import Queue
from tests.support.amqp.link_clients import Client, House, Place

RULES = (
    {"who": ["bob"], "address": "orders.#", "allow": ["read", "write", "create"]},
    {"who": ["root"], "address": "#", "allow": ["admin"]},
    {"who": ["*"], "address": "temporary", "allow": ["read", "write", "create"]},
)
"""As in docs/security.md, but for root."""
LOCKED = "amqp:resource-locked"
NOT_FOUND, UNAUTHORIZED = "amqp:not-found", "amqp:unauthorized-access"
LIMIT = "amqp:resource-limit-exceeded"
User = Callable[..., Client]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(Place("memory", tmp_path), BrokerSettings(max_termini=4, max_termini_per_user=2))


@pytest.fixture
def user(house: House) -> User:
    """A client of a user, with the rules above."""
    settings = SecuritySettings(permissions=tuple(map(rule_of, RULES)))
    guard = Guard(settings, ("EXTERNAL", "ANONYMOUS"), lambda _event, **_details: None)

    def connect(name: str, house: House = house) -> Client:
        return Client(house, name, Access(guard, Remote(certificate_name=name)))

    return connect


def refusal(client: Client, **fields: Any) -> str | None:
    """Why a link is refused, as a condition; None if it is not."""
    client.attach("link", **fields)
    detached = client.taken(Detach)
    return str(detached[0][0].error.condition) if detached else None


@pytest.mark.parametrize(
    "address",
    [
        "temporary-x::orders.eu",
        "temporary-x",
        "temporary-",
        "temporary::orders.eu",
        "temporary::temporary",
        "temporary",
        "orders.eu::temporary",
    ],
)
def test_who_may_have_temporary_queues_takes_no_name_from_others(
    house: House, user: User, address: str
) -> None:
    mallory, bob = user("mallory"), user("bob")
    assert refusal(mallory, source=Source(address)) in {NOT_FOUND, UNAUTHORIZED}
    assert not house.broker.queues
    assert refusal(bob, target=Target("orders.eu"), is_receiver=False) is None
    assert set(house.broker.queues) == {"orders.eu"}


@pytest.mark.parametrize("name", ["temporary-x::old", "temporary::old", "temporary"])
def test_what_is_on_an_address_like_a_temporary_one_is_not_judged_as_temporary(
    house: House, user: User, name: str
) -> None:
    """A root may have such a queue: an older version made it on demand."""
    house.broker.create_queue(Queue(name), lambda _error: None)
    house.run()
    assert refusal(user("mallory"), source=Source(name)) == UNAUTHORIZED
    assert refusal(user("mallory"), target=Target(name), is_receiver=False) == UNAUTHORIZED
    assert refusal(user("root"), source=Source(name)) is None


def test_a_multicast_pattern_makes_no_topic_of_the_reserved_word(tmp_path: Path) -> None:
    settings = BrokerSettings(addresses=(AddressSettings("#", Routing.MULTICAST),))
    house = House(Place("memory", tmp_path), settings)
    assert refusal(Client(house), source=Source("temporary")) == NOT_FOUND


def reply_queue(client: Client, handle: int = 0, *, is_receiver: bool = True, **fields: Any) -> str:
    """A queue that the broker names; a receiver's, or as Qpid JMS makes one."""
    told: Any = {"source": Source(dynamic=True, **fields)}
    if not is_receiver:
        told = {"target": Target(dynamic=True, **fields)}
    answer = client.attach("own", handle, is_receiver=is_receiver, **told)
    node = answer.source if is_receiver else answer.target
    assert node is not None
    return str(node.address)


@pytest.mark.parametrize("is_receiver", [True, False])
def test_answers_are_read_by_whom_they_are_for_and_written_by_anybody(
    user: User, *, is_receiver: bool
) -> None:
    ann = user("ann")
    name = reply_queue(ann, 1, is_receiver=is_receiver)
    assert refusal(user("mallory"), source=Source(name)) == UNAUTHORIZED
    assert refusal(user("mallory"), source=Source(name, distribution_mode="copy")) == UNAUTHORIZED
    assert refusal(user("anonymous"), source=Source(name)) == UNAUTHORIZED
    assert refusal(user("bob"), target=Target(name), is_receiver=False) is None
    assert refusal(ann, source=Source(name)) is None
    assert refusal(user("ann"), source=Source(name)) == LOCKED
    assert refusal(user("ann"), source=Source(name, distribution_mode="copy")) == LOCKED
    assert refusal(user("root"), source=Source(name)) is None


@pytest.mark.parametrize("whose", ["connection", "user"])
def test_where_all_are_anonymous_too_a_reply_queue_is_its_connections_unless_said_else(
    tmp_path: Path, whose: str
) -> None:
    house = House(Place("memory", tmp_path), BrokerSettings(temporary_queues=whose))
    first, other = Client(house, "first"), Client(house, "other")
    name = reply_queue(first, 1)
    assert refusal(other, source=Source(name)) == (LOCKED if whose == "connection" else None)
    assert refusal(first, source=Source(name)) is None


def test_a_reply_queue_is_the_connections_that_took_its_link_over(house: House, user: User) -> None:
    before = user("ann")
    name = reply_queue(before, 1, expiry_policy="never")
    before.vanish()
    after, third = user("ann"), user("ann")
    assert reply_queue(after, 1, expiry_policy="never") == name
    assert refusal(after, source=Source(name)) is None
    assert refusal(third, source=Source(name)) == LOCKED


def test_a_reply_queue_is_its_users_after_a_restart(tmp_path: Path, user: User) -> None:
    house = House(Place("recorded", tmp_path), BrokerSettings())
    ann = user("ann", house)
    name = reply_queue(ann, durable=2, expiry_policy="never")
    again = house.restarted()
    assert name in again.broker.queues
    assert refusal(user("mallory", again), source=Source(name)) == UNAUTHORIZED
    assert refusal(user("ann", again), source=Source(name)) is None
    again.close()


@pytest.mark.parametrize(("name", "is_staged"), [("bob", True), ("mallory", False)])
def test_what_a_relay_may_not_send_is_written_nowhere(
    house: House, user: User, name: str, *, is_staged: bool
) -> None:
    orders = Queue("orders", TerminusDurability.UNSETTLED_STATE)
    house.broker.create_queue(orders, lambda _error: None)
    house.run()
    staged: list[object] = []
    stage = house.calls.puts.stage
    house.calls.puts.stage = lambda header: staged.append(header) or stage(header)  # type: ignore[method-assign, func-returns-value]
    relay = user(name)
    relay.attach("out", target=Target(), is_receiver=False)
    message = Message("x" * (STAGED_BYTES + 1), address="orders", durable=True)
    encoded = message.encode()
    for start in range(0, len(encoded), 30_000):
        piece = encoded[start : start + 30_000]
        relay.deliver_piece(b"0", piece, more=start + 30_000 < len(encoded))
    ((told, _payload),) = relay.taken(Disposition)
    assert bool(staged) == is_staged
    assert isinstance(told.state, Accepted if is_staged else Rejected)


def told(client: Client, address: str, *, is_receiver: bool) -> tuple[str, str]:
    """Condition and text with which a link is refused."""
    end = {"source": Source(address)} if is_receiver else {"target": Target(address)}
    client.attach("link", is_receiver=is_receiver, **end)
    error = client.taken(Detach)[0][0].error
    return str(error.condition), error.description


@pytest.mark.parametrize("is_receiver", [True, False])
@pytest.mark.parametrize("there", [(), ("prices::q",), ("prices::q", "bills::q")])
def test_a_refusal_tells_nobody_what_there_is(
    house: House, user: User, there: tuple[str, ...], *, is_receiver: bool
) -> None:
    for name in there:
        house.broker.ensure_queue(name, lambda _error: None)
    house.run()
    act = "read" if is_receiver else "write"
    found = told(user("mallory"), "q", is_receiver=is_receiver)
    assert found == (UNAUTHORIZED, f"'mallory' has no permission to {act} 'q'")


def test_who_may_use_one_of_its_queues_is_told_that_a_name_is_ambiguous(
    house: House, user: User
) -> None:
    for name in ("orders.eu::q", "prices::q"):
        house.broker.ensure_queue(name, lambda _error: None)
    house.run()
    condition, text = told(user("bob"), "q", is_receiver=False)
    assert condition == NOT_FOUND
    assert text == "'q' is on 2 addresses: say address::queue"


LIVES_ON = Source("orders", expiry_policy="never")


def test_a_user_has_so_many_links_and_keeps_nobody_out(house: House, user: User) -> None:
    for name in ("bob", "root"):
        client = user(name)
        for number in range(2):
            assert client.attach(f"link {number}", source=LIVES_ON).source is not None
            client.detach()
        if name == "bob":
            assert told(client, "orders", is_receiver=True) == (
                LIMIT,
                "2 links of 'bob' are attached or live on: close some that are not used",
            )
            client.send(Detach(0, closed=True))
            client.attach("link 0", source=LIVES_ON)
            client.detach(closed=True)
            client.attach("link 2", source=LIVES_ON)
    third = user("anonymous")
    assert told(third, "orders", is_receiver=True)[1].startswith("4 links are attached or live on")


def test_who_is_at_its_limit_still_has_transactions_and_asks_for_its_links(
    house: House, user: User
) -> None:
    bob = user("bob")
    for number in range(2):
        bob.attach(f"link {number}", source=LIVES_ON)
        bob.detach()
    coordinator = bob.attach("coordinator", target=Coordinator(), is_receiver=False)
    assert isinstance(coordinator.target, Coordinator)
    asked = bob.attach("link 3", 1, source=None)
    assert asked.source is None
    assert bob.take(Detach).error.condition == NOT_FOUND


def test_where_all_are_anonymous_they_are_not_one_user(house: House) -> None:
    client = Client(house)
    for number in range(4):
        assert client.attach(f"link {number}", source=LIVES_ON).source is not None
        client.detach()
