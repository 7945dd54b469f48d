"""Link stores for tests: how each is opened and reopened; links by name."""

from __future__ import annotations

from collections.abc import Callable
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
from broker_shim.links.terminus import DeliveryState
from broker_shim.store.json_links import JsonLinkStore


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


_LINKS: dict[Path, dict[LinkKey, LinkTerms]] = {}
_DELIVERIES: dict[Path, dict[LinkKey, dict[bytes, DeliveryState | None]]] = {}

LINK_STORES: dict[str, Callable[[Path], LinkStore]] = {
    "none": lambda _folder: NoLinkStore(),
    "kept": lambda folder: KeptLinks(_LINKS.setdefault(folder, {})),
    "json": lambda folder: JsonLinkStore(folder / "links.json"),
}
"""How each `LinkStore` is opened on a folder of its own; opened again it is the same store."""

UNSETTLED_STORES: dict[str, Callable[[Path], UnsettledStore]] = {
    "kept": lambda folder: KeptDeliveries(_DELIVERIES.setdefault(folder, {})),
    "memory": lambda _folder: MemoryUnsettledStore(),
}
"""How each `UnsettledStore` is opened, likewise."""


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
