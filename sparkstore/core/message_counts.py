"""Count the queues that each message is on, in a byte or two a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat

from sparkstore.core.packed_integers import Integers

_BITS = 8
_PAGE = 1 << _BITS
_ONES = bytes(repeat(1, _PAGE))
_MANY = 255
"""Says that the count is in the dictionary: it is this or more."""


class MessageCounts(Mapping[int, int]):
    """Counts by message id; a message on no queue is not there.

    Ids are given out rising, so those that are there together lie close together. A page of bytes
    holds the counts of 256 of them, and is let go when the last of them is gone.
    """

    __slots__ = ("_length", "_many", "_pages")

    def __init__(self, message_ids: Iterable[int] = ()) -> None:
        self._pages: dict[int, bytearray] = {}
        self._many: dict[int, int] = {}
        self._length = 0
        for message_id in message_ids:
            self.add(message_id)

    def add(self, message_id: int) -> None:
        """Count one more queue that has the message."""
        page = self._pages.get(message_id >> _BITS)
        if page is None:
            page = self._pages[message_id >> _BITS] = bytearray(_PAGE)
        index = message_id & (_PAGE - 1)
        count = page[index]
        if count == 0:
            self._length += 1
        if count < _MANY:
            page[index] = count + 1
        if count >= _MANY - 1:
            self._many[message_id] = self._many.get(message_id, count) + 1

    def extend(self, message_ids: Integers) -> None:
        """Count one more queue for each message.

        New ids that follow each other are marked together.
        """
        if len(message_ids) == 1:
            self.add(message_ids[0])
            return
        count = len(message_ids)
        first, end = message_ids[0], message_ids[count - 1] + 1
        run = range(first, end)
        if end - first != count or (message_ids != run and [*message_ids] != [*run]):
            for message_id in message_ids:
                self.add(message_id)
            return
        for number, low, high in _places(run):
            page = self._pages.setdefault(number, bytearray(_PAGE))
            if page.count(0, low, high) == high - low:
                page[low:high] = _ONES[low:high]
                self._length += high - low
            else:
                for index in range(low, high):
                    self.add(number << _BITS | index)

    def remove(self, message_id: int) -> None:
        """Count one queue less that has the message; KeyError if none had it."""
        number, index = message_id >> _BITS, message_id & (_PAGE - 1)
        page = self._pages[number]
        count = page[index]
        if count == 0:
            raise KeyError(message_id)
        if count == _MANY and self._many[message_id] > _MANY:
            self._many[message_id] -= 1
            return
        page[index] = count - 1
        if count == _MANY:
            del self._many[message_id]
        elif count == 1:
            self._length -= 1
            if page.count(0) == _PAGE:
                del self._pages[number]

    def remove_all(self, message_ids: Sequence[int]) -> None:
        """Count one queue less that has each message; of a range those of a page together."""
        if type(message_ids) is not range:
            for message_id in message_ids:
                self.remove(message_id)
            return
        for number, low, high in _places(message_ids):
            page = self._pages[number]
            if page.count(1, low, high) == high - low:
                page[low:high] = bytes(high - low)
                self._length -= high - low
                if page.count(0) == _PAGE:
                    del self._pages[number]
            else:
                for index in range(low, high):
                    self.remove(number << _BITS | index)

    def __getitem__(self, message_id: int) -> int:
        """The number of queues that a message is on; KeyError for none."""
        page = self._pages.get(message_id >> _BITS)
        count = 0 if page is None else page[message_id & (_PAGE - 1)]
        if count == 0:
            raise KeyError(message_id)
        return count if count < _MANY else self._many[message_id]

    def has_all(self, message_ids: range) -> bool:
        """True if each of these messages is on a queue."""
        places = _places(message_ids)
        pages = ((self._pages.get(number), low, high) for number, low, high in places)
        return all(page is not None and not page.count(0, low, high) for page, low, high in pages)

    def __contains__(self, message_id: object) -> bool:
        """True if the message is on any queue."""
        if not isinstance(message_id, int):
            return False
        page = self._pages.get(message_id >> _BITS)
        return page is not None and page[message_id & (_PAGE - 1)] > 0

    def __len__(self) -> int:
        """Messages on any queue."""
        return self._length

    def __iter__(self) -> Iterator[int]:
        """Message ids, those of a page together."""
        for number, page in [*self._pages.items()]:
            start = number << _BITS
            yield from (start + index for index, count in enumerate(page) if count)

    def rising(self) -> Iterator[int]:
        """Message ids in their order."""
        for number in sorted(self._pages):
            start = number << _BITS
            yield from (start + index for index, count in enumerate(self._pages[number]) if count)

    def __repr__(self) -> str:
        """Show the counts as a dictionary."""
        return f"MessageCounts({dict(self)})"


def _places(message_ids: range) -> Iterator[tuple[int, int, int]]:
    """The pages of ids that follow each other, and where on each they begin and end."""
    first, end = message_ids.start, message_ids.stop
    for number in range(first >> _BITS, (end - 1 >> _BITS) + 1):
        start = number << _BITS
        yield number, max(first - start, 0), min(end - start, _PAGE)
