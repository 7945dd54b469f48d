"""Runs of numbers that rise and wrap, found by ranges: as a search of each number finds them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from broker_shim.framing.number_map import NumberedRuns
from broker_shim.framing.sequences import after, contains, is_ordered

FAR = (1 << 31) - 1


@dataclass(eq=False)
class Stretch:
    """Some numbers, and what stands at each."""

    number: int
    values: list[int]

    def __len__(self) -> int:
        return len(self.values)

    def cut(self, count: int) -> Stretch:
        rest = Stretch(self.number + count, self.values[count:])
        del self.values[count:]
        return rest


def values(runs: list[Stretch]) -> list[int]:
    return [value for run in runs for value in run.values]


@pytest.mark.parametrize("begin", [0, 2**32 - 500])
@pytest.mark.parametrize("seed", range(10))
def test_ranges_find_what_a_search_of_each_number_finds(begin: int, seed: int) -> None:
    dice, kept, oracle, step = random.Random(seed), NumberedRuns[Stretch](), list[int](), 0
    while step < 1_000:
        count = dice.randrange(1, 40)
        numbers = [after(begin, step + at) for at in range(count)]
        kept.add(Stretch(numbers[0], [*numbers]))
        oracle += numbers
        step += count + dice.randrange(2)
        bounds = sorted(dice.sample(range(1_200), 2 * dice.randrange(1, 20)))
        pairs = zip(bounds[::2], bounds[1::2], strict=True)
        ranges = tuple((after(begin, first), after(begin, last)) for first, last in pairs)
        assert is_ordered(ranges)
        wanted = [number for number in oracle if contains(ranges, number)]
        assert values(kept.named(ranges)) == wanted
        taken = kept.take(ranges)
        assert values(taken) == wanted
        oracle = [number for number in oracle if number not in wanted]
        for run in taken:
            if dice.random() < 0.1:
                kept.add(run)  # a decision that is taken back
                oracle = sorted([*oracle, *run.values], key=lambda n: (n - begin) % 2**32)
        assert values([*kept]) == oracle
        assert len(kept) == len(oracle)
        first = after(begin, dice.randrange(1_000))
        assert values(kept.since(first)) == [n for n in oracle if (n - first) % 2**32 <= FAR]


def test_thousands_of_ranges_of_every_second_number_cut_one_run() -> None:
    kept = NumberedRuns[Stretch]()
    kept.add(Stretch(0, [*range(20_000)]))
    odd = tuple((number, number) for number in range(1, 16_000, 2))
    assert values(kept.take(odd)) == [*range(1, 16_000, 2)]
    assert kept.take(odd) == []
    assert values(kept.take(((0, FAR),))) == [*range(0, 16_000, 2), *range(16_000, 20_000)]
    assert len(kept) == 0


class CountedRuns(list[Stretch]):
    """Runs, with how many of them were copied by slices."""

    copied = 0

    def __getitem__(self, place: Any) -> Any:
        runs = super().__getitem__(place)
        self.copied += len(runs) if isinstance(place, slice) else 0
        return runs


def test_a_command_for_each_second_number_copies_no_other_runs() -> None:
    kept = NumberedRuns[Stretch]()
    kept._runs = runs = CountedRuns()
    kept.add(Stretch(0, [*range(2_000)]))
    for number in range(1, 2_000, 2):
        assert values(kept.take(((number, number),))) == [number]
    assert runs.copied == 1_000
    assert values([*kept]) == [*range(0, 2_000, 2)]


def test_ranges_that_span_more_than_half_of_all_numbers_still_rise() -> None:
    kept = NumberedRuns[Stretch]()
    kept.add(Stretch(7, [7]))
    assert values(kept.named(((0, FAR - 1), (FAR + 40, FAR + 50)))) == [7]


def test_nothing_is_found_where_nothing_is_kept() -> None:
    kept = NumberedRuns[Stretch]()
    assert kept.take(((0, FAR),)) == []
    assert kept.take(()) == []
