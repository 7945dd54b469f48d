"""Numbers that rise and wrap, found by ranges: as a search of all would find them, and quickly."""

from __future__ import annotations

import random

import pytest

from broker_shim.framing.number_map import Numbered
from broker_shim.framing.sequences import after, contains, is_ordered


class Watched(Numbered[None]):
    """Counts how often is looked whether a number is there."""

    looks = 0

    def __contains__(self, number: object) -> bool:
        self.looks += 1
        return super().__contains__(number)


@pytest.mark.parametrize("begin", [0, 2**32 - 500])
@pytest.mark.parametrize("seed", range(10))
def test_ranges_find_what_a_search_of_all_finds(begin: int, seed: int) -> None:
    dice, kept = random.Random(seed), Numbered[str]()
    for step in range(1_000):
        kept[after(begin, step)] = "it"
        if dice.random() < 0.6:
            number = after(begin, dice.randrange(step + 1))
            if kept.pop(number, None) and dice.random() < 0.1:
                kept[number] = "put back"
    for _ in range(50):
        bounds = sorted(dice.sample(range(1_200), 2 * dice.randrange(1, 20)))
        pairs = zip(bounds[::2], bounds[1::2], strict=True)
        ranges = tuple((after(begin, first), after(begin, last)) for first, last in pairs)
        assert is_ordered(ranges)
        wanted = {number for number in kept if contains(ranges, number)}
        found = kept.chosen(ranges)
        assert set(found) == wanted
        assert len(found) == len(wanted)


def test_ranges_that_name_nothing_do_not_look_at_all_that_is_kept() -> None:
    kept = Watched()
    for number in range(0, 200_000, 100):
        kept[number] = None
    kept.looks = 0
    assert kept.chosen(tuple((at + 1, at + 60) for at in range(0, 100_000, 100))) == []
    assert kept.chosen(((1, 99),)) == []
    assert kept.looks == 0


def test_what_was_taken_out_is_met_a_few_times_and_then_forgotten() -> None:
    kept = Watched()
    for number in range(10_000):
        kept[number] = None
    for number in range(4_000):
        del kept[number]
    assert kept.chosen(((0, 4_000),)) == [4_000]
    kept.looks = 0
    assert kept.chosen(((0, 4_000),)) == [4_000]
    assert kept.looks == 1


def test_nothing_is_found_where_nothing_is_kept() -> None:
    assert Numbered[None]().chosen(((0, 2**31 - 1),)) == []
