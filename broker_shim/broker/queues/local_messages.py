"""Queues that do not get the messages of their own subscriber ("no-local"). Pure.

    asked by                      whose messages are not routed there
    a subscription (AMQP 1.0)     those of its connection
    one that outlives its link    those of every connection of its container (JMS: its client id)
    an exclusive queue (0-10)     those of the connection whose session has the queue alone

What is not routed to a queue waits nowhere. Only the broker that has a connection can know what is
local to it; a container is named in the definition of the queue, which all members know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Origin(NamedTuple):
    """Where a message comes from.

    Attributes:
        connection: The number of its connection.
        container: The container of that, as the broker knows it; None: its protocol has none.
    """

    connection: int
    container: str | None = None


class NoLocal(NamedTuple):
    """The senders whose messages a queue is not to have.

    Attributes:
        connection: Those of this connection; None: of none.
        container: Those of every connection of this container; None: of none.
        of_claim: Those of the connection that has the queue to itself.
    """

    connection: int | None = None
    container: str | None = None
    of_claim: bool = False


class AskedClaims(Protocol):
    """The queues that a session has to itself."""

    def is_of_connection(self, queue: str, connection: int) -> bool:
        """Whether a queue is a session's alone that is on this connection."""


class FilteringQueue(Protocol):
    """A queue, as far as it says whose messages it is not to have."""

    @property
    def no_local(self) -> NoLocal | None:
        """The senders whose messages the queue does not get; None: it gets all."""


def without_local(
    queues: Mapping[str, FilteringQueue], claims: AskedClaims, names: set[str], origin: Origin
) -> set[str]:
    """Leave out the queues that are not to have this sender's messages.

    A message that only such queues would get is taken, and is on none: as one that no subscription
    selects.
    """
    local = [name for name in names if _is_local(queues.get(name), claims, name, origin)]
    return names.difference(local) if local else names


def _is_local(queue: FilteringQueue | None, claims: AskedClaims, name: str, origin: Origin) -> bool:
    kept_out = None if queue is None else queue.no_local
    if kept_out is None:
        return False
    if kept_out.of_claim:
        return claims.is_of_connection(name, origin.connection)
    if kept_out.container is not None:
        return kept_out.container == origin.container
    return kept_out.connection == origin.connection
