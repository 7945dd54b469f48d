"""The commands that a session sends, by number, and those that it may send again. Pure.

A session that outlives its connection keeps each command until its client has said that it is
complete or confirmed. Then a client that was lost is sent again what it had not taken in.
"""

from __future__ import annotations

from broker_shim.framing.assembly import Assembly
from broker_shim.framing.number_map import Numbered
from broker_shim.framing.sequences import Ranges, after, distance

_MOST_BYTES = 1 << 20


class OutgoingCommands:
    """The commands to one client.

    Attributes:
        next_id: The number of the next command.
    """

    def __init__(self) -> None:
        self.next_id = 0
        self._is_keeping = False
        self._kept = Numbered[Assembly]()
        self._kept_bytes = 0

    @property
    def has_room(self) -> bool:
        """False while so much is kept that no more messages should be sent."""
        return self._kept_bytes < _MOST_BYTES

    def keep(self, *, is_keeping: bool) -> None:
        """Keep what is sent from now on, or nothing any more."""
        self._is_keeping = is_keeping
        if not is_keeping:
            self._kept.clear()
            self._kept_bytes = 0

    def number(self, assembly: Assembly) -> int:
        """Number a command that is sent, now or when its client is back."""
        command_id = assembly.command_id = self.next_id
        self.next_id = after(command_id)
        if self._is_keeping:
            self._kept[command_id] = assembly
            self._kept_bytes += _bytes_of(assembly)
        return command_id

    def is_sent(self, ranges: Ranges) -> bool:
        """True if no number among these is of a command that was not sent yet."""
        return all(distance(last, self.next_id) > 0 for _, last in ranges)

    def taken_in(self, ranges: Ranges) -> None:
        """Forget commands that the client has: they need not be sent again."""
        for number in self._kept.chosen(ranges):
            self._kept_bytes -= _bytes_of(self._kept.pop(number))

    def since(self, first: int) -> tuple[Ranges, list[Assembly]]:
        """Find the commands to send again to a client that expects a number.

        Returns:
            Numbers that nothing is kept of any more; and what is kept.
        """
        again = [number for number in self._kept if distance(first, number) >= 0]
        lost: list[tuple[int, int]] = []
        for number in [*again, self.next_id]:
            if number != first:
                lost.append((first, after(number, -1)))
            first = after(number)
        return tuple(lost), [self._kept[number] for number in again]


def _bytes_of(assembly: Assembly) -> int:
    header, body = assembly.header, assembly.body
    return (0 if header is None else header.byte_count) + (0 if body is None else len(body.payload))
