"""Decide how long a failed login waits for its answer.

Pure: times are arguments, of a clock that rises.

The answer to the first failure of an address waits half a second, to each further one twice as
long, at most 8 s (less than a handshake may take). A minute without a failure forgives; a success
does not, or whoever has one account could try others' at will. Only the failing connection waits:
whoever knows its password is let in at once, from the same address, too. What limits the rest is
how many may wait at a time: who hangs up meanwhile goes on to count as waiting (`limits`).
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 8.0
FORGIVEN_AFTER_S = 60.0
MOST_NAMES_OF_ADDRESS = 64
_MOST_ADDRESSES = _MOST_NAMES = 10_000
_NETWORK_BITS = 64
"""Of an IPv6 address; whoever has one of its network has them all."""


class FailedLogins:
    """Failures by address: the latest of 10,000 addresses are remembered."""

    def __init__(self, first_delay_s: float = FIRST_DELAY_S) -> None:
        self._first_delay_s = first_delay_s
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def failed(self, host: str, now_s: float) -> float:
        """Count a failed login; return how long its answer has to wait, in seconds.

        Args:
            host: The peer's address as a number, without its port.
            now_s: The time of the failure, in seconds of a clock that only rises.
        """
        key = network_of(host)
        count, last_s = self._failures.pop(key, (0, now_s))
        if now_s - last_s >= FORGIVEN_AFTER_S:
            count = 0
        if len(self._failures) >= _MOST_ADDRESSES:
            self._failures.popitem(last=False)
        self._failures[key] = (count + 1, now_s)
        return float(min(LONGEST_DELAY_S, self._first_delay_s * 2 ** min(count, 32)))


class WaitingNames:
    """Names that may not try again yet, by the address that failed with them.

    Where a failed login is answered at once, as over HTTP, its name waits at that address: who
    guesses one user's password does not keep the other users of the address out. A name is one
    whether there is such a user or not. Each name is a look at a password, which costs 4 ms, so an
    address that has 64 waiting gets no further look, at any name: 8 looks a second, once it has
    failed often. The latest 10,000 names are remembered, as hashes of 8 bytes.
    """

    def __init__(self) -> None:
        self._until_s: OrderedDict[tuple[str, int], float] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def failed(self, host: str, name: str, until_s: float) -> None:
        """Have a name of an address wait until a moment."""
        key = network_of(host), hash(name)
        if key not in self._until_s:
            self._counts[key[0]] += 1
        self._until_s[key] = until_s
        self._until_s.move_to_end(key)
        if len(self._until_s) > _MOST_NAMES:
            self._forget_first()

    def left_s(self, host: str, name: str, now_s: float) -> float:
        """Return how long a name of an address has to wait, in seconds; 0 if it may try."""
        while self._until_s and next(iter(self._until_s.values())) <= now_s:
            self._forget_first()
        network = network_of(host)
        left_s = self._until_s.get((network, hash(name)), now_s) - now_s
        has_too_many = self._counts.get(network, 0) >= MOST_NAMES_OF_ADDRESS
        return max(left_s, FIRST_DELAY_S if has_too_many else 0.0)

    def _forget_first(self) -> None:
        (network, _name), _until_s = self._until_s.popitem(last=False)
        self._counts[network] -= 1
        if not self._counts[network]:
            del self._counts[network]


def network_of(host: str) -> str:
    """Return the network that counts as one peer: an IPv4 address or an IPv6 network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))


def is_loopback(host: str) -> bool:
    """True if an address as a number is this machine's own: everybody here shares it."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
