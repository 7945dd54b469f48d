"""Dispositions that wait to be sent, put together into ranges.

A broker settles deliveries one at a time, as its store reports; a disposition each would cost more
than the deliveries themselves. So they are kept until output is taken, and consecutive ids with
one state become one frame. Their order among each other means nothing (2.7.6); whoever ends a link
or a session flushes first.
"""

from __future__ import annotations

from broker_shim.amqp_1_0.composites import Disposition
from broker_shim.protocol_1_0.codec.encoder import NULL, write
from broker_shim.protocol_1_0.serial import WRAP


class DispositionBatch:
    """Dispositions of one session that are not written yet: states, and the ids of each."""

    def __init__(self) -> None:
        self._state: object = None
        self._encoded = NULL
        self._said: dict[tuple[bool, bool, bytes], tuple[object, list[int]]] = {}

    def add(
        self, delivery_ids: list[int], state: object, *, is_incoming: bool, is_settled: bool
    ) -> None:
        """Say `state` of deliveries, one at least, and whether they are settled.

        Raises:
            InvalidCommand: The state cannot be encoded.
        """
        if state is not self._state:  # most often it is the one `Accepted` of the caller
            self._state, self._encoded = state, write(state)
        key = (is_incoming, is_settled, self._encoded)
        self._said.setdefault(key, (state, []))[1].extend(delivery_ids)

    def take(self) -> list[Disposition]:
        """Hand out dispositions of all of them, in ranges, and start over."""
        taken, self._said = self._said, {}
        return [
            Disposition(
                role=is_incoming,
                first=first,
                last=None if last == first else last,
                settled=is_settled,
                state=state,
            )
            for (is_incoming, is_settled, _), (state, ids) in taken.items()
            for first, last in ranges(ids)
        ]


def ranges(ids: list[int]) -> list[tuple[int, int]]:
    """Return consecutive delivery ids as (first, last), in order; ids wrap around at 2³²."""
    base = (ids[0] - _HALF) % WRAP
    offsets = sorted([(delivery_id - base) % WRAP for delivery_id in ids])
    pairs: list[tuple[int, int]] = []
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            pairs.append(((base + first) % WRAP, (base + last) % WRAP))
            first = offset
        last = offset
    return [*pairs, ((base + first) % WRAP, (base + last) % WRAP)]


_HALF = WRAP >> 1
