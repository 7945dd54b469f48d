"""The calls about links of a store that decides in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from broker_shim.completion import OnComplete
from sparkstore.core.link_records import LinkKey
from sparkstore.core.state_machine import transactions
from sparkstore.core.state_machine.state_machine import StoreStateMachine

if TYPE_CHECKING:
    from broker_shim.store.interface import TransactionContext


class LocalLinkCalls:
    """The part of a store that keeps links: its state machine decides now, or at a commit."""

    _machine: StoreStateMachine
    _decide: Callable[..., None]
    _later: Callable[..., None]

    def attach(self, key: LinkKey, detail: Mapping[str, Any], on_complete: OnComplete) -> None:
        """See `LinkCalls.attach`."""
        self._decide(on_complete, self._machine.attach, key, detail)

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """See `LinkCalls.detach`."""
        self._decide(on_complete, partial(self._machine.detach, closed=closed), key)

    def unsettled(
        self,
        key: LinkKey,
        tag: bytes,
        state: Mapping[str, Any] | None,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """See `LinkCalls.unsettled`."""
        if transaction is None:
            self._decide(on_complete, self._machine.unsettled, key, tag, state)
        else:
            self._later(on_complete, transactions.unsettled, transaction, key, tag, state)

    def settle(
        self,
        key: LinkKey,
        tags: Sequence[bytes],
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """See `LinkCalls.settle`."""
        if transaction is None:
            self._decide(on_complete, self._machine.settle, key, tags)
        else:
            self._later(on_complete, transactions.settle, transaction, key, tags)
