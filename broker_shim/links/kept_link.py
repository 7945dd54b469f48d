"""Hold a link as other brokers on the same store left it, for the broker it is attached to next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from broker_shim.errors import StoreError


class KeptLink(NamedTuple):
    """A link as the store service has it.

    Attributes:
        detail: Its termini, as `LinkTerms.as_json`; None: there is no such link.
        unsettled: Its deliveries with their states, by tag.
        held: (queue, message id) of what it has acquired.
    """

    detail: Mapping[str, Any] | None
    unsettled: Mapping[bytes, Any]
    held: Sequence[tuple[str, int]]


OnLink = Callable[[StoreError | None, KeptLink | None], None]


class LinkSource(Protocol):
    """Source of links that other brokers on the same store had."""

    def fetch(self, text: str, on_found: OnLink) -> None:
        """Ask for a link by its text; `on_found` later, on the loop's thread."""
