"""The link stores of a broker, over its `BrokerStore`: termini, and unsettled deliveries.

A message store of tier 2 keeps both in its log, one of a lower tier neither: beside a store of tier
1 a broker opens a `JsonLinkStore` (`broker_shim.serve.stores`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import CorruptData, InvalidRequest, StoreError
from broker_shim.links.link_store import LinkStore, NoLinkStore
from broker_shim.links.termini.terminus import DeliveryState
from broker_shim.links.termini.terminus_values import LinkTerms
from broker_shim.links.unsettled_stores import MemoryUnsettledStore, Unsettled, UnsettledStore
from broker_shim.store.interface import BrokerStore
from sparkstore.core.link_records import DETAIL_VERSION, LinkKey, link_text

_log = logging.getLogger(__name__)


class LinkStores(NamedTuple):
    """Where a broker keeps its links."""

    links: LinkStore
    unsettled: UnsettledStore


def link_stores_of(store: BrokerStore) -> LinkStores:
    """The link stores that go with a message store."""
    if store.durability is TerminusDurability.UNSETTLED_STATE:
        return LinkStores(MessageLinkStore(store), MessageUnsettledStore(store))
    return LinkStores(NoLinkStore(), MemoryUnsettledStore())


class MessageLinkStore:
    """A `LinkStore` in the log of a message store; who made that closes it."""

    highest = TerminusDurability.UNSETTLED_STATE

    def __init__(self, store: BrokerStore) -> None:
        self._store = store

    def recover(self) -> Mapping[LinkKey, LinkTerms]:
        """Get the links that the store has; those of a newer form are another member's.

        See `LinkStore`.

        Its links are as good as ours, but say more of a terminus than is known here: no broker
        fails to start on them.
        """
        links = {}
        for key, shown in self._store.recover().links.items():
            try:
                links[key] = LinkTerms.from_json(key.role, shown)
            except CorruptData as reason:
                version = shown.get("version")
                if isinstance(version, int) and version > DETAIL_VERSION:
                    raise
                _log.warning("link %s is left to whoever made it: %s", link_text(key), reason)
        return links

    def attach(self, key: LinkKey, terms: LinkTerms, on_complete: OnComplete) -> None:
        """Have the store keep the termini of a link. See `LinkStore`."""
        self._store.attach(key, terms.as_json(), on_complete)

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """Have the store forget a link that is closed, if it knows it. See `LinkStore`."""
        self._store.detach(key, _unless_unknown(on_complete), closed=closed)

    def close(self) -> None:
        """Do nothing: the message store is closed by its owner."""


class MessageUnsettledStore:
    """An `UnsettledStore` in the log of a message store, likewise."""

    highest = TerminusDurability.UNSETTLED_STATE

    def __init__(self, store: BrokerStore) -> None:
        self._store = store

    def recover(self) -> Unsettled:
        """Get all deliveries that the store remembers. See `UnsettledStore`."""
        return self._store.recover().unsettled

    def unsettled(
        self,
        key: LinkKey,
        tag: bytes,
        state: DeliveryState | None,
        on_complete: OnComplete,
        transaction: Any = None,
    ) -> None:
        """Have the store remember a delivery. See `UnsettledStore`."""
        self._store.unsettled(key, tag, state, on_complete, transaction)

    def settle(
        self, key: LinkKey, tags: Sequence[bytes], on_complete: OnComplete, transaction: Any = None
    ) -> None:
        """Have the store forget deliveries. See `UnsettledStore`."""
        self._store.settle(key, tags, _unless_unknown(on_complete), transaction)

    def close(self) -> None:
        """Do nothing: the message store is closed by its owner."""


def _unless_unknown(on_complete: OnComplete) -> OnComplete:
    """Complete without error where the link is not there any more."""

    def done(error: StoreError | None) -> None:
        on_complete(None if isinstance(error, InvalidRequest) else error)

    return done
