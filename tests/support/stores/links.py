"""Link stores for tests: how each is opened and reopened; links by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed
from broker_shim.links import (
    ExpiryPolicy,
    LinkKey,
    LinkStore,
    LinkTerms,
    MemoryUnsettledStore,
    NoLinkStore,
    Role,
    Source,
    Target,
    UnsettledStore,
)
from broker_shim.links.termini.terminus import DeliveryState
from broker_shim.links.unsettled_stores import Unsettled
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.json.json_link_store import JsonLinkStore
from broker_shim.store.link_stores import MessageLinkStore, MessageUnsettledStore
from tests.support.stores.stores import DELTA_CONFIG, done


def sender(name: str, container: str = "c") -> LinkKey:
    """A link on which we send."""
    return LinkKey(container, name, Role.SENDER)


def receiver(name: str, container: str = "c") -> LinkKey:
    """A link on which we receive."""
    return LinkKey(container, name, Role.RECEIVER)


def terms(
    role: str = Role.SENDER,
    durability: int = 1,
    policy: str = ExpiryPolicy.NEVER,
    timeout_s: int = 0,
    **fields: Any,
) -> LinkTerms:
    """What was granted to a link whose own end is so; the other end is an empty one."""
    own = {
        "durability": TerminusDurability(durability),
        "expiry_policy": ExpiryPolicy(policy),
        "timeout_s": timeout_s,
        **fields,
    }
    if role == Role.SENDER:
        return LinkTerms(Role.SENDER, Source(**own), Target())
    return LinkTerms(Role.RECEIVER, Source(), Target(**own))


class KeptLinks:
    """A `LinkStore` of tier 2 whose memory, `kept`, outlives it. A verified fake: see contract."""

    highest = TerminusDurability.UNSETTLED_STATE

    def __init__(self, kept: dict[LinkKey, LinkTerms]) -> None:
        self._kept = kept
        self._is_closed = False

    def recover(self) -> dict[LinkKey, LinkTerms]:
        """What is kept now."""
        self._check_open()
        return dict(self._kept)

    def attach(self, key: LinkKey, terms: LinkTerms, on_complete: OnComplete) -> None:
        """Complete at once."""
        self._check_open()
        self._kept[key] = terms
        on_complete(None)

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """Complete at once."""
        self._check_open()
        if closed:
            self._kept.pop(key, None)
        on_complete(None)

    def close(self) -> None:
        """Its memory stays."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("closed")


class KeptDeliveries(MemoryUnsettledStore):
    """An `UnsettledStore` of tier 2 whose memory outlives it, likewise."""

    highest = TerminusDurability.UNSETTLED_STATE

    def __init__(self, kept: dict[LinkKey, dict[bytes, DeliveryState | None]]) -> None:
        super().__init__()
        self._kept = kept


class PromptLinks:
    """A `LinkStore` each of whose calls has completed when it returns."""

    def __init__(self, inner: LinkStore) -> None:
        self._inner = inner
        self.highest = inner.highest

    def recover(self) -> Mapping[LinkKey, LinkTerms]:
        """What is kept now."""
        return self._inner.recover()

    def attach(self, key: LinkKey, terms: LinkTerms, on_complete: OnComplete) -> None:
        """Keep a terminus."""
        done(self._inner.attach, key, terms)
        on_complete(None)

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """Keep that it is detached."""
        done(self._inner.detach, key, closed=closed)
        on_complete(None)

    def close(self) -> None:
        """Close the store within."""
        self._inner.close()


class PromptDeliveries:
    """An `UnsettledStore` each of whose calls has completed when it returns."""

    def __init__(self, inner: UnsettledStore) -> None:
        self._inner = inner
        self.highest = inner.highest

    def recover(self) -> Unsettled:
        """What is kept now."""
        return self._inner.recover()

    def unsettled(
        self,
        key: LinkKey,
        tag: bytes,
        state: DeliveryState | None,
        on_complete: OnComplete,
        transaction: Any = None,
    ) -> None:
        """Keep a delivery."""
        done(self._inner.unsettled, key, tag, state, transaction=transaction)
        on_complete(None)

    def settle(
        self, key: LinkKey, tags: Sequence[bytes], on_complete: OnComplete, transaction: Any = None
    ) -> None:
        """Forget deliveries."""
        done(self._inner.settle, key, tags, transaction=transaction)
        on_complete(None)

    def close(self) -> None:
        """Close the store within."""
        self._inner.close()


class _DeltaLinks(MessageLinkStore):
    """That of a Delta message store of its own."""

    def __init__(self, folder: Path) -> None:
        self._delta = DeltaMessageStore(folder, DELTA_CONFIG)
        super().__init__(self._delta)

    def close(self) -> None:
        self._delta.close()


class _DeltaDeliveries(MessageUnsettledStore):
    """That of a Delta message store of its own, which has the links that tests speak of."""

    def __init__(self, folder: Path) -> None:
        self._delta = DeltaMessageStore(folder, DELTA_CONFIG)
        super().__init__(self._delta)
        links = MessageLinkStore(self._delta)
        for name in ("a", "b"):
            done(links.attach, receiver(name), terms(Role.RECEIVER, 2))

    def close(self) -> None:
        self._delta.close()


_LINKS: dict[Path, dict[LinkKey, LinkTerms]] = {}
_DELIVERIES: dict[Path, dict[LinkKey, dict[bytes, DeliveryState | None]]] = {}

LINK_STORES: dict[str, Callable[[Path], LinkStore]] = {
    "none": lambda _folder: NoLinkStore(),
    "delta": _DeltaLinks,
    "kept": lambda folder: KeptLinks(_LINKS.setdefault(folder, {})),
    "json": lambda folder: JsonLinkStore(folder / "links.json"),
}
"""How each `LinkStore` is opened on a folder of its own; opened again it is the same store."""

UNSETTLED_STORES: dict[str, Callable[[Path], UnsettledStore]] = {
    "delta": _DeltaDeliveries,
    "kept": lambda folder: KeptDeliveries(_DELIVERIES.setdefault(folder, {})),
    "memory": lambda _folder: MemoryUnsettledStore(),
}
"""How each `UnsettledStore` is opened, likewise."""
