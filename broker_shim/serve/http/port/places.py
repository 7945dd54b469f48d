"""Decide who may be connected to the HTTP port, and who gives way to another.

Whoever waits for its peer (a handshake, a head, a body, an answer that is not read) can give way:
the oldest of them does where there is no room. So a newcomer always finds a place while anybody
waits, and an honest one is answered before it is among the oldest. A probe gives way, too, as it
has its place for a moment only. What the broker works at stays, and requests have half as many
places as connections. So silent, slow and greedy peers, however many, keep no probe out.

An address has a quarter of the places, and of the requests. This machine has all of them, as at the
listener of AMQP: one address is everybody there, a console, its proxy and the monitor.

What the port holds in memory is bodies, and answers that are not read. They are counted: beyond
`MOST_HELD_BYTES` the one of which something is held for longest, and that waits, is cut off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from broker_shim.security.rules.attempts import is_loopback, network_of
from broker_shim.sockets.descriptors import SCARCE

MOST_HELD_BYTES = 32 << 20


class Places:
    """The places of one port; on its thread only."""

    def __init__(self, most: int, most_held_bytes: int = MOST_HELD_BYTES) -> None:
        """Begin with nobody; there are `most` places, for what is held in memory this room."""
        self.most, self._most_held_bytes = most, most_held_bytes
        self._of: Counter[str] = Counter()
        self._requests_of: Counter[str] = Counter()
        self._places: set[Place] = set()
        self._oldest_first: dict[Place, None] = {}
        self._held: dict[Place, int] = {}

    @property
    def count(self) -> int:
        """Connections that are there."""
        return len(self._places)

    @property
    def request_count(self) -> int:
        """Requests that are being answered, also of peers that are gone."""
        return self._requests_of.total()

    def refusal_of_newcomer(self, host: str, *, is_full: bool = False) -> str | None:
        """Return why a connection is one too many; None if it is not.

        It has a place all the same where `make_room` finds one.

        Args:
            host: The address of its peer, as a number.
            is_full: True if no file descriptor is left for it.
        """
        of_address = self._of[network_of(host)]
        if self.count >= self.most:
            return f"{self.count} connections are open"
        if of_address >= _share(host, self.most):
            return f"{of_address} connections of this address are open"
        return SCARCE if is_full else None

    def make_room(self, host: str) -> bool:
        """Have the oldest that waits give way to a connection; False if none waits."""
        network = network_of(host)
        is_own = self._of[network] >= _share(host, self.most)
        return self._gives_way(lambda place: place.network == network or not is_own)

    def enter(self, host: str) -> Place:
        """Count a connection, which waits for its peer."""
        place = Place(self, host)
        self._of[place.network] += 1
        self._places.add(place)
        self._oldest_first[place] = None
        return place

    def end_all(self, *, that_wait: bool = False) -> None:
        """End every connection, or those that wait for their peers."""
        for place in [*(self._oldest_first if that_wait else self._places)]:
            place.give_way()

    def begin(self, place: Place) -> bool:
        """Count a request, to be ended by `end`; False if there are too many already.

        One whose peer sends its body slowly, or does not read its answer, gives way.
        """
        most, network = max(1, self.most // 2), place.network
        is_own = self._requests_of[network] >= _share(place.host, most)
        if (is_own or self.request_count >= most) and not self._gives_way(
            lambda other: other.is_asking and (other.network == network or not is_own)
        ):
            return False
        self._requests_of[network] += 1
        return True

    def end(self, place: Place) -> None:
        """Count a request less, as it was answered, or whoever asked is gone."""
        _one_less(self._requests_of, place.network)

    def holds(self, place: Place, byte_count: int) -> None:
        """Note how much of a body, or of an answer, is in memory for a place."""
        if not byte_count:
            self._held.pop(place, None)
            return
        self._held[place] = byte_count
        while sum(self._held.values()) > self._most_held_bytes:
            longest = next((held for held in self._held if held in self._oldest_first), None)
            if longest is None:
                return
            longest.give_way()

    def waits(self, place: Place) -> None:
        """Note that a place waits for its peer, the newest of all that do."""
        self.works(place)
        self._oldest_first[place] = None

    def works(self, place: Place) -> None:
        """Note that the broker works for a place, which does not give way meanwhile."""
        self._oldest_first.pop(place, None)

    def leave(self, place: Place) -> None:
        """Count a connection less."""
        self.works(place)
        self._held.pop(place, None)
        self._places.discard(place)
        _one_less(self._of, place.network)

    def _gives_way(self, may: Callable[[Place], bool]) -> bool:
        oldest = next(filter(may, self._oldest_first), None)
        if oldest is not None:
            oldest.give_way()
        return oldest is not None


class Place:
    """The place of one connection.

    Attributes:
        host: The address of its peer, as a number.
        network: What counts as that address.
        is_asking: True while its request is being answered, unless that is a probe.
        on_give_way: Ends the connection, as another one needs its place.
    """

    __slots__ = ("_places", "host", "is_asking", "network", "on_give_way")

    def __init__(self, places: Places, host: str) -> None:
        self.host, self.network = host, network_of(host)
        self.is_asking = False
        self.on_give_way: Callable[[], None] = _stay
        self._places: Places | None = places

    def holds(self, byte_count: int) -> None:
        """Hold so much of a body or of an answer in memory."""
        if self._places is not None:
            self._places.holds(self, byte_count)

    def waits(self) -> None:
        """Wait for the peer, and give way meanwhile."""
        if self._places is not None:
            self._places.waits(self)

    def works(self) -> None:
        """Work for the peer, and give way to nobody."""
        if self._places is not None:
            self._places.works(self)

    def give_way(self) -> None:
        """End the connection, as another one needs its place."""
        give_way = self.on_give_way
        self.leave()
        give_way()

    def leave(self) -> None:
        """Give the place back; may be called twice."""
        places, self._places = self._places, None
        self.on_give_way = _stay  # what ends it holds all of it
        if places is not None:
            places.leave(self)


def _stay() -> None:
    """End nothing, as a connection that left has no socket."""


def _share(host: str, most: int) -> int:
    """Return how many of `most` one address may have."""
    return most if is_loopback(host) else max(1, most // 4)


def _one_less(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
