"""Deliveries of one direction of a session that are not settled, by number. Pure.

Ids rise and wrap around at 2³²; here they are kept unwrapped, in a row that is searched by halves.
So a range costs what is in it, not what is unsettled nor what it spans. What was settled is taken
out of the row when somebody comes by, or when it is half of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.serial import WRAP, distance

_LEAST_ROW = 64
_HALF = WRAP >> 1


class Unsettled:
    """The deliveries of one direction that are not settled, by delivery id."""

    def __init__(self) -> None:
        self._known: dict[int, Delivery] = {}
        self._row: list[int] = []
        self._last = 0

    def __len__(self) -> int:
        """Return how many deliveries there are."""
        return len(self._known)

    def extend(self, deliveries: Iterable[Delivery]) -> None:
        """Add deliveries; the id of each comes after those of all before it."""
        last, append, known = self._last, self._row.append, self._known
        for delivery in deliveries:
            delivery_id = delivery.delivery_id
            assert delivery_id is not None
            last += (delivery_id - last + _HALF) % WRAP - _HALF
            append(last)
            known[delivery_id] = delivery
        self._last = last

    def discard(self, delivery_ids: Iterable[int]) -> None:
        """Drop deliveries, as far as they are there: they are settled, or their link is gone."""
        for delivery_id in delivery_ids:
            self._known.pop(delivery_id, None)
        if len(self._row) > 2 * len(self._known) + _LEAST_ROW:
            self._row = [number for number in self._row if number % WRAP in self._known]

    def between(self, first: int, last: int, most: int) -> tuple[list[Delivery], int | None]:
        """Return the first `most` of a range, and the id where what is left of it begins."""
        start = self._last + distance(self._last % WRAP, first)
        at = bisect_left(self._row, start)
        end = bisect_right(self._row, start + distance(first, last))
        deliveries: list[Delivery] = []
        numbers: list[int] = []
        seen = at
        while seen < end and len(deliveries) < most:
            delivery = self._known.get(self._row[seen] % WRAP)
            if delivery is not None:
                deliveries.append(delivery)
                numbers.append(self._row[seen])
            seen += 1
        rest = self._row[seen] % WRAP if seen < end else None
        if len(numbers) < seen - at:
            self._row[at:seen] = numbers
        return deliveries, rest

    def clear(self) -> None:
        """Drop all unsettled deliveries."""
        self._known.clear()
        self._row.clear()
