"""Nothing is told before the store has it, all of it afterwards, and an error never as success.

The store holds every completion back until this test fires it: a store that completes at once
cannot show a broker that speaks too early. So each case is one thing a client asks for, and the
frame that tells it done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from broker_shim.addressing.bindings import Routing
from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Declared,
    DeleteOnClose,
    Detach,
    Discharge,
    Disposition,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.broker.settings import AddressSettings, BrokerSettings
from broker_shim.errors import (
    Ended,
    Fenced,
    InvalidRequest,
    NotAcquired,
    StoreError,
    Unavailable,
)
from broker_shim.protocol_1_0.codec.encoder import write
from tests.support.amqp.held_broker import HeldHouse, HeldPlace
from tests.support.amqp.link_clients import Client

SETTINGS = BrokerSettings(addresses=(AddressSettings("news.#", Routing.MULTICAST),))
VALUE = b"\0\x53\x77"
MANY = 20
"""Completions that one request may need, at most."""


@dataclass(frozen=True)
class Case:
    """One thing that a client asks for.

    Attributes:
        name: What it is.
        prepare: Makes what it needs, over a store that answers.
        ask: Asks for it.
        answer: The kind of frame that tells it done.
        is_done: Whether such a frame says so.
    """

    name: str
    prepare: Callable[[Client], None]
    ask: Callable[[Client], None]
    answer: type
    is_done: Callable[[Any], bool]


def told(state: object) -> Callable[[Any], bool]:
    return lambda frame: frame.settled and frame.state == state


def is_error(frame: Any) -> bool:
    """It says that what was asked for is not done."""
    is_rejection = isinstance(frame, Disposition) and isinstance(frame.state, Rejected)
    return is_rejection or getattr(frame, "error", None) is not None


def sending(client: Client, **fields: Any) -> None:
    client.attach("out", target=Target("q", **fields), is_receiver=False)


def durably_sending(client: Client) -> None:
    sending(client, durable=2, expiry_policy="never")


def holding(client: Client, **fields: Any) -> None:
    """A message of q is the client's, on handle 0."""
    other = Client(client.house, "publisher")
    sending(other)
    other.deliver(b"1", "a message")
    other.vanish()
    client.attach("in", source=Source("q", **fields))
    client.credit(1)
    client.take(Transfer)


def durably_holding(client: Client) -> None:
    holding(client, durable=2, expiry_policy="never")


def transacting(client: Client) -> None:
    """A message is the client's, another is sent, both within a transaction."""
    holding(client)
    client.attach("txn", 1, is_receiver=False, target=Coordinator())
    client.attach("out", 2, is_receiver=False, target=Target("other"))
    client.deliver_encoded(b"declare", VALUE + write(Declare()), 1)
    declared = client.take(Disposition).state
    assert isinstance(declared, Declared)
    client.dispose(0, TransactionalState(declared.txn_id, Accepted()), settled=True)
    client.deliver(b"2", "sent", 2, state=TransactionalState(declared.txn_id, None))
    client.taken(Disposition)


def discharging(*, fail: bool) -> Callable[[Client], None]:
    def ask(client: Client) -> None:
        (txn_id,) = client.ours.transactions._open
        client.deliver_encoded(b"discharge", VALUE + write(Discharge(txn_id, fail)), 1)

    return ask


def discharged(frame: Any) -> bool:
    return frame.role and told(Accepted())(frame)


def deciding(state: object, **fields: Any) -> Callable[[Client], None]:
    return lambda client: client.dispose(0, state, settled=False, **fields)


def attaching(name: str, **fields: Any) -> Callable[[Client], None]:
    told = {"source": Source(), "target": Target(), **fields}
    is_receiver = bool(told.pop("is_receiver", True))
    count = None if is_receiver else 0
    return lambda client: client.send(
        Attach(name, 0, is_receiver, initial_delivery_count=count, **told)
    )


def attached(name: str, **fields: Any) -> Callable[[Client], None]:
    def prepare(client: Client) -> None:
        client.attach(name, **fields)

    return prepare


def nothing(_client: Client) -> None:
    """It needs nothing."""


def detaching(*, closed: bool) -> Callable[[Client], None]:
    return lambda client: client.send(Detach(0, closed=closed))


def sends(client: Client) -> None:
    client.deliver(b"1", "a message")


def grants(frame: Any) -> bool:
    terminus = frame.source if frame.role is False else frame.target
    return terminus is not None and terminus.address is not None


KEPT: dict[str, Any] = {"durable": 2, "expiry_policy": "never"}
DYNAMIC: dict[str, Any] = {
    "dynamic": True,
    "dynamic_node_properties": {Symbol("lifetime-policy"): DeleteOnClose()},
}
SUBSCRIPTION = Source("news.eu", 2, "never", distribution_mode="copy")

CASES = [
    Case("send", sending, sends, Disposition, told(Accepted())),
    Case(
        "send on a link that is kept",
        durably_sending,
        sends,
        Disposition,
        lambda frame: frame.state == Accepted(),
    ),
    Case("accept", holding, deciding(Accepted()), Disposition, told(Accepted())),
    Case(
        "accept on a link that is kept",
        durably_holding,
        deciding(Accepted()),
        Disposition,
        told(Accepted()),
    ),
    Case("reject", holding, deciding(Rejected()), Disposition, told(Rejected())),
    Case("release", holding, deciding(Released()), Disposition, told(Released())),
    Case(
        "modify",
        holding,
        deciding(Modified(True)),
        Disposition,
        lambda frame: isinstance(frame.state, Modified),
    ),
    Case("discharge", transacting, discharging(fail=False), Disposition, discharged),
    Case("roll back", transacting, discharging(fail=True), Disposition, discharged),
    Case("attach to a new queue", nothing, attaching("in", source=Source("q")), Attach, grants),
    Case(
        "attach a receiver that is kept",
        nothing,
        attaching("kept", source=Source("q", **KEPT)),
        Attach,
        grants,
    ),
    Case(
        "attach a sender that is kept",
        nothing,
        attaching("out", target=Target("q", **KEPT), is_receiver=False),
        Attach,
        grants,
    ),
    Case("subscribe", nothing, attaching("sub", source=SUBSCRIPTION), Attach, grants),
    Case(
        "create a queue of the client's own",
        nothing,
        attaching("own", source=Source(**DYNAMIC)),
        Attach,
        grants,
    ),
    Case(
        "unsubscribe",
        attached("sub", source=SUBSCRIPTION),
        detaching(closed=True),
        Detach,
        lambda frame: frame.closed and frame.error is None,
    ),
    Case(
        "close a receiver that is kept",
        attached("kept", source=Source("q", **KEPT)),
        detaching(closed=True),
        Detach,
        lambda frame: frame.closed and frame.error is None,
    ),
    Case(
        "close a sender that is kept",
        durably_sending,
        detaching(closed=True),
        Detach,
        lambda frame: frame.closed and frame.error is None,
    ),
    Case(
        "destroy a queue of the client's own",
        attached("own", source=Source(**DYNAMIC)),
        detaching(closed=True),
        Detach,
        lambda frame: frame.closed and frame.error is None,
    ),
]
OUTCOMES = {"accept", "reject", "release", "modify"}


def begin(case: Case) -> Client:
    """A client that has asked, of a store that holds back what it completes."""
    house = HeldHouse(HeldPlace(), SETTINGS)
    client = Client(house)
    case.prepare(client)
    client.frames.clear()
    house.store.sink.is_holding = True
    case.ask(client)
    return client


def answers(client: Client, case: Case) -> list[Any]:
    return [frame for frame, _payload in client.taken(case.answer)]


def tell(client: Client, error: StoreError | None = None) -> None:
    house = client.house
    assert isinstance(house, HeldHouse)
    house.store.sink.tell(error)
    client.settle_down()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_is_told_before_the_store_has_it_and_all_of_it_after(case: Case) -> None:
    client = begin(case)
    held = client.house.store.sink.held  # type: ignore[attr-defined]
    assert held, "the store was asked for nothing"
    for _ in range(MANY):
        early = [frame for frame in answers(client, case) if case.is_done(frame)]
        if not held:
            break
        assert early == []
        tell(client)
    assert len(early) == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_error_is_told_as_an_error_or_not_at_all_until_the_store_took_it(case: Case) -> None:
    """Whichever of the completions fails first: the store does not answer from there on."""
    for answered in range(MANY):
        client = begin(case)
        house = client.house
        assert isinstance(house, HeldHouse)
        for _ in range(answered):
            tell(client)
        if not house.store.sink.held:
            break
        while house.store.sink.held:
            tell(client, Unavailable("no answer"))
        heard = answers(client, case)
        assert not any(map(case.is_done, heard))
        if any(is_error(frame) for frame in heard) or client.taken(Detach):
            continue
        house.store.sink.is_holding = False
        house.run_delayed()
        assert any(map(case.is_done, answers(client, case)))
    assert answered


@pytest.mark.parametrize("end", [Ended("its disk failed"), Fenced("a replica took over")])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_of_what_was_under_way_when_the_store_ended_no_outcome_is_told(
    case: Case, end: StoreError
) -> None:
    """A group whose sync failed may be there after the start: a rejection would have it twice."""
    for answered in range(MANY):
        client = begin(case)
        house = client.house
        assert isinstance(house, HeldHouse)
        for _ in range(answered):
            tell(client)
        if not house.store.sink.held:
            break
        client.frames.clear()
        while house.store.sink.held:
            tell(client, end)
        assert house.fatal
        heard = [frame for frame, _payload in client.frames]
        assert not any(is_error(frame) for frame in heard)
        assert not any(isinstance(frame, case.answer) and case.is_done(frame) for frame in heard)
    assert answered


def test_a_link_that_is_only_left_is_answered_at_once_for_it_is_kept_already() -> None:
    """Whether or not the store has that it was left: a restart finds it left, and whole."""
    place = HeldPlace()
    house = HeldHouse(place, SETTINGS)
    client = Client(house)
    client.attach("kept", source=Source("q", **KEPT))
    durable = len(place.log)
    house.store.sink.is_holding = True
    assert client.detach(0).error is None
    del place.log[durable:]
    again = HeldHouse(place, SETTINGS)
    assert [key.name for key in again.registry._termini] == ["kept"]
    assert Client(again).attach("kept", source=None).source.address == "q"


@pytest.mark.parametrize("refusal", [NotAcquired("another has it"), InvalidRequest("it is gone")])
@pytest.mark.parametrize("case", [each for each in CASES if each.name.split()[0] in OUTCOMES])
def test_an_outcome_that_the_store_refuses_is_not_confirmed(
    case: Case, refusal: StoreError
) -> None:
    client = begin(case)
    house = client.house
    assert isinstance(house, HeldHouse)
    while house.store.sink.held:
        tell(client, refusal)
    assert answers(client, case) == []
