"""The commands that a session sends, by number, and those that it may send again. Pure.

A session that outlives its connection keeps each command until its client has said that it is
complete or confirmed. Then a client that was lost is sent again what it had not taken in.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_shim.framing.assembly import Assembly
from broker_shim.framing.number_map import NumberedRuns
from broker_shim.framing.sequences import Ranges, after, distance

_MOST_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class _Kept:
    """Commands that were sent together, as far as they are kept. See `Numbered`."""

    number: int
    commands: Assembly

    def __len__(self) -> int:
        return len(self.commands)

    def cut(self, count: int) -> _Kept:
        """Keep the first `count` commands, and return the rest."""
        return _Kept(self.number + count, self.commands.cut(count))


class OutgoingCommands:
    """The commands to one client.

    Attributes:
        next_id: The number of the next command.
    """

    def __init__(self) -> None:
        self.next_id = 0
        self._is_keeping = False
        self._kept = NumberedRuns[_Kept]()
        self._kept_bytes = 0

    @property
    def has_room(self) -> bool:
        """False while so much is kept that no more messages should be sent."""
        return self._kept_bytes < _MOST_BYTES

    def keep(self, *, is_keeping: bool) -> None:
        """Keep what is sent from now on, or nothing any more."""
        self._is_keeping = is_keeping
        if not is_keeping:
            self._kept.drop(lambda _kept: True)
            self._kept_bytes = 0

    def number(self, assembly: Assembly) -> int:
        """Number commands that are sent, now or when their client is back; the first number."""
        command_id = assembly.command_id = self.next_id
        self.next_id = after(command_id, len(assembly))
        if self._is_keeping:
            self._kept.add(_Kept(command_id, assembly))
            self._kept_bytes += assembly.content_bytes
        return command_id

    def is_sent(self, ranges: Ranges) -> bool:
        """True if no number among these is of a command that was not sent yet."""
        return all(distance(last, self.next_id) > 0 for _, last in ranges)

    def taken_in(self, ranges: Ranges) -> None:
        """Forget commands that the client has: they need not be sent again."""
        taken = self._kept.take(ranges)
        self._kept_bytes -= sum([kept.commands.content_bytes for kept in taken])

    def since(self, first: int) -> tuple[Ranges, list[Assembly]]:
        """Find the commands to send again to a client that expects a number.

        Returns:
            Numbers that nothing is kept of any more; and what is kept.
        """
        again = [kept.commands for kept in self._kept.since(first)]
        lost: list[tuple[int, int]] = []
        for number, count in [*((it.command_id or 0, len(it)) for it in again), (self.next_id, 0)]:
            if number != first:
                lost.append((first, after(number, -1)))
            first = after(number, count)
        return tuple(lost), again
