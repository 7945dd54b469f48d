"""The stream of wiring to members: all there is once, then what others did.

A member says of each frame that it has seen it (SEEN), and has at most `WINDOW` frames before it
says so. A frame has an end in rows and in characters. So what waits for one that does not read is
bounded, however much wiring there is and however long its names are. A member that was away goes on
after the position that it saw, as far as the last `KEPT` changes of this run of the service reach.
Else it is told all there is again. So nothing is ever missed. Either each change after what it saw
is kept, in order, or it gets a whole that is as new as the position that comes with it.

It is told something at once, be it that nothing changed. Its first SEEN comes after all that it
says when it connects, and so tells that it has said all that it subscribes to.

A member is told of what it did itself, too, so that all have one order (`wiring_barrier`), but for
links that it attached: it has them. It may ask to be answered `after` all that there is to tell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from broker_shim.errors import InvalidRequest
from broker_shim.members.wiring_rows import Row
from broker_shim.store import protocol as wire

if TYPE_CHECKING:
    from broker_shim.service.member_connection import MemberConnection

KEPT = 8_192
WINDOW = 2
_PART = 1_000
_PART_CHARACTERS = 1 << 20


class Change(NamedTuple):
    """One change of wiring that is durable.

    Attributes:
        position: In the stream, rising by one.
        row: What is told.
        maker: The member that is not told of it; None: all are.
    """

    position: int
    row: Row
    maker: str | None


@dataclass(slots=True)
class _Watcher:
    """A member's place in the stream of wiring.

    Attributes:
        position: The place up to which it was told, but for what is left of the whole.
        unseen: Frames that it has not said that it has seen.
        whole: What is left of the whole, if that is being told: rows of a frame, and whether they
            are the last.
        due: Calls to make when all rows up to a position are told, in their order.
    """

    position: int
    unseen: int = 0
    whole: Iterator[tuple[list[Row], bool]] | None = None
    due: deque[tuple[int, Callable[[], None]]] = field(default_factory=deque)


class WiringStream:
    """The changes of wiring, and the members that watch. On the loop's thread only."""

    def __init__(self, run: str, all_rows: Callable[[], Iterable[Row]]) -> None:
        """Begin without changes and without members.

        Args:
            run: Names this run of the service: positions of another one mean nothing here.
            all_rows: All wiring there is now.
        """
        self._run, self._all_rows = run, all_rows
        self._position = 0
        self._kept: deque[Change] = deque(maxlen=KEPT)
        self._watchers: dict[MemberConnection, _Watcher] = {}
        self._early: dict[MemberConnection, list[Callable[[], None]]] = {}

    def add(self, row: Row, maker: str | None) -> None:
        """Add a change that is durable, and tell it to all members but one that has it already."""
        self._position += 1
        self._kept.append(Change(self._position, row, maker))
        for peer in [*self._watchers]:
            self._tell(peer)

    def watch(self, peer: MemberConnection, run: str, position: int) -> None:
        """Begin to tell a member what came after a position of a run."""
        is_known = run == self._run and self._oldest() - 1 <= position <= self._position
        watcher = self._watchers[peer] = _Watcher(position)
        if not is_known:
            self._begin_whole(watcher)
        self._tell(peer)
        if not watcher.unseen:
            self._say(peer, watcher, (self._run, watcher.position, False, True, []))
        for call in self._early.pop(peer, ()):
            self.after(peer, call)

    def after(self, peer: MemberConnection, call: Callable[[], None]) -> None:
        """Make a call when a member is told of all there is now; one that does not watch, then.

        It is not made if the connection ends before.

        Raises:
            InvalidRequest: Too many calls wait for this member.
        """
        watcher = self._watchers.get(peer)
        early = self._early.setdefault(peer, []) if watcher is None else []
        if len(early if watcher is None else watcher.due) >= wire.MAX_WAITING_READS:
            message = f"more than {wire.MAX_WAITING_READS} questions wait for their answers"
            raise InvalidRequest(message)
        if watcher is None:
            early.append(call)
        else:
            watcher.due.append((self._position, call))
            self._tell(peer)

    def seen(self, peer: MemberConnection) -> bool:
        """Count a frame as seen by a member; False: it was told of none."""
        watcher = self._watchers.get(peer)
        if watcher is None or not watcher.unseen:
            return False
        watcher.unseen -= 1
        self._tell(peer)
        return True

    def left(self, peer: MemberConnection) -> None:
        """Forget a member whose connection ended."""
        self._watchers.pop(peer, None)
        self._early.pop(peer, None)

    def _oldest(self) -> int:
        return self._kept[0].position if self._kept else self._position + 1

    def _tell(self, peer: MemberConnection) -> None:
        watcher = self._watchers[peer]
        while watcher.unseen < WINDOW and (body := self._next(watcher, peer.member)) is not None:
            self._say(peer, watcher, body)
        while watcher.due and watcher.whole is None and watcher.position >= watcher.due[0][0]:
            watcher.due.popleft()[1]()

    def _say(self, peer: MemberConnection, watcher: _Watcher, body: wire.Body) -> None:
        watcher.unseen += 1
        peer.say(wire.CHANGES, body)

    def _next(self, watcher: _Watcher, member: str) -> wire.Body | None:
        """The body of the next frame; None: there is nothing to tell."""
        if watcher.whole is None and watcher.position + 1 < self._oldest():
            self._begin_whole(watcher)
        if watcher.whole is not None:
            part, is_last = next(watcher.whole)
            if is_last:
                watcher.whole = None
            return self._run, watcher.position, True, is_last, part
        while watcher.position < self._position:
            first = watcher.position + 1 - self._oldest()
            changes = [*islice(self._kept, first, first + _PART)]
            del changes[len(next(_parts(change.row for change in changes))) :]
            watcher.position = changes[-1].position
            rows = [change.row for change in changes if change.maker != member]
            if rows:
                return self._run, watcher.position, False, True, rows
        return None

    def _begin_whole(self, watcher: _Watcher) -> None:
        """Tell a member all there is now: a row that comes again later changes nothing."""
        watcher.position = self._position
        watcher.whole = _marked(_parts(self._all_rows()))


def _marked(parts: Iterator[list[Row]]) -> Iterator[tuple[list[Row], bool]]:
    """Mark the last of the parts; without any there is one that is empty."""
    part = next(parts, [])
    for following in parts:
        yield part, False
        part = following
    yield part, True


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Part rows into frames: names and arguments may be long, and a frame has an end."""
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
