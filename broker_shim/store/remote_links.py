"""The calls about links of a store in another process: records, as all its requests are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest
from broker_shim.store import wiring as definitions
from broker_shim.store.link_ledger import text_of
from broker_shim.store.remote_calls import RemoteCalls
from sparkstore import link_records
from sparkstore.link_records import LinkKey
from sparkstore.records import Kind, Record

if TYPE_CHECKING:
    from broker_shim.store.interface import TransactionContext


class RemoteLinkCalls:
    """The part of a remote store that keeps links; the service sets the time of its records."""

    _calls: RemoteCalls

    def attach(self, key: LinkKey, detail: Mapping[str, Any], on_complete: OnComplete) -> None:
        """See `LinkCalls.attach`."""
        try:
            record = link_records.attached(0, text_of(key), definitions.as_json(detail))
        except InvalidRequest as refusal:
            self._calls.refuse(on_complete, refusal)
        else:
            self._calls.do(record, on_complete)

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """See `LinkCalls.detach`."""
        try:
            record = link_records.detached(0, text_of(key), closed=closed)
        except InvalidRequest as refusal:
            self._calls.refuse(on_complete, refusal)
        else:
            self._calls.do(record, on_complete)

    def unsettled(
        self,
        key: LinkKey,
        tag: bytes,
        state: Mapping[str, Any] | None,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """See `LinkCalls.unsettled`."""
        try:
            told = None if state is None else definitions.as_json(state)
            record = link_records.unsettled(0, text_of(key), tag, told)
        except InvalidRequest as refusal:
            self._calls.refuse(on_complete, refusal, transaction)
        else:
            self._calls.do(record, on_complete, transaction)

    def settle(
        self,
        key: LinkKey,
        tags: Sequence[bytes],
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """See `LinkCalls.settle`."""
        try:
            told = json.dumps([tag.hex() for tag in tags])
            record = Record(Kind.SETTLED, 0, holder=text_of(key), detail=told)
        except InvalidRequest as refusal:
            self._calls.refuse(on_complete, refusal, transaction)
        else:
            self._calls.do(record, on_complete, transaction)
