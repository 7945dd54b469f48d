"""The xids of branches that have begun, and where, so that each is begun once.

What a branch does is with the broker where its sessions work, until it is prepared. So of two that
begin one xid both could commit in one phase. Where several brokers are members of one service, its
broker knows who has begun which; a member that is connected anew says all of its own again. Until a
member is given up, what it has begun is begun, also while it says that again (`says_again`). So
nobody else begins a branch between its old word and its new one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest
from broker_shim.store.branch_store import Xid
from sparkstore.core.xids import xid_text

_HERE = ""
"""Message of what clients of this broker have begun; no member has this name."""


class XidDecider(Protocol):
    """The broker that knows the begun xids of several brokers."""

    def claim_xid(self, xid: Xid, on_done: OnComplete) -> None:
        """Reserve an xid for a branch that is about to begin. See `XidClaims.claim`."""

    def release_xid(self, xid: Xid) -> None:
        """Give back an xid whose branch is prepared, or over. See `XidClaims.release`."""


class XidClaims:
    """The xids of branches that have begun, and where. On the loop's thread only.

    Attributes:
        decider: Who knows what others have begun, if another broker does.
        on_lost: Called if another broker has begun an xid of this one, which it was not told of.
    """

    def __init__(self) -> None:
        self.decider: XidDecider | None = None
        self.on_lost: Callable[[Xid], None] = _nothing
        self._owners: dict[Xid, Hashable] = {}
        self._of_owner: dict[Hashable, dict[Xid, None]] = {}
        self._unsaid: dict[Hashable, set[Xid]] = {}

    def claim(self, xid: Xid, on_done: OnComplete) -> None:
        """Reserve an xid for a client of this broker, before the store is asked for it.

        Args:
            xid: The branch's name, which no other client of this broker has begun.
            on_done: Told, now or later, an InvalidRequest if it was begun elsewhere.
        """
        if self.decider is not None:
            self.decider.claim_xid(xid, on_done)
            return
        try:
            self.take(xid, _HERE)
        except InvalidRequest as refusal:
            on_done(refusal)
        else:
            on_done(None)

    def release(self, xid: Xid) -> None:
        """Free the xid of a branch of this broker that is prepared, or over."""
        if self.decider is not None:
            self.decider.release_xid(xid)
        else:
            self.let_go(xid, _HERE)

    def take(self, xid: Xid, owner: Hashable) -> None:
        """Reserve an xid for a broker; again changes nothing.

        Raises:
            InvalidRequest: Another one has.
        """
        if self._owners.setdefault(xid, owner) != owner:
            message = f"xid {xid_text(xid)} was begun at another broker: give another"
            raise InvalidRequest(message)
        self._of_owner.setdefault(owner, {})[xid] = None
        self._unsaid.get(owner, set()).discard(xid)

    def let_go(self, xid: Xid, owner: Hashable) -> None:
        """Free the xid of a broker's branch that is prepared, or over."""
        if self._owners.get(xid) == owner:
            del self._owners[xid]
            self._of_owner[owner].pop(xid)

    def says_again(self, owner: Hashable) -> None:
        """Expect a broker to say all of its xids again."""
        self._unsaid[owner] = {*self._of_owner.get(owner, ())}

    def has_said_all(self, owner: Hashable) -> None:
        """Free the xids that a broker has not said again."""
        for xid in self._unsaid.pop(owner, ()):
            self.let_go(xid, owner)

    def gone(self, owner: Hashable) -> None:
        """Free all xids of a broker that is given up."""
        self._unsaid.pop(owner, None)
        for xid in self._of_owner.pop(owner, ()):
            del self._owners[xid]


def _nothing(_xid: Xid) -> None:
    """Do nothing about a lost xid, as no branches are begun here."""
