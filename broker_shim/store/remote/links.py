"""The calls about links of a store in another process: records, as all its requests are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from broker_shim.completion import OnComplete
from broker_shim.store.remote import records as made
from broker_shim.store.remote.calls import RemoteCalls
from sparkstore.core.link_records import LinkKey

if TYPE_CHECKING:
    from broker_shim.store.interface import TransactionContext


class RemoteLinkCalls:
    """The part of a remote store that keeps links; the service sets the time of its records."""

    _calls: RemoteCalls

    def attach(self, key: LinkKey, detail: Mapping[str, Any], on_complete: OnComplete) -> None:
        """See `LinkCalls.attach`."""
        self._calls.make(on_complete, partial(made.attached, key, detail))

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """See `LinkCalls.detach`."""
        self._calls.make(on_complete, partial(made.detached, key, closed=closed))

    def unsettled(
        self,
        key: LinkKey,
        tag: bytes,
        state: Mapping[str, Any] | None,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """See `LinkCalls.unsettled`."""
        self._calls.make(on_complete, partial(made.unsettled, key, tag, state), transaction)

    def settle(
        self,
        key: LinkKey,
        tags: Sequence[bytes],
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """See `LinkCalls.settle`."""
        self._calls.make(on_complete, partial(made.settled, key, tags), transaction)
