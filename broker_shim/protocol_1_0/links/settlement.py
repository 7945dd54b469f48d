"""Dispositions that wait to be sent, put together into ranges.

A broker settles deliveries one at a time, as its store reports; a disposition each would cost more
than the deliveries themselves. So they are kept until output is taken, and consecutive ids with
one state become one frame. Their order among each other means nothing (2.7.6); whoever ends a link
or a session flushes first.
"""

from __future__ import annotations

from broker_shim.amqp_1_0.composites import Disposition
from broker_shim.protocol_1_0.codec.encoder import NULL, write
from broker_shim.protocol_1_0.serial import distance


class DispositionBatch:
    """What is to be told of deliveries of one session: states, and the ids of each."""

    def __init__(self) -> None:
        self._state: object = None
        self._encoded = NULL
        self._said: dict[tuple[bool, bool, bytes], tuple[object, list[int]]] = {}

    def add(self, delivery_id: int, state: object, *, is_incoming: bool, is_settled: bool) -> None:
        """Say `state` of one delivery, and whether it is settled.

        Raises:
            InvalidCommand: The state cannot be encoded.
        """
        if state is not self._state:  # most often it is the one `Accepted` of the caller
            self._state, self._encoded = state, write(state)
        key = (is_incoming, is_settled, self._encoded)
        self._said.setdefault(key, (state, []))[1].append(delivery_id)

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
    base = ids[0]
    found: list[tuple[int, int]] = []
    for delivery_id in sorted(ids, key=lambda each: distance(base, each)):
        if found and distance(found[-1][1], delivery_id) == 1:
            found[-1] = (found[-1][0], delivery_id)
        else:
            found.append((delivery_id, delivery_id))
    return found
