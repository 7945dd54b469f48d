"""What waits on a queue, in order, in some nine bytes a message. Pure.

QueueIndex     ten levels, one for each priority, highest first
PriorityLevel  slots by rising index: one for each arrival (`priority_level`)
place          (9 - priority) << 48 | index: rises in the order of the queue, never changes
"""

from __future__ import annotations

from broker_shim.broker.queues.priority_level import PriorityLevel

MAX_PRIORITY = 9
_INDEX_BITS = 48
_INDEX = (1 << _INDEX_BITS) - 1


class Cursor:
    """How far somebody has looked: the next index in each level. It only moves on."""

    __slots__ = ("indexes",)

    def __init__(self) -> None:
        self.indexes = [0] * (MAX_PRIORITY + 1)

    def copy(self) -> Cursor:
        """One that is as far."""
        other = Cursor()
        other.indexes = list(self.indexes)
        return other


class QueueIndex:
    """Messages by priority, then arrival; `len` is how many wait."""

    def __init__(self) -> None:
        self._levels = [PriorityLevel() for _ in range(MAX_PRIORITY + 1)]

    def __len__(self) -> int:
        """Messages that wait."""
        return sum(level.waiting_count for level in self._levels)

    def append(self, message_id: int, priority: int) -> None:
        """A message waits after all others of its priority."""
        self._levels[MAX_PRIORITY - max(0, min(priority, MAX_PRIORITY))].append(message_id)

    def next(self, place: int = 0) -> tuple[int, int] | None:
        """(place, message id) of the first that waits at a place or after it."""
        number, index = place >> _INDEX_BITS, place & _INDEX
        for level in self._levels[number:] if number else self._levels:
            if level.waiting_count:
                found = level.next(index)
                if found is not None:
                    return number << _INDEX_BITS | found[0], found[1]
            number += 1
            index = 0
        return None

    def look(self, cursor: Cursor, count: int, before: int | None = None) -> list[tuple[int, int]]:
        """(place, message id) of those that wait after a cursor, in order; it moves past them.

        Args:
            cursor: Where to begin.
            count: Look at no more.
            before: And at nothing from this place on.
        """
        found: list[tuple[int, int]] = []
        for number, level in enumerate(self._levels):
            if len(found) == count or (before is not None and number >= before >> _INDEX_BITS):
                break
            seen = level.look(cursor.indexes[number], count - len(found))
            found += [(number << _INDEX_BITS | index, message_id) for index, message_id in seen]
            cursor.indexes[number] = seen[-1][0] + 1 if len(found) == count else level.end
        return found

    def is_past(self, cursor: Cursor, before: int | None = None) -> bool:
        """True if nothing has come since the cursor was here, at a higher priority than `before`.

        Args:
            cursor: Where somebody is.
            before: A place; without it, anything counts.
        """
        levels = self._levels if before is None else self._levels[: before >> _INDEX_BITS]
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

    def hold(self, place: int) -> None:
        """What waits here waits no more; end that by `put_back` or `drop`."""
        self._level(place).hold(place & _INDEX)

    def put_back(self, place: int) -> None:
        """What was held waits again."""
        self._level(place).put_back(place & _INDEX)

    def drop(self, place: int) -> None:
        """What was held is gone."""
        self._level(place).drop(place & _INDEX)

    def _level(self, place: int) -> PriorityLevel:
        return self._levels[place >> _INDEX_BITS]
