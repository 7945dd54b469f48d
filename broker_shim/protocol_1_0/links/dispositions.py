"""Collect the dispositions of one session that are to be told, and tell them in ranges.

A broker settles deliveries one at a time, as its store reports; a disposition each would cost more
than the deliveries themselves. So they are kept until output is taken, and consecutive ids with
one state become one frame. Their order among each other means nothing (2.7.6); whoever ends a link
or a session flushes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_shim.amqp_1_0.composites import Disposition
from broker_shim.protocol_1_0.codec.encoder import NULL, write
from broker_shim.protocol_1_0.links.runs import Run
from broker_shim.protocol_1_0.serial import WRAP


class DispositionBatch:
    """Dispositions of one session that are not written yet: states, and the ids of each."""

    def __init__(self) -> None:
        self._state: object = None
        self._encoded = NULL
        self._said: dict[tuple[bool, bool, bytes], tuple[object, list[Span]]] = {}

    def add(
        self, spans: Iterable[Span], state: object, *, is_incoming: bool, is_settled: bool
    ) -> None:
        """Say `state` of deliveries, one at least, and whether they are settled.

        Raises:
            InvalidCommand: The state cannot be encoded.
        """
        if state is not self._state:  # most often it is the one `Accepted` of the caller
            self._state, self._encoded = state, write(state)
        key = (is_incoming, is_settled, self._encoded)
        self._said.setdefault(key, (state, []))[1].extend(spans)

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
            for (is_incoming, is_settled, _), (state, spans) in taken.items()
            for first, last in joined(spans)
        ]


Span = tuple[int, int]
"""The first and the last of some delivery ids that follow each other."""


def span_of(run: Run) -> Span:
    """The ids of a run, some frame of which went."""
    return run.number % WRAP, (run.number + len(run) - 1) % WRAP


def joined(spans: Sequence[Span]) -> list[Span]:
    """Join what follows each other, in order; ids wrap around at 2³²."""
    base = (spans[0][0] - _HALF) % WRAP
    begin, *after = sorted([((first - base) % WRAP, (last - base) % WRAP) for first, last in spans])
    offsets = [begin]
    for first, last in after:
        if first == offsets[-1][1] + 1:
            offsets[-1] = (offsets[-1][0], last)
        else:
            offsets.append((first, last))
    return [((base + first) % WRAP, (base + last) % WRAP) for first, last in offsets]


_HALF = WRAP >> 1
