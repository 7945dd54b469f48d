"""`UnsettledStore`: what keeps deliveries that we received and did not settle, over a restart.

What we *sent* and is not settled needs no store of its own: it is what the link acquired of its
queue (`link_text`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.links.termini.terminus import DeliveryState
from sparkstore.core.link_records import LinkKey

Unsettled = Mapping[LinkKey, Mapping[bytes, DeliveryState | None]]


class UnsettledStore(Protocol):
    """Keeps delivery states by link and tag. Completions and threads as with `LinkStore`.

    A link that its `LinkStore` forgets is forgotten here by whoever closes it: `settle` of all.
    """

    @property
    def highest(self) -> TerminusDurability:
        """UNSETTLED_STATE if what the store keeps survives a restart, else NONE."""

    def recover(self) -> Unsettled:
        """Return the unsettled deliveries that are kept; none of its links is without a tag."""

    def unsettled(
        self,
        key: LinkKey,
        tag: bytes,
        state: DeliveryState | None,
        on_complete: OnComplete,
        transaction: Any = None,
    ) -> None:
        """Keep a delivery, or replace its state.

        Args:
            key: The key of its link.
            tag: At most 32 bytes.
            state: JSON; None if nothing is known yet.
            on_complete: Called when it is durable.
            transaction: One of the message store, which has its enqueue, too.
        """

    def settle(
        self, key: LinkKey, tags: Sequence[bytes], on_complete: OnComplete, transaction: Any = None
    ) -> None:
        """Forget deliveries; of those that are not kept nothing is done, successfully."""

    def close(self) -> None:
        """Wait for what is under way, then let go of everything. May be called twice."""


class MemoryUnsettledStore:
    """Keeps delivery states for the life of the process; one thread at a time."""

    highest: TerminusDurability = TerminusDurability.NONE

    def __init__(self) -> None:
        self._kept: dict[LinkKey, dict[bytes, DeliveryState | None]] = {}

    def recover(self) -> Unsettled:
        """Return the unsettled deliveries that are in memory."""
        return {key: dict(tags) for key, tags in self._kept.items()}

    def unsettled(
        self,
        key: LinkKey,
        tag: bytes,
        state: DeliveryState | None,
        on_complete: OnComplete,
        transaction: Any = None,  # noqa: ARG002  # it holds at once, as nothing is durable
    ) -> None:
        """Keep a delivery's state in memory, and complete at once."""
        self._kept.setdefault(key, {})[tag] = state
        on_complete(None)

    def settle(
        self,
        key: LinkKey,
        tags: Sequence[bytes],
        on_complete: OnComplete,
        transaction: Any = None,  # noqa: ARG002
    ) -> None:
        """Drop deliveries from memory, and complete at once."""
        kept = self._kept.get(key, {})
        for tag in tags:
            kept.pop(tag, None)
        if not kept:
            self._kept.pop(key, None)
        on_complete(None)

    def close(self) -> None:
        """Close nothing, as the store is memory alone."""
