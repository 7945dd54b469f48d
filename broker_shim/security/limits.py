"""How many at a time: connections of each user, half-open ones of each address. Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable

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


def refusal_of_newcomer(
    host: str, others: Iterable[tuple[str, bool]], *, most: int, most_half_open: int
) -> str | None:
    """Why a connection is one too many; None if it is not.

    Who never logs in cannot keep others out for long: half-open connections have a limit of their
    own, below that of all, and of it each address of another machine has a quarter.

    Args:
        host: Where it comes from, as a number.
        others: For each connection there is: where it comes from, and whether it is half-open.
        most: Connections in all.
        most_half_open: Those of them that have not opened yet.
    """
    count = half_open = of_address = 0
    network = network_of(host)
    for other, is_half_open in others:
        count += 1
        if is_half_open:
            half_open += 1
            of_address += network_of(other) == network
    if count >= most:
        return f"{count} connections are open"
    if half_open >= most_half_open:
        return f"{half_open} connections are half-open"
    if of_address >= max(1, most_half_open // 4) and not _is_loopback(host):
        return f"{of_address} connections of this address are half-open"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
