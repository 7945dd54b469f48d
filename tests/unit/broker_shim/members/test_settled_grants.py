"""What a member's consumer that settles at once was granted, and does not get after all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from broker_shim.broker.delivery.consumer_delivery import ConsumerDelivery
from broker_shim.broker.delivery.taken_run import TakenRun
from tests.support.delivery.amqp_1_0 import Driver10
from tests.support.delivery.places import DeliveryPlace, Home


class GoneTaker:
    """A consumer that takes three messages, settled, and its outlet, which is gone by then."""

    holder, credit, room, is_draining, is_gone = "taker", 3, 0, False, True

    def __init__(self, place: DeliveryPlace, on_taken: Callable[[int], None]) -> None:
        queue, self._on_taken = place.broker.queues["q"], on_taken
        holdings = place.broker.holdings(queue, self.holder, self._on_taken)
        self._delivery = ConsumerDelivery(
            holdings, place.broker.undelivered, self, self, is_settled=True
        )

    def assign(self, message_ids: Sequence[int]) -> int:
        """Take all."""
        self.credit -= len(message_ids)
        return self._delivery.take(message_ids)

    def took(self, run: TakenRun) -> None:
        """Let the test do something before they would be sent."""
        self._on_taken(run.message_ids[0])

    def unsent(self, run: TakenRun) -> None:
        """Spend no credit again."""

    def fits(self, run: TakenRun) -> Sequence[bool]:
        """Take any size."""
        return [True] * len(run)

    def send(self, run: TakenRun, failures: Sequence[int]) -> None:
        """Get none."""
        raise AssertionError(run, failures)

    def went(self) -> None:
        """Take no more."""

    def caught_up(self) -> None:
        """Want no more."""

    def queue_deleted(self) -> None:
        """Be there no more."""

    def turned_away(self, reason: str) -> None:
        """Be the only one."""
        raise AssertionError(reason)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[DeliveryPlace]:
    home = Home("at a member", tmp_path)
    place = home.place()
    yield place
    home.close()


def test_of_a_run_whose_first_message_another_has_by_now_the_others_wait_again(
    place: DeliveryPlace,
) -> None:
    place.create("q")
    Driver10(place).send("q", "one", "two", "three")
    queue, taken = place.broker.queues["q"], list[int]()

    def took(message_id: int) -> None:
        taken.append(message_id)
        queue.held_elsewhere([message_id])

    queue.add(GoneTaker(place, took))
    place.until(lambda: taken and place.held("q").count(None) == 2, "two are given back")
    assert len(queue) == 0
    assert place.held("q")[0] is not None
