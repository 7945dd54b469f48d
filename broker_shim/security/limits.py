"""How many at a time: connections of each user, half-open ones of each address. Pure.

Both are counted as they come and go, so asking costs the same however many there are.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from heapq import heappop, heappush

from broker_shim.security.attempts import network_of


class Counts:
    """So many of each name; what is not there takes no room."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def opened(self, name: str, most: int) -> bool:
        """One more, unless there are as many as there may be; True if it was counted."""
        if self._counts[name] >= most:
            return False
        self._counts[name] += 1
        return True

    def closed(self, name: str) -> None:
        """One less of those that were counted."""
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]


class HalfOpen:
    """Connections that have not opened yet, by address, and those whose failed login still counts.

    Who never logs in cannot keep others out for long: half-open connections have a limit of their
    own, below that of all, and of it each address of another machine has a quarter. Who failed to
    log in counts until its answer was due, whether or not it waits for that: so hanging up and
    coming again gains nobody a guess, and what the guesses cost is limited (see `passwords`).

    Times are of a clock that rises. What is kept grows no larger than the limit: beyond it nobody
    enters.
    """

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()
        self._held: list[tuple[float, str]] = []

    def enter(self, host: str) -> Newcomer:
        """One more, from an address as a number."""
        newcomer = Newcomer(self, network_of(host))
        self._of[newcomer.network] += 1
        return newcomer

    def refusal_of_newcomer(
        self, host: str, count: int, *, most: int, most_half_open: int, now_s: float
    ) -> str | None:
        """Why a connection is one too many; None if it is not.

        Args:
            host: Where it comes from, as a number.
            count: Connections that there are.
            most: Connections in all.
            most_half_open: Those of them that have not opened yet.
            now_s: When.
        """
        while self._held and self._held[0][0] <= now_s:
            self._free(heappop(self._held)[1])
        half_open, of_address = self._of.total(), self._of[network_of(host)]
        if count >= most:
            return f"{count} connections are open"
        if half_open >= most_half_open:
            return f"{half_open} connections are half-open, or failed to log in a moment ago"
        if of_address >= max(1, most_half_open // 4) and not _is_loopback(host):
            return f"{of_address} connections of this address are half-open, or failed to log in"
        return None

    def leave(self, network: str, until_s: float) -> None:
        """One less, but not before then."""
        heappush(self._held, (until_s, network))

    def _free(self, network: str) -> None:
        self._of[network] -= 1
        if not self._of[network]:
            del self._of[network]


class Newcomer:
    """A connection that has not opened yet.

    Attributes:
        network: What counts as its address.
    """

    def __init__(self, half_open: HalfOpen, network: str) -> None:
        self.network = network
        self._half_open: HalfOpen | None = half_open
        self._until_s = 0.0

    def failed(self, until_s: float) -> None:
        """It could not log in: it counts until then, at least."""
        self._until_s = until_s

    def leave(self) -> None:
        """It has opened, or is gone; may be called twice."""
        if self._half_open is not None:
            self._half_open.leave(self.network, self._until_s)
            self._half_open = None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
