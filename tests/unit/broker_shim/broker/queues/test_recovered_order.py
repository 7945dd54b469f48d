"""The order after a restart is the order before it, also of what had waited for its time."""

from __future__ import annotations

import random

import pytest

from broker_shim.broker.queues import recovered_order
from broker_shim.broker.queues.recovered_order import in_order_of_delivery
from sparkstore.core.annotations import plain_time
from sparkstore.core.entries import Entries, Entry
from tests.support.histories.seeds import seed

MS = 1_000


def entries_of(came: list[tuple[int, int | None]]) -> Entries:
    """A queue to which messages came at these ms, each to wait until another, or for nothing."""
    found = Entries()
    for number, (at_ms, until_ms) in enumerate(came, 1):
        detail = None if until_ms is None else plain_time(until_ms)
        found.add(number, Entry(number, at_ms * MS, 4, None, 1, detail=detail))
    return found


def order_of(entries: Entries) -> list[int]:
    return [
        each
        for stretch in in_order_of_delivery(entries, 10_000 * MS)
        for each in stretch.message_ids
    ]


@pytest.mark.parametrize(
    ("came", "order"),
    [
        ([(1, None), (2, None)], [1, 2]),
        ([(1, 9), (2, 5), (3, None)], [3, 2, 1]),
        ([(1, 4), (2, None), (4, None), (5, None)], [2, 3, 1, 4]),
        ([(1, 1), (2, 1), (3, None)], [1, 2, 3]),  # over when they came, or put there again
        ([(1, 5), (2, 5), (3, 5)], [1, 2, 3]),
        ([(9, None), (2, 4), (3, None)], [2, 1, 3]),  # the clock was set back after the first
    ],
)
def test_a_message_stands_where_its_time_puts_it(
    came: list[tuple[int, int | None]], order: list[int]
) -> None:
    assert order_of(entries_of(came)) == order


def test_it_is_the_order_in_which_a_broker_showed_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker shows what comes at once, and what waits when its time comes."""
    monkeypatch.setattr(recovered_order, "_PART", 7)
    number = seed()
    print(f"seed {number}")
    chance = random.Random(number)
    came = [(at, chance.choice([None, at + chance.randint(1, 50)])) for at in range(0, 4_000, 2)]
    shown = [(until or at, at, each) for each, (at, until) in enumerate(came, 1)]
    ties = [(at, came_at if came_at < at else -1, each) for at, came_at, each in shown]
    assert order_of(entries_of(came)) == [each for *_, each in sorted(ties)]


def test_what_is_due_much_later_stays_where_it_is() -> None:
    """It is hidden before anybody may have it."""
    entries = entries_of([(1, 3_600_000), (2, None)])
    (stretch,) = in_order_of_delivery(entries, 9 * MS)
    assert [*stretch.message_ids] == [1, 2]


def test_the_failures_of_what_is_put_elsewhere_are_told() -> None:
    entries = entries_of([(1, 9), (2, None)])
    entries.add(3, Entry(3, 3 * MS, 4, None, 1, delivery_count=2))
    marked = [
        each for stretch in in_order_of_delivery(entries, 9 * MS) for each, _ in stretch.marked
    ]
    assert marked == [3, 1]
