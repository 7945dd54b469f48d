"""Whoever holds a message lets go of it when its link, session or connection ends, on every road.

The broker is alive while this looks: of one that is given up whole, as tests do that end in the
midst of something, the links are garbage with all that they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.controls import ConnectionClose, SessionDetach
from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Disposition,
    Source,
    Target,
    TransactionalState,
)
from broker_shim.messages.hold import Messages
from broker_shim.protocol_1_0.codec.encoder import write
from tests.support.amqp.amqp_0_10 import Bench010, Client010
from tests.support.amqp.held_broker import HeldHouse, HeldPlace
from tests.support.amqp.link_clients import Client

_VALUE = b"\0\x53\x77"
_LARGE = "x" * (2 << 20)
"""Read from the store as it is sent, in pieces."""


def _sent(house: HeldHouse, *bodies: str) -> None:
    publisher = Client(house, "publisher")
    publisher.attach("out", target=Target("q"), is_receiver=False)
    for number, body in enumerate(bodies):
        publisher.deliver(b"%d" % number, body)
    publisher.vanish()


def _unsettled(client: Client, **source: object) -> None:
    client.attach("in", source=Source("q", **source))  # type: ignore[arg-type]
    client.credit(10)
    assert client.transfers()


def _kept(client: Client) -> None:
    _unsettled(client, durable=2, expiry_policy="never")


def _under_way(client: Client) -> None:
    """The store has not answered yet that the messages are acquired."""
    client.attach("in", source=Source("q"))
    client.house.store.sink.is_holding = True  # type: ignore[attr-defined]
    client.credit(10)
    assert client.transfers() == []


def _within(client: Client) -> None:
    """The messages are decided about in a transaction that is open."""
    _unsettled(client)
    client.attach("txn", 1, is_receiver=False, target=Coordinator())
    client.deliver_encoded(b"declare", _VALUE + write(Declare()), 1)
    txn_id = client.take(Disposition).state.txn_id
    client.dispose(0, TransactionalState(txn_id, Accepted()), settled=True)


def _detach(client: Client) -> None:
    client.detach()


def _close_link(client: Client) -> None:
    client.detach(closed=True)


def _steal(client: Client) -> None:
    thief = Client(client.house)
    thief.send(Attach("in", 0, True, target=Target(), source=Source("q")))
    thief.close()


def _losses(messages: Messages) -> list[Callable[[], None]]:
    """What this broker is told by holds that are garbage; others' garbage may come at any time."""
    lost: list[Callable[[], None]] = []
    messages.post = lost.append
    return lost


def _check_released(messages: Messages, lost: list[Callable[[], None]]) -> None:
    """See that nobody has a message, and nobody only forgot that it had one."""
    assert lost == []
    assert messages.holders() == {}


_HELD = [_unsettled, _kept, _under_way, _within]
_ENDS = [_detach, _close_link, Client.end_session, Client.close, Client.vanish, _steal]


@pytest.mark.parametrize("end", _ENDS, ids=lambda end: end.__name__.strip("_"))
@pytest.mark.parametrize("hold", _HELD, ids=lambda hold: hold.__name__.strip("_"))
def test_nothing_holds_a_message_once_its_link_has_ended(
    hold: Callable[[Client], None],
    end: Callable[[Client], None],
) -> None:
    house = HeldHouse(HeldPlace())
    _sent(house, "first", "second", _LARGE)
    client = Client(house)
    hold(client)
    messages = house.calls.messages
    lost = _losses(messages)
    assert messages.holders()
    end(client)
    sink = house.store.sink
    sink.is_holding = False
    while sink.held:
        sink.tell()
    house.run_delayed()
    client.vanish()  # what a transaction had that was open goes with its connection
    house.run_delayed()
    _check_released(messages, lost)
    house.close()


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010()
    yield it
    it.close()


def _close_session(client: Client010) -> None:
    client.do(SessionDetach(b"session"))


def _cancel(client: Client010) -> None:
    client.do(c.MessageCancel("d"))
    client.do(SessionDetach(b"session"))  # what was sent before is the session's until then


def _close_connection(client: Client010) -> None:
    client.say(ConnectionClose(200), 0)
    client._bench.run()
    client.lose()


def _select(client: Client010) -> None:
    """What it is sent is in a transaction that is open."""
    client.do(c.TxSelect())
    client.subscribe("q")
    client.do(c.MessageAccept(((0, 1),)))


_SUBSCRIBE: dict[str, Callable[[Client010], None]] = {
    "unsettled": lambda client: client.subscribe("q"),
    "browsed": lambda client: client.subscribe("q", acquire_mode=1),
    "settled": lambda client: client.subscribe("q", accept_mode=1),
    "within": _select,
}


@pytest.mark.parametrize("end", [_close_session, _cancel, _close_connection, Client010.lose])
@pytest.mark.parametrize("hold", _SUBSCRIBE)
def test_nothing_holds_a_message_once_its_session_of_0_10_has_ended(
    bench: Bench010,
    hold: str,
    end: Callable[[Client010], None],
) -> None:
    publisher = bench.client()
    publisher.open()
    publisher.attach(b"publisher")
    publisher.send("q", b"first")
    publisher.send("q", b"second")
    client = bench.opened()
    messages = bench.calls.messages
    lost = _losses(messages)
    _SUBSCRIBE[hold](client)
    assert client.bodies == [b"first", b"second"]
    end(client)
    bench.pass_time()
    _check_released(messages, lost)
