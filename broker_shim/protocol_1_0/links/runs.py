"""Deliveries of a session as runs, both ways: neighbours are one object until it is cut.

Ids of a run follow each other, whatever of it is settled or told apart cuts it in two, and a cut
costs the same however long the run is: both parts share the columns, and each knows from where to
where it is. A delivery alone is a run of one. Ids rise and wrap around at 2³²; here they are kept
unwrapped, as numbers. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, Self

from broker_shim.protocol_1_0.serial import WRAP, distance

if TYPE_CHECKING:
    from broker_shim.protocol_1_0.links.receiver import ReceiverLink
    from broker_shim.protocol_1_0.links.sender import SenderLink

_number_of = attrgetter("number")


class Cuttable(Protocol):
    """An owner's column beside the deliveries of a run."""

    def cut(self, count: int) -> Self:
        """Keep what belongs to the first `count` deliveries, and return the rest."""


class Run:
    """Deliveries of one link that follow each other, one at least.

    Attributes:
        link: Our end of the link that they are made on.
        message_format: The format that their sender tells, of a run of one; 0 is AMQP's own.
        number: Of the first on the session, which counts on where ids wrap around; -1 until its
            first frame was sent.
        byte_count: How many bytes of payload there were so far, of a run of one.
        is_settled: True once they are forgotten here.
        state: What we said of them last.
        remote_state: What the peer said of them last.
        is_resumed: True if their sender resumed it from an earlier attachment, of a run of one.
        is_second: True if their receiver, which we are, settles them after their sender
            (rcv-settle-mode second).
        ends: Of all bytes of the connection, the number that were made when the last frame of each
            was that we sent, as far as they are made whole; those of all parts.
        held: What their owner keeps with them, which is cut as they are; None: nothing any more.
    """

    __slots__ = (
        "_rest",
        "_start",
        "_stop",
        "_tags",
        "byte_count",
        "ends",
        "held",
        "is_resumed",
        "is_second",
        "is_settled",
        "link",
        "message_format",
        "number",
        "remote_state",
        "state",
    )

    def __init__(
        self,
        link: ReceiverLink | SenderLink,
        tags: Sequence[bytes],
        *,
        is_settled: bool = False,
        state: Any = None,
        held: Any = None,
    ) -> None:
        """Begin with deliveries of which no frame was sent, or noted."""
        self.link, self._tags, self._start, self._stop = link, tags, 0, len(tags)
        self.message_format, self.is_settled = 0, is_settled
        self.state: Any = state
        self.remote_state: Any = None
        self.held: Any = held
        self.number, self.byte_count, self.is_resumed, self.is_second = -1, 0, False, False
        self.ends: list[int] = []
        self._rest: Run | None = None

    def __len__(self) -> int:
        """The number of deliveries."""
        return self._stop - self._start

    @property
    def tags(self) -> Sequence[bytes]:
        """The names of the deliveries on the link."""
        return self._tags[self._start : self._stop]

    @property
    def tag(self) -> bytes:
        """The name of the first delivery, which is that of a run of one."""
        return self.tag_at(0)

    def tag_at(self, place: int) -> bytes:
        """The name of one of the deliveries, or of one that was behind them before a cut."""
        return self._tags[self._start + place]

    @property
    def delivery_id(self) -> int | None:
        """The id of the first delivery on the session; None until its first frame went."""
        return None if self.number < 0 else self.number % WRAP

    def cut(self, count: int) -> Run:
        """Keep the first `count` deliveries, some but not all, and return the rest."""
        rest = Run(
            self.link,
            self._tags,
            is_settled=self.is_settled,
            state=self.state,
            held=None if self.held is None else self.held.cut(count),
        )
        rest.remote_state, rest.ends, rest.is_second = self.remote_state, self.ends, self.is_second
        rest.number, rest._stop = self.number + count, self._stop
        rest._start = self._stop = self._start + count
        rest._rest, self._rest = self._rest, rest
        if self in self.link.runs:
            self.link.runs[rest] = None
        return rest

    def written_count(self, byte_count: int) -> int:
        """Count those that are whole in the first so many bytes of the connection."""
        if len(self.ends) < self._stop:
            return 0
        return bisect_right(self.ends, byte_count, self._start, self._stop) - self._start

    def parts(self, count: int) -> list[Run]:
        """List what its first `count` deliveries, which it had once, are since it was cut."""
        parts, last = [self], self
        while (count := count - len(last)) > 0 and last._rest is not None:
            last = last._rest
            parts.append(last)
        return parts

    def is_settled_at(self, number: int) -> bool:
        """True if one of those that it had once is settled."""
        run = self
        while number >= run.number + len(run) and run._rest is not None:
            run = run._rest
        return run.is_settled

    def dispose(self, state: Any, *, settled: bool = True) -> None:
        """Tell the peer a state of the deliveries, and settle them or not, with the next output.

        Nothing is sent of what is settled already or whose link has ended.

        Raises:
            InvalidCommand: The state cannot be encoded.
        """
        self.link.port.dispose(self.link, [self.place], state, settled=settled)

    @property
    def place(self) -> Place:
        """Where the deliveries are, which stays true whatever is cut off the run later."""
        return self if self.number < 0 else (self.number, len(self))


Place = tuple[int, int] | Run
"""The number of the first of some deliveries, and how many; or one of which nothing was sent."""


class UnsettledRuns:
    """The deliveries of one direction of a session that nobody has settled, in order of their ids.

    A range costs what is in it, not what is unsettled nor what it spans.
    """

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._count = 0
        self.next_number = 0

    def __len__(self) -> int:
        """Return how many deliveries there are."""
        return self._count

    def add(self, run: Run) -> None:
        """Give the next ids to the deliveries of a run, and remember it unless it is settled."""
        run.number = self.next_number
        self.next_number += len(run)
        if not run.is_settled:
            self._runs.append(run)
            self._count += len(run)

    def number_of(self, delivery_id: int) -> int:
        """Tell the number of an id that is nearest to those that were given last."""
        last = self.next_number
        return last + distance(last % WRAP, delivery_id)

    def has(self, number: int) -> bool:
        """True if the delivery of this number is unsettled."""
        at = bisect_left(self._runs, number + 1, key=_number_of) - 1
        return at >= 0 and number < self._runs[at].number + len(self._runs[at])

    def between(
        self, number: int, count: int, most: int, *, is_taken: bool
    ) -> tuple[list[Run], int | None]:
        """Find the first `most` of so many numbers, cut from what is not among them.

        Args:
            number: The first of the numbers.
            count: How many numbers there are, of which most may be settled.
            most: So many deliveries at most.
            is_taken: They are settled by this, and forgotten.

        Returns:
            The runs, and the number where what is left begins; None if nothing is.
        """
        runs, stop, left = self._runs, number + count, most
        begin = at = self._begin(number)
        while at < len(runs) and (room := min(left, stop - runs[at].number)) > 0:
            run = runs[at]
            if room < len(run):
                runs.insert(at + 1, run.cut(room))
            left -= len(run)
            at += 1
        some = runs[begin:at]
        rest = runs[at].number if at < len(runs) and runs[at].number < stop else None
        if is_taken:
            del runs[begin:at]
            self._count -= most - left
        return some, rest

    def _begin(self, number: int) -> int:
        """Find the first run from a number on, cutting the one that it is in the middle of."""
        runs = self._runs
        at = bisect_left(runs, number, key=_number_of)
        if at and (before := runs[at - 1]).number + len(before) > number:
            runs.insert(at, before.cut(number - before.number))
        return at

    def discard(self, run: Run) -> None:
        """Drop a run, if it is there."""
        if run.number >= 0:
            self.between(run.number, len(run), len(run), is_taken=True)

    def clear(self) -> None:
        """Drop all of them."""
        self._runs.clear()
        self._count = 0
