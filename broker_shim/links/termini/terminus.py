"""Our end of a link: its terms and delivery states; while it is attached, its endpoint.

The terminus lives on between attachments, and an endpoint is one attachment of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from broker_shim.durability import TerminusDurability
from broker_shim.links.termini.owner import owner_of
from broker_shim.links.termini.terminus_expiry import EndedScope, ExpiryPolicy, expires_at_ms
from broker_shim.links.termini.terminus_values import LinkTerms
from sparkstore.core.link_records import LinkKey

DeliveryState = Mapping[str, Any]
"""JSON: {"outcome": "accepted"}."""


class EndpointPlace(NamedTuple):
    """Place where a link is attached, by the caller's names for it.

    Attributes:
        connection: Unique among the connections of a broker's life.
        session: Unique within its connection.
    """

    connection: Hashable
    session: Hashable


class LinkEndpoint:
    """An attachment of a link; a later one is another endpoint of the same terminus.

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
        """False once the link was detached or stolen, or its session ended."""
        return self.terminus.endpoint is self


class Terminus:
    """A source if we are the sender, else a target. Changed by the registry alone, under its lock.

    Attributes:
        key: The identity of the link that this is one end of.
        terms: The terms that were granted; None until the first attach was.
        unsettled: Tag → what is known of the delivery, None if nothing; of the highest tier only.
        endpoint: The endpoint of the link that is attached; None if none is.
        place: Where it is or was attached last; None since the broker started.
        expires_at_ms: When it ends; None while that is not due.
        has_moved: Another broker on the same store has the link now, and all that it holds.
        is_over: True once it was closed, or its time is over: it is not in the registry any more.
    """

    __slots__ = (
        "endpoint",
        "expires_at_ms",
        "has_moved",
        "is_over",
        "key",
        "place",
        "terms",
        "unsettled",
    )

    def __init__(self, key: LinkKey, terms: LinkTerms | None = None) -> None:
        self.key = key
        self.terms = terms
        self.unsettled: dict[bytes, DeliveryState | None] = {}
        self.endpoint: LinkEndpoint | None = None
        self.place: EndpointPlace | None = None
        self.expires_at_ms: int | None = None
        self.is_over = self.has_moved = False

    @property
    def durability(self) -> TerminusDurability:
        """Return the durability that was granted; NONE before it was."""
        return TerminusDurability.NONE if self.terms is None else self.terms.durability

    def associate(self, place: EndpointPlace) -> LinkEndpoint:
        """Make the endpoint of a new attachment; its time does not run any more."""
        assert self.endpoint is None, "dissociate it first"
        self.endpoint = LinkEndpoint(self, place)
        self.place = place
        self.expires_at_ms = None
        return self.endpoint

    def dissociate(self) -> LinkEndpoint | None:
        """Let go of the endpoint, and return it; None if there was none."""
        endpoint, self.endpoint = self.endpoint, None
        return endpoint

    def ended(self, ended: EndedScope, now_ms: int) -> None:
        """Let the terminus's time run, if the end of its attachment starts it, or did before."""
        if self.expires_at_ms is None:
            policy, timeout_s = ExpiryPolicy.LINK_DETACH, 0
            if self.terms is not None:
                policy, timeout_s = self.terms.own.expiry_policy, self.terms.own.timeout_s
            self.expires_at_ms = expires_at_ms(policy, timeout_s, ended, now_ms)


class Termini(dict[LinkKey, Terminus]):
    """Termini by key, counted by whose they are; changed by the ways below and no other."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[str] = Counter()

    def of(self, owner: str) -> int:
        """Count the termini of an owner (`owner_of` a container)."""
        return self._counts[owner]

    def __setitem__(self, key: LinkKey, terminus: Terminus) -> None:
        """Add a terminus, or put it in place of another."""
        self._counts[owner_of(key.remote_container_id)] += key not in self
        super().__setitem__(key, terminus)

    def setdefault(self, key: LinkKey, terminus: Terminus) -> Terminus:
        """Add a terminus, unless there is one, and return the one that there is."""
        if key not in self:
            self[key] = terminus
        return self[key]

    def __delitem__(self, key: LinkKey) -> None:
        """Remove a terminus, and count its owner's."""
        super().__delitem__(key)
        owner = owner_of(key.remote_container_id)
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
