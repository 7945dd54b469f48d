"""Limit what is there at a time: connections of a user, half-open ones of an address. Pure.

Both are counted as they come and go, so asking costs the same however many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush

from broker_shim.security.rules.attempts import is_loopback, network_of


class Counts:
    """Counts by name; a name with none takes no room."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def opened(self, name: str, most: int) -> bool:
        """Count one more, unless there are as many as there may be; True if it was counted."""
        if self._counts[name] >= most:
            return False
        self._counts[name] += 1
        return True

    def closed(self, name: str) -> None:
        """Count one less of those that were counted."""
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]


class HalfOpen:
    """Connections that have not opened yet, by address, and those whose failed login still counts.

    Who never logs in cannot keep others out: half-open connections have a limit of their own, below
    that of all, and of it each address of another machine has a quarter. Where there is no room
    the oldest one gives way, of the same address if that has its quarter. An honest client opens
    within milliseconds, and is not among the oldest unless hundreds come in these.

    Who failed to log in counts until its answer was due, whether or not it waits for that, and
    gives way to nobody. So hanging up and coming again gains nobody a guess, and what the guesses
    cost is limited (see `passwords`).

    Times are of a clock that rises. What is kept grows no larger than the limit: beyond it nobody
    enters.
    """

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()
        self._held: list[tuple[float, str]] = []
        self._oldest_first: dict[Newcomer, None] = {}

    def enter(self, host: str) -> Newcomer:
        """Count one more half-open connection, from an address as a number."""
        newcomer = Newcomer(self, network_of(host))
        self._of[newcomer.network] += 1
        self._oldest_first[newcomer] = None
        return newcomer

    def refusal_of_newcomer(
        self, host: str, count: int, *, most: int, most_half_open: int, now_s: float
    ) -> str | None:
        """Return why a connection is one too many; None if it is not, or another one gave way.

        Args:
            host: Where it comes from, as a number.
            count: Connections that there are.
            most: Connections in all.
            most_half_open: Those of them that have not opened yet.
            now_s: The time of its coming, in seconds of a clock that only rises.
        """
        while self._held and self._held[0][0] <= now_s:
            self._free(heappop(self._held)[1])
        network = network_of(host)
        half_open, of_address = self._of.total(), self._of[network]
        if of_address >= max(1, most_half_open // 4) and not is_loopback(host):
            reason = f"{of_address} connections of this address are half-open, or failed to log in"
            return None if self._makes_room(reason, network) else reason
        if count >= most:
            reason = f"{count} connections are open"
        elif half_open >= most_half_open:
            reason = f"{half_open} connections are half-open, or failed to log in a moment ago"
        else:
            return None
        return None if self._makes_room(reason) else reason

    def failed(self, newcomer: Newcomer) -> None:
        """Keep a newcomer that could not log in from giving way to others."""
        self._oldest_first.pop(newcomer, None)

    def leave(self, newcomer: Newcomer, until_s: float) -> None:
        """Count one half-open connection less, but not before `until_s`; 0 is now."""
        self._oldest_first.pop(newcomer, None)
        if until_s:
            heappush(self._held, (until_s, newcomer.network))
        else:
            self._free(newcomer.network)

    def _makes_room(self, reason: str, network: str | None = None) -> bool:
        """Have the oldest one give way, of a network if one is named; False if there is none."""
        for newcomer in self._oldest_first:
            if network in {None, newcomer.network}:
                give_way = newcomer.on_give_way
                newcomer.leave()
                give_way(reason)
                return True
        return False

    def _free(self, network: str) -> None:
        self._of[network] -= 1
        if not self._of[network]:
            del self._of[network]


def _stay(_reason: str) -> None:
    """End nothing, as a newcomer that left has no socket."""


class Newcomer:
    """A connection that was accepted and has not opened yet.

    Attributes:
        network: What counts as its address.
        on_give_way: Ends it, as another one needs its place; told why.
    """

    def __init__(self, half_open: HalfOpen, network: str) -> None:
        self.network = network
        self.on_give_way: Callable[[str], None] = _stay
        self._half_open: HalfOpen | None = half_open
        self._until_s = 0.0

    def failed(self, until_s: float) -> None:
        """Count a newcomer that could not log in until a moment, at least."""
        self._until_s = until_s
        if self._half_open is not None:
            self._half_open.failed(self)

    def leave(self) -> None:
        """End the count of a newcomer that has opened, or is gone; may be called twice."""
        self.on_give_way = _stay  # what ends it holds all of it
        if self._half_open is not None:
            self._half_open.leave(self, self._until_s)
            self._half_open = None
