"""Messages of a queue that are hidden until their time. Pure: no clock.

A hidden message waits in a level of the index that nobody looks at, so it is found by its id: it
counts, and can be purged, moved and deleted. Its time is in the queue's timing wheel. Invariant:
whatever is in that level, or is held and has its place there, is in the wheel, until it is `due`;
`end` is called for each that is.
"""

from __future__ import annotations

from broker_shim.broker.queues.queue_index import QueueIndex
from broker_shim.broker.queues.timing_wheel import TimingWheel

_MOST_STALE = 4096
"""Times of messages that left their queue, which are kept beside those that wait."""


class DelayedMessages:
    """The hidden messages of one queue; `len` is how many wait."""

    def __init__(self, index: QueueIndex, held: dict[int, int]) -> None:
        """Begin with none.

        Args:
            index: Of the queue.
            held: Place of each message that is held, by its id; some are given a new one.
        """
        self._index, self._held = index, held
        self._wheel = TimingWheel()

    def __len__(self) -> int:
        """The number of messages that wait for their time, and are held by nobody."""
        return self._index.delayed_count

    @property
    def next_us(self) -> int | None:
        """The time before which no message may be delivered, UTC µs; None: none is hidden."""
        return self._wheel.next_us

    def hide(self, message_id: int, until_us: int) -> None:
        """Hide a message that waits until a time, UTC µs."""
        place = self._index.find(message_id)
        if place is not None and not self._index.is_delayed(place):
            self._index.hold((place,))
            self._index.drop((place,))
            self._index.delay(message_id)
            self._wheel.add(until_us, message_id)
            if len(self._wheel) > 2 * len(self) + _MOST_STALE:
                self._wheel.keep(lambda message_id: self._place(message_id) is not None)

    def due(self, now_us: int, most: int) -> list[int]:
        """Take out messages whose time has come. See `TimingWheel.due`."""
        return self._wheel.due(now_us, most)

    def end(self, message_id: int, priority: int) -> None:
        """Let a message whose time has come wait after all others of its priority.

        One that is held meanwhile, as by a purge, has its new place if it is given back.
        """
        place = self._place(message_id)
        if place is None:
            return
        is_held = message_id in self._held
        if not is_held:
            self._index.hold((place,))
        self._index.drop((place,))
        new = self._index.extend((message_id,), priority)
        if is_held:
            self._index.hold((new,))
            self._held[message_id] = new

    def _place(self, message_id: int) -> int | None:
        """Find the place of a hidden message; None if it is not hidden."""
        held = self._held.get(message_id)
        place = self._index.find(message_id) if held is None else held
        return place if place is not None and self._index.is_delayed(place) else None
