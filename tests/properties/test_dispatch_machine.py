"""A queue's dispatch against a list that is sorted by (-priority, arrival), whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

from broker_shim.broker.queues import priority_level, taken_out
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.queue_index import Cursor, Survivors
from sparkstore.core.packed_integers import neighbours_in


@dataclass(eq=False)
class Taker:
    """Takes so many, and remembers which."""

    credit: int = 0
    taken: list[int] = field(default_factory=list)

    def assign(self, message_ids: Sequence[int]) -> int:
        self.credit -= len(message_ids)
        self.taken += message_ids
        return len(message_ids)

    def caught_up(self) -> None:
        """Nothing waits for it."""


class DispatchMachine(RuleBasedStateMachine):
    """The model: every message on the queue by (-priority, arrival), and who of them is held."""

    held = Bundle("held")

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(taken_out, "_LEAST_RUN", 2)
        self.patch.setattr(taken_out, "_RUN_WEIGHT", 1)
        super().__init__()
        self.queue, self.taker = QueueDispatch("q"), Taker()
        self.queue.add(self.taker)
        self.cursor, self.seen = Cursor(), set[tuple[int, int]]()
        self.places: dict[int, tuple[int, int]] = {}
        self.held_ids: set[int] = set()
        self.delayed: dict[int, int] = {}
        self.priorities: dict[int, int] = {}
        self.now_us = 0
        self.arrivals = 0

    def teardown(self) -> None:
        self.patch.undo()

    def waiting(self) -> list[int]:
        there = [
            each for each in self.places if each not in self.held_ids and each not in self.delayed
        ]
        return sorted(there, key=self.places.__getitem__)

    @rule(message_id=st.integers(1, 40), priority=st.integers(0, 9), count=st.integers(1, 7))
    def arrive(self, message_id: int, priority: int, count: int) -> None:
        """Ids mostly rise, and sometimes not, and one that left may come again."""
        for each in range(message_id, message_id + count):
            if each not in self.places:
                self.arrivals += 1
                self.places[each], self.priorities[each] = (-priority, self.arrivals), priority
                self.queue.arrived([each], priority)

    @rule(target=held, count=st.integers(1, 5))
    def take(self, count: int) -> list[int]:
        expected = self.waiting()[:count]
        self.taker.credit, self.taker.taken = count, []
        self.queue.dispatch()
        assert self.taker.taken == expected
        self.taker.credit = 0
        self.held_ids |= set(expected)
        return expected

    @rule(target=held, asked=st.sets(st.integers(1, 50), max_size=5))
    def withdraw(self, asked: set[int]) -> list[int]:
        there = set(self.places) - self.held_ids
        left = asked & self.held_ids
        found = self.queue.withdraw(sorted(asked))
        assert found == (sorted(asked & there), len(left), len(asked - there - left))
        self.held_ids |= set(found.held)
        return found.held

    @rule(
        target=held,
        first=st.integers(1, 50),
        count=st.integers(1, 12),
        asked=st.sets(st.integers(1, 50), max_size=3),
        most=st.integers(1, 15),
        cut=st.integers(0, 12),
        leaves=st.booleans(),
    )
    def take_out(
        self, first: int, count: int, asked: set[int], most: int, cut: int, leaves: bool
    ) -> list[int]:
        """Runs of what waits, which are cut: parts of them leave the queue, or wait again."""
        ids = sorted(asked | {*range(first, first + count)})
        waiting = {*self.places} - self.held_ids
        held, left_alone, gone = self.queue.take_out(ids, most)
        runs = [part for part in held if isinstance(part, range)]
        others = [message_id for part in held if part not in runs for message_id in part]
        taken = [message_id for run in runs for message_id in run]
        in_no_run = len(others) + left_alone + gone
        assert len(runs) + in_no_run == most or len(taken) + in_no_run == len(ids)
        ids = ids[: len(taken) + in_no_run]  # the others are left alone
        left = [i for i in ids if i in self.held_ids]
        assert [i for part in held for i in part] == [i for i in ids if i in waiting]
        assert all(len(run) >= taken_out._LEAST_RUN for run in runs)
        assert (left_alone, gone) == (
            len(left),
            len(ids) - len(left) - len(waiting & {*ids}),
        )
        self.held_ids |= {*taken, *others}
        self.everything_waits_or_is_held_in_its_order()
        assert self.queue.withdraw(taken) == ([], len(taken), 0)
        assert self.queue.held_count == len(self.held_ids)
        for part in [part for run in runs for part in (run[:cut], run[cut:]) if part]:
            if leaves:
                self.queue.removed(part, "purged")
                for message_id in part:
                    del self.places[message_id]
            else:
                self.queue.waits_again(part)
            self.held_ids -= {*part}
            leaves = not leaves
        return others

    @rule(message_ids=consumes(held), failed=st.booleans())
    def give_back(self, message_ids: list[int], failed: bool) -> None:
        for message_id in message_ids:
            before = self.queue.delivery_count(message_id)
            self.queue.released(message_id, delivery_failed=failed)
            self.held_ids.discard(message_id)
            assert self.queue.delivery_count(message_id) == before + failed

    @rule(which=st.integers(0, 50), delay=st.integers(1, 1 << 34))
    def delay(self, which: int, delay: int) -> None:
        """It is shown to nobody, and found by its id."""
        waiting = self.waiting()
        if waiting:
            message_id = waiting[which % len(waiting)]
            self.queue.delayed.hide(message_id, self.now_us + delay)
            self.delayed[message_id] = self.now_us + delay

    @rule(passed=st.integers(0, 1 << 34), most=st.integers(1, 4))
    def time_passes(self, passed: int, most: int) -> None:
        """Those whose time has come wait behind all others, also those that are held just now."""
        self.now_us += passed
        due: list[int] = []
        while (next_us := self.queue.delayed.next_us) is not None and next_us <= self.now_us:
            due += self.queue.delayed.due(self.now_us, most)
        for message_id in due:
            priority = self.priorities.get(message_id, 0)
            self.queue.delayed.end(message_id, priority)
            if self.delayed.pop(message_id, None) is not None:
                self.arrivals += 1
                self.places[message_id] = (-priority, self.arrivals)
        assert all(at_us > self.now_us for at_us in self.delayed.values())

    @rule(message_ids=consumes(held))
    def remove(self, message_ids: list[int]) -> None:
        for message_id in reversed(message_ids):
            self.queue.removed((message_id,))
            self.held_ids.discard(message_id)
            del self.places[message_id]
            self.delayed.pop(message_id, None)

    @precondition(lambda self: not self.held_ids)
    @rule(size=st.integers(1, 9))
    def reopen(self, size: int) -> None:
        """A start knows ids, priorities and failures by arrival, and hides what is to wait."""
        ids = sorted(self.places, key=lambda message_id: self.places[message_id][1])
        failures = {i: n for i in ids if (n := self.queue.delivery_count(i))}
        parts = [ids[at : at + size] for at in range(0, len(ids), size)]
        self.queue, self.cursor, self.seen = QueueDispatch("q"), Cursor(), set()
        self.queue.recovered(
            Survivors(
                runs[0] if len(runs := [*neighbours_in(part)]) == 1 else part,
                [self.priorities[message_id] for message_id in part],
                failures,
            )
            for part in parts
        )
        for message_id, until_us in self.delayed.items():
            self.queue.delayed.hide(message_id, until_us)
        self.queue.add(self.taker)

    @rule(count=st.integers(1, 9))
    def browse(self, count: int) -> None:
        """Each place is looked at once; of those that it may still see, in order."""
        found = [each for _place, each in self.queue.browse(self.cursor, count)]
        waiting = [each for each in self.waiting() if self.places[each] not in self.seen]
        places = [self.places[each] for each in found]
        assert places == sorted(places)
        assert found == [each for each in waiting if each in found]
        self.seen |= set(places)

    @invariant()
    def everything_waits_or_is_held_in_its_order(self) -> None:
        assert len(self.queue) == len(self.places)
        assert len(self.queue.delayed) == len(self.delayed.keys() - self.held_ids)
        assert [each for _place, each in self.queue.browse(Cursor(), 1_000)] == self.waiting()
        assert all((each in self.queue) == (each in self.places) for each in range(1, 60))


class TinyChunksMachine(DispatchMachine):
    """Chunks of two to four narrow slots, which begin, widen, end and go within a few steps."""

    def __init__(self) -> None:
        super().__init__()
        self.patch.setattr(priority_level, "_SLOTS", 4)
        self.patch.setattr(priority_level, "_LEAST_SLOTS", 2)
        self.patch.setattr(priority_level, "_MOST_NARROW", 4)


TestDispatch = DispatchMachine.TestCase
TestDispatchInTinyChunks = TinyChunksMachine.TestCase
