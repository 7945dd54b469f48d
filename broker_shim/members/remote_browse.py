"""How far a browser at a member has looked at a queue that only the service knows.

It asks for what waits after its place, some at a time, and takes nothing: LOOK and LOOKED of the
protocol; `looked_at` is the service's answer. Places are the service's, and mean nothing after a
lost connection: then the look begins anew, and what was shown before is passed over.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence

from broker_shim.broker.queues.queue_index import Cursor
from broker_shim.broker.virtual_host import Broker
from broker_shim.store.granted_run import shown
from broker_shim.store.interface import Entry

Looked = tuple[list[tuple[int, tuple[object, ...]]], list[int]]
"""What LOOKED says: message ids with their entries, in order, and the place after them."""


def looked_at(broker: Broker, queue: str, indexes: Sequence[int], count: int) -> Looked:
    """Look for a member at what waits after a place of a queue, without acquiring it."""
    rows, cursor = [], Cursor()
    cursor.indexes = [*indexes]
    if queue in broker.queues:
        for _place, message_id in broker.queues[queue].browse(cursor, count):
            entry = broker.calls.entry(queue, message_id)
            if entry is not None:
                rows.append((message_id, shown(entry)))
    return rows, cursor.indexes


class RemoteCursor(Cursor):
    """The place of a browser in a queue of the service. On the loop's thread only.

    Attributes:
        on_known: Called when the answer to what was asked is here; None: nothing is asked.
        connection: The number of the one that its place is of.
        is_resting: It found nothing, and looks again after a while.
    """

    __slots__ = ("_came", "_is_end", "_shown", "_skipped", "connection", "is_resting", "on_known")

    def __init__(self) -> None:
        super().__init__()
        self._came: deque[tuple[int, Entry]] = deque()
        self._shown = array("q")
        self._skipped: frozenset[int] = frozenset()
        self._is_end = self.is_resting = False
        self.connection = 0
        self.on_known: Callable[[], None] | None = None

    def take_known(self) -> bool:
        """True if there is something, or if there was nothing when it was asked, told once."""
        is_known = bool(self._came) or self._is_end
        self._is_end = False
        return is_known

    @property
    def has_nothing(self) -> bool:
        """True if nothing more is here."""
        return not self._came

    def take(self, count: int) -> list[tuple[int, Entry]]:
        """The next that wait, `count` at most."""
        rows = [self._came.popleft() for _ in range(min(count, len(self._came)))]
        self._shown.extend(message_id for message_id, _ in rows)
        return rows

    def came(self, rows: Sequence[tuple[int, Entry]], indexes: Sequence[int]) -> None:
        """The answer: what waits after the place, and the place after that."""
        self.indexes = [*indexes]
        self._came.extend(row for row in rows if row[0] not in self._skipped)
        self._is_end = not rows

    def begin_anew(self, connection: int) -> None:
        """Look from the head again, as old places mean nothing to another connection."""
        self.connection = connection
        self.indexes = [0] * len(self.indexes)
        self._came.clear()
        self._skipped = frozenset(self._shown)
