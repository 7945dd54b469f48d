"""What members are told of wiring: all there is once, then what others did, many changes a frame.

A member says up to where it has seen the stream (SEEN), and gets no more than `WINDOW` changes
beyond that: what waits for one that does not read is bounded here, and by its outbox, which cuts it
off. A member that was away goes on after the position that it saw, as far as the last `KEPT`
changes of this run of the service reach; else it is told all there is again. So nothing is ever
missed: either each change after what it saw is in the window, in order, or it gets a whole that is
as new as the position that comes with it.

A member is not told of what it did itself: it knows by the completion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from broker_shim.members.wiring_rows import Row
from broker_shim.service import protocol as wire
from broker_shim.service.dispatcher import DispatchPeer

KEPT = 8_192
WINDOW = 2_048
_PART = 1_000
_PART_CHARACTERS = 1 << 20


class Change(NamedTuple):
    """One change.

    Attributes:
        position: In the stream, rising by one.
        row: What is told.
        maker: The member who did it; None: the service's own broker.
    """

    position: int
    row: Row
    maker: str | None


@dataclass(slots=True)
class _Watcher:
    told: int
    seen: int


class WiringStream:
    """See above. On the loop's thread only."""

    def __init__(self, run: str, all_rows: Callable[[], Iterable[Row]]) -> None:
        """Begin.

        Args:
            run: Names this run of the service: positions of another one mean nothing here.
            all_rows: All wiring there is now.
        """
        self._run, self._all_rows = run, all_rows
        self._position = 0
        self._kept: deque[Change] = deque(maxlen=KEPT)
        self._watchers: dict[DispatchPeer, _Watcher] = {}

    def add(self, row: Row, maker: str | None) -> None:
        """Something changed, durably."""
        self._position += 1
        self._kept.append(Change(self._position, row, maker))
        for peer in [*self._watchers]:
            self._tell(peer)

    def watch(self, peer: DispatchPeer, run: str, position: int) -> None:
        """A member is to be told of what came after a position of a run."""
        is_known = run == self._run and self._oldest() - 1 <= position <= self._position
        self._watchers[peer] = _Watcher(position, position) if is_known else _Watcher(0, 0)
        if not is_known:
            self._tell_all(peer)
        self._tell(peer)

    def seen(self, peer: DispatchPeer, position: int) -> None:
        """A member has seen the stream up to a position."""
        watcher = self._watchers.get(peer)
        if watcher is not None:
            watcher.seen = max(watcher.seen, min(position, watcher.told))
            self._tell(peer)

    def left(self, peer: DispatchPeer) -> None:
        """A member's connection ended."""
        self._watchers.pop(peer, None)

    def _oldest(self) -> int:
        return self._kept[0].position if self._kept else self._position + 1

    def _tell(self, peer: DispatchPeer) -> None:
        watcher = self._watchers[peer]
        while watcher.told < self._position and watcher.told - watcher.seen < WINDOW:
            if watcher.told + 1 < self._oldest():
                self._tell_all(peer)
                continue
            first = watcher.told + 1 - self._oldest()
            part = [*islice(self._kept, first, first + _PART)]
            del part[len(next(_parts(change.row for change in part))) :]
            watcher.told = part[-1].position
            rows = [change.row for change in part if change.maker != peer.member]
            if rows:
                peer.say(wire.CHANGES, (self._run, watcher.told, False, True, rows))
            elif watcher.seen == part[0].position - 1:
                watcher.seen = watcher.told

    def _tell_all(self, peer: DispatchPeer) -> None:
        """All there is, as new as the position: a row that comes again later changes nothing."""
        watcher = self._watchers[peer]
        watcher.told = self._position
        parts = [*_parts(self._all_rows())] or [[]]
        for number, part in enumerate(parts, 1):
            is_last = number == len(parts)
            peer.say(wire.CHANGES, (self._run, self._position, True, is_last, part))


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows for one frame each: names and arguments may be long, and a frame has an end."""
    part: list[Row] = []
    characters = 0
    for row in rows:
        size = sum(len(text) for text in row[1:] if text is not None)
        if part and (len(part) == _PART or characters + size > _PART_CHARACTERS):
            yield part
            part, characters = [], 0
        part.append(row)
        characters += size
    if part:
        yield part
