"""What a message store should do about links, in plain dicts: the links' part of `model`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import LinkKey

State = dict[str, Any] | None


@dataclass
class ModelLink:
    """A link: what `attach` was told last, and what it remembers."""

    detail: dict[str, Any]
    unsettled: dict[bytes, State] = field(default_factory=dict)


class ModelLinks:
    """The links of a store that keeps them at most at `tier`."""

    def __init__(self, tier: int) -> None:
        self.tier = tier
        self.links: dict[LinkKey, ModelLink] = {}

    def attach(self, key: LinkKey, detail: dict[str, Any]) -> None:
        there = self.links.setdefault(key, ModelLink(detail))
        if self._granted(there.detail) != self._granted(detail):
            there.unsettled.clear()
        there.detail = detail

    def detach(self, key: LinkKey, *, closed: bool) -> None:
        self.check(key)
        if closed:
            del self.links[key]

    def check(self, key: LinkKey) -> None:
        if key not in self.links:
            raise InvalidRequest

    def unsettled(self, key: LinkKey, tag: bytes, state: State) -> Callable[[], None]:
        """What a call does, now or at the commit, if the link is there still."""
        self.check(key)

        def remember() -> None:
            if key in self.links:
                self.links[key].unsettled[tag] = state

        return remember

    def settle(self, key: LinkKey, tags: list[bytes]) -> Callable[[], None]:
        """As `unsettled`."""
        self.check(key)

        def forget() -> None:
            for tag in tags:
                if key in self.links:
                    self.links[key].unsettled.pop(tag, None)

        return forget

    def restart(self) -> None:
        """What is left."""
        self.links = {key: link for key, link in self.links.items() if self._granted(link.detail)}
        for link in self.links.values():
            if self._granted(link.detail) < 2:
                link.unsettled.clear()

    def _granted(self, detail: dict[str, Any]) -> int:
        return min(int(detail["durability"]), self.tier)
