"""The live object at our end of an attached link (one object, not link and endpoint)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from broker_shim.links.terminus import Terminus


class EndpointPlace(NamedTuple):
    """Where a link is attached, by what the caller calls them.

    Attributes:
        connection: Unique among the connections of a broker's life.
        session: Unique within its connection.
    """

    connection: Hashable
    session: Hashable


class LinkEndpoint:
    """One attachment of a link; a later one is another endpoint of the same terminus.

    It is the same for both directions: what differs is who serves it.

    Attributes:
        terminus: What it is attached to; still known when it is not any more.
        place: The connection and the session that it is attached on.
        served_by: For the registry's caller: whoever serves the link.
    """

    __slots__ = ("place", "served_by", "terminus")

    def __init__(self, terminus: Terminus, place: EndpointPlace) -> None:
        self.terminus = terminus
        self.place = place
        self.served_by: Any = None

    @property
    def is_attached(self) -> bool:
        """False once it was detached or stolen, or its session ended."""
        return self.terminus.endpoint is self
