"""As `test_amqp_1_0_resumed_links`, with the whole embedded broker over a store of tier 2."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.amqp_1_0.definitions import ReceiverSettleMode
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.sockets.access import Access
from tests.support.amqp import link_clients, resuming
from tests.support.amqp.amqp_messages import number_in, numbered
from tests.support.amqp.link_clients import House, Place

STRIDE = 1 if "SPARKSTORE_SOAK" in os.environ else 29
"""Bytes from one cut to the next."""

SIZES = (8, 700, 8, 8, 300)
FIRST, SECOND = ReceiverSettleMode.FIRST, ReceiverSettleMode.SECOND
CASES = [(True, FIRST), (True, SECOND), (False, SECOND)]
"""Client sends or not, and settles how."""


class EmbeddedBroker:
    """The broker's end: its completions come when `writes` are taken."""

    def __init__(self, count: int = 0) -> None:
        """`count`: Messages that wait in its queue."""
        self.house = House(Place("recorded", Path()))
        self._connection: Connection | None = None
        if count:
            client = link_clients.Client(self.house, "other")
            client.attach("fill", is_receiver=False, target=resuming.Target("q"))
            for number in range(count):
                client.deliver_encoded(b"%d" % number, message(number))
            client.vanish()

    @property
    def writes(self) -> list[Callable[[], None]]:
        """What the store has done and the broker does not know."""
        return [self.house.run] if self.house.calls.open_count else []

    def connect(self, *, is_killed: bool) -> None:
        """A new connection, after the old one was lost, or the broker with it."""
        if is_killed:
            self.house = self.house.restarted()
        elif self._connection is not None:
            self._connection.receive(b"")
            self._connection.lost()
        # With a door of its own: brokers that were killed take no connection of its limit.
        self._connection = self.house.host.connect(lambda: None, Access())

    def receive(self, encoded: bytes) -> None:
        assert self._connection is not None
        self._connection.receive(encoded)
        self.house.broker.dispatch()

    def output(self) -> bytes:
        assert self._connection is not None
        self.house.broker.dispatch()
        encoded = bytes(self._connection.output())
        self._connection.unsent(0)
        return encoded

    def waiting(self) -> list[int]:
        """Numbers of the messages in its queue, taken out."""
        client = link_clients.Client(self.house, "other")
        client.attach("drain", source=resuming.Source("q"))
        client.credit(1_000)
        found = client.taken(resuming.Transfer)
        client.vanish()
        return [number_in(payload) for _transfer, payload in found]


def message(number: int) -> bytes:
    return numbered(number, SIZES[number % len(SIZES)])


def line(count: int, *, client_sends: bool, mode: ReceiverSettleMode, credit: int = 4) -> Line:
    messages = [message(number) for number in range(count)] if client_sends else []
    client = resuming.Client(
        is_receiver=not client_sends, messages=messages, mode=mode, credit=credit
    )
    return resuming.Line(client, EmbeddedBroker(0 if client_sends else count))


Line = resuming.Line


def check_all_went_once(line: Line, count: int, *, client_sends: bool) -> None:
    """Nothing is lost, doubled or left unsettled, at either end."""
    for _ in range(2):  # by the second the client has told that it has settled everything
        line.connect()
        line.finish()
    arrived = [number_in(each) for each in line.client.taken]
    assert isinstance(line.broker, EmbeddedBroker)
    store = line.broker.house.store
    if client_sends:
        assert len(line.client.outcomes) == count
        assert set(line.client.outcomes.values()) == {1}
        assert line.client.unsettled == {}
        assert store.recover().unsettled == {}
        arrived = line.broker.waiting()
    assert sorted(arrived) == list(range(count))
    assert line.client.unsettled == {}
    assert not store.recover().entries["q"] or client_sends
    line.broker.house.close()


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize(("client_sends", "mode"), CASES)
def test_a_connection_cut_anywhere_is_resumed(
    *, client_sends: bool, mode: ReceiverSettleMode, is_killed: bool
) -> None:
    count = 6
    whole = line(count, client_sends=client_sends, mode=mode)
    whole.connect()
    byte_count = whole.settle()
    check_all_went_once(whole, count, client_sends=client_sends)
    for cut in range(0, byte_count, STRIDE):
        each = line(count, client_sends=client_sends, mode=mode)
        each.connect()
        assert each.settle(cut) == cut
        each.connect(is_killed=is_killed)
        each.finish()
        check_all_went_once(each, count, client_sends=client_sends)


@pytest.mark.parametrize(("client_sends", "mode"), CASES)
@given(data=st.data())
def test_any_cuts_and_any_delays(
    *, client_sends: bool, mode: ReceiverSettleMode, data: st.DataObject
) -> None:
    carried = line(8, client_sends=client_sends, mode=mode)
    carried.connect()
    amounts = st.integers(1, 60) | st.just(10_000)
    for step in data.draw(st.lists(st.sampled_from("uuuddddwwck"), max_size=60)):
        if step == "u":
            carried.carry_up(data.draw(amounts))
        elif step == "d":
            carried.carry_down(data.draw(amounts))
        elif step == "w" and carried.broker.writes:
            carried.broker.writes.pop(0)()
        elif step in "ck":
            carried.connect(is_killed=step == "k")
    check_all_went_once(carried, 8, client_sends=client_sends)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize(("client_sends", "mode"), CASES)
def test_maps_that_do_not_fit_a_frame_are_worked_off(
    *, client_sends: bool, mode: ReceiverSettleMode, is_killed: bool
) -> None:
    carried = line(80, client_sends=client_sends, mode=mode, credit=80)
    carried.connect()
    for carry in [carried.carry_up, carried.carry_down] * 2:
        if client_sends and len(carried.client.unsettled) == 80 and carry == carried.carry_down:
            break  # the answers are lost
        carry(1 << 20)
        for write in carried.broker.writes:
            write()
    carried.connect(is_killed=is_killed)
    carried.finish()
    assert carried.client.incomplete_count > 0
    check_all_went_once(carried, 80, client_sends=client_sends)
