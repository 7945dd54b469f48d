"""Delayed messages go by the clock of the machine, whatever is done to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_shim.broker.flow.delivery_delays import DeliveryDelays
from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.core.annotations import DELIVERY_TIME
from tests.support.amqp.memory_broker import MemoryBroker
from tests.support.stores.stores import done

SECOND_US = 1_000_000
DUE_US = 4_102_444_800 * SECOND_US


class Delayed:
    """A queue with a message that is to wait until 2100, and a clock that the test sets."""

    def __init__(self) -> None:
        store, self.now_us = MemoryMessageStore(), DUE_US - 10 * SECOND_US
        done(store.create, Queue("q"))
        self._store = store
        first = self._enqueue()
        self.house = MemoryBroker(store, entries=store.recover().entries)
        self.queue = self.house.broker.serve(Queue("q"))
        self.queue.arrived([first], 4)
        self._delays = DeliveryDelays(self.house.broker, lambda: self.now_us)
        self._delays.recovered(self.queue)

    def _enqueue(self) -> int:
        message = self._store.message(MessageHeader("raw", b"h"), b"body")
        annotations = {DELIVERY_TIME: ("long", str(DUE_US // 1_000))}
        done(self._store.enqueue, message, "q", annotations=annotations)
        return message.message_id

    def enqueue_another(self) -> None:
        """Put one that is due at the same time on the queue."""
        second = self._enqueue()
        self.queue.arrived([second], 4)
        self._delays.came(self.queue, [second])

    @property
    def wait_s(self) -> float:
        """For how long the broker waits before it looks again."""
        [(delay_s, _call)] = self.house.delayed
        return delay_s

    def is_hidden(self, at_us: int) -> bool:
        """Whether the message is hidden still, once the clock says so and the timer has come."""
        self.now_us = at_us
        self.house.make_delayed_calls()
        while self.house.delayed and self.wait_s == 0:  # it came too soon, and looks more closely
            self.house.make_delayed_calls()
        return len(self.queue.delayed) == 1


@pytest.fixture
def it() -> Iterator[Delayed]:
    made = Delayed()
    yield made
    made.house.close()


def test_a_message_is_shown_when_its_time_has_come_and_not_before(it: Delayed) -> None:
    assert it.is_hidden(DUE_US - 10 * SECOND_US)
    assert 0 < it.wait_s <= 10
    assert it.is_hidden(DUE_US - 1)
    assert not it.is_hidden(DUE_US)


def test_a_clock_that_was_set_back_an_hour_delivers_nothing_early(it: Delayed) -> None:
    assert it.is_hidden(DUE_US - 3_600 * SECOND_US)
    assert it.wait_s == 60, "so a clock that is set forward again is seen within a minute"
    assert it.is_hidden(DUE_US - 3_540 * SECOND_US)
    assert not it.is_hidden(DUE_US + SECOND_US)


def test_one_that_comes_when_it_is_due_does_not_overtake_one_that_waits_for_the_timer(
    it: Delayed,
) -> None:
    it.now_us = DUE_US + 1
    it.enqueue_another()
    assert len(it.queue.delayed) == 2
    assert not it.is_hidden(DUE_US + 1)
    assert len(it.queue.delayed) == 0
