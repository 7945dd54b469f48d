"""The commands of a peer that are complete, and when it wants to hear of that. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from broker_shim.amqp_0_10 import commands as c
from broker_shim.framing.sequences import Ranges, after, contains, distance, numbers_of, ranges_of

_MOST_RANGES = 2_000
"""In one control, which is one frame."""


WIRING: frozenset[type] = frozenset(
    {
        *(c.ExchangeDeclare, c.ExchangeDelete, c.ExchangeBind, c.ExchangeUnbind),
        *(c.QueueDeclare, c.QueueDelete, c.QueuePurge),
    }
)
"""Commands that those after them may build on: these wait until such a one is complete."""


class IncomingCommands:
    """The commands of one session, by their numbers.

    Attributes:
        next_id: The number of the next command.
        open_count: How many are not complete.
    """

    def __init__(self) -> None:
        self.next_id = 0
        self._base = self._low = 0
        self._done: set[int] = set()
        self._syncs: deque[int] = deque()
        self._wanted: deque[int] = deque()
        self._is_due = False
        self._untold = 0
        self._again: int | None = None

    @property
    def open_count(self) -> int:
        """The number of commands that came and are not complete."""
        return distance(self._low, self.next_id) - len(self._done)

    def start_at(self, command_id: int) -> bool:
        """Begin at the number that the peer says; False if that cannot be.

        One that came before comes again, and is not done again.
        """
        self._again = None
        steps = distance(self.next_id, command_id)
        if steps < 0:
            self._again = command_id
            return distance(self._base, command_id) >= 0
        return not steps or self._skip_to(command_id)

    def skip(self, ranges: Ranges) -> bool:
        """Count commands as complete that the peer cannot send any more (session.gap).

        Returns:
            False if that cannot be: the ranges, in order, leave out what comes next.
        """
        for first, last in ranges:
            if distance(self.next_id, first) > 0:
                return False
            ends = after(last)
            if distance(self.next_id, ends) > 0 and not self._skip_to(ends):
                return False
        return True

    def _skip_to(self, command_id: int) -> bool:
        """Begin anew at this number, if all commands before it are complete."""
        if self.open_count:
            return False
        is_new = self._low == self._base
        self.next_id = self._low = command_id
        if is_new:
            self._base = command_id
        return True

    def seen(self, count: int, *, sync: bool) -> int:
        """Count the first of so many commands that came before; these are not done again."""
        if self._again is None:
            return 0
        seen = min(count, distance(self._again, self.next_id))
        self._again = after(self._again, seen)
        if self._again == self.next_id:
            self._again = None
        self._is_due |= sync
        return seen

    def receive(self, count: int = 1, *, sync: bool) -> int:
        """Number the next commands, none of which was `seen`; the first number."""
        command_id = self.next_id
        self.next_id = after(command_id, count)
        if sync:
            self._wanted.extend(numbers_of(((command_id, after(self.next_id, -1)),)))
        return command_id

    def withdraw(self) -> None:
        """The last command did not come whole, and will come again."""
        self.next_id = after(self.next_id, -1)
        if self._wanted and self._wanted[-1] == self.next_id:
            self._wanted.pop()

    def complete(self, command_ids: Sequence[int]) -> None:
        """Mark some commands as complete, whose numbers rise."""
        before, count = len(self._done), len(command_ids)
        if count and command_ids[0] == self._low and after(self._low, count - 1) == command_ids[-1]:
            self._low = after(self._low, count)  # the next ones, as nearly always
            self._untold += count
        else:
            self._done.update(command_ids)
            self._untold += len(self._done) - before
        self._advance()

    def complete_in_turn(self, command_id: int) -> None:
        """Mark a command as complete once all before it are (execution.sync)."""
        self._syncs.append(command_id)
        self._advance()

    def _advance(self) -> None:
        while True:
            if self._low in self._done:
                self._done.remove(self._low)
            elif self._syncs and self._syncs[0] == self._low:
                self._syncs.popleft()
                self._untold += 1
                self._is_due = True
            else:
                break
            self._low = after(self._low)
        while self._wanted and distance(self._wanted[0], self._low) > 0:
            self._wanted.popleft()
            self._is_due = True

    @property
    def is_due(self) -> bool:
        """True if the peer waits to hear what is complete, or has not heard of many."""
        return self._is_due or self._untold >= _MOST_UNTOLD

    def newly_complete(self) -> Ranges:
        """Tell the peer which commands are complete, of those it may not know of."""
        self._is_due, self._untold = False, 0
        ranges: Ranges = ()
        if self._low != self._base:
            ranges = ((self._base, after(self._low, -1)),)
        return ranges + ranges_of(sorted(self._done, key=self._place))[:_MOST_RANGES]

    def known(self, ranges: Ranges) -> None:
        """Forget commands that the peer knows to be complete."""
        for first, last in ranges:
            if contains(((first, last),), self._base) and distance(last, self._low) > 0:
                self._base = after(last)

    def _place(self, command_id: int) -> int:
        return distance(self._low, command_id)


_MOST_UNTOLD = 256
