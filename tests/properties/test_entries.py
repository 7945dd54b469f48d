"""Packed entries and counts against plain dictionaries, under any sequence of operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from itertools import chain
from random import Random
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from sparkstore.core import entries as module
from sparkstore.core import entry_chunk, packed_integers
from sparkstore.core.annotations import NONE, delivery_time_of, plain_time
from sparkstore.core.entries import NEVER, Columns, Entries, Entry, stretches
from sparkstore.core.message_counts import MessageCounts
from sparkstore.core.packed_integers import PlacedRanges, cut, is_rising, pack, pack_keys
from sparkstore.core.records import each_header
from sparkstore.operations.entry_runs import runs_of
from sparkstore.tables.arrow_values import as_integers

NUMBERS = st.integers(-(1 << 40), 1 << 70)
IDS = st.integers(1, 400)
DETAILS = [plain_time(7), plain_time(1 << 40), '{"x-opt-delivery-time":["long","07"]}', NONE]
ENTRIES = st.builds(
    Entry,
    NUMBERS,
    NUMBERS,
    st.integers(0, 9),
    st.none() | st.integers(-1, 1 << 63),
    st.sampled_from([1024, 1024, 7]),
    st.sampled_from([None, None, "c"]),
    st.sampled_from([0, 0, 2]),
    st.sampled_from([*DETAILS, None]),
)
HOLDERS = st.sampled_from(["c1", "c2"])


def columns_of(entries: Sequence[Entry]) -> Columns:
    """The columns of entries, as whoever has many of them makes them."""
    *numbers, holders, counts, details = zip(*map(astuple, entries), strict=True)
    numbers[3] = [NEVER if end is None else end for end in numbers[3]]
    return Columns(*map(list, numbers), [*zip(holders, counts, details, strict=True)])


class EntriesMachine(RuleBasedStateMachine):
    """Every call goes to the entries and to a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = Entries()
        self.model: dict[int, Entry] = {}
        self.next_id = 1

    def add(self, message_id: int, entry: Entry) -> None:
        if message_id not in self.model:
            self.entries.add(message_id, replace(entry))
            self.model[message_id] = entry

    @rule(entry=ENTRIES, skipped=st.integers(0, 3), count=st.integers(1, 12))
    def add_in_turn(self, entry: Entry, skipped: int, count: int) -> None:
        self.next_id += skipped
        for _ in range(count):
            self.add(self.next_id, entry)
            self.next_id += 1

    @rule(entry=ENTRIES, message_id=IDS)
    def add_out_of_turn(self, entry: Entry, message_id: int) -> None:
        self.add(message_id, entry)

    @rule(added=st.lists(st.tuples(IDS, ENTRIES), max_size=30, unique_by=lambda pair: pair[0]))
    def extend(self, added: list[tuple[int, Entry]]) -> None:
        new = [(i, entry) for i, entry in added if i not in self.model]
        if new:
            self.entries.extend([i for i, _ in new], columns_of([entry for _, entry in new]))
        self.model.update(new)

    @precondition(lambda self: self.model)
    @rule(which=st.integers(0, 1000), count=st.integers(1, 20))
    def remove(self, which: int, count: int) -> None:
        """From anywhere on, some that follow each other: chunks shrink and go."""
        for message_ids in self._neighbours(which, count):
            self.entries.remove(message_ids)
            for message_id in message_ids:
                del self.model[message_id]

    def _neighbours(self, which: int, count: int) -> list[range]:
        """The ids of entries that follow each other, as ranges that rise by one."""
        ids, ranges = [*self.model], list[range]()
        first = which % len(ids)
        for message_id in ids[first : first + count]:
            if ranges and message_id == ranges[-1].stop:
                ranges[-1] = range(ranges[-1].start, message_id + 1)
            else:
                ranges.append(range(message_id, message_id + 1))
        return ranges

    @precondition(lambda self: self.model)
    @rule(which=st.integers(0, 1000), count=st.integers(1, 20), holder=HOLDERS)
    def hold_some(self, which: int, count: int, holder: str) -> None:
        """Hold those that are free, as a store does: what others have is left to them."""
        for message_ids in self._neighbours(which, count):
            free = self.entries.free(message_ids, holder)
            is_free = [
                entry.position > 0 and entry.acquired_by in (None, holder)
                for entry in map(self.model.__getitem__, message_ids)
            ]
            assert free == [*is_free, False].index(False)
            times = [at for at, n in self.entries.came_at(message_ids) for _ in range(n)]
            assert times == [self.model[message_id].at for message_id in message_ids]
            self.entries.hold(message_ids[:free], holder)
            for message_id in message_ids[:free]:
                self.model[message_id] = replace(self.model[message_id], acquired_by=holder)

    @rule(first=IDS, count=st.integers(1, 40), shuffled=st.randoms())
    def run_of_any(self, first: int, count: int, shuffled: Random) -> None:
        """The runs of any messages are those that are there, in their order, each as it is."""
        ids = [*range(first, first + count)]
        if count % 4 == 0:
            shuffled.shuffle(ids)
        entries = list[tuple[int, Entry]]()
        for alike in runs_of(self.entries, ids):
            about = alike.priorities, alike.expires_at, alike.message_bytes
            for message_id, priority, end, size in zip(alike.message_ids, *about, strict=True):
                expires_at = None if end == NEVER else end
                entry = replace(self.model[message_id], priority=priority, expires_at=expires_at)
                entry = replace(entry, message_bytes=size)
                acquired_by, delivery_count, detail = alike.held
                entry = replace(entry, acquired_by=acquired_by, detail=detail)
                entries.append((message_id, replace(entry, delivery_count=delivery_count)))
                assert alike.is_kept == (entry.position > 0)
            headers = each_header(alike.headers(), len(alike.message_ids))
            assert [header.expires_at for header in headers] == [
                self.model[message_id].expires_at for message_id in alike.message_ids
            ]
        assert entries == [(i, self.model[i]) for i in ids if i in self.model]

    @precondition(lambda self: self.model)
    @rule(which=st.integers(0, 1000), holder=HOLDERS)
    def hold(self, which: int, holder: str) -> None:
        message_id = [*self.model][which % len(self.model)]
        self.entries.hold((message_id,), holder)
        self.model[message_id] = replace(self.model[message_id], acquired_by=holder)

    @precondition(lambda self: self.model)
    @rule(
        which=st.integers(0, 1000),
        count=st.integers(0, 3),
        detail=st.sampled_from([*DETAILS, None]),
    )
    def give_back(self, which: int, count: int, detail: str | None) -> None:
        message_id = [*self.model][which % len(self.model)]
        self.entries.give_back(message_id, count, detail)
        entry = replace(self.model[message_id], acquired_by=None, delivery_count=count)
        self.model[message_id] = entry if detail is None else replace(entry, detail=detail)

    @rule(message_id=st.integers(-1, 500))
    def what_is_not_there_is_refused(self, message_id: int) -> None:
        if message_id not in self.model:
            for change in (
                lambda: self.entries.remove((message_id,)),
                lambda: self.entries.hold((message_id,), "c"),
                lambda: self.entries.give_back(message_id, 1),
                lambda: self.entries[message_id],
            ):
                with pytest.raises(KeyError):
                    change()

    @invariant()
    def they_are_equal_and_in_the_same_order(self) -> None:
        assert [*self.entries.items()] == [*self.model.items()]
        assert [*self.entries] == [*self.model]
        assert [*self.entries.values()] == [*self.model.values()]
        assert self.entries == self.model
        assert [*self.entries.marked()] == [
            (message_id, entry)
            for message_id, entry in self.model.items()
            if entry.acquired_by is not None or entry.delivery_count or entry.detail is not None
        ]
        for told in (stretches(self.entries), stretches(self.model)):
            ids, priorities, marked = zip(*told, strict=True) if self.model else ((), (), ())
            assert [*chain(*ids)] == [*self.model]
            assert [*chain(*priorities)] == [entry.priority for entry in self.model.values()]
            assert [*chain(*marked)] == [*self.entries.marked()]
        assert len(self.entries) == len(self.model)
        assert self.entries.message_bytes == sum(e.message_bytes for e in self.model.values())
        times = [delivery_time_of(entry.detail) for entry in self.model.values()]
        assert self.entries.has_delays or not any(times)
        assert self.entries.oldest() == next(iter(self.model.values()), None)
        for message_id in range(-1, self.next_id + 1):
            assert (message_id in self.entries) == (message_id in self.model)
            entry = self.model.get(message_id)
            assert self.entries.get(message_id) == entry
            whose = None if entry is None else (entry.acquired_by, entry.position)
            assert self.entries.holder(message_id) == whose


def test_entries_are_a_dictionary_in_queue_order_whatever_is_done_to_them() -> None:
    with (
        patch.multiple(module, _YOUNG=16, LEAST_CHUNK=3, CHUNK=4),
        patch.multiple(entry_chunk, CHUNK=4),
        patch.multiple(packed_integers, _PAGE=32),
    ):
        run(EntriesMachine, settings=settings(stateful_step_count=40))


def test_the_newest_message_that_came_back_is_found_when_those_around_it_are_gone() -> None:
    """Moved away and back: its id is the highest that the queue ever had, but no longer new."""
    entries, entry = Entries(), Entry(1, 0, 0, None, 1)
    for message_id in range(20_000):
        entries.add(message_id, entry)
    for message_id in [*entries.young]:
        entries.remove((message_id,))
    newest = [*entries][-1]
    for message_id in (0, newest):
        entries.remove((message_id,))
    for message_id in [0, newest, *range(20_000, 40_000)]:
        entries.add(message_id, entry)
    for message_id in [each for each in entries if each != newest]:
        entries.remove((message_id,))
    assert [*entries] == [newest]
    entries.remove((newest,))
    assert not entries


@given(st.lists(st.tuples(st.booleans(), st.integers(-9, 300), st.integers(1, 99)), max_size=40))
def test_ranges_that_are_placed_are_a_dictionary_of_places(
    calls: list[tuple[bool, int, int]],
) -> None:
    ranges, model = PlacedRanges(), dict[int, int]()
    with patch.multiple(packed_integers, _PAGE=32):
        for place, (is_added, first, count) in enumerate(calls, (1 << 40) - 100):
            values = range(first, first + count)
            if is_added and model.keys().isdisjoint(values):
                ranges.add(values, place)
                model |= dict.fromkeys(values, place)
            else:
                ranges.remove(values)
                model = {value: model[value] for value in model if value not in values}
            assert [ranges.get(value) for value in range(-40, 440)] == [
                model.get(value) for value in range(-40, 440)
            ]
        assert bool(ranges.pages) == bool(model)


@given(st.lists(st.tuples(st.booleans(), st.integers(250, 262)), max_size=60), st.integers(1, 300))
def test_counts_are_a_dictionary_of_counts(calls: list[tuple[bool, int]], most: int) -> None:
    counts, model = MessageCounts([300] * most), {300: most}
    for is_added, message_id in [*calls, *[(False, 300)] * most]:
        if is_added:
            counts.add(message_id)
            model[message_id] = model.get(message_id, 0) + 1
        elif message_id in model:
            counts.remove(message_id)
            model[message_id] -= 1
            model = {key: count for key, count in model.items() if count}
        else:
            with pytest.raises(KeyError):
                counts.remove(message_id)
        assert counts == model
        assert len(counts) == len(model)
        assert sorted(counts) == [*counts.rising()] == sorted(model)
        assert all((key in counts) == (key in model) for key in range(200, 600, 7))
    if not model:
        assert counts._pages == {}
        assert counts._many == {}


@given(
    st.lists(st.integers(250, 520), max_size=5),
    st.one_of(
        st.lists(st.integers(250, 520), min_size=1),
        st.tuples(st.integers(250, 260), st.integers(261, 600)).map(lambda ends: [*range(*ends)]),
    ),
)
def test_counts_of_many_are_those_of_each(there: list[int], added: list[int]) -> None:
    together, unbatched_calls = MessageCounts(there), MessageCounts([*there, *added])
    together.extend(added)
    assert together == unbatched_calls
    assert len(together) == len(unbatched_calls)


@given(st.integers(-(1 << 70), 1 << 70), st.integers(1, 300))
def test_numbers_that_rise_by_one_take_no_room(first: int, count: int) -> None:
    keys = pack_keys(range(first, first + count))
    assert keys.offsets is None or isinstance(keys.offsets, range)
    assert [*keys.values()] == [*range(first, first + count)]
    for index in {0, count // 2, count - 1}:
        assert keys[index] == first + index
        assert keys.find(first + index) == index
    assert keys.find(first - 1) == keys.find(first + count) == -1


@given(st.integers(1, 1 << 60), st.integers(1, 40), st.booleans(), st.data())
def test_ids_that_come_as_a_range_are_as_those_of_a_list(
    first: int, count: int, is_packed: bool, data: st.DataObject
) -> None:
    ids = range(first, first + count)
    entries = [Entry(first + index, 5, 4, None, 10) for index in range(count)]
    _, *rest = columns_of(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LEAST_CHUNK", 0 if is_packed else 41)
        for each in (module, entry_chunk):
            patch.setattr(each, "CHUNK", 16)
        made = [Entries(), Entries()]
        made[0].extend(ids, Columns(ids, *rest))
        made[1].extend([*ids], Columns([*ids], *rest))
    gone = data.draw(st.sets(st.sampled_from(ids)))
    for each in made:
        for message_id in gone:
            each.remove((message_id,))
    assert [*made[0].items()] == [*made[1].items()]
    assert [*made[0]] == [each for each in ids if each not in gone]
    assert [[*each.message_ids] for each in made[0].stretches()] == [
        [*each.message_ids] for each in made[1].stretches()
    ]
    assert dict(_counted(ids)) == dict(_counted([*ids])) == dict.fromkeys(ids, 1)


def _counted(ids: Sequence[int]) -> MessageCounts:
    counts = MessageCounts()
    counts.extend(ids)
    return counts


@given(st.lists(NUMBERS, min_size=1))
def test_a_packed_column_has_the_values_that_were_packed(values: list[int]) -> None:
    column = pack(values)
    assert [column[index] for index in range(len(values))] == values
    assert [*column.values()] == values
    rising = sorted(values)
    keys = pack_keys(rising)
    assert [*keys.values()] == rising
    for value in {*rising, 0, 1 << 80}:
        found = rising.index(value) if value in rising else -1
        assert keys.find(value) == found


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300), min_size=1))
def test_a_column_of_a_table_is_packed_as_its_values_are(values: list[int]) -> None:
    for numbers in (values, sorted({*values})):
        packed = as_integers(pa.chunked_array([pa.array([7, *numbers], pa.int64()).slice(1)]))
        assert [*packed] == [*pack(packed).values()] == numbers
        assert is_rising(packed) == is_rising(numbers)
        middle = len(numbers) // 2
        parts = [cut(packed, 0, middle), cut(packed, middle, len(numbers) + 1)]
        assert [*chain(*parts)] == numbers
        assert pack(packed).total == sum(numbers)
