"""A message that was taken from its queue and is not sent is never lost from sight."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_shim.broker.settings import BrokerSettings
from broker_shim.errors import StoreError
from tests.support.delivery.amqp_1_0 import Driver10
from tests.support.delivery.places import Alone
from tests.support.stores.stores import done


@pytest.fixture
def place() -> Iterator[Alone]:
    there = Alone(BrokerSettings())
    there.create("q")
    yield there
    for each in there.drivers:
        each.lose()
    there.close()


@pytest.fixture
def message_id(place: Alone) -> int:
    Driver10(place).send("q", "one")
    (found,) = place.entries("q")
    return found


def test_what_was_browsed_and_is_claimed_by_another_comes_once_that_is_given_up(
    place: Alone, message_id: int
) -> None:
    """`message.acquire` of AMQP 0-10: the store refuses it now, and would not later."""
    told: list[StoreError | None] = []
    with place.claimed("q"):
        place.broker.acquisition.acquire("q", message_id, "me", told.append)
        place.until(lambda: told, "the store's refusal")
        assert told[0] is not None
    client = Driver10(place)
    client.consume("q")
    client.receive(1)


def test_what_left_its_queue_while_it_was_handed_out_is_not_put_back(
    place: Alone, message_id: int
) -> None:
    queue = place.broker.queues["q"]
    queue.withdraw([message_id])
    done(place.store.dequeue, message_id, "q", None)
    place.broker.undelivered.not_taken(queue, message_id)
    assert message_id not in queue
    place.broker.undelivered.not_taken(queue, message_id)  # whoever took it was observed before
    place.broker.undelivered.lost(queue, message_id)
    assert len(queue) == 0


def test_what_somebody_else_acquired_meanwhile_is_held_for_it(
    place: Alone, message_id: int
) -> None:
    queue = place.broker.queues["q"]
    queue.withdraw([message_id])
    done(place.store.acquire, message_id, "q", "another")
    place.broker.undelivered.not_taken(queue, message_id)
    assert message_id in queue.elsewhere
