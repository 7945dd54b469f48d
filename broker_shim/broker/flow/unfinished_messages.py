"""The memory of messages that have not come whole: of a link, a connection, and in all.

Where it is too much in all, the client that has the most gives it up, and not who came last. So a
client that begins messages and never ends them does not keep others from sending. On the loop's
thread only.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from broker_shim.broker.settings import BrokerSettings


class UnfinishedLink(Protocol):
    """A link on which messages come."""

    def give_up_unfinished(self, reason: str) -> None:
        """End the link, and let go of what has not come whole."""


class Unfinished:
    """The bytes of unfinished messages, by connection and link.

    Attributes:
        total_bytes: Bytes that wait, of all connections together.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        most = settings.max_message_bytes
        self._most = max(settings.max_unfinished_bytes, most)
        self._most_in_all = max(settings.max_unfinished_bytes_in_all, most)
        self.total_bytes = 0
        self._of: dict[Hashable, dict[UnfinishedLink, int]] = {}
        self._sums: dict[Hashable, int] = {}

    def hold(self, connection: Hashable, link: UnfinishedLink, byte_count: int) -> int:
        """Count what waits of a link, and return what its connection has with that."""
        links = self._of.setdefault(connection, {})
        more = byte_count - links.get(link, 0)
        self.total_bytes += more
        self._sums[connection] = total = self._sums.get(connection, 0) + more
        if byte_count:
            links[link] = byte_count
        else:
            links.pop(link, None)
        if not links:
            del self._of[connection], self._sums[connection]
        return total

    def limit(self, connection: Hashable, link: UnfinishedLink, byte_count: int) -> None:
        """Count bytes as `hold` does; if that is too much, a link gives up what it has.

        It is this link, or the one with the most.
        """
        of_connection = self.hold(connection, link, byte_count)
        if of_connection > self._most:
            text = f"of this connection that are not whole: {self._most} bytes is most"
            link.give_up_unfinished(text)
        elif self.total_bytes > self._most_in_all:
            text = f"of all connections that are not whole: {self._most_in_all} bytes is most"
            self.largest().give_up_unfinished(text)

    def largest(self) -> UnfinishedLink:
        """The link with the most of the connection that has the most; there is one."""
        connection = max(self._sums, key=self._sums.__getitem__)
        links = self._of[connection]
        return max(links, key=links.__getitem__)
