"""The waiting messages of a queue, in order, in two bytes a message at most, mostly. Pure.

QueueIndex     ten levels, one for each priority, highest first; one more for what is delayed
PriorityLevel  slots by rising index: one for each arrival (`priority_level`)
place          (9 - priority) << 48 | index: rises in the order of the queue, never changes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from broker_shim.broker.queues.priority_level import PriorityLevel
from sparkstore.core.packed_integers import Integers, pack

MAX_PRIORITY = 9
_DELAYED = MAX_PRIORITY + 1
_INDEX_BITS = 48
_INDEX = (1 << _INDEX_BITS) - 1


class Withdrawn(NamedTuple):
    """The outcome of withdrawing messages from dispatch.

    Attributes:
        held: Taken out: held by the caller now.
        left: Held by somebody else.
        gone: Not on the queue.
    """

    held: list[int]
    left: int
    gone: int


class Survivors(NamedTuple):
    """Some messages of a queue that survived a restart, and follow each other on it.

    Attributes:
        message_ids: In the order of the queue.
        priorities: The priority of each.
        failures: Failed deliveries of those that have any, by id.
    """

    message_ids: Sequence[int]
    priorities: Integers
    failures: Mapping[int, int]


class Cursor:
    """The place of a browser: the next index in each level. It only moves on."""

    __slots__ = ("indexes",)

    def __init__(self) -> None:
        self.indexes = [0] * (MAX_PRIORITY + 1)

    def copy(self) -> Cursor:
        """Make another cursor at the same place."""
        other = Cursor()
        other.indexes = list(self.indexes)
        return other


class QueueIndex:
    """The messages by priority, then arrival; `len` is how many wait, delayed ones too.

    What is delayed has a place and is found by its id, so it can be taken off the queue; nobody
    who looks at the queue sees it.
    """

    def __init__(self) -> None:
        self._shown = [PriorityLevel() for _ in range(MAX_PRIORITY + 1)]
        self._levels = [*self._shown, PriorityLevel()]

    @property
    def delayed_count(self) -> int:
        """The number of messages that wait for their time, and are held by nobody."""
        return self._levels[_DELAYED].waiting_count

    def __len__(self) -> int:
        """The number of messages that wait."""
        return sum(level.waiting_count for level in self._levels)

    @property
    def highest(self) -> int:
        """No message has a higher id, whether it waits or is held."""
        return max(level.highest for level in self._levels)

    def extend(self, message_ids: Sequence[int], priority: int) -> int:
        """Add messages that wait after all others of their priority, in this order.

        Returns:
            The place of the last one.
        """
        return self._extend(MAX_PRIORITY - max(0, min(priority, MAX_PRIORITY)), message_ids)

    def delay(self, message_id: int) -> int:
        """Add a message that is shown to nobody; its place."""
        return self._extend(_DELAYED, (message_id,))

    def _extend(self, number: int, message_ids: Sequence[int]) -> int:
        level = self._levels[number]
        level.extend(message_ids)
        return number << _INDEX_BITS | (level.end - 1)

    def is_delayed(self, place: int) -> bool:
        """True if a place is that of a delayed message."""
        return place >> _INDEX_BITS == _DELAYED

    def look(self, cursor: Cursor, count: int, before: int | None = None) -> list[tuple[int, int]]:
        """Get the place and id of what waits after a cursor, in order, and move it past them.

        Args:
            cursor: Where to begin.
            count: Look at no more.
            before: And at nothing from this place on.
        """
        waiting: list[tuple[int, int]] = []
        for number, level in enumerate(self._shown):
            if len(waiting) == count or (before is not None and number >= before >> _INDEX_BITS):
                break
            seen = level.look(cursor.indexes[number], count - len(waiting))
            waiting += [(number << _INDEX_BITS | index, message_id) for index, message_id in seen]
            cursor.indexes[number] = seen[-1][0] + 1 if len(waiting) == count else level.end
        return waiting

    def is_past(self, cursor: Cursor, before: int | None = None) -> bool:
        """True if nothing has come since the cursor was here, at a higher priority than `before`.

        Args:
            cursor: Where somebody is.
            before: A place; without it, anything counts.
        """
        levels = self._shown if before is None else self._shown[: before >> _INDEX_BITS]
        return all(at >= level.end for at, level in zip(cursor.indexes, levels, strict=False))

    def find(self, message_id: int) -> int | None:
        """The place where a message waits; None if it does not."""
        for number, level in enumerate(self._levels):
            if level.waiting_count:
                index = level.find(message_id)
                if index is not None:
                    return number << _INDEX_BITS | index
        return None

    def waits(self, place: int, message_id: int) -> bool:
        """True if this message waits at this place."""
        return self._level(place).waits(place & _INDEX, message_id)

    def hold(self, places: Sequence[int]) -> None:
        """Mark waiting messages as held; end that by `put_back` or `drop`."""
        for number, indexes in _by_level(places):
            self._levels[number].hold(indexes)

    def recovered(self, message_ids: Sequence[int], priorities: Integers) -> None:
        """Add messages that wait after all others, each of its own priority."""
        if not message_ids:
            return
        end, of_each = 0, pack(priorities)
        if of_each.offsets is None:  # as most: they are not looked at one by one
            self.extend(message_ids, of_each.base)
            return
        for priority, same in groupby(of_each):
            start, end = end, end + len([*same])
            self.extend(message_ids[start:end], priority)

    def find_run(self, message_ids: range) -> tuple[int, int] | None:
        """Find the first of these messages, and those after it that wait behind it, in a chunk.

        Returns:
            The place of the first, and how many; None: the first waits for no consumer.
        """
        for number, level in enumerate(self._shown):
            run = level.find_run(message_ids) if level.waiting_count else None
            if run is not None:
                return number << _INDEX_BITS | run[0], run[1]
        return None

    def hold_run(self, place: int, count: int) -> None:
        """Hold messages that `find_run` found; end that by `drop_run`, or as of held messages."""
        self._level(place).hold_run(place & _INDEX, count)

    def drop_run(self, place: int, count: int) -> None:
        """Forget messages that `hold_run` held, which are gone from the queue."""
        self._level(place).drop_run(place & _INDEX, count)

    def put_back(self, place: int) -> None:
        """Mark a held message as waiting again, at its old place."""
        self._level(place).put_back(place & _INDEX)

    def drop(self, places: Sequence[int]) -> None:
        """Forget held messages, which are gone from the queue."""
        for number, indexes in _by_level(places):
            self._levels[number].drop(indexes)

    def _level(self, place: int) -> PriorityLevel:
        return self._levels[place >> _INDEX_BITS]


def _by_level(places: Sequence[int]) -> list[tuple[int, list[int]]]:
    numbers = {place >> _INDEX_BITS for place in places}
    if len(numbers) == 1:  # most often
        return [(numbers.pop(), [place & _INDEX for place in places])]
    return [
        (number, [place & _INDEX for place in places if place >> _INDEX_BITS == number])
        for number in numbers
    ]
