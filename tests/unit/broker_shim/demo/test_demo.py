"""The judge of the demo finds every way in which a store could betray its clients."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from broker_shim.demo.departures import departure, departures, message_name, number_of
from broker_shim.demo.processes import Progress
from broker_shim.demo.verdict import (
    ConfirmedDeliveries,
    Key,
    Stored,
    count,
    disagreements,
    landed_in_doubt,
)
from tests.support.checkout import CHECKOUT

QUEUES = {1: ("EWR",), 2: ("JFK", "cancelled"), 3: ("LGA",)}
ONE, TWO, TWO_CANCELLED = Key("EWR", 1), Key("JFK", 2), Key("cancelled", 2)


def stored(
    enqueued: dict[Key, int], dequeued: dict[Key, int] | None = None, **present: int
) -> Stored:
    """What a right store has, unless `present` says otherwise: `EWR=2` for departure 1."""
    dequeued = dequeued or {}
    there = {key: times - dequeued.get(key, 0) for key, times in enqueued.items()}
    there |= {key: present[key.queue] for key in there if key.queue in present}
    return Stored(enqueued, dequeued, there)


def found(told: ConfirmedDeliveries, store: Stored) -> list[str]:
    return disagreements(told, store, QUEUES.__getitem__)


def test_a_store_that_has_what_was_acknowledged_is_right() -> None:
    told = ConfirmedDeliveries(published={1, 2}, settled={TWO}, seen={TWO})
    assert found(told, stored({ONE: 1, TWO: 1, TWO_CANCELLED: 1}, {TWO: 1})) == []


@pytest.mark.parametrize(
    "store",
    [
        stored({}),
        stored({ONE: 2}),
        stored({ONE: 1}, EWR=0),
        stored({ONE: 1}, EWR=2),
        stored({ONE: 1}, {ONE: 1}),
    ],
    ids=["lost", "enqueued twice", "not on its queue", "on its queue twice", "settled by nobody"],
)
def test_an_acknowledged_message_is_there_exactly_once(store: Stored) -> None:
    assert len(found(ConfirmedDeliveries(published={1}), store)) == 1


@pytest.mark.parametrize(
    "store",
    [stored({ONE: 1}), stored({ONE: 1}, {ONE: 2}), stored({ONE: 1}, {ONE: 1}, EWR=1)],
    ids=["forgotten", "done twice", "still on its queue"],
)
def test_an_acknowledged_settlement_is_there_exactly_once(store: Stored) -> None:
    told = ConfirmedDeliveries(published={1}, settled={ONE}, seen={ONE})
    assert len(found(told, store)) == 1


@pytest.mark.parametrize("enqueued", [{}, {TWO: 1, TWO_CANCELLED: 1}])
def test_a_publish_in_doubt_may_have_happened_or_not(enqueued: dict[Key, int]) -> None:
    assert found(ConfirmedDeliveries(publish_in_doubt={2}), stored(enqueued)) == []


def test_a_publish_in_doubt_is_on_all_of_its_queues_or_on_none() -> None:
    assert len(found(ConfirmedDeliveries(publish_in_doubt={2}), stored({TWO: 1}))) == 1


def test_a_publish_in_doubt_happened_if_a_consumer_saw_the_message() -> None:
    assert len(found(ConfirmedDeliveries(publish_in_doubt={1}, seen={ONE}), stored({}))) == 1


@pytest.mark.parametrize("dequeued", [{}, {ONE: 1}])
def test_a_settlement_in_doubt_may_have_happened_or_not(dequeued: dict[Key, int]) -> None:
    told = ConfirmedDeliveries(published={1}, settle_in_doubt={ONE}, seen={ONE})
    assert found(told, stored({ONE: 1}, dequeued)) == []


def test_a_message_that_nobody_sent_is_wrong() -> None:
    assert len(found(ConfirmedDeliveries(), stored({ONE: 1}))) == 1


def test_a_message_on_another_queue_than_its_own_is_wrong() -> None:
    told = ConfirmedDeliveries(published={1})
    assert len(found(told, stored({ONE: 1, Key("JFK", 1): 1}))) == 1


def test_what_happened_in_doubt_is_counted() -> None:
    told = ConfirmedDeliveries(published={3}, publish_in_doubt={1, 2}, settle_in_doubt={ONE})
    assert landed_in_doubt(told, stored({ONE: 1, Key("LGA", 3): 1}, {ONE: 1})) == (1, 1)


def test_counts_of_one_key_add_up() -> None:
    assert count([(ONE, 1), (TWO, 1), (ONE, 2)]) == {ONE: 3, TWO: 1}


def test_departures_are_read_in_order_from_the_package() -> None:
    first, second = departures(1, 5, 2)
    assert (first.number, second.number) == (1, 3)
    assert first.routing_key == f"departures.{first.origin}.{first.carrier}"
    assert first.queues == (first.origin,)


def test_a_departure_without_a_time_was_cancelled() -> None:
    row = {"carrier": "UA", "origin": "EWR", "dest": "IAH", "dep_time": "NA", "dep_delay": "NA"}
    cancelled = departure(7, row)
    assert cancelled.routing_key == "departures.EWR.UA.cancelled"
    assert cancelled.queues == ("EWR", "cancelled")
    assert b'"dep_delay": null' in cancelled.body


def test_a_message_is_named_after_its_departure() -> None:
    assert number_of(message_name(4711)) == 4711


def test_a_step_that_says_nothing_is_told_to_go_on(capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress(silent_s=0.01)
    progress.say("a step")
    shown = ""
    while "it goes on" not in shown:
        shown += capfd.readouterr().out
    progress.end()


def test_a_target_that_says_nothing_is_told_to_go_on(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    waits = f"until grep -q 'pip: it goes on' {shown}; do :; done; exit 3"
    with shown.open("w") as out:
        ended = subprocess.run(
            ["sh", str(CHECKOUT / ".ci" / "with-progress"), "pip", "sh", "-c", waits],
            stdout=out,
            env={**os.environ, "PROGRESS_S": "0.01"},
            check=False,
        )
    assert ended.returncode == 3
