"""Queues that were made on demand go when nobody uses them; what somebody ordered stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_shim.amqp_1_0.composites import Detach, Source, Target
from broker_shim.broker.orders.unused_queues import UnusedQueues
from broker_shim.broker.settings import BrokerSettings
from broker_shim.store.interface import Queue
from sparkstore.operations.administration import AdminAction, Order
from tests.support.amqp.link_clients import Client, House, Place
from tests.support.amqp.orders import ask, bodies, consumer, publish

UNUSED_S = 300.0


class Timed:
    """A broker whose time passes when a test says so."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.now_s = 0.0
        self.house = House(Place("recorded", folder), BrokerSettings(**settings))  # type: ignore[arg-type]
        self.given(self.house)

    def given(self, house: House) -> None:
        """Have a broker go by this time."""
        self.house, broker = house, house.broker
        broker.unused_queues = UnusedQueues(
            broker, broker.administration, broker.claims.is_claimed, lambda: self.now_s
        )
        broker.unused_queues.start()

    def pass_s(self, seconds: float = UNUSED_S) -> None:
        """Let the time pass; the broker looks at its end, and once more."""
        self.now_s += seconds
        for _ in range(2):
            self.house.run_delayed()

    def names(self) -> set[str]:
        """The queues there are, in the broker and in its store alike."""
        names = set(self.house.broker.queues)
        assert names == {queue.name for queue in self.house.store.recover().queues}
        return names


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[Timed]:
    it = Timed(tmp_path)
    yield it
    it.house.close()


def attached(timed: Timed, name: str) -> Client:
    return consumer(timed.house, name)


def test_a_queue_that_an_attach_made_goes_when_it_is_unused_for_long(timed: Timed) -> None:
    attached(timed, "q").vanish()
    timed.pass_s(UNUSED_S - 1)
    assert timed.names() == {"q"}
    timed.pass_s(UNUSED_S)
    assert timed.names() == set()
    attached(timed, "q")
    timed.pass_s(10 * UNUSED_S)
    assert timed.names() == {"q"}


def test_a_message_keeps_its_queue_and_is_there_for_who_comes(timed: Timed) -> None:
    publish(timed.house, "q", "kept")
    timed.pass_s(10 * UNUSED_S)
    assert bodies(consumer(timed.house, "q", credit=1)) == ["kept"]


def test_a_link_that_sends_nothing_keeps_its_queue_until_it_ends(timed: Timed) -> None:
    client = Client(timed.house, "sender")
    client.attach("out", target=Target("q"), is_receiver=False)
    timed.pass_s(10 * UNUSED_S)
    client.deliver(b"1", "late")
    taker = consumer(timed.house, "q", credit=1)
    assert bodies(taker) == ["late"]
    taker.send(Detach(0, closed=True))
    client.send(Detach(0, closed=True))
    timed.house.run()
    timed.pass_s(10 * UNUSED_S)
    assert timed.names() == {"q"}  # the message came back


def test_who_looks_at_a_queue_keeps_it(timed: Timed) -> None:
    client = Client(timed.house, "browser")
    client.attach("in", source=Source("q", distribution_mode="copy"))
    timed.pass_s(10 * UNUSED_S)
    assert timed.names() == {"q"}
    client.vanish()
    timed.pass_s(UNUSED_S)
    timed.pass_s(UNUSED_S)
    assert timed.names() == set()


@pytest.mark.parametrize(
    "order",
    [
        Order(AdminAction.CREATE_QUEUE, "q"),
        Order(AdminAction.ALTER_QUEUE, "q", arguments={"max_depth": 5}),
        Order(AdminAction.ADD_BINDING, "q", "amq.fanout"),
    ],
)
def test_what_somebody_orders_by_name_stays(timed: Timed, order: Order) -> None:
    """Also where the order changes nothing, and where the binding is gone again."""
    attached(timed, "q").vanish()
    ask(timed.house, order)
    if order.act is AdminAction.ADD_BINDING:
        ask(timed.house, Order(AdminAction.REMOVE_BINDING, "q", "amq.fanout"))
    timed.pass_s(10 * UNUSED_S)
    timed.pass_s(10 * UNUSED_S)
    assert timed.names() == {"q"}


def test_the_dead_letter_queue_of_another_stays(timed: Timed) -> None:
    attached(timed, "dead").vanish()
    ask(timed.house, Order(AdminAction.CREATE_QUEUE, "q", arguments={"dead_letter_queue": "dead"}))
    timed.pass_s(10 * UNUSED_S)
    assert timed.names() == {"q", "dead"}
    ask(timed.house, Order(AdminAction.DELETE_QUEUE, "q"))
    timed.pass_s(UNUSED_S)
    timed.pass_s(UNUSED_S)
    assert timed.names() == set()


def test_what_the_settings_name_stays_and_so_does_all_where_no_time_is_said(tmp_path: Path) -> None:
    named = Timed(tmp_path / "named", queues=(Queue("later"),))
    untimed = Timed(tmp_path / "untimed", unused_queue_s=0.0)
    for timed, name in ((named, "later"), (untimed, "q")):
        attached(timed, name).vanish()
        timed.pass_s(10 * UNUSED_S)
        timed.pass_s(10 * UNUSED_S)
        assert name in timed.names()
        timed.house.close()


def test_what_was_there_at_a_start_stays(timed: Timed) -> None:
    attached(timed, "q").vanish()
    timed.given(timed.house.restarted())
    timed.pass_s(10 * UNUSED_S)
    attached(timed, "q").vanish()
    timed.pass_s(10 * UNUSED_S)
    assert timed.names() == {"q"}


@pytest.mark.parametrize(("unused_s", "pause_s"), [(0.0001, 0.05), (100.0, 25.0), (1e9, 60.0)])
def test_the_loop_looks_now_and_then_whatever_the_time_is(
    tmp_path: Path, unused_s: float, pause_s: float
) -> None:
    timed = Timed(tmp_path, unused_queue_s=unused_s)
    assert [delay_s for delay_s, _call in timed.house.delayed] == [pause_s]
    timed.house.close()
